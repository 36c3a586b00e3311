//! A backend's proof of who it is and when it was last written, and what it says of an older one.
//!
//! Called by the simulated backends and by the drivers at each attach. The rule is the one for
//! files: equality after a clean detach; after a crash the change time may have moved, but not
//! beyond the stated window.

use cinnabar_engine::volume::{Belief, Epoch, Recorded};

/// Period and grace of design.md: how much later than the last recorded time our own writes may
/// have changed a volume.
pub const WINDOW_NS: u64 = 3_000_000_000;

/// A proof, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Who: a volume that is deleted and created anew is another one.
    pub identity: u64,
    /// Size in sectors.
    pub sectors: u64,
    /// When it was last changed, by the backend's clock, in ns.
    pub change: u64,
    /// The backend's clock when the proof was taken, in ns.
    pub now: u64,
}

impl Proof {
    /// As the engine keeps it.
    pub fn encode(self) -> Epoch {
        let mut bytes = [0; 64];
        let fields = [self.identity, self.sectors, self.change, self.now];
        for (at, field) in (0..).step_by(8).zip(fields) {
            bytes[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        Epoch(bytes)
    }

    /// What [`Proof::encode`] made.
    ///
    /// # Panics
    /// Never: there are bytes enough.
    pub fn decode(epoch: &Epoch) -> Self {
        let field = |index: usize| {
            let bytes = epoch.0[8 * index..8 * index + 8].try_into();
            u64::from_le_bytes(bytes.expect("eight bytes"))
        };
        Self { identity: field(0), sectors: field(1), change: field(2), now: field(3) }
    }
}

/// What the backend makes of what the cache device has recorded.
pub fn judge(then: Option<&Recorded>, now: Option<&Epoch>) -> Belief {
    let recorded = then.and_then(|then| Some((Proof::decode(then.epoch.as_ref()?), then.written)));
    let (Some((then, written)), Some(now)) = (recorded, now.map(Proof::decode)) else {
        return Belief::Unknown;
    };
    let latest = if written { then.now + WINDOW_NS } else { then.change };
    let same = then.identity == now.identity && then.sectors == now.sectors;
    if same && (then.change..=latest.max(then.change)).contains(&now.change) {
        Belief::Unchanged
    } else {
        Belief::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn belief(written: bool, now: Proof) -> Belief {
        let then = Proof { identity: 7, sectors: 8, change: 100, now: 200 };
        let recorded = Recorded { epoch: Some(then.encode()), written };
        judge(Some(&recorded), Some(&now.encode()))
    }

    #[test]
    fn the_window_is_open_only_after_a_crash() {
        let now = |change| Proof { identity: 7, sectors: 8, change, now: u64::MAX };
        assert_eq!(belief(false, now(100)), Belief::Unchanged);
        assert_eq!(belief(false, now(101)), Belief::Changed);
        assert_eq!(belief(true, now(99)), Belief::Changed);
        assert_eq!(belief(true, now(200 + WINDOW_NS)), Belief::Unchanged);
        assert_eq!(belief(true, now(201 + WINDOW_NS)), Belief::Changed);
        assert_eq!(belief(true, Proof { identity: 8, ..now(100) }), Belief::Changed);
        assert_eq!(belief(true, Proof { sectors: 9, ..now(100) }), Belief::Changed);
        assert_eq!(judge(None, Some(&now(100).encode())), Belief::Unknown);
    }
}
