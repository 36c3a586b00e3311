//! A line on stderr that says how far long work is; nobody sees it where stderr is no terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Often enough to be lively, seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(200);

/// The line; it is wiped off when dropped.
#[derive(Debug)]
pub struct Progress {
    visible: bool,
    written: Option<Instant>,
}

impl Progress {
    /// A line that shows nothing yet.
    pub fn new() -> Self {
        Self { visible: std::io::stderr().is_terminal(), written: None }
    }

    /// Rewrites the line, if it is time to.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        let due = self.written.is_none_or(|written| written.elapsed() >= EVERY);
        if self.visible && due {
            self.written = Some(Instant::now());
            // If stderr is gone there is nobody to tell.
            let _gone = write!(std::io::stderr().lock(), "\r\x1b[K{}", text());
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.written.is_some() {
            let _gone = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
