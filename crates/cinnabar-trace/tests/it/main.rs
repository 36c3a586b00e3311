//! Tests of the readers, and of golden counts with simulators that share no code with the engine.

mod bad;
mod canonical;
mod desktop;
mod generators;
mod golden;
mod packing;
mod raw;
mod reference;
mod samples;
mod spc1;
mod working_set;
mod write;
mod writers;

use std::path::PathBuf;

/// The part of `self_loop4` that lives in the tree.
fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/self_loop4_first100k.canon.csv.zst")
}

/// A trace that may not be there; says so if it is not.
fn shared_trace(name: &str) -> Option<PathBuf> {
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
