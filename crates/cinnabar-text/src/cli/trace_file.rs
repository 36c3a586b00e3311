//! What is said when a trace can't be written.

use crate::Failure;
use std::io::{self, ErrorKind};
use std::path::Path;

/// What is wrong, by what the system said.
pub fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::NotFound => "make its folder first",
        ErrorKind::StorageFull => "free some space, or write it elsewhere; .zst is a tenth of it",
        _ => "--out names the trace file to write",
    };
    let message = format!("can't write {}: {error}", path.display());
    // A path that can't be is the caller's mistake; a full disk is not.
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::PermissionDenied => Failure::of_usage(message, hint),
        _ => Failure::at_run_time(message, hint),
    }
}
