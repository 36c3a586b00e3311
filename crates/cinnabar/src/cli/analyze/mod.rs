//! `cinnabar analyze`: would a cache help, how large, and with which policy?
//!
//! Called by the command line. [`args`] says what to do, the simulator's analysis does it, and the other
//! files show what it found: [`show`] to people, [`json`] to programs, [`page`] as a report.

mod args;
mod compare;
mod json;
mod page;
mod rows;
mod show;
mod values;
mod words;

pub(super) use args::Args;

use super::failure::Failure;
use super::output;
use super::progress::Progress;
use crate::config::units::show_size;
use cinnabar_sim::analysis::{self, Analysis, AnalysisError, Settings};
use std::io::Write;
use std::path::Path;

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let settings = args.settings()?;
    check_page(args)?;
    if args.compare.compare {
        return compare::run(args, &settings);
    }
    let analysis = analyze(&settings)?;
    if let Some(path) = &args.html {
        let page = page::page(&analysis, &settings, args.volumes as usize);
        page.save(path).map_err(|error| Failure::at_run_time(error.to_string(), error.hint()))?;
    }
    if args.json {
        return output::json(&json::document(&analysis, &settings));
    }
    for note in words::notes(&analysis) {
        // If stderr is gone there is nobody to tell.
        let _gone = writeln!(std::io::stderr().lock(), "note: {note}");
    }
    output::text(&show::render(&analysis, &settings, args.volumes as usize))
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

/// A report that can't be written, or that would replace a trace, is found out before the work.
fn check_page(args: &Args) -> Result<(), Failure> {
    let Some(path) = &args.html else { return Ok(()) };
    let wrong = |why: &str, hint: &str| {
        Err(Failure::of_usage(format!("--html {}: {why}", path.display()), hint))
    };
    let whole = path.canonicalize().ok();
    if whole.is_some() && args.traces.iter().any(|trace| trace.canonicalize().ok() == whole) {
        return wrong("that is a trace", "name another file");
    }
    if path.is_dir() {
        return wrong("it is a directory", "name a file in it");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if !folder.unwrap_or(Path::new(".")).is_dir() {
        return wrong("its folder does not exist", "create the folder first");
    }
    Ok(())
}

fn explain(error: &AnalysisError) -> Failure {
    Failure::of_usage(error.to_string(), error.hint())
}
