//! How a hybrid volume proves that nobody else wrote it: by the epoch of its owner.
//!
//! Who writes the volume through its table must lock that, and raises its epoch, durably, before the first
//! write. So the same epoch means that nobody has, whether the volume was detached or the daemon was
//! killed. Moves change the epoch as little as they change what is read.
//!
//! The table's inode and time of birth tell a table in a file that was put back from a copy, and on Ceph a random
//! number of each taking: the table must have been found with that of the owner that wrote the proof. What is not
//! told is a file system or a table on Ceph that was set back to just the owner that wrote the proof, or who writes
//! objects behind the table.

use cinnabar_engine::volume::{Belief, ProofToken, Recorded};

/// What the layout of the 64 bytes is called, and the one with numbers of takings.
const LAYOUT: u64 = 0x4000_0001;
const LAYOUT_TAKINGS: u64 = 0x4000_0002;

/// What tells a table from its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// Inode of its file, and its time of birth in ns, or 0.
    File(u64, u64),
    /// Random numbers of this owner's taking and of the one before; 0: an earlier version's.
    Takings([u64; 2]),
}

/// What a token holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Of the volume.
    pub(super) identity: [u8; 16],
    pub(super) table: Table,
    /// This owner's epoch.
    pub(super) epoch: u64,
    /// That of the last one that changed data otherwise than by writes.
    pub(super) changed: u64,
}

impl Seen {
    pub(super) fn pack(self) -> ProofToken {
        let mut bytes = [0; 64];
        let (layout, [first, second]) = match self.table {
            Table::File(inode, birth) => (LAYOUT, [inode, birth]),
            Table::Takings(takings) => (LAYOUT_TAKINGS, takings),
        };
        bytes[..8].copy_from_slice(&layout.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.identity);
        // The last eight bytes are the driver's.
        let fields = [first, second, self.epoch, self.changed];
        for (place, field) in bytes[24..56].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        ProofToken(bytes)
    }

    fn unpack(token: &ProofToken) -> Option<Self> {
        let field = |at: usize| token.0.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let identity = token.0[8..24].try_into().ok()?;
        let (first, second, epoch, changed) = (field(24)?, field(32)?, field(40)?, field(48)?);
        let table = match field(0)? {
            // On Ceph, by an earlier version.
            LAYOUT if first == 0 => Table::Takings([0; 2]),
            LAYOUT => Table::File(first, second),
            LAYOUT_TAKINGS => Table::Takings([first, second]),
            _ => return None,
        };
        Some(Self { identity, table, epoch, changed })
    }
}

/// See [`Proof::judge`](crate::Proof::judge).
pub(crate) fn judge(recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
    let then = recorded.proof.as_ref().and_then(Seen::unpack);
    let (Some(then), Some(now)) = (then, now.and_then(Seen::unpack)) else {
        return Belief::Unknown;
    };
    let same_table = match (then.table, now.table) {
        // Of another epoch the number is another one.
        (Table::Takings([own, _]), Table::Takings([_, found])) => {
            own == 0 || own == found || then.epoch + 1 != now.epoch
        }
        (then, now) => then == now,
    };
    if then.identity != now.identity || !same_table {
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
        let table = Table::File(7, 9);
        let seen = |epoch| Seen { identity: [3; 16], table, epoch, changed: 2 };
        let judged = |then: Seen, now: Seen| {
            let recorded = Recorded { proof: Some(then.pack()), written: true };
            judge(&recorded, Some(&now.pack()))
        };
        assert_eq!(judged(seen(4), seen(5)), Belief::Unchanged);
        // Another one came in between, or the table is from before.
        assert_eq!(judged(seen(4), seen(6)), Belief::Unknown);
        assert_eq!(judged(seen(4), seen(4)), Belief::Changed);
        assert_eq!(judged(seen(4), seen(2)), Belief::Changed);
        assert_eq!(judged(Seen { table: Table::File(8, 9), ..seen(4) }, seen(5)), Belief::Changed);
        assert_eq!(judged(Seen { identity: [4; 16], ..seen(4) }, seen(5)), Belief::Changed);
        assert_eq!(judged(seen(4), Seen { changed: 5, ..seen(6) }), Belief::Changed);
        assert_eq!(judged(seen(4), Seen { changed: 4, ..seen(5) }), Belief::Unchanged);
        let recorded = Recorded { proof: Some(ProofToken([1; 64])), written: false };
        assert_eq!(judge(&recorded, Some(&seen(5).pack())), Belief::Unknown);
    }

    /// A table on Ceph is put back to an earlier epoch, and taken as often as was lost, or once more.
    #[test]
    fn the_same_epoch_of_another_taking_is_not_believed() {
        let seen = |epoch, takings| {
            let table = Table::Takings(takings);
            Seen { identity: [3; 16], table, epoch, changed: 2 }.pack()
        };
        let judged = |then: ProofToken, now: ProofToken| {
            judge(&Recorded { proof: Some(then), written: true }, Some(&now))
        };
        assert_eq!(judged(seen(7, [71, 61]), seen(8, [81, 71])), Belief::Unchanged);
        assert_eq!(judged(seen(7, [71, 61]), seen(8, [82, 72])), Belief::Changed);
        assert_eq!(judged(seen(7, [71, 61]), seen(9, [91, 81])), Belief::Unknown);
        assert_eq!(judged(seen(7, [71, 61]), seen(7, [72, 62])), Belief::Changed);
        // Earlier versions drew no number: their epochs count.
        assert_eq!(judged(seen(7, [0, 0]), seen(8, [81, 0])), Belief::Unchanged);
        let mut old = seen(7, [0, 0]);
        old.0[..8].copy_from_slice(&LAYOUT.to_le_bytes());
        assert_eq!(judged(old, seen(8, [81, 0])), Belief::Unchanged);
        assert_eq!(judged(seen(7, [71, 61]), seen(8, [81, 0])), Belief::Changed);
    }
}
