//! `cinnabar-lab trace convert`: a trace in another format, or a part of it.

mod target;

use super::choice::Choice;
use super::input::{Input, Reading};
use crate::cli::parse::duration;
use cinnabar_bench::report::traces::show_time;
use cinnabar_text::cli::output;
use cinnabar_text::cli::trace_file::cannot_write;
use cinnabar_text::{Failure, Table};
use cinnabar_text::{percent_of, show_size};
use cinnabar_trace::{Counts, Format, Record};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use target::{Target, TargetFormat};

/// Volumes that are listed for people; `--json` lists all.
const SHOWN_MAX: usize = 20;

/// What to write.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The format to write is told by the name's end: .csv is canonical, .oracleGeneral is \
    libCacheSim's, .iolog is fio's version 3; .zst behind it compresses. Times stay those of the trace; an \
    iolog begins with its first request, for fio would wait for it.\n\
    oracle-general holds references to blocks of 4 KiB: it can't tell reads from writes, and has no \
    flushes and discards. fio2 leaves pauses below 100 us to the next pause.\n\n\
    Examples:\n  \
    cinnabar-lab trace convert hm_0.csv.gz --out hm_0.csv.zst\n  \
    cinnabar-lab trace convert vm.vscsi.xz --out vm.oracleGeneral.zst\n  \
    cinnabar-lab trace convert all.csv.zst --out noon.csv --volume 3 --from 12h --until 13h\n  \
    cinnabar-lab trace convert vm.csv.zst --out vm.iolog --fio-file '/mnt/test/{}.raw'"
)]
pub(super) struct Args {
    /// A trace of any format, told by its content; plain, gz, xz or zstd; `-` is stdin
    trace: PathBuf,
    /// The trace to write; what is there is replaced at the end
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The format to write: canonical, oracle-general, fio2 or fio3 [default: by the name's end]
    #[arg(long, value_name = "FORMAT", value_parser = target_format(), hide_possible_values = true)]
    to: Option<TargetFormat>,
    /// Only this volume: its name, or its number if the trace has no names; may be given again
    /// [default: all]
    #[arg(long = "volume", value_name = "VOLUME")]
    volumes: Vec<String>,
    /// Only requests from this time of the trace on [default: its begin]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    from: Option<Duration>,
    /// Only requests before this time of the trace [default: its end]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    until: Option<Duration>,
    /// What fio is to replay a volume on; {} stands for the volume's name
    #[arg(long, value_name = "PATTERN", default_value = "{}")]
    fio_file: String,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

fn target_format() -> impl TypedValueParser<Value = TargetFormat> {
    PossibleValuesParser::new(TargetFormat::ALL.map(TargetFormat::name))
        .map(|name| TargetFormat::named(&name).expect("it is one of these names"))
}

/// What was written: the contract of `--json`. Keys are only ever added.
#[derive(Debug, Serialize)]
struct Converted<'a> {
    trace: &'a Path,
    from: &'static str,
    file: &'a Path,
    to: &'static str,
    file_bytes: u64,
    /// Requests that went into it.
    #[serde(flatten)]
    counts: Counts,
    /// Times of the first and the last of them, in the trace.
    first_ts_us: u64,
    last_ts_us: u64,
    /// Requests of other volumes and times.
    passed_over: u64,
    /// Flushes and discards among `requests` that the format has no place for.
    not_held: u64,
    volumes: Vec<Volume>,
}

#[derive(Debug, Serialize)]
struct Volume {
    number: u32,
    name: String,
    requests: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let to = args.to.or_else(|| TargetFormat::of_name(&args.out)).ok_or_else(|| {
        Failure::of_usage(
            format!("{}: its name's end tells no format to write", args.out.display()),
            "--to canonical, oracle-general, fio2 or fio3 says it; or name it .csv, .oracleGeneral or .iolog",
        )
    })?;
    check(args, to)?;
    let mut input = Input::open(&args.trace, &args.reading)?;
    if !input.trace().format().has_times() && (args.from.is_some() || args.until.is_some()) {
        let message = format!("a trace in format {} has no times", input.trace().format());
        return Err(Failure::of_usage(message, "leave --from and --until out"));
    }
    let target = Target::create(&args.out, to, &args.fio_file);
    let target = target.map_err(|error| cannot_write(&args.out, &error))?;
    let converted = convert(args, &mut input, target)?;
    drop(input);
    if args.json {
        return output::json(&converted);
    }
    output::text(&render(&converted))
}

/// What can be told before anything is read.
fn check(args: &Args, to: TargetFormat) -> Result<(), Failure> {
    let is_same = |one: &Path, other: &Path| {
        one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
    };
    if is_same(&args.trace, &args.out) && args.out.is_file() {
        let message = format!("--out {}: that is the trace itself", args.out.display());
        return Err(Failure::of_usage(message, "name another file"));
    }
    if let (Some(from), Some(until)) = (args.from, args.until)
        && from >= until
    {
        return Err(Failure::of_usage(
            "--until is not behind --from",
            "they are times of the trace",
        ));
    }
    if args.fio_file != "{}" && !to.is_fio() {
        let message = format!("--fio-file means nothing to {}", to.name());
        return Err(Failure::of_usage(message, "--to fio3 writes an iolog"));
    }
    Ok(())
}

fn convert<'a>(
    args: &'a Args,
    input: &mut Input,
    mut target: Target,
) -> Result<Converted<'a>, Failure> {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (from, until) = (args.from.map_or(0, micros), args.until.map(micros));
    let is_behind = |ts_us: u64| until.is_some_and(|until| ts_us >= until);
    let mut choice = Choice::new(&args.volumes);
    let mut counts = Counts::default();
    let (mut passed_over, mut first_ts_us, mut last_ts_us) = (0, None, 0);
    let mut volumes: BTreeMap<u32, u64> = BTreeMap::new();
    while let Some(record) = input.next()? {
        // Nothing earlier comes behind it, but in a canonical trace that is out of order.
        if is_behind(record.ts_us) && input.trace().format() != Format::Canonical {
            break;
        }
        let chosen = choice.has(input.trace(), record.volume);
        if !chosen || record.ts_us < from || is_behind(record.ts_us) {
            passed_over += 1;
            continue;
        }
        write(args, input, &mut target, &record)?;
        counts.add(&record);
        first_ts_us.get_or_insert(record.ts_us);
        last_ts_us = record.ts_us;
        *volumes.entry(record.volume).or_default() += 1;
    }
    choice.check()?;
    let trace = input.trace();
    let volume = |(number, requests)| {
        let name = trace.volume_name(number).into_owned();
        Volume { number, name, requests }
    };
    Ok(Converted {
        trace: &args.trace,
        from: trace.format().name(),
        file: &args.out,
        to: target.format().name(),
        not_held: if target.format().has_operations() {
            0
        } else {
            counts.flushes + counts.discards
        },
        file_bytes: target.finish().map_err(|error| cannot_write(&args.out, &error))?,
        counts,
        first_ts_us: first_ts_us.unwrap_or(0),
        last_ts_us,
        passed_over,
        volumes: volumes.into_iter().map(volume).collect(),
    })
}

