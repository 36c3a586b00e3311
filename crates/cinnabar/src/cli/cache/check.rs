//! `cinnabar cache check`: what is on a device, what is damaged, what the next start will do.

use super::{Watcher, shards, write_log};
use crate::offline::Image;
use crate::offline::check::{CheckOptions, SEGMENTS_SAMPLED, check};
use crate::offline::report::{
    CheckReport, CheckpointReport, CopyReport, JournalReport, LogReport, VolumeReport,
};
use crate::offline::write_log::check_mirrored;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::Failure;
use cinnabar_text::Table;
use cinnabar_text::cli::output;
use cinnabar_text::show_size;
use std::path::PathBuf;

/// What to check.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 0: all is well. 1: something is damaged; the last lines tell what, \
    and what the next start will do. 2: it could not be checked.\n\
    What a crash leaves behind is no damage. Nothing is written.\n\
    Of a device with several shards each is checked: a line of the table, or an object, for each, \
    and the sum last.\n\
    Of a write log: what each volume has there that its back end does not have. Of a mirrored one \
    with --mirror: which half counts, and what both hold together.\n\n\
    Examples:\n  \
    cinnabar cache check /var/lib/cinnabar/cache.img\n  \
    cinnabar cache check --all /dev/nvme1n1\n  \
    cinnabar cache check /var/lib/cinnabar/write.log\n  \
    cinnabar cache check /dev/nvme0n1p2 --mirror /dev/nvme1n1p2\n  \
    cinnabar cache check --json cache.img | jq -s 'last.next_start.kind'"
)]
pub(in crate::cli) struct Args {
    /// The cache device or write log: a file or a block device
    device: PathBuf,
    /// The other half of a mirrored write log [default: none]
    #[arg(long, value_name = "OTHER")]
    mirror: Option<PathBuf>,
    /// Read all of the log and verify every block [default: headers, of at most 1024 segments of a
    /// cache device]
    #[arg(long)]
    all: bool,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
}

// The help says so.
const _: () = assert!(SEGMENTS_SAMPLED == 1024);

/// Runs it.
pub(in crate::cli) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(mirror) = &args.mirror {
        let options = CheckOptions { all: args.all };
        let mut line = Watcher::new();
        let report = check_mirrored([&args.device, mirror], options, &mut line)?;
        drop(line);
        return write_log::show(&report, args.json);
    }
    let image = Image::open(&args.device)?;
    let device = args.device.display().to_string();
    let options = CheckOptions { all: args.all };
    let mut line = Watcher::new();
    if let Some(copies) = crate::offline::write_log::recognise(&image) {
        let report =
            crate::offline::write_log::check(&image, &device, &copies, options, &mut line)?;
        drop(line);
        return write_log::show(&report, args.json);
    }
    let report = check(&image, &device, options, &mut line)?;
    drop(line);
    match report.shards.as_slice() {
        [only] if args.json => output::json(only)?,
        [only] => output::text(&render(only))?,
        shards if args.json => {
            shards.iter().try_for_each(output::json)?;
            output::json(&report.sum)?;
        }
        _ => output::text(&shards::render(&report))?,
    }
    let report = report.sum;
    if !report.damaged {
        return Ok(());
    }
    Err(super::damage(&device, &report.findings, report.more_findings, &report.next_start))
}

/// The report for people, of a device with one shard.
pub(in crate::cli) fn render(report: &CheckReport) -> String {
    let mut table = Table::new(2, &["device", &report.device]);
    let mut line = |name: &str, text: String| table.push(vec![name.to_owned(), text]);
    line("size", show_size(report.size_bytes));
    if let Some(state) = &report.state {
        line("identity", format!("{}, session {}", state.uuid, state.next_incarnation));
        line(
            "room",
            format!(
                "{} in {} segments of {}",
                show_size(state.capacity_blocks * BLOCK_BYTES),
                state.segments,
                show_size(state.segment_bytes)
            ),
        );
        line("state", state.state.replace('_', " "));
    }
    line("superblock", superblocks(&report.superblocks));
    for checkpoint in &report.checkpoints {
        line(&format!("checkpoint {}", checkpoint.slot), index(checkpoint));
    }
    if let Some(found) = &report.journal {
        line("journal", journal(found));
    }
    if let Some(found) = &report.log {
        line("log", log(found));
    }
    let mut parts = vec![output::table(&table)];
    if !report.volumes.is_empty() {
        parts.push(format!("\n{}", volumes(&report.volumes)));
    }
    parts.push(super::verdict(&report.findings, report.more_findings, &report.next_start));
    parts.concat()
}

fn superblocks(copies: &[CopyReport]) -> String {
    let told = |copy: &CopyReport| match copy.sequence {
        Some(sequence) => format!("{} (number {sequence})", copy.status),
        None => copy.status.to_owned(),
    };
    copies.iter().map(told).collect::<Vec<_>>().join(", ")
}

fn index(checkpoint: &CheckpointReport) -> String {
    let Some(sequence) = checkpoint.sequence else { return checkpoint.head.to_owned() };
    let counts = if checkpoint.counts { "counts" } else { "does not count" };
    let bad = match checkpoint.pages_bad {
        0 => String::new(),
        bad => format!(", {bad} of them damaged"),
    };
    format!(
        "number {sequence}, {counts}: {} blocks, {} segments, {} volumes on {} pages{bad}",
        checkpoint.blocks,
        checkpoint.segments,
        checkpoint.volumes,
        checkpoint.pages_good + checkpoint.pages_bad
    )
}

fn journal(journal: &JournalReport) -> String {
    let some = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!(", {count} {what}"),
    };
    let pages = format!(
        "{} of {} pages in use{}{}",
        journal.whole,
        journal.pages,
        some(journal.torn, "torn by a crash"),
        some(journal.damaged, "damaged")
    );
    if !journal.complete {
        return pages + "; incomplete";
    }
    let kinds: Vec<String> =
        journal.records.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let records = if kinds.is_empty() { "no records".to_owned() } else { kinds.join(", ") };
    format!("{pages}; {records} from page {} on", journal.first_page)
}

fn log(log: &LogReport) -> String {
    let sample = match log.segments {
        all if all == log.segments_checked => String::new(),
        all => format!(" looked at (there are {all})"),
    };
    let data = match (log.data_checked, log.torn_blocks) {
        (false, _) => "data not read".to_owned(),
        (true, 0) => format!("{} blocks wrong", log.wrong_blocks),
        (true, torn) => {
            format!("{} blocks wrong, {torn} more torn by the crash", log.wrong_blocks)
        }
    };
    format!(
        "{} chunks with {} blocks in {} of {} segments{sample}, {data}",
        log.chunks, log.blocks, log.segments_used, log.segments_checked
    )
}

fn volumes(volumes: &[VolumeReport]) -> String {
    let header = ["VOLUME", "PROOF", "SIZE", "INCARNATION", "GENERATION", "CHECKPOINTED"];
    let mut table = Table::new(2, &header).least(&["GENERATION", "INCARNATION", "CHECKPOINTED"]);
    for volume in volumes {
        let proof = match (&volume.proof, volume.written) {
            (None, _) => "none",
            (Some(_), false) => "left clean",
            (Some(_), true) => "of a heartbeat",
        };
        table.push(vec![
            volume.name.escape_debug().to_string(),
            proof.to_owned(),
            show_size(volume.size_bytes),
            volume.incarnation.to_string(),
            format!("{:016x}", volume.generation),
            show_size(volume.checkpoint_blocks * BLOCK_BYTES),
        ]);
    }
    output::table(&table)
}
