//! `cinnabar-lab trace generate`: block traces made from a seed, in canonical form.

mod models;

use crate::cli::parse::{duration, size};
use cinnabar_text::cli::output;
use cinnabar_text::cli::progress::Progress;
pub(super) use cinnabar_text::cli::trace_file::cannot_write;
use cinnabar_text::{Failure, Table};
use cinnabar_text::{percent_of, show_size};
use cinnabar_trace::generate::desktop::{self, Desktop};
use cinnabar_trace::generate::spc1::{self, BLOCK_BYTES, Generator};
use cinnabar_trace::{Op, Record, TraceFile};
use serde::Serialize;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Volumes that are listed for people; `--json` lists all.
const SHOWN_MAX: usize = 20;

/// What to make.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Days of one desktop in a virtual machine: a model, not a recording
    #[command(
        after_help = "Each day has a boot, a logon, applications started, documents opened and \
        saved, a browser, journals. Most of what a day reads was seen in the days before. The \
        guide's page on replay tells the model's numbers and where they are from.\n\n\
        Examples:\n  \
        cinnabar-lab trace generate desktop --out desktop.csv.zst\n  \
        cinnabar-lab trace generate desktop --out week.csv.zst --days 7 --seed 3 --json\n  \
        cinnabar-lab trace generate desktop --out small.csv --requests-per-day 2000 --disk-size 1GiB"
    )]
    Desktop(DesktopArgs),
    /// The SPC-1-like enterprise workload; volumes 0 to 2 are ASU1 to ASU3
    #[command(
        after_help = "What `cinnabar-lab bench spc1` does, as a trace: each business scaling unit is \
        50 I/Os a second. Like SPC-1, not SPC-1: don't compare it with published SPC-1 results.\n\n\
        Examples:\n  \
        cinnabar-lab trace generate spc1 --out spc1.csv.zst --bsu 10 --ios 100000\n  \
        cinnabar-lab trace generate spc1 --out s.csv.zst --bsu 100 --ios 4000000 --asu1-size 9GiB"
    )]
    Spc1(Spc1Args),
    /// One volume whose blocks are asked for by Zipf's law
    #[command(
        after_help = "The k-th most popular block is asked for 1 / k^alpha as often as the first; popular blocks \
        are scattered over the volume.\n\n\
        Examples:\n  \
        cinnabar-lab trace generate zipf --out zipf.csv.zst\n  \
        cinnabar-lab trace generate zipf --out z.csv.zst --footprint 64GiB --alpha 1.1 --requests 10000000\n  \
        cinnabar-lab trace generate zipf --out uniform.csv --alpha 0 --block-sizes 4KiB:1 --write-share 0"
    )]
    Zipf(models::ZipfArgs),
    /// One volume with a loop, scans and a popular background
    #[command(
        after_help = "Loops and scans read 64 KiB at a time; only the background is written.\n\n\
        Examples:\n  \
        cinnabar-lab trace generate mix --out mix.csv.zst\n  \
        cinnabar-lab trace generate mix --out loop.csv.zst --loop-size 8GiB --loop-share 0.9 --scan-share 0\n  \
        cinnabar-lab trace generate mix --out scans.csv.zst --scan-size 4GiB --scan-share 0.5"
    )]
    Mix(models::MixArgs),
    /// A day of sixteen servers that want a cache in very different ways: synthetic
    #[command(
        after_help = "Eight volumes are written over and over, four are read in loops and scans, four are mixed. \
        The guide's page on traces has the table of all numbers. A model, not a recording.\n\n\
        Examples:\n  \
        cinnabar-lab trace generate sixteen --out sixteen.csv.zst\n  \
        cinnabar-lab trace generate sixteen --out small.csv.zst --scale 0.01 --days 7\n  \
        cinnabar-lab trace generate sixteen --out full.csv.zst --scale 1"
    )]
    Sixteen(models::SixteenArgs),
    /// A file server and the hosts that use it, after Holland et al. (USENIX ATC 2013)
    #[command(
        after_help = "All blocks of a working set are alike; the rest of the requests goes to any block of the \
        server. With --files, requests are runs within files whose sizes follow the Impressions model.\n\n\
        Examples:\n  \
        cinnabar-lab trace generate file-server --out fs.csv.zst\n  \
        cinnabar-lab trace generate file-server --out two.csv.zst --hosts 2 --working-set 1GiB --total 16GiB\n  \
        cinnabar-lab trace generate file-server --out files.csv.zst --files --total 64GiB --working-set 4GiB"
    )]
    FileServer(models::FileServerArgs),
    /// Many overlays of one golden image that boot within minutes: a model, not a recording
    #[command(
        after_help = "Reads of the golden image are of volume 0; each machine's own writes, and what it reads of \
        them, are of its overlay's volume. The guide's page on traces tells the numbers' sources.\n\n\
        Examples:\n  \
        cinnabar-lab trace generate boot-storm --out boot.csv.zst\n  \
        cinnabar-lab trace generate boot-storm --out monday.csv.zst --machines 500 --window 30min\n  \
        cinnabar-lab trace generate boot-storm --out linux.csv --boot-size 80MiB --image-size 4GiB"
    )]
    BootStorm(models::BootStormArgs),
}