fn write(args: &Args, input: &Input, target: &mut Target, record: &Record) -> Result<(), Failure> {
    let name = input.trace().volume_name(record.volume);
    target.write(record, &name).map_err(|error: io::Error| match error.kind() {
        // What the form can't hold, not what the disk can't.
        ErrorKind::InvalidInput => {
            let hint = "canonical holds every trace; a canonical one is sorted by time with \
                sort -s -n -t, -k1,1";
            input
                .refuse(&(format!("can't be written as {}: {error}", target.format().name()), hint))
        }
        _ => cannot_write(&args.out, &error),
    })
}

fn render(converted: &Converted<'_>) -> String {
    let Converted { counts, volumes, .. } = converted;
    let mut table = Table::new(2, &["trace", &converted.trace.display().to_string()]);
    let mut line = |name: &str, text: String| table.push(vec![name.to_owned(), text]);
    line("written", converted.file.display().to_string());
    line("format", format!("{} to {}", converted.from, converted.to));
    line("file", show_size(converted.file_bytes));
    line("time", show_time(converted.last_ts_us.saturating_sub(converted.first_ts_us)));
    line("requests", counts.requests.to_string());
    let share = |part| format!("{part} ({})", percent_of(part, counts.accesses()));
    line("reads", share(counts.reads));
    line("writes", share(counts.writes));
    line("passed over", format!("{}, of other volumes and times", converted.passed_over));
    if converted.not_held > 0 {
        line("left out", format!("{} flushes and discards", converted.not_held));
    }
    let mut busiest: Vec<&Volume> = volumes.iter().collect();
    busiest.sort_by_key(|volume| (u64::MAX - volume.requests, volume.number));
    let mut list = Table::new(2, &["NUMBER", "VOLUME", "REQUESTS"]);
    for Volume { number, name, requests } in busiest.iter().take(SHOWN_MAX) {
        list.push(vec![number.to_string(), name.clone(), requests.to_string()]);
    }
    let more = match volumes.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        left => format!("and {left} volumes with fewer requests\n"),
    };
    format!("{}\n{}{more}", output::table(&table), output::table(&list))
}
