//! `cinnabar status`: what the cache and its volumes do, once or again and again.

use super::client::Daemon;
use super::windows::{Span, Watch, Window};
use cinnabar_config::status::raw::{LogHalfState, State};
use cinnabar_config::status::report::{
    CacheReport, LoadedReport, LogHalfReport, OperationLatency, StartKind, StatusReport,
    VolumeReport, WaitingReport, WarmthReport, WriteLogReport,
};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::Failure;
use cinnabar_text::Table;
use cinnabar_text::cli::output;
use cinnabar_text::show_size;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// What to show.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    cinnabar status --socket /run/cinnabar/control.sock\n  \
    cinnabar status --wait && echo \"it serves\"\n  \
    cinnabar status --watch\n  \
    cinnabar status --watch --window 5min\n  \
    cinnabar status --watch --json | jq '.windows[] | select(.window == \"1h\")'\n  \
    cinnabar status --json | jq '.volumes[] | {name, read_hits, misses}'")]
pub(super) struct Args {
    /// Print a JSON object, one line each time if not to a terminal or with --watch [default: a table]
    #[arg(long)]
    json: bool,
    /// Show it again and again until Ctrl-C, with what each volume did in the last second, 5 minutes,
    /// hour and day: I/Os and MB (10^6 bytes) a second, hits of blocks read, mean latencies. But for the
    /// last second, MB/s count whole blocks of 4 KiB [default: once]
    #[arg(long)]
    watch: bool,
    /// With --watch: only this window; may be repeated [default: all]
    #[arg(long, value_name = "TIME", requires = "watch", hide_default_value = true)]
    window: Vec<Span>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Wait until the daemon serves, this long at most [default: don't wait; 60 if no SECONDS are given]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, value_parser = wait)]
    #[arg(default_missing_value = "60", hide_default_value = true)]
    wait: Option<f64>,
    #[command(flatten)]
    daemon: Daemon,
}

fn wait(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.1 to 86400 seconds are possible".to_owned()),
    }
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.1 to 3600 seconds are possible".to_owned()),
    }
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(seconds) = args.wait {
        args.daemon.wait(Duration::from_secs_f64(seconds))?;
    }
    let mut watch = args.watch.then(|| Watch::new(&args.window));
    loop {
        let mut object: serde_json::Value = args.daemon.get("/v1/status")?;
        if args.json && watch.is_none() {
            return output::json(&object);
        }
        let now = Instant::now();
        let report: StatusReport = serde_json::from_value(object.clone()).map_err(|error| {
            let hint = "use the version of the daemon: cinnabar version";
            Failure::at_run_time(format!("the status can't be read: {error}"), hint)
        })?;
        let windows = match &mut watch {
            Some(watch) => watch.look(&args.daemon, now, &report)?,
            None => Vec::new(),
        };
        match (args.json, &watch) {
            (true, _) => {
                object["windows"] = serde_json::json!(windows);
                output::bytes(format!("{object}\n").as_bytes())?;
            }
            (false, None) => return output::text(&render(&report, &[])),
            (false, Some(_)) => show(&render(&report, &windows))?,
        }
        std::thread::sleep(Duration::from_secs_f64(args.interval));
    }
}

/// Shows a status in the place of the last one, or below it where there are no places.
fn show(text: &str) -> Result<(), Failure> {
    let is_plain = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if std::io::stdout().is_terminal() && !is_plain {
        return output::text(&format!("\x1b[H\x1b[2J\x1b[3J{text}"));
    }
    output::text(&format!("{text}\n"))
}

/// The status for people, with what volumes did lately if that is known.
pub(super) fn render(report: &StatusReport, windows: &[Window]) -> String {
    let mut text = cache(&report.cache);
    text.push('\n');
    text += &volumes(&report.volumes);
    if !windows.is_empty() {
        text.push('\n');
        text += &super::windows::render(windows);
    }
    let notes: Vec<String> = report.volumes.iter().filter_map(note).collect();
    let oversold = report.qos_groups.iter().filter(|group| group.oversold_iops > 0).map(|group| {
        format!(
            "group {}: {} I/Os a second are reserved, its backend does {}: reservations are not met\n",
            group.name,
            group.reserved_iops,
            group.capacity_iops.unwrap_or(0)
        )
    });
    let notes: Vec<String> = notes.into_iter().chain(oversold).collect();
    if !notes.is_empty() {
        text.push('\n');
        text += &notes.concat();
    }
    text
}

