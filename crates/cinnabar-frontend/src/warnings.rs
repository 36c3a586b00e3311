//! Bounds what hostile clients can write into the log.

use cinnabar_engine::seam::units::Instant;

/// Warnings about clients logged in one second; more are only counted.
const WARNINGS_PER_SECOND: u32 = 20;
const SECOND_NS: u64 = 1_000_000_000;

/// Counts the warnings of the last second.
#[derive(Debug)]
pub(crate) struct Warnings {
    /// What the clients speak.
    protocol: &'static str,
    since: Instant,
    count: u32,
}

impl Warnings {
    pub(crate) fn new(protocol: &'static str) -> Self {
        Self { protocol, since: Instant::default(), count: 0 }
    }

    /// Whether one more may be logged.
    pub(crate) fn allow(&mut self, now: Instant) -> bool {
        if now.since_ns(self.since) >= SECOND_NS {
            if self.count > WARNINGS_PER_SECOND {
                let (unsaid, protocol) = (self.count - WARNINGS_PER_SECOND, self.protocol);
                tracing::warn!(
                    unsaid,
                    protocol,
                    "more clients were disconnected or refused than logged"
                );
            }
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= WARNINGS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_write_twenty_lines_a_second_whatever_they_do() {
        let mut warnings = Warnings::new("NBD");
        for second in 1..5 {
            let at = |ms: u64| Instant(second * SECOND_NS + ms * (SECOND_NS / 1000));
            let told = (0..999).filter(|ms| warnings.allow(at(*ms))).count();
            assert_eq!(told, WARNINGS_PER_SECOND as usize, "in second {second}");
        }
    }
}
