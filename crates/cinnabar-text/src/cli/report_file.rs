//! Files that a command writes its report into: looked at before it runs, for a run may take hours.

use crate::Failure;
use std::path::Path;

/// Refuses a path where no file can be made.
///
/// # Errors
/// One of usage, with the flag and the path.
pub fn check(flag: &str, path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Err(wrong(flag, path, "it is a directory", "name a file in it"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if !folder.unwrap_or(Path::new(".")).is_dir() {
        return Err(wrong(flag, path, "its folder does not exist", "create the folder first"));
    }
    Ok(())
}

/// Refuses a path that is one of the files that the command reads, whatever name it has there.
///
/// # Errors
/// One of usage, with the flag, the path and `what` it is.
pub fn keep<P: AsRef<Path>>(
    flag: &str,
    path: &Path,
    inputs: impl IntoIterator<Item = P>,
    what: &str,
) -> Result<(), Failure> {
    // What is not there yet is nothing that could be lost.
    let Ok(real) = path.canonicalize() else { return Ok(()) };
    let is = |input: P| input.as_ref().canonicalize().is_ok_and(|input| input == real);
    if inputs.into_iter().any(is) {
        return Err(wrong(flag, path, &format!("that is {what}"), "name another file"));
    }
    Ok(())
}

pub fn wrong(flag: &str, path: &Path, why: &str, hint: &str) -> Failure {
    Failure::of_usage(format!("{flag} {}: {why}", path.display()), hint)
}
