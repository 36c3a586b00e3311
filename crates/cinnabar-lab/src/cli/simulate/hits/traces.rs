//! Opening traces, watching how far they are read, and what to say if they are wrong.

use super::explain;
use cinnabar_study::hits::{self, Found, HitsError, Options, Progress, Survey};
use cinnabar_text::Failure;
use cinnabar_text::cli::progress;
use cinnabar_trace::{Record, Trace, TraceError};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests after which it is looked how far the file is read.
const LOOK_EVERY: u64 = 4096;

pub(super) fn simulate(path: &Path, options: &Options) -> Result<Found, Failure> {
    let watched = Watched::open(path)?;
    let part = watched.part.clone();
    let mut line = progress::Progress::new();
    let caches = options.runs.len();
    let found = hits::run(watched, options, &mut |progress| {
        line.show(|| match progress {
            Progress::Reading(survey) => {
                format!("{}: {}{caches} caches", path.display(), read(&part, &survey))
            }
            Progress::Foreseeing { done, of } => {
                format!("{}: belady, {} %", path.display(), done * 100 / of.max(1))
            }
        });
    });
    found.map_err(|error| explain(path, &error))
}

pub(super) fn survey(path: &Path) -> Result<Survey, Failure> {
    // What is no file gives its bytes once.
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Err(Failure::of_usage(
            format!("{}: not a file; for a size in % a trace is read twice", path.display()),
            "give sizes in blocks or bytes (--size 65536,1GiB), or keep the trace in a file",
        ));
    }
    let watched = Watched::open(path)?;
    let part = watched.part.clone();
    let mut line = progress::Progress::new();
    let found = hits::survey(watched, |survey| {
        line.show(|| format!("{}: {}counting blocks", path.display(), read(&part, &survey)));
    });
    found.map_err(|error| explain(path, &error))
}

/// What is wrong with what was asked for, whatever the trace.
pub(super) fn usage(error: &HitsError) -> Failure {
    Failure::of_usage(error.to_string(), error.hint())
}

fn read(part: &Part, survey: &Survey) -> String {
    let millions = survey.references as f64 / 1e6;
    let percent = part.percent().map(|percent| format!("{percent} %, ")).unwrap_or_default();
    format!("{percent}{millions:.1} M references, {} different, ", survey.blocks)
}

/// How much of a file is read.
#[derive(Clone, Debug)]
struct Part {
    bytes: Arc<AtomicU64>,
    of: Option<u64>,
}

impl Part {
    fn percent(&self) -> Option<u64> {
        self.of.map(|of| self.bytes.load(Ordering::Relaxed).min(of) * 100 / of.max(1))
    }
}

/// A trace that tells how far it is, to another thread.
struct Watched {
    trace: Trace,
    requests: u64,
    part: Part,
}

impl Watched {
    fn open(path: &Path) -> Result<Self, Failure> {
        let trace = cinnabar_trace::open(path).map_err(|error| explain(path, &error.into()))?;
        let part = Part { bytes: Arc::default(), of: trace.size_bytes() };
        Ok(Self { trace, requests: 0, part })
    }
}

impl Iterator for Watched {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.requests += 1;
        if self.requests.is_multiple_of(LOOK_EVERY) {
            self.part.bytes.store(self.trace.bytes_read(), Ordering::Relaxed);
        }
        self.trace.next()
    }
}
