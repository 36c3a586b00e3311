//! Real traces, where they are there.

use cinnabar_trace::{Record, TraceError};
use std::path::PathBuf;

/// A trace that may not be there.
pub(crate) fn shared_trace(name: &str) -> Option<Vec<Record>> {
    shared_path(name).map(|path| load(&path))
}

/// A file of the shared traces; says so if it is not there.
pub(crate) fn shared_path(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("CINNABAR_TRACES")
        .map_or_else(|| root.join("../shared/traces"), |folder| root.join(folder));
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: traces not present ({})", path.display());
    None
}

/// The part of a trace that lives in the tree.
pub(crate) fn fixture() -> Vec<Record> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../cinnabar-trace/data");
    load(&root.join("self_loop4_first100k.canon.csv.zst"))
}

fn load(path: &std::path::Path) -> Vec<Record> {
    let records = cinnabar_trace::open(path).expect("the trace opens");
    records.collect::<Result<_, TraceError>>().expect("the trace is valid")
}
