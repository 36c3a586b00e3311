//! `cinnabar-lab analyze`: would a cache help, how large, and with which policy?
//!
//! [`args`] says what to do, the laboratory's analysis does it, and `cinnabar-bench` shows what it
//! found.

mod args;
mod compare;
mod values;

pub(super) use args::Args;

use cinnabar_bench::report::analysis as report;
use cinnabar_study::analysis::{self, Analysis, AnalysisError, Settings};
use cinnabar_text::Failure;
use cinnabar_text::cli::progress::Progress;
use cinnabar_text::cli::report_file;
use cinnabar_text::cli::{output, talk};
use cinnabar_text::show_size;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let settings = args.settings()?;
    if let Some(path) = &args.html {
        report_file::keep("--html", path, &args.traces, "a trace")?;
        report_file::check("--html", path)?;
    }
    if args.compare.compare {
        let (allocators, html) = (args.allocator.as_slice(), args.html.as_deref());
        let asked = compare::Asked { allocators, html, json: args.json };
        return compare::run(&args.compare, &asked, &settings);
    }
    let analysis = analyze(&settings)?;
    if let Some(path) = &args.html {
        let page = report::page(&analysis, &settings, args.volumes as usize);
        page.save(path).map_err(|error| Failure::at_run_time(error.to_string(), error.hint()))?;
    }
    if args.json {
        return output::json(&report::document(&analysis, &settings));
    }
    for note in report::notes(&analysis) {
        talk::line(format_args!("note: {note}"));
    }
    output::text(&report::render(&analysis, &settings, args.volumes as usize, output::width()))
}

fn analyze(settings: &Settings) -> Result<Analysis, Failure> {
    let mut line = Progress::new();
    let found = analysis::analyze(settings, &mut |[pass, passes], progress| {
        line.show(|| {
            let read = show_size(progress.read_bytes);
            let of = progress.size_bytes.map(|size| format!(" of {}", show_size(size)));
            let requests = progress.requests;
            let pass =
                if passes > 1 { format!("pass {pass} of {passes}: ") } else { String::new() };
            format!("{pass}{read}{} read, {requests} requests", of.unwrap_or_default())
        });
    });
    found.map_err(|error| explain(&error))
}

fn explain(error: &AnalysisError) -> Failure {
    Failure::of_usage(error.to_string(), error.hint())
}
