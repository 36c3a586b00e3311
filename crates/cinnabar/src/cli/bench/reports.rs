//! Files that a benchmark writes its report into: looked at before it runs, for a run may take hours.
//!
//! Called by the benchmarks that overwrite storage.

use crate::bench::target::{UnitSpec, is_part};
use crate::cli::failure::Failure;
use std::path::Path;

/// Refuses a file that can't be made, or that is storage under test or the cache.
pub(super) fn check(
    flag: &str,
    path: &Path,
    units: &[UnitSpec],
    cache: Option<&Path>,
) -> Result<(), Failure> {
    let shown = path.display();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let wrong = |why: &str, hint| Err(Failure::of_usage(format!("{flag} {shown}: {why}"), hint));
    if is_part(units, cache, path) {
        return wrong("that is storage under test, or the cache", "name another file");
    }
    if path.is_dir() {
        return wrong("it is a directory", "name a file in it");
    }
    if !folder.unwrap_or(Path::new(".")).is_dir() {
        return wrong("its folder does not exist", "create the folder first");
    }
    Ok(())
}
