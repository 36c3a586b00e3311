//! `cinnabar cache replace` and `abandon`: what an operator does when the SSD of a running daemon
//! fails.

use crate::cli::client::Daemon;
use cinnabar_config::status::report::{CacheReport, HealthReport};
use cinnabar_control::actions::ReplaceInput;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use cinnabar_text::{parse_size, show_size};
use hyper::Method;
use std::path::PathBuf;

/// `cache replace`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Volumes are served all the time: they pass through until the new device \
    is in use, which starts empty. The configuration still names the old one, and its size: change \
    both, too.\n\n\
    Examples:\n  \
    cinnabar cache replace /dev/disk/by-id/nvme-new\n  \
    cinnabar cache replace /var/lib/cinnabar/new.img --size 64GiB\n  \
    cinnabar cache replace /dev/nvme1n1 --format")]
pub(in crate::cli) struct ReplaceArgs {
    /// The new cache device: a block device, or a file
    device: PathBuf,
    /// Size of a file that is to be made [default: the device's own]
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// Format it even if it holds something, which is lost [default: refuse]
    #[arg(long)]
    format: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// `cache abandon`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Volumes are served all the time and pass through from then on. What is \
    cached is lost. cinnabar cache replace brings a new device in.\n\n\
    Examples:\n  cinnabar cache abandon\n  \
    cinnabar cache abandon --socket /run/cinnabar/control.sock")]
pub(in crate::cli) struct AbandonArgs {
    #[command(flatten)]
    daemon: Daemon,
}

/// Runs `cache replace`.
pub(in crate::cli) fn replace(args: &ReplaceArgs) -> Result<(), Failure> {
    let size = args.size.as_deref();
    size.map(parse_size).transpose().map_err(|(message, hint)| Failure::of_usage(message, hint))?;
    // A relative path is relative to here, not to the daemon's folder.
    let device = std::path::absolute(&args.device).map_err(|error| {
        let message = format!("\"{}\": {error}", args.device.display());
        Failure::of_usage(message, "name a file or block device")
    })?;
    let device = device.into_os_string().into_string().map_err(|path| {
        Failure::of_usage(format!("{} is not UTF-8", path.display()), "give it another name")
    })?;
    let input = ReplaceInput { device, size: size.map(str::to_owned), format: args.format };
    let cache: CacheReport = args.daemon.send(Method::POST, "/v1/cache/replace", &input)?;
    output::text(&told(&cache))
}

/// Runs `cache abandon`.
pub(in crate::cli) fn abandon(args: &AbandonArgs) -> Result<(), Failure> {
    let nothing = serde_json::json!({});
    let cache: CacheReport = args.daemon.send(Method::POST, "/v1/cache/abandon", &nothing)?;
    output::text(&told(&cache))
}

fn told(cache: &CacheReport) -> String {
    let room = show_size(cache.capacity_blocks * BLOCK_BYTES);
    match &cache.health {
        HealthReport::PassThrough { reason } => format!("passing through: {reason}\n"),
        _ => format!("caching on {} ({room})\n", cache.device),
    }
}
