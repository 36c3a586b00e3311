//! Left objects: which of those that a pool lists belong to nothing.

use super::Volume;
use crate::geometry::Object;
use crate::mutant::Mutant;
use crate::record::{Record, State};

/// What a listed object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An extent's data, or what a move or a shrink deletes by itself.
    InUse,
    /// No extent's any more. As no name is used twice, a delete may come however late.
    Left,
    /// No object that this volume has made: it stays, and is shown.
    Foreign,
}

impl Volume {
    /// Judges an object that a pool lists under the volume's name. The list may be old.
    pub fn judge(&self, object: Object) -> Verdict {
        let extent = object.extent;
        let record =
            if extent < self.table.len() { self.table.get(extent) } else { Record::ABSENT };
        let (truth, second) = (record.truth(extent), record.second(extent));
        let moved = record.state == State::Stable && record.highest() > 1;
        if second == Some(object) && self.is(Mutant::CopyCollected)
            || truth == Some(object) && moved && self.is(Mutant::TruthCollected)
        {
            return Verdict::Left;
        }
        if [truth, second].contains(&Some(object)) {
            return Verdict::InUse;
        }
        // Of an extent with a record its own numbers tell: others of its are still to come.
        // A first object whose record is being stored may have a number from before the floor rose.
        let storing = self.active.get(&extent).and_then(|active| active.storing);
        let used = match (record.state, storing) {
            (State::Absent, Some(first)) => first.highest(),
            (State::Absent, None) => self.header.floor,
            _ => record.highest(),
        };
        let named = [truth, second].iter().flatten().any(|o| o.generation == object.generation);
        if named || object.generation > used { Verdict::Foreign } else { Verdict::Left }
    }
}