fn cache(cache: &CacheReport) -> String {
    let in_bytes = |blocks: u64| show_size(blocks * BLOCK_BYTES);
    let mut table = Table::new(2, &["cache", &cache.device]);
    let mut line = |name: &str, text: String| table.push(vec![name.to_owned(), text]);
    let reason = if cache.reason.is_empty() { "" } else { ": " };
    line("state", format!("{}{reason}{}, I/O by {}", name_of(cache.state), cache.reason, cache.io));
    if let Some(loaded) = &cache.loaded {
        line("start", start(loaded));
    }
    line(
        "used",
        format!(
            "{} of {} ({}), {} of it in RAM only{}",
            in_bytes(cache.cached_blocks),
            in_bytes(cache.capacity_blocks),
            output::ratio(cache.cached_blocks, cache.capacity_blocks),
            in_bytes(cache.ram_blocks),
            match cache.detached_blocks {
                0 => String::new(),
                blocks => format!(", {} of volumes that are not attached", in_bytes(blocks)),
            }
        ),
    );
    if cache.size_max_bytes > cache.size_bytes || cache.resizing.is_some() {
        line("size", size(cache));
    }
    line(
        "flash",
        format!(
            "{} written, {} evicted, {} reinserted",
            show_size(cache.flash_written_bytes),
            in_bytes(cache.evicted_blocks),
            in_bytes(cache.reinserted_blocks)
        ),
    );
    line(
        "journal",
        format!(
            "{} records in {} writes, {} checkpoints; {} active regions, a crash costs {} at most",
            count(cache.journal_records),
            count(cache.journal_writes),
            cache.checkpoints,
            cache.active_regions,
            in_bytes(cache.doubt_blocks)
        ),
    );
    if let Some(log) = &cache.write_log {
        line("write log", write_log(log));
        for half in &log.halves {
            line("half", log_half(half));
        }
    }
    line(
        "errors",
        format!(
            "{} of the device, {} checksums, given up {} times, replaced {} times",
            cache.device_errors,
            cache.checksum_failures,
            cache.device_losses,
            cache.device_replacements
        ),
    );
    line("memory", memory(cache));
    output::table(&table)
}

fn memory(cache: &CacheReport) -> String {
    let ram = &cache.ram_bytes;
    format!(
        "{} index ({:.1} B a block), {} buffers",
        show_size(ram.address_map + ram.descriptors + ram.ghost),
        cache.ram_bytes_per_block,
        show_size(ram.buffers + ram.other + ram.edges)
    )
}

fn size(cache: &CacheReport) -> String {
    let (now, most) = (show_size(cache.size_bytes), show_size(cache.size_max_bytes));
    match cache.resizing {
        Some(resizing) => format!(
            "{now}, being resized to {}: {} of {} segments",
            show_size(resizing.to_bytes),
            count(resizing.segments_done),
            count(resizing.segments)
        ),
        None if cache.resize_failed.is_empty() => format!("{now} of at most {most}"),
        None => format!("{now} of at most {most}; not resized: {}", cache.resize_failed),
    }
}

fn write_log(log: &WriteLogReport) -> String {
    if log.reason.is_empty() {
        let (used, size) = (show_size(log.used_bytes), show_size(log.size_bytes));
        let memory = log.memory.as_ref().map(|memory| {
            format!("; {} in memory ({})", show_size(memory.used_bytes), memory.path)
        });
        format!("{}, {used} of {size} in use{}", log.device, memory.unwrap_or_default())
    } else {
        format!("{}: {}", log.device, log.reason)
    }
}

/// A device of a mirrored write log.
fn log_half(half: &LogHalfReport) -> String {
    let state = match half.state {
        LogHalfState::Both => "both: it holds everything, as the other one",
        LogHalfState::Alone => "alone: no other one holds everything",
        LogHalfState::Filling => "filling: it lacks older writes",
        LogHalfState::Missing => "missing",
    };
    let reason = match half.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let errors = match half.read_errors {
        0 => String::new(),
        errors => format!(", {errors} reads failed"),
    };
    format!("{}, {state}{reason}{errors}", half.device)
}

