//! Files that a benchmark writes its report into: none of the storage that it measures.

use cinnabar_bench::target::{UnitSpec, is_part};
use cinnabar_text::Failure;
use cinnabar_text::cli::report_file;
use std::path::Path;

/// Refuses a file that can't be made, or that is storage under test or the cache.
pub(super) fn check(
    flag: &str,
    path: &Path,
    units: &[UnitSpec],
    cache: Option<&Path>,
) -> Result<(), Failure> {
    if is_part(units, cache, path) {
        let why = "that is storage under test, or the cache";
        return Err(report_file::wrong(flag, path, why, "name another file"));
    }
    report_file::check(flag, path)
}
