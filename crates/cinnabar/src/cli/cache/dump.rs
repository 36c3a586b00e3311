//! `cinnabar cache dump`: what is on a device, line by line.

use super::Watcher;
use crate::offline::Image;
use crate::offline::dump::{DumpOptions, Line, Part, dump};
use crate::offline::write_log;
use cinnabar_text::cli::output;
use cinnabar_text::{Failure, seen};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// What to print.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A line for each structure, as it is on the device: nothing is put together \
    or left out. Where there are several shards, each line says whose it is. docs/design/on-disk-format.md explains the names.\n\
    A write log has superblock, volumes and chunks; docs/design/write-back.md explains them.\n\n\
    Examples:\n  \
    cinnabar cache dump cache.img --what superblock,volumes\n  \
    cinnabar cache dump cache.img --what journal --json | jq 'select(.kind == \"invalidation\")'\n  \
    cinnabar cache dump cache.img --what chunks --entries\n  \
    cinnabar cache dump cache.img --what checkpoint --shard 2\n  \
    cinnabar cache dump write.log --what volumes"
)]
pub(in crate::cli) struct Args {
    /// The cache device or write log: a file or a block device
    device: PathBuf,
    /// The other half of a mirrored write log: its lines come second, and each line says its device [default: none]
    #[arg(long, value_name = "OTHER")]
    mirror: Option<PathBuf>,
    /// Parts to print, separated by commas [default: all]
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',')]
    what: Vec<Part>,
    /// Print a line for each block of a chunk, too [default: one a chunk]
    #[arg(long)]
    entries: bool,
    /// Print the region of this shard only, counted from 0 [default: all]
    #[arg(long, value_name = "N")]
    shard: Option<u32>,
    /// Print a JSON object a line [default: words]
    #[arg(long)]
    json: bool,
}

/// Lines written at a time.
const BYTES_A_WRITE: usize = 64 << 10;

/// Runs it.
pub(in crate::cli) fn run(args: &Args) -> Result<(), Failure> {
    dump_one(args, &args.device)?;
    args.mirror.as_deref().map_or(Ok(()), |mirror| dump_one(args, mirror))
}

fn dump_one(args: &Args, path: &Path) -> Result<(), Failure> {
    let image = Image::open(path)?;
    let parts = if args.what.is_empty() { Part::ALL.to_vec() } else { args.what.clone() };
    let options = DumpOptions { parts, entries: args.entries, shard: args.shard };
    let device = path.display().to_string();
    let is_half = args.mirror.is_some();
    let mut text = String::new();
    let mut written = Ok(());
    let mut emit = |line: Line| {
        let line = if is_half { line.of_device(&device) } else { line };
        text += &if args.json { line.to_json() } else { seen(&line.to_string()).into_owned() };
        text.push('\n');
        if text.len() >= BYTES_A_WRITE {
            written = output::bytes(text.as_bytes());
            text.clear();
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let mut line = Watcher::new();
    let dumped = match write_log::recognise(&image) {
        Some(copies) => write_log::dump(&image, &device, &copies, &options, &mut line, &mut emit),
        None => dump(&image, &device, &options, &mut line, &mut emit),
    };
    drop(line);
    written?;
    output::bytes(text.as_bytes())?;
    Ok(dumped?)
}