#[derive(Debug, clap::Args)]
struct Output {
    /// The trace to write, compressed if its name ends in .zst; what is there is replaced at the end
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Fixes everything that chance decides
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct DesktopArgs {
    #[command(flatten)]
    output: Output,
    /// Working days
    #[arg(long, value_name = "N", default_value_t = 4)]
    days: u32,
    /// Reads and writes of an average day; files grow with it
    #[arg(long, value_name = "N", default_value_t = 45_000)]
    requests_per_day: u32,
    /// Size of the disk
    #[arg(long, value_name = "SIZE", default_value = "40GiB", value_parser = size)]
    disk_size: u64,
    /// Length of a day; a shorter one is the same day, faster
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    day_length: Duration,
    /// A scan of a tenth of the disk in the evening of every so many days; 0 is never
    #[arg(long, value_name = "N", default_value_t = 0)]
    scan_every: u32,
    /// Share of the writes of one block that are of some of its sectors only, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    partial_writes: f64,
}

#[derive(Debug, clap::Args)]
pub(super) struct Spc1Args {
    #[command(flatten)]
    output: Output,
    /// Business scaling units of 50 I/Os a second each
    #[arg(long, value_name = "N", default_value_t = 50)]
    bsu: u32,
    /// How many I/Os to write
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    ios: u64,
    /// Which shares of reads: pblio's (55 % of all I/Os) or SPC-1's (40 %)
    #[arg(long, value_name = "MIX", default_value = "pblio")]
    mix: MixName,
    /// Size of ASU1, the data store
    #[arg(long, value_name = "SIZE", default_value = "4500MiB", value_parser = size)]
    asu1_size: u64,
    /// Size of ASU2, the user store [default: that of ASU1]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    asu2_size: Option<u64>,
    /// Size of ASU3, the log [default: 2/9 of ASU1's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    asu3_size: Option<u64>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MixName {
    Pblio,
    Spc1,
}

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Desktop(args) => desktop(args),
        Command::Spc1(args) => spc1(args),
        Command::Zipf(args) => models::zipf(args),
        Command::Mix(args) => models::mix(args),
        Command::Sixteen(args) => models::sixteen(args),
        Command::FileServer(args) => models::file_server(args),
        Command::BootStorm(args) => models::boot_storm(args),
    }
}

fn desktop(args: &DesktopArgs) -> Result<(), Failure> {
    let settings = desktop::Settings {
        seed: args.output.seed,
        days: args.days,
        requests_per_day: args.requests_per_day,
        disk_bytes: args.disk_size,
        day_us: u64::try_from(args.day_length.as_micros()).unwrap_or(u64::MAX),
        scan_every_days: args.scan_every,
        partial_writes: args.partial_writes,
    };
    let desktop = Desktop::new(settings)
        .map_err(|error| Failure::of_usage(error.to_string(), "--help tells the defaults"))?;
    let whole = Whole::Time(u64::from(settings.days) * settings.day_us);
    write(&args.output, "desktop", whole, desktop)
}

fn spc1(args: &Spc1Args) -> Result<(), Failure> {
    let asu2 = args.asu2_size.unwrap_or(args.asu1_size);
    let asu3 = args.asu3_size.unwrap_or(args.asu1_size.div_ceil(9) * 2);
    let settings = spc1::Settings {
        bsu: args.bsu,
        mix: match args.mix {
            MixName::Pblio => spc1::Mix::Pblio,
            MixName::Spc1 => spc1::Mix::Spc1,
        },
        asu_blocks: [args.asu1_size, asu2, asu3].map(|bytes| bytes / BLOCK_BYTES),
        seed: args.output.seed,
    };
    let generator = Generator::new(settings)
        .map_err(|error| Failure::of_usage(error.to_string(), error.hint()))?;
    let records = (0..args.ios).zip(generator).map(|(_, io)| io.record());
    write(&args.output, "spc1", Whole::Records(args.ios), records)
}

