//! How long turns are: short while an export asks for little.
//!
//! A request waits for what others have in some two turns: until it is received, until it has been read. Short turns
//! keep that wait short, and cost throughput: system calls and wake-ups for every few requests. So turns are short
//! only while there is an export that they help, one that has had little in each of its turns lately. Exports that
//! all ask for much lose nothing by each other.

use cinnabar_engine::seam::units::Instant;

/// Data that count as one request.
pub(crate) const COST_BYTES: u64 = 64 << 10;
/// What an export may have in a short turn. One that has no more than that in its turns asks for little.
pub(crate) const SHORT: i64 = 4;
/// How long turns stay short after a request of one that asks for little: its next one may be on its way.
const LATELY_NS: u64 = 5_000_000;
/// How long one counts as asking for much after it has.
const MUCH_NS: u64 = 50_000_000;

/// What a request with so many bytes of data takes of a turn.
pub(crate) fn cost(data_bytes: u64) -> i64 {
    (data_bytes / COST_BYTES).max(1).cast_signed()
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct TurnLength {
    short_until: Instant,
}

impl TurnLength {
    pub(crate) fn is_short(&self, now: Instant) -> bool {
        now < self.short_until
    }

    /// An export was served. `much_until` is that export's own.
    pub(crate) fn note(&mut self, now: Instant, much_until: &mut Instant, had_much: bool) {
        if had_much {
            *much_until = now.plus_ns(MUCH_NS);
        } else if *much_until <= now {
            self.short_until = now.plus_ns(LATELY_NS);
        }
    }

    /// Until when turns are short.
    pub(crate) fn short_until(&self) -> Instant {
        self.short_until
    }

    /// Turns of a server beside this one are short until then.
    pub(crate) fn follow(&mut self, short_until: Instant) {
        self.short_until = self.short_until.max(short_until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_short_for_as_long_as_an_export_asks_for_little() {
        let mut turns = TurnLength::default();
        let [mut much, mut little] = [Instant::default(); 2];
        let mut now = Instant(1);
        turns.note(now, &mut much, true);
        turns.note(now, &mut much, false);
        assert!(!turns.is_short(now), "it has asked for much lately");
        turns.note(now, &mut little, false);
        assert!(
            turns.is_short(now.plus_ns(LATELY_NS - 1)) && !turns.is_short(now.plus_ns(LATELY_NS))
        );
        now = now.plus_ns(MUCH_NS);
        turns.note(now, &mut much, false);
        assert!(turns.is_short(now), "it asks for little by now");
    }
}
