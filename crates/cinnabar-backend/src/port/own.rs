//! A port let go of with care: what hangs in the kernel must not hang the thread that drops it.

use super::Port;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// Longest wait for I/O under way when it is dropped.
const DROP_WAIT_MAX: Duration = Duration::from_secs(5);

/// A port that is dropped within seconds, whatever is under way; then its memory, its files and their
/// locks stay with the kernel.
pub struct OwnPort(Option<Box<dyn Port>>);

impl OwnPort {
    /// Takes a port.
    pub fn new(port: Box<dyn Port>) -> Self {
        Self(Some(port))
    }
}

impl Deref for OwnPort {
    type Target = dyn Port;

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().expect("there until it is dropped")
    }
}

impl DerefMut for OwnPort {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_deref_mut().expect("there until it is dropped")
    }
}

impl Drop for OwnPort {
    fn drop(&mut self) {
        let Some(mut port) = self.0.take() else { return };
        let until = Instant::now() + DROP_WAIT_MAX;
        let mut events = Vec::new();
        while port.in_flight() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || port.wait(Some(left), &mut events).is_err() {
                tracing::warn!(in_flight = port.in_flight(), "ending with I/O under way");
                std::mem::forget(port);
                return;
            }
            events.clear();
        }
    }
}
