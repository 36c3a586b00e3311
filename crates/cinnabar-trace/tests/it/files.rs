//! Where tests find recorded traces: the project's own in the tree, those of others in the folder that
//! `CINNABAR_TRACES` names.

use std::path::{Path, PathBuf};

/// The variable that names a folder of published traces; a relative one counts from the workspace's root.
const VARIABLE: &str = "CINNABAR_TRACES";

/// The traces in the tree.
pub(crate) fn tree() -> PathBuf {
    crates().join("cinnabar-trace/data")
}

/// The first part of `self_loop4`, small enough for slow tests.
pub(crate) fn fixture() -> PathBuf {
    tree().join("self_loop4_first100k.canon.csv.zst")
}

/// A recorded trace by the name of its file. If there is none, prints that a part of the test is
/// skipped, which `cargo xtask ci` counts.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let others = std::env::var_os(VARIABLE).map(|folder| crates().join("..").join(folder));
    let found = [Some(tree()), others].into_iter().flatten().map(|folder| folder.join(name));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        println!(
            "skipped: no trace {name} ({VARIABLE} names the folder of those outside the tree)"
        );
    }
    found
}

/// The folder of all crates: each that uses this file is one of them.
fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate lies in the folder of crates")
}
