//! Recorded traces, read.

#[path = "../../../cinnabar-trace/tests/it/files.rs"]
mod files;

use cinnabar_trace::{Record, TraceError};

/// A recorded trace; says so if it is not there.
pub(crate) fn shared_trace(name: &str) -> Option<Vec<Record>> {
    files::find(name).map(|path| load(&path))
}

/// The first part of `self_loop4`.
pub(crate) fn fixture() -> Vec<Record> {
    load(&files::fixture())
}

fn load(path: &std::path::Path) -> Vec<Record> {
    let records = cinnabar_trace::open(path).expect("the trace opens");
    records.collect::<Result<_, TraceError>>().expect("the trace is valid")
}
