//! How a command's failure is printed.

use crate::{Failure, shown};
use std::io::Write;

/// Prints a failure to stderr: its line, then its hint.
pub fn print(failure: &Failure) {
    if failure.code == 0 {
        return;
    }
    // A closed stderr is no reason to fail.
    let _gone = std::io::stderr().lock().write_all(text(failure).as_bytes());
}

pub(super) fn text(failure: &Failure) -> String {
    let error = format!("error: {}\n", shown(&failure.message));
    if failure.hint.is_empty() {
        error
    } else {
        error + &format!("hint: {}\n", shown(&failure.hint))
    }
}
