//! `cinnabar-lab trace head`: the first requests of a trace, in canonical form.

use super::choice::Choice;
use super::input::{Input, Reading};
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use cinnabar_trace::write::Writer;
use cinnabar_trace::{Op, Record, Trace};
use serde::Serialize;
use std::path::PathBuf;

/// Written at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// What to look at.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A line is ts_us,vol,op,offset_bytes,length_bytes; op is R, W, F (flush) or D (discard). \
    Volumes are numbered in order of their first appearance; with --json their names are told, too.\n\n\
    Examples:\n  \
    cinnabar-lab trace head hm_0.csv.gz\n  \
    cinnabar-lab trace head -n 100 --volume hm_1 hm.csv.gz --json\n  \
    cinnabar-lab trace head -n 1000000000 raw.vscsi | awk -F, '$3 == \"W\"' | wc -l"
)]
pub(super) struct Args {
    /// A trace of any format, told by its content; plain, gz, xz or zstd; `-` is stdin
    trace: PathBuf,
    /// How many requests
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    requests: u64,
    /// Only those of this volume: its name, or its number if the trace has no names [default: all]
    #[arg(long = "volume", value_name = "VOLUME")]
    volumes: Vec<String>,
    /// Print JSON objects, one a line [default: canonical form]
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

/// A request: the contract of `--json`. Keys are only ever added.
#[derive(Debug, Serialize)]
struct Line<'a> {
    ts_us: u64,
    volume: u32,
    name: &'a str,
    op: &'static str,
    offset_bytes: u64,
    length_bytes: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut input = Input::open(&args.trace, &args.reading)?;
    let mut choice = Choice::new(&args.volumes);
    let mut text = Vec::new();
    let show = |input: &mut Input, text: &mut Vec<u8>| {
        input.hide_progress();
        output::bytes(&std::mem::take(text))
    };
    let mut left = args.requests;
    while left > 0 {
        // What comes before a mistake in the trace is shown before the mistake is.
        let next = match input.next() {
            Ok(next) => next,
            Err(failure) => {
                show(&mut input, &mut text)?;
                return Err(failure);
            }
        };
        let Some(record) = next else { break };
        if !choice.has(input.trace(), record.volume) {
            continue;
        }
        left -= 1;
        line(&mut text, &record, input.trace(), args.json)?;
        if text.len() >= BUFFER_BYTES {
            show(&mut input, &mut text)?;
        }
    }
    show(&mut input, &mut text)?;
    // What was not met may come later, if there is a later.
    if left > 0 { choice.check() } else { Ok(()) }
}

fn line(text: &mut Vec<u8>, record: &Record, trace: &Trace, json: bool) -> Result<(), Failure> {
    let written = if json {
        let Record { ts_us, volume, offset_bytes, length_bytes, .. } = *record;
        let op = match record.op {
            Op::Read => "R",
            Op::Write => "W",
            Op::Flush => "F",
            Op::Discard => "D",
        };
        let name = &trace.volume_name(volume);
        let line = Line { ts_us, volume, name, op, offset_bytes, length_bytes };
        let written = serde_json::to_writer(&mut *text, &line).map_err(std::io::Error::from);
        text.push(b'\n');
        written
    } else {
        Writer::new(text).write(record)
    };
    written.map_err(|error| Failure::at_run_time(error.to_string(), ""))
}