/// What a start found, and what of it is not believed.
fn start(loaded: &LoadedReport) -> String {
    let in_bytes = |blocks: u64| show_size(blocks * BLOCK_BYTES);
    let after = match loaded.start {
        StartKind::New => return "on a new device".to_owned(),
        StartKind::Clean => "after a clean stop",
        StartKind::Crashed => "after a crash",
        StartKind::Damaged => {
            return "the metadata were damaged: everything was dropped".to_owned();
        }
    };
    let dropped = |blocks: u64, why: &str| match blocks {
        0 => String::new(),
        blocks => format!(", {} dropped as {why}", in_bytes(blocks)),
    };
    let damaged = match loaded.damaged_pages {
        0 => String::new(),
        pages => format!(", {pages} damaged pages"),
    };
    format!(
        "{after}, {} known after {:.1} s{}{}{damaged}",
        in_bytes(loaded.blocks),
        loaded.seconds,
        dropped(loaded.overwritten_blocks, "overwritten"),
        dropped(loaded.unflushed_blocks, "not flushed by the backend")
            + &dropped(loaded.doubtful_blocks, "in active regions"),
    )
}

fn volumes(volumes: &[VolumeReport]) -> String {
    if volumes.is_empty() {
        return "no volumes\n".to_owned();
    }
    let header = [
        "VOLUME",
        "MODE",
        "STATE",
        "CACHED",
        "SHARE",
        "HITS",
        "READS",
        "WRITES",
        "READ p50/p99",
        "WRITE p50/p99",
        "CLIENTS",
    ];
    let mut table = Table::new(3, &header).least(&[
        "SHARE",
        "WRITE p50/p99",
        "MODE",
        "CLIENTS",
        "WRITES",
        "READ p50/p99",
        "CACHED",
        "READS",
    ]);
    for volume in volumes {
        table.push(vec![
            volume.name.clone(),
            output::value_name(&volume.mode),
            name_of(volume.state).to_owned(),
            show_size(volume.cached_blocks * BLOCK_BYTES),
            format!("{}..{}", volume.share_min, volume.share_max),
            output::ratio(volume.read_hits, volume.blocks_read),
            count(volume.reads),
            count(volume.writes),
            latency(&volume.latency_us.read),
            latency(&volume.latency_us.write),
            volume.connections.to_string(),
        ]);
    }
    output::table(&table)
}

/// What deserves a line of its own: what a start kept or dropped, why a volume does not serve, what
/// its backend has been asked for too long ago.
fn note(volume: &VolumeReport) -> Option<String> {
    let name = &volume.name;
    let mut notes = vec![match &volume.warmth {
        WarmthReport::New | WarmthReport::Loading => String::new(),
        WarmthReport::Kept { blocks } => {
            format!("{name}: kept {} from the last run\n", show_size(blocks * BLOCK_BYTES))
        }
        WarmthReport::Partly { .. } => format!("{name}: {}\n", volume.warmth),
        // How much that was is known once the index is loaded.
        WarmthReport::Dropped { blocks: 0, reason } => {
            format!("{name}: dropped what there was from the last run: {reason}\n")
        }
        WarmthReport::Dropped { blocks, reason } => {
            let size = show_size(blocks * BLOCK_BYTES);
            format!("{name}: dropped {size} from the last run: {reason}\n")
        }
    }];
    if volume.state != State::Serving && !volume.reason.is_empty() {
        let tries = volume.waiting.as_ref().map(tried).unwrap_or_default();
        notes.push(format!("{name}: {}: {}{tries}\n", name_of(volume.state), volume.reason));
    }
    if volume.backend_overdue > 0 {
        notes.push(format!(
            "{name}: {} backend operations took too long, {} of them are still under way\n",
            volume.backend_overdue, volume.backend_overdue_now
        ));
    }
    notes.extend(super::status_notes::counts(volume));
    Some(notes.concat()).filter(|text| !text.is_empty())
}

/// How it goes on with a volume that waits.
fn tried(waiting: &WaitingReport) -> String {
    let next = match waiting.next_try_s {
        Some(seconds) => format!("next try in {seconds:.0} s"),
        None => "trying now".to_owned(),
    };
    match waiting.tries {
        0 => format!("; {next}"),
        tries => format!("; tried {tries} times in {:.0} s, {next}", waiting.since_s),
    }
}

const fn name_of(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Serving => "serving",
        State::Degraded => "degraded",
        State::Stopping => "stopping",
        State::Waiting => "waiting",
        State::Standby => "standby",
        State::Failed => "failed",
    }
}

/// `1234`, `56.8k`, `9.1M`.
fn count(value: u64) -> String {
    match value {
        0..10_000 => value.to_string(),
        10_000..1_000_000 => format!("{:.1}k", value as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", value as f64 / 1e6),
        _ => format!("{:.1}G", value as f64 / 1e9),
    }
}

fn latency(latency: &OperationLatency) -> String {
    if latency.count == 0 {
        return "-".to_owned();
    }
    format!("{}/{}", output::time(latency.p50), output::time(latency.p99))
}
