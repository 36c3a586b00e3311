//! `cinnabar cache resize`: another size of a running daemon's cache.

use crate::cli::client::Daemon;
use crate::cli::output;
use crate::cli::progress::Progress;
use cinnabar_control::actions::ResizeInput;
use cinnabar_status::report::{CacheReport, StatusReport};
use cinnabar_text::{Failure, parse_size, show_size};
use hyper::Method;
use std::time::Duration;

/// How often it is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// `cache resize`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "What is cached stays, as far as it fits; volumes are served all the time. The \
    cache can't become larger than its device was made for: size_max of the configuration. The \
    configured size counts again from the next start on: change it, too.\n\n\
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
    if !args.no_wait && !cache.resize_failed.is_empty() {
        let hint = "the cache has the size it had before";
        return Err(Failure::at_run_time(cache.resize_failed, hint));
    }
    if args.json { output::json(&cache) } else { output::text(&told(&cache)) }
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
