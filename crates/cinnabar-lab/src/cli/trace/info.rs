//! `cinnabar-lab trace info`: what a trace is and what is in it, before anything is simulated.

use super::input::{Input, Reading};
use cinnabar_bench::report::traces::{self as report, Info, Summing};
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use std::path::{Path, PathBuf};

/// What to look at.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reads each trace once, to its end; the next steps are `cinnabar-lab simulate` and \
    `cinnabar-lab bench replay`. The guide's page on traces lists the formats, and where traces are published.\n\
    With --json an object for each trace, one a line; an estimated footprint errs by some 0.1 %.\n\n\
    Examples:\n  \
    cinnabar-lab trace info vm.csv.zst\n  \
    cinnabar-lab trace info hm_0.csv.gz proj_0.csv.gz --volumes all\n  \
    cinnabar-lab trace info tencent.csv.xz --json | jq '.volumes[] | {name, requests, blocks}'\n  \
    blkparse -i sda -o - | cinnabar-lab trace info -"
)]
pub(super) struct Args {
    /// Traces of any format, told by their content; plain, gz, xz or zstd; `-` is stdin
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// How many volumes to list, the busiest first: a number, or `all`
    #[arg(long, value_name = "N", default_value = "20", value_parser = most)]
    volumes: Most,
    /// Print JSON objects, one a line [default: tables]
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

/// How many volumes to list.
#[derive(Clone, Copy, Debug)]
struct Most(usize);

fn most(text: &str) -> Result<Most, String> {
    if text == "all" {
        return Ok(Most(usize::MAX));
    }
    text.parse().map(Most).map_err(|_| "write a number, or all".to_owned())
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    for (number, path) in args.traces.iter().enumerate() {
        let info = look(path, args)?;
        if args.json {
            output::json(&info)?;
        } else {
            let gap = if number == 0 { "" } else { "\n" };
            output::text(&format!("{gap}{}", report::render(&info, output::width())))?;
        }
    }
    Ok(())
}

fn look<'a>(path: &'a Path, args: &Args) -> Result<Info<'a>, Failure> {
    let mut input = Input::open(path, &args.reading)?;
    let mut summing = Summing::default();
    while let Some(record) = input.next()? {
        summing.add(&record).map_err(|report::TooManyVolumes| {
            let what = format!("more than {} volumes", report::VOLUMES_MAX);
            input.refuse(&(what, "split the trace by volume first"))
        })?;
    }
    let trace = input.trace();
    Ok(Info {
        trace: path,
        format: trace.format().name(),
        packing: trace.packing().name(),
        file_bytes: trace.size_bytes(),
        has_times: trace.format().has_times(),
        summary: summing.finish(trace, args.volumes.0),
    })
}
