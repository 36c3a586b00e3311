//! The signals that ask a process to end: SIGTERM, SIGINT, SIGHUP.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// See the module.
#[derive(Debug)]
pub struct Signals([Signal; 3]);

impl Signals {
    /// Takes them from now on; without a waiter they do nothing any more.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self([
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
