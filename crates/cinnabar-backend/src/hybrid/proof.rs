//! How a hybrid volume proves that nobody else wrote it: by the epoch of its owner.
//!
//! Who writes the volume through its table must lock that, and raises its epoch, durably, before the first
//! write. So the same epoch means that nobody has, whether the volume was detached or the daemon was
//! killed. Moves change the epoch as little as they change what is read.
//!
//! The table's inode and time of birth tell a table that was put back from a copy. What is not told is a
//! file system that was set back as a whole, or who writes objects' files behind the table.

use cinnabar_engine::volume::{Belief, ProofToken, Recorded};

/// What the layout of the 64 bytes is called.
const LAYOUT: u64 = 0x4000_0001;

/// What a token holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Of the volume.
    pub(super) identity: [u8; 16],
    /// Inode of the table's file, and its time of birth in ns, or 0.
    pub(super) table: (u64, u64),
    /// This owner's epoch.
    pub(super) epoch: u64,
    /// That of the last one that changed data otherwise than by writes.
    pub(super) changed: u64,
}

impl Seen {
    pub(super) fn pack(self) -> ProofToken {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&LAYOUT.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.identity);
        // The last eight bytes are the driver's.
        let fields = [self.table.0, self.table.1, self.epoch, self.changed];
        for (place, field) in bytes[24..56].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        ProofToken(bytes)
    }

    fn unpack(token: &ProofToken) -> Option<Self> {
        let field = |at: usize| token.0.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let identity = token.0[8..24].try_into().ok()?;
        let table = (field(24)?, field(32)?);
        let (epoch, changed) = (field(40)?, field(48)?);
        (field(0)? == LAYOUT).then_some(Self { identity, table, epoch, changed })
    }
}

/// See [`Proof::judge`](crate::Proof::judge).
pub(crate) fn judge(recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
    let then = recorded.proof.as_ref().and_then(Seen::unpack);
    let (Some(then), Some(now)) = (then, now.and_then(Seen::unpack)) else {
        return Belief::Unknown;
    };
    if (then.identity, then.table) != (now.identity, now.table) {
        return Belief::Changed;
    }
    if now.changed > then.epoch {
        // A command has cut data off, or given them up: no word of the operator's covers that.
        return Belief::Changed;
    }
    // The owner before this one.
    let found = now.epoch - 1;
    match then.epoch.cmp(&found) {
        std::cmp::Ordering::Equal => Belief::Unchanged,
        // Another owner in between.
        std::cmp::Ordering::Less => Belief::Unknown,
        std::cmp::Ordering::Greater => Belief::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_before_is_believed() {
        let seen = |epoch| Seen { identity: [3; 16], table: (7, 9), epoch, changed: 2 };
        let judged = |then: Seen, now: Seen| {
            let recorded = Recorded { proof: Some(then.pack()), written: true };
            judge(&recorded, Some(&now.pack()))
        };
        assert_eq!(judged(seen(4), seen(5)), Belief::Unchanged);
        // Another one came in between, or the table is from before.
        assert_eq!(judged(seen(4), seen(6)), Belief::Unknown);
        assert_eq!(judged(seen(4), seen(4)), Belief::Changed);
        assert_eq!(judged(seen(4), seen(2)), Belief::Changed);
        assert_eq!(judged(Seen { table: (8, 9), ..seen(4) }, seen(5)), Belief::Changed);
        assert_eq!(judged(Seen { identity: [4; 16], ..seen(4) }, seen(5)), Belief::Changed);
        assert_eq!(judged(seen(4), Seen { changed: 5, ..seen(6) }), Belief::Changed);
        assert_eq!(judged(seen(4), Seen { changed: 4, ..seen(5) }), Belief::Unchanged);
        let recorded = Recorded { proof: Some(ProofToken([1; 64])), written: false };
        assert_eq!(judge(&recorded, Some(&seen(5).pack())), Belief::Unknown);
    }
}
