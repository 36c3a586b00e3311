//! Compares a table with what its pools have, while nothing serves the volume.

use crate::pools::{Listed, OpenError};
use cinnabar_placement::volume::{self, Verdict, Volume};
use cinnabar_placement::{Header, Object, Pool, Record, State};
use std::collections::BTreeSet;

/// Names that are listed of each kind, at most.
const NAMED_MAX: usize = 100;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Objects that the table has.
    pub objects: u64,
    /// Of those, the ones that are not there, or too short: `POOL/NAME`, at most 100.
    pub lost: Vec<String>,
    /// All of them.
    pub lost_objects: Vec<Object>,
    /// How many these are.
    pub lost_count: u64,
    /// Objects of the volume that nothing needs: the next owner deletes them.
    pub left: u64,
    /// What the volume never made, `POOL/NAME`, at most 100.
    pub foreign: Vec<String>,
    /// How many these are in all.
    pub foreign_count: u64,
    /// Of these, objects with names that the volume gives, later than any that the table knows: the first of them. The
    /// table may be an older copy.
    pub later: Option<Object>,
    /// Bytes that objects take in the slow and in the fast pool, if these tell.
    pub taken_bytes: Option<[u64; 2]>,
}

/// A check under way.
pub(crate) struct Checking {
    volume: Volume,
    records: Vec<(u32, Record)>,
    there: BTreeSet<Object>,
    checked: Checked,
}

impl Checking {
    /// Of a table that nobody changes meanwhile.
    pub(crate) fn new(header: Header, records: Vec<(u32, Record)>) -> Result<Self, OpenError> {
        let volume = Volume::open(header, records.iter().copied(), volume::Settings::default())
            .map_err(|error| OpenError::Table(error.to_string()))?;
        Ok(Self { volume, records, there: BTreeSet::new(), checked: Checked::default() })
    }

    /// Notes what a pool has. Gives an object that is in use, of which it is to be said whether it is
    /// [there](Self::is_there).
    pub(crate) fn listed(&mut self, pool: Pool, listed: Listed) -> Option<Object> {
        let name = match listed {
            Listed::Object(object) => match self.volume.judge(object) {
                Verdict::InUse => return Some(object),
                Verdict::Left => {
                    self.checked.left += 1;
                    return None;
                }
                Verdict::Foreign => {
                    self.checked.later.get_or_insert(object);
                    object.to_string()
                }
            },
            Listed::Foreign(name) => name,
        };
        note(&mut self.checked.foreign, format!("{pool}/{name}"));
        self.checked.foreign_count += 1;
        None
    }

    /// An object is there as it should be.
    pub(crate) fn is_there(&mut self, object: Object) {
        self.there.insert(object);
    }

    /// The pools tell how many bytes objects take: none so far.
    pub(crate) fn tells_bytes(&mut self) {
        self.checked.taken_bytes = Some([0; 2]);
    }

    pub(crate) fn takes(&mut self, object: Object, bytes: u64) {
        let all = self.checked.taken_bytes.get_or_insert_default();
        all[usize::from(object.pool == Pool::Fast)] += bytes;
    }

    /// Extents whose objects should be there and are not, when all was listed.
    fn lost(&self) -> Vec<(u32, Record)> {
        let is_lost = |(extent, record): &&(u32, Record)| {
            // A fresh one may not have been made, and one behind the end may be deleted.
            let must = matches!(record.state, State::Stable | State::Copying | State::Cleaning);
            must && record.truth(*extent).is_some_and(|object| !self.there.contains(&object))
        };
        self.records.iter().filter(is_lost).copied().collect()
    }

    /// What was found, when all was listed.
    pub(crate) fn end(mut self) -> Checked {
        let objects = self.records.iter().filter_map(|(extent, record)| record.truth(*extent));
        self.checked.objects = objects.count() as u64;
        for (extent, record) in self.lost() {
            if let Some(object) = record.truth(extent) {
                note(&mut self.checked.lost, format!("{}/{object}", object.pool));
                self.checked.lost_objects.push(object);
                self.checked.lost_count += 1;
            }
        }
        self.checked
    }
}

fn note(names: &mut Vec<String>, name: String) {
    if names.len() < NAMED_MAX {
        names.push(name);
    }
}
