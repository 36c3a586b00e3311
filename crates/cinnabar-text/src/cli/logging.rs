//! The log: one line an event, on stderr.
//!
//! `CINNABAR_LOG` filters, e.g. `debug` or `info,cinnabar::daemon=trace`. Whatever becomes of stderr,
//! a thread that logs goes on at once (`log_queue`).

use super::log_queue::LogQueue;
use crate::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The variable with the filter.
const VARIABLE: &str = "CINNABAR_LOG";
/// systemd sets it where stderr is the journal, which has the time of each line already.
const JOURNAL: &str = "JOURNAL_STREAM";
/// Longest wait for stderr at the end of the process.
pub(super) const END_WAIT_MAX: Duration = Duration::from_secs(2);
/// Between two tries of a stderr that takes nothing and does not block.
const RETRY_EVERY: Duration = Duration::from_millis(10);

/// The log of this process, once it has one.
static LOG: OnceLock<LogQueue> = OnceLock::new();

/// Sets the log up for the rest of the process, which [`program::main`](super::program::main) ends.
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
    let failed = |error: &dyn std::fmt::Display| {
        Failure::at_run_time(format!("can't set up the log: {error}"), "")
    };
    let queue = LogQueue::start(Stderr, lost).map_err(|error| failed(&error))?;
    let lines = queue.clone();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || lines.clone())
        // It would write to stderr by itself, and panic if that fails.
        .log_internal_errors(false)
        .with_ansi(false)
        .with_target(false);
    let done = match std::env::var_os(JOURNAL) {
        Some(_) => log.without_time().try_init(),
        None => log.try_init(),
    };
    done.map_err(|error| failed(&error))?;
    // A second one would have failed above.
    let _first = LOG.set(queue);
    Ok(())
}

/// Writes out what is logged, if there is a log; no longer than this.
pub(super) fn flush(wait_max: Duration) {
    if let Some(queue) = LOG.get() {
        // Who does not read it does not miss it.
        let _written = queue.flush(wait_max);
    }
}

/// Has the log tell how the process failed, as its last word; false if there is none.
pub(super) fn tells(failure: &Failure) -> bool {
    let Some(queue) = LOG.get() else { return false };
    if failure.code != 0 {
        queue.push_last(super::failure::text(failure).as_bytes());
    }
    true
}

/// The line that tells of lost ones, as an event looks.
fn lost(lines: u64, why: &str) -> String {
    let mut line = String::new();
    if std::env::var_os(JOURNAL).is_none()
        && SystemTime.format_time(&mut Writer::new(&mut line)).is_ok()
    {
        line.push(' ');
    }
    line + &format!(" WARN lines of the log are lost: {why} lines={lines}\n")
}

/// The descriptor itself: a lock of the library's would be held by a write that does not end.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let stderr = std::io::stderr();
        loop {
            match rustix::io::write(&stderr, bytes) {
                // Others, who share it, may have made it so.
                Err(errno) if errno.kind() == ErrorKind::WouldBlock => {
                    let wait_max = Timespec { tv_sec: 1, tv_nsec: 0 };
                    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
                    let _again_anyway = poll(&mut fds, Some(&wait_max));
                    std::thread::sleep(RETRY_EVERY);
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
