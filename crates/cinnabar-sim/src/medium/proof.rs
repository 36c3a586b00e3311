//! A simulated backend's change proof, and what it says of an older one.
//!
//! The comparison is the production one ([`ChangeProof`]); packing alone is the simulator's.

use cinnabar_driver::{ChangeProof, change_proof};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::volume::{Belief, ProofToken, Recorded};

/// How much later than the last recorded time our own writes may have changed a volume.
pub const WINDOW_NS: u64 = change_proof::WINDOW_NS.cast_unsigned();

/// A proof, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Who: a volume that is deleted and created again is another one.
    pub identity: u64,
    /// Size in sectors.
    pub sectors: u64,
    /// When it was last changed, by the backend's clock, in ns.
    pub change: u64,
    /// The backend's clock when the proof was taken, in ns.
    pub now: u64,
    /// In which attachment of the volume.
    pub attachment: u64,
}

impl Proof {
    /// As the engine keeps it.
    pub fn encode(self) -> ProofToken {
        let mut bytes = [0; 64];
        let Self { identity, sectors, change, now, attachment } = self;
        let fields = [identity, sectors, change, now];
        for (at, field) in (0..).step_by(8).zip(fields) {
            bytes[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        ProofToken(bytes).of_attachment(attachment)
    }

    /// What [`Proof::encode`] made.
    ///
    /// # Panics
    /// Never: there are bytes enough.
    pub fn decode(proof: &ProofToken) -> Self {
        let field = |index: usize| {
            let bytes = proof.0[8 * index..8 * index + 8].try_into();
            u64::from_le_bytes(bytes.expect("eight bytes"))
        };
        Self {
            identity: field(0),
            sectors: field(1),
            change: field(2),
            now: field(3),
            attachment: proof.attachment(),
        }
    }

    /// As production compares it.
    const fn unpacked(self) -> ChangeProof<(u64, u64)> {
        ChangeProof {
            identity: (self.identity, self.sectors),
            change_ns: self.change.cast_signed(),
            now_ns: self.now.cast_signed(),
        }
    }
}

/// What the backend makes of what a shard of a cache device has recorded.
pub fn judge_one(recorded: &Recorded, now: Option<&ProofToken>, mutants: Mutants) -> Belief {
    let (Some(then), Some(now)) = (&recorded.proof, now) else { return Belief::Unknown };
    Proof::decode(then).unpacked().judge(recorded.written, &Proof::decode(now).unpacked(), mutants)
}

/// The same of all shards.
pub fn judge(recorded: &[Recorded], now: Option<&ProofToken>, mutants: Mutants) -> Belief {
    Belief::of_all(recorded, |one| judge_one(one, now, mutants))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(attachment: u64, now: u64, written: bool) -> Recorded {
        let then = Proof { identity: 7, sectors: 8, change: 100, now, attachment };
        Recorded { proof: Some(then.encode()), written }
    }

    fn belief(written: bool, now: Proof) -> Belief {
        judge(&[recorded(1, 200, written)], Some(&now.encode()), Mutants::default())
    }

    #[test]
    fn the_window_is_open_only_after_a_crash() {
        let now = |change| Proof { identity: 7, sectors: 8, change, now: u64::MAX, attachment: 0 };
        assert_eq!(belief(false, now(100)), Belief::Unchanged);
        assert_eq!(belief(false, now(101)), Belief::Changed);
        assert_eq!(belief(true, now(99)), Belief::Changed);
        assert_eq!(belief(true, now(200 + WINDOW_NS)), Belief::Unchanged);
        assert_eq!(belief(true, now(201 + WINDOW_NS)), Belief::Unknown);
        assert_eq!(belief(true, Proof { identity: 8, ..now(100) }), Belief::Changed);
        assert_eq!(belief(true, Proof { sectors: 9, ..now(100) }), Belief::Changed);
        assert_eq!(judge(&[], Some(&now(100).encode()), Mutants::default()), Belief::Unknown);
    }

    #[test]
    fn the_newest_proof_speaks_for_its_own_attachment_only() {
        let now = Proof { identity: 7, sectors: 8, change: 300 + WINDOW_NS, now: 0, attachment: 3 };
        let judge =
            |recorded: &[Recorded]| judge(recorded, Some(&now.encode()), Mutants::default());
        let (idle, busy) = (recorded(1, 200, true), recorded(1, 300, true));
        assert_eq!(judge(std::slice::from_ref(&idle)), Belief::Unknown);
        assert_eq!(judge(&[idle.clone(), busy]), Belief::Unchanged);
        assert_eq!(judge(&[idle.clone(), recorded(2, 300, true)]), Belief::Unknown);
        assert_eq!(judge(&[idle, recorded(1, 300, false)]), Belief::Changed, "sealed since");
        let unproven = Recorded { proof: None, written: true };
        assert_eq!(judge(&[unproven, recorded(2, 300, true)]), Belief::Unknown);
    }
}
