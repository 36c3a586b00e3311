//! Talk on stderr, beside the data on stdout.

use std::fmt::Display;
use std::io::Write;

/// A line. That nobody reads it is no reason to end half-way, as `eprintln!` would.
pub fn line(text: impl Display) {
    let _gone = writeln!(std::io::stderr().lock(), "{text}");
}
