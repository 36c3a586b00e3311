//! `cinnabar cache resize`: another size of a running daemon's cache.

use crate::cli::client::Daemon;
use cinnabar_config::status::report::{CacheReport, StatusReport};
use cinnabar_control::actions::ResizeInput;
use cinnabar_text::cli::output;
use cinnabar_text::cli::progress::Progress;
use cinnabar_text::{Failure, parse_size, show_size};
use hyper::Method;
use std::time::Duration;

/// How often it is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// `cache resize`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "What is cached stays, as far as it fits; volumes are served all the time. The \
    cache can't become larger than its device was made for: size_max of the configuration. If the \
    configuration has a size, that counts again from the next start on: change it, too. (On a block \
    device it counts beside size_max only.)\n\n\
    Examples:\n  \
    cinnabar cache resize 16GiB\n  \
    cinnabar cache resize 512MiB --no-wait --json"
)]
pub(super) struct Args {
    /// The new size, such as 16GiB
    size: String,
    /// Don't wait for its end: `cinnabar status` says how far it is [default: wait]
    #[arg(long)]
    no_wait: bool,
    /// Print the cache's part of the status as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    parse_size(&args.size).map_err(|(message, hint)| Failure::of_usage(message, hint))?;
    let input = ResizeInput { size: args.size.clone() };
    let mut cache: CacheReport = args.daemon.send(Method::POST, "/v1/cache/resize", &input)?;
    let wanted = cache.resizing.map_or(cache.size_bytes, |resizing| resizing.to_bytes);
    let mut line = Progress::new();
    while let Some(resizing) = cache.resizing.filter(|_| !args.no_wait) {
        if resizing.to_bytes != wanted {
            let message = format!("a resize to {} took its place", show_size(resizing.to_bytes));
            return Err(Failure::at_run_time(message, "`cinnabar status` says how far that is"));
        }
        let (done, of) = (resizing.segments_done, resizing.segments);
        line.show(|| format!("{done} of {of} segments"));
        std::thread::sleep(LOOK_EVERY);
        cache = args.daemon.get::<StatusReport>("/v1/status")?.cache;
    }
    drop(line);
    if !args.no_wait {
        check(&cache, wanted)?;
    }
    if args.json { output::json(&cache) } else { output::text(&told(&cache)) }
}

/// Whether it has come to a good end: a cache of that size.
fn check(cache: &CacheReport, wanted: u64) -> Result<(), Failure> {
    let size = show_size(cache.size_bytes);
    if cache.size_bytes == 0 {
        let why = [&cache.resize_failed, &cache.reason].into_iter().find(|why| !why.is_empty());
        let why = why.map_or("no cache device is in use", String::as_str);
        return Err(Failure::at_run_time(why.to_owned(), "`cinnabar status` says how it is now"));
    }
    if !cache.resize_failed.is_empty() {
        let hint = format!("the cache has the size it had before: {size}");
        return Err(Failure::at_run_time(cache.resize_failed.clone(), hint));
    }
    if cache.size_bytes != wanted {
        let message = format!("the size is {size}, not {}", show_size(wanted));
        let hint = "another resize took its place, or the daemon was restarted: see its log";
        return Err(Failure::at_run_time(message, hint));
    }
    Ok(())
}

fn told(cache: &CacheReport) -> String {
    match cache.resizing {
        Some(resizing) => format!(
            "{}: being resized from {} to {}\n",
            cache.device,
            show_size(cache.size_bytes),
            show_size(resizing.to_bytes)
        ),
        None => format!(
            "{}: {}, of at most {}\n",
            cache.device,
            show_size(cache.size_bytes),
            show_size(cache.size_max_bytes)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::sample;

    #[test]
    fn what_did_not_come_to_a_good_end_is_no_success() {
        let ended = |size_bytes: u64, failed: &str| {
            let mut cache = StatusReport::new(&sample(1)).cache;
            (cache.size_bytes, cache.resize_failed) = (size_bytes, failed.to_owned());
            check(&cache, 16 << 30).map_err(|failure| format!("{failure:?}"))
        };
        assert_eq!(ended(16 << 30, ""), Ok(()));
        for (size, failed, told) in [
            (0, "resizing the cache: input/output error", "input/output error"),
            (0, "", "the SSD is gone"),
            (8 << 30, "its file system has no room for 16.0 GiB", "no room"),
            (8 << 30, "", "the size is 8.0 GiB, not 16.0 GiB"),
        ] {
            let failure = ended(size, failed).expect_err("it is another size");
            assert!(failure.contains(told), "{failure}");
        }
    }
}
