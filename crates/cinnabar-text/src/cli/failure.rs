//! How a command's failure is printed.

use crate::Failure;
use std::io::Write;

/// Prints a failure to stderr: its line, then its hint.
pub fn print(failure: &Failure) {
    if failure.code == 0 {
        return;
    }
    let mut stderr = std::io::stderr().lock();
    // A closed stderr is no reason to fail.
    let _gone = writeln!(stderr, "error: {}", failure.message);
    if !failure.hint.is_empty() {
        let _gone = writeln!(stderr, "hint: {}", failure.hint);
    }
}
