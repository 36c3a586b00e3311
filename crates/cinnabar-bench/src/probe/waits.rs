//! Time in which the probe was ready to run and had no CPU: what it measures then is not the device.
//!
//! On a host with work of its own a thread is kept from the CPU for milliseconds now and then, forty
//! times what a flash drive takes.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What a wait has to take before it is worth asking the kernel, in ns: asking takes a few thousand.
const WORTH_NS: u64 = 200_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Waits {
    /// The scheduler's record of this thread, if the kernel keeps one.
    record: Option<File>,
    /// Time on the run queue at the last reading, in ns.
    read_ns: u64,
    /// When it was last looked.
    looked: u64,
    lost_ns: u64,
}

impl Waits {
    /// Those of the calling thread.
    pub(super) fn new(now: u64) -> Self {
        let mut waits = Self {
            record: File::open("/proc/thread-self/schedstat").ok(),
            read_ns: 0,
            looked: now,
            lost_ns: 0,
        };
        waits.read_ns = waits.read().unwrap_or(0);
        waits
    }

    /// Time lost until now, in ns, as far as it came in pieces that matter.
    pub(super) fn look(&mut self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.looked);
        self.looked = now;
        if passed > WORTH_NS
            && let Some(read_ns) = self.read()
        {
            self.lost_ns += read_ns.saturating_sub(self.read_ns).min(passed);
            self.read_ns = read_ns;
        }
        self.lost_ns
    }

    /// Time lost until the last look, in ns.
    pub(super) fn lost_ns(&self) -> u64 {
        self.lost_ns
    }

    fn read(&self) -> Option<u64> {
        let mut bytes = [0; 96];
        let len = self.record.as_ref()?.read_at(&mut bytes, 0).ok()?;
        waited(std::str::from_utf8(&bytes[..len]).ok()?)
    }
}

/// The second of the three numbers: time on the CPU, time on the run queue, turns.
fn waited(record: &str) -> Option<u64> {
    record.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_understood() {
        assert_eq!(waited("12345 678 9\n"), Some(678));
        assert_eq!(waited("12345"), None);
        assert_eq!(waited("a b c"), None);
    }

    #[test]
    fn no_more_is_lost_than_has_passed() {
        let mut waits = Waits { record: None, read_ns: 0, looked: 0, lost_ns: 7 };
        assert_eq!(waits.look(1_000_000), 7, "nothing is known");
        waits = Waits::new(0);
        // As if all of the thread's life had passed since.
        waits.read_ns = 0;
        assert!(waits.look(WORTH_NS) == 0, "not worth it");
        assert!(waits.look(3 * WORTH_NS) <= 2 * WORTH_NS);
    }
}
