//! Names of a volume's objects, and keys of the table's entries.
#![cfg_attr(not(feature = "ceph"), allow(dead_code, reason = "without Ceph nothing has a name"))]

use crate::pools::Listed;
use cinnabar_placement::{Object, Pool};

/// Prefix of the entries of all but the extents.
pub(super) const HEADS: &str = "a.";
/// Prefix of the extents' entries.
pub(super) const RECORDS: &str = "e.";
pub(super) const HEADER: &str = "a.header";
pub(super) const EPOCH: &str = "a.epoch";
pub(super) const POOLS: &str = "a.pools";
/// A random number of each taking. It is no part of the header, which earlier versions compare whole.
pub(super) const TAKING: &str = "a.taking";
pub(super) const OWNER: &str = "a.owner";
pub(super) const ADDRESS: &str = "a.address";
pub(super) const CURVES: &str = "a.curves";

/// The object with the table of a volume.
pub(super) fn table(volume: &str) -> String {
    format!("cinnabar_hybrid.{volume}")
}

/// What names of a volume's data begin with. Another volume of the same name has another identity, so that
/// nothing of a deleted one is ever taken for its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix(String);

impl Prefix {
    pub(super) fn of(identity: [u8; 16]) -> Self {
        Self(format!("cinnabar_extent.{:032x}.", u128::from_be_bytes(identity)))
    }

    pub(super) fn object(&self, object: Object) -> String {
        format!("{}{object}", self.0)
    }

    /// An object of the probe of one client.
    pub(super) fn probe(&self, client: u64, number: u32) -> String {
        format!("{}probe.{client}.{number}", self.0)
    }

    /// What a listed name is; `None`: nothing of the volume.
    pub(super) fn listed(&self, name: &str, pool: Pool) -> Option<Listed> {
        let rest = name.strip_prefix(&self.0)?;
        Some(match Object::parse(rest, pool) {
            Ok(object) => Listed::Object(object),
            Err(_) => Listed::Foreign(name.into()),
        })
    }
}

/// The key of an extent's record.
pub(super) fn record(extent: u32) -> String {
    format!("{RECORDS}{extent:08x}")
}

/// The extent of a record's key.
pub(super) fn extent_of(key: &str) -> Option<u32> {
    let digits = key.strip_prefix(RECORDS)?;
    let extent = u32::from_str_radix(digits, 16).ok()?;
    (record(extent) == key).then_some(extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let prefix = Prefix::of([7; 16]);
        let object = Object { extent: 42, pool: Pool::Fast, generation: 3 };
        let name = prefix.object(object);
        assert!(name.ends_with(".0000002a.00000003"), "{name}");
        assert_eq!(prefix.listed(&name, Pool::Fast), Some(Listed::Object(object)));
        let probe = prefix.probe(7, 1);
        assert_eq!(prefix.listed(&probe, Pool::Fast), Some(Listed::Foreign(probe)));
        assert_eq!(Prefix::of([8; 16]).listed(&name, Pool::Fast), None);
        assert_eq!(extent_of(&record(42)), Some(42));
        for wrong in ["e.2a", "e.0000002A", "e.+000002a", "a.header"] {
            assert_eq!(extent_of(wrong), None, "{wrong}");
        }
    }
}
