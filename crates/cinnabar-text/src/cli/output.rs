//! Writing data to stdout, for people and for programs.
//!
//! A reader that goes away early (`| head`) ends the command quietly.

use crate::{Failure, Table, percent_of, seen};
use clap::ValueEnum;
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static FITS_TERMINAL: AtomicBool = AtomicBool::new(false);

/// Writes bytes.
///
/// # Errors
/// A run-time failure if stdout can't be written; one that says nothing if its reader has gone away.
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Err(Failure { code: 0, message: String::new(), hint: String::new() })
        }
        Err(error) => Err(Failure::at_run_time(
            format!("can't write to stdout: {error}"),
            "is the disk full?",
        )),
    }
}

/// Writes text for people: characters in it that can't be seen are [written out](seen).
///
/// # Errors
/// As [`bytes`].
pub fn text(text: &str) -> Result<(), Failure> {
    bytes(seen(text).as_bytes())
}

/// Writes an object as one line of JSON, or several if people read it.
///
/// # Errors
/// As [`bytes`].
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let written = if std::io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    let line = written.map_err(|error| Failure::at_run_time(error.to_string(), ""))?;
    bytes((line + "\n").as_bytes())
}

/// `87.5%`: so many of a whole, short for columns; `-` of nothing.
pub fn ratio(part: u64, whole: u64) -> String {
    percent_of(part, whole).replace(' ', "")
}

/// A value as it is written, such as a mode.
pub fn value_name(value: &impl ValueEnum) -> String {
    // No variant is skipped, so each has a value.
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Whether colours are welcome.
pub fn colour(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !unwanted && stream.is_terminal()
}

/// Columns of the terminal that stdout is; `None` for files and pipes, which get all there is, and
/// before [`fit_terminal`].
pub fn width() -> Option<usize> {
    if !FITS_TERMINAL.load(Ordering::Relaxed) {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Has tables fit the terminal from now on: for programs. Tests must not depend on where they are
/// started.
pub fn fit_terminal() {
    FITS_TERMINAL.store(true, Ordering::Relaxed);
}

/// A table as text, as wide as the terminal at most if that can be done.
pub fn table(table: &Table) -> String {
    table.render(width())
}

/// `85us`, `8.1ms`, `1.2s`.
pub fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{:.1}ms", us as f64 / 1e3),
        _ => format!("{:.1}s", us as f64 / 1e6),
    }
}
