//! Waiting: by looking for a moment, where something usually comes in less time than a sleep and a
//! wake-up take, else by sleeping.
//!
//! Measured here: waking an idle CPU takes 30 to 60 us, several times what a hit takes. How long it
//! usually is until something comes is a moving average; a thread that waits longer than it may
//! look, on average, does not look at all, so an idle daemon sleeps.

use super::clock::Clock;
use cinnabar_backend::port::{Port, PortEvent};
use cinnabar_engine::units::Instant;
use std::time::Duration;

/// Looks between two readings of the clock.
const LOOKS: u32 = 16;
/// A wait counts as this many times the longest look at most, so that a pause is soon forgotten.
const PAUSE_MAX: u64 = 8;

/// See the module.
pub(super) struct Idle {
    look_max_ns: u64,
    /// Usual time until something comes.
    usual_ns: u64,
}

impl Idle {
    /// `look_max` is the longest look; zero: never.
    pub(super) fn new(look_max: Duration) -> Self {
        let look_max_ns = u64::try_from(look_max.as_nanos()).unwrap_or(u64::MAX / PAUSE_MAX);
        Self { look_max_ns, usual_ns: u64::MAX / 2 }
    }

    /// Whether the next wait begins with looking.
    pub(super) fn looks(&self) -> bool {
        self.usual_ns <= self.look_max_ns && self.look_max_ns > 0
    }

    /// Waits until the port has something, `others` says so, or `until` has come. `sleeps` is called
    /// before the thread sleeps; true if that must not be, for something came.
    pub(super) fn wait(
        &mut self,
        clock: Clock,
        port: &mut dyn Port,
        until: Option<Instant>,
        mut others: impl FnMut(Instant) -> bool,
        sleeps: impl FnOnce() -> bool,
        events: &mut Vec<PortEvent>,
    ) -> rustix::io::Result<()> {
        let start = clock.now();
        if until.is_some_and(|until| until <= start) {
            return port.wait(Some(Duration::ZERO), events);
        }
        if self.looks() {
            let end = start.plus_ns(self.look_max_ns);
            let end = until.map_or(end, |until| until.min(end));
            loop {
                let mut now = clock.now();
                for _ in 0..LOOKS {
                    port.wait(Some(Duration::ZERO), events)?;
                    if !events.is_empty() || others(now) {
                        now = clock.now();
                        self.came(now.since_ns(start));
                        return Ok(());
                    }
                    std::hint::spin_loop();
                }
                if now >= end {
                    break;
                }
            }
        }
        if sleeps() {
            self.came(clock.now().since_ns(start));
            return port.wait(Some(Duration::ZERO), events);
        }
        let now = clock.now();
        let timeout = until.map(|until| Duration::from_nanos(until.since_ns(now)));
        port.wait(timeout, events)?;
        self.came(clock.now().since_ns(start));
        Ok(())
    }

    /// Something came after so long.
    fn came(&mut self, ns: u64) {
        let ns = ns.min(self.look_max_ns.saturating_mul(PAUSE_MAX));
        let usual = self.usual_ns.min(self.look_max_ns.saturating_mul(PAUSE_MAX));
        self.usual_ns = (usual * 7 + ns) / 8;
    }
}
