//! Files that stand for clones and snapshots, for tests of the daemon without a cluster.
//!
//! `vm1.raw` holds what the clone shows. `vm1.raw.clone` beside it says of what file it is a clone and which
//! objects it has itself:
//!
//! ```text
//! parent /path/golden.raw
//! object 65536
//! overlap 8388608
//! own 3
//! ```
//!
//! Nobody keeps that file: what is written to `vm1.raw` is to be noted by the test. A file that is open for
//! reading only stands for a snapshot.

use super::{Lineage, Snapshot};
use cinnabar_driver::CloneMap;
use std::path::Path;
use std::sync::Arc;

/// The snapshot that a file stands for.
pub(crate) fn snapshot(path: &Path) -> Snapshot {
    let text = path.display().to_string();
    Snapshot::new(format!("file:{text}"), text)
}

/// What is said of a clone beside it; `None`: it is none.
pub(crate) fn lineage(path: &Path) -> Option<Lineage> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".clone");
    let text = std::fs::read_to_string(beside).ok()?;
    let all = |key: &'static str| {
        text.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix(' '))
    };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let one = |key| all(key).next().map(number);
    let (object, overlap) = (one("object").expect("object"), one("overlap").expect("overlap"));
    let map = CloneMap::new(object, overlap, all("own").map(number)).expect("a small map");
    let parent = all("parent").next().map(|path| snapshot(Path::new(path)));
    let parent = parent.ok_or_else(|| "the image is no clone (any more)".to_owned());
    Some(Lineage { parent, map: Arc::new(map) })
}