/// What the whole trace is, to tell how far it is.
#[derive(Clone, Copy, Debug)]
enum Whole {
    Records(u64),
    /// In microseconds of the trace.
    Time(u64),
}

fn write(
    output: &Output,
    generator: &'static str,
    whole: Whole,
    records: impl Iterator<Item = Record>,
) -> Result<(), Failure> {
    let failed = |error: &io::Error| cannot_write(&output.out, error);
    let mut file = TraceFile::create(&output.out).map_err(|error| failed(&error))?;
    let mut line = Progress::new();
    let mut made = Made::new(generator, output);
    for record in records {
        file.write(&record).map_err(|error| failed(&error))?;
        made.count(&record);
        line.show(|| {
            let part = match whole {
                Whole::Records(whole) => made.records as f64 / whole as f64,
                Whole::Time(whole) => record.ts_us as f64 / whole as f64,
            };
            // What a boot storm comes to is not known to the last request.
            format!("{} requests, {:.0} %", made.records, 100.0 * part.min(1.0))
        });
    }
    made.file_bytes = file.finish().map_err(|error| failed(&error))?;
    drop(line);
    if output.json {
        return output::json(&made);
    }
    output::text(&made.render())
}

/// What was written: the contract of `--json`. Keys are only ever added.
#[derive(Debug, Serialize)]
struct Made {
    generator: &'static str,
    seed: u64,
    file: PathBuf,
    file_bytes: u64,
    records: u64,
    reads: u64,
    writes: u64,
    flushes: u64,
    read_bytes: u64,
    write_bytes: u64,
    /// Time of the last record.
    last_ts_us: u64,
    /// By volume, the bytes that a target needs at least.
    volume_bytes: Vec<u64>,
}

impl Made {
    fn new(generator: &'static str, output: &Output) -> Self {
        Self {
            generator,
            seed: output.seed,
            file: output.out.clone(),
            file_bytes: 0,
            records: 0,
            reads: 0,
            writes: 0,
            flushes: 0,
            read_bytes: 0,
            write_bytes: 0,
            last_ts_us: 0,
            volume_bytes: Vec::new(),
        }
    }

    fn count(&mut self, record: &Record) {
        self.records += 1;
        self.last_ts_us = record.ts_us;
        match record.op {
            Op::Read => {
                self.reads += 1;
                self.read_bytes += record.length_bytes;
            }
            Op::Write => {
                self.writes += 1;
                self.write_bytes += record.length_bytes;
            }
            Op::Flush => self.flushes += 1,
            Op::Discard => {}
        }
        let volume = record.volume as usize;
        if volume >= self.volume_bytes.len() {
            self.volume_bytes.resize(volume + 1, 0);
        }
        let end = record.offset_bytes + record.length_bytes;
        self.volume_bytes[volume] = self.volume_bytes[volume].max(end);
    }

    fn render(&self) -> String {
        let mut table = Table::new(2, &["trace", &self.file.display().to_string()]);
        let mut line = |name: &str, text: String| table.push(vec![name.to_owned(), text]);
        line("made by", format!("{}, seed {}", self.generator, self.seed));
        line("file", show_size(self.file_bytes));
        line("time", format!("{:.3} h", self.last_ts_us as f64 / 3.6e9));
        for (name, count, bytes) in
            [("reads", self.reads, self.read_bytes), ("writes", self.writes, self.write_bytes)]
        {
            let part = percent_of(count, self.reads + self.writes);
            line(name, format!("{count} ({part}), {}", show_size(bytes)));
        }
        line("flushes", self.flushes.to_string());
        for (volume, bytes) in self.volume_bytes.iter().enumerate().take(SHOWN_MAX) {
            line(&format!("volume {volume}"), format!("needs {bytes} bytes"));
        }
        if let Some(left @ 1..) = self.volume_bytes.len().checked_sub(SHOWN_MAX) {
            line("and", format!("{left} volumes more"));
        }
        output::table(&table)
    }
}
