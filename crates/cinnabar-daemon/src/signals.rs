//! The signals that ask a process to end: SIGTERM, SIGINT, and SIGHUP unless that means something else.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// See the module.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes them from now on; without a waiter they do nothing any more.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> std::io::Result<Self> {
        Self::with_hangup(signal(SignalKind::hangup())?)
    }

    /// The same, of which SIGHUP was taken earlier.
    ///
    /// # Errors
    /// What the system says.
    pub fn with_hangup(hangup: Signal) -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: Some(hangup),
        })
    }

    /// SIGHUP is no request to end any more, but for its taker to wait for.
    pub fn take_hangup(&mut self) -> Option<Signal> {
        self.hangup.take()
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => {
                    let _open = signal.recv().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = hangup => {}
        }
    }
}
