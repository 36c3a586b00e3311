//! The log: one line an event, on stderr.
//!
//! `CINNABAR_LOG` filters, e.g. `debug` or `info,cinnabar::daemon=trace`.

use crate::Failure;
use tracing_subscriber::EnvFilter;

/// The variable with the filter.
const VARIABLE: &str = "CINNABAR_LOG";

/// Sets the log up for the rest of the process.
///
/// # Errors
/// One of usage if the filter is none.
pub fn init() -> Result<(), Failure> {
    let filter = match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            Failure::of_usage(
                format!("{VARIABLE}={text:?} is no filter: {error}"),
                format!("set {VARIABLE} to error, warn, info, debug or trace"),
            )
        })?,
        _ => EnvFilter::new("info"),
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false);
    // The journal has the time already.
    let done = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => log.without_time().try_init(),
        None => log.try_init(),
    };
    done.map_err(|error| Failure::at_run_time(format!("can't set up the log: {error}"), ""))
}
