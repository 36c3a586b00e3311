//! All exports of a server, and who is connected to them.

use super::export::{Export, ExportError, ExportId};
use super::handshake::Directory;
use std::collections::{BTreeMap, BTreeSet};

/// An export and its connections.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) export: Export,
    /// Keys of the connections that entered it.
    pub(super) connections: Vec<u64>,
    /// Requests answered with an error by the server itself.
    pub(super) refused: u64,
}

/// Exports by id and name.
#[derive(Debug, Default)]
pub(super) struct Exports {
    by_id: BTreeMap<ExportId, Served>,
    by_name: BTreeMap<Vec<u8>, ExportId>,
    /// Exports that no client may enter now, with the reason.
    unavailable: BTreeMap<ExportId, String>,
}

impl Exports {
    pub(super) fn add(&mut self, export: Export, max: usize) -> Result<(), ExportError> {
        export.check()?;
        if self.by_id.contains_key(&export.id) {
            return Err(ExportError::DuplicateId(export.id.0));
        }
        if self.by_name.contains_key(export.name.as_bytes()) {
            return Err(ExportError::DuplicateName(export.name));
        }
        if self.by_id.len() >= max {
            return Err(ExportError::TooMany(max));
        }
        self.by_name.insert(export.name.clone().into_bytes(), export.id);
        self.by_id.insert(export.id, Served { export, connections: Vec::new(), refused: 0 });
        Ok(())
    }

    pub(super) fn remove(&mut self, id: ExportId) -> Option<Served> {
        let served = self.by_id.remove(&id)?;
        self.unavailable.remove(&id);
        self.by_name.remove(served.export.name.as_bytes());
        Some(served)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Connections that exports have beyond so many each.
    pub(super) fn connections_beyond(&self, floor: usize) -> usize {
        self.by_id.values().map(|served| served.connections.len().saturating_sub(floor)).sum()
    }

    pub(super) fn get(&self, id: ExportId) -> Option<&Served> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ExportId) -> Option<&mut Served> {
        self.by_id.get_mut(&id)
    }

    /// An export has become larger; connections keep what they began with.
    pub(super) fn set_size(&mut self, id: ExportId, size_bytes: u64) {
        if let Some(served) = self.by_id.get_mut(&id) {
            served.export.size_bytes = size_bytes;
        }
    }

    /// From now on no client may enter the export; its refusals give `reason`.
    pub(super) fn set_unavailable(&mut self, id: ExportId, reason: String) {
        if self.by_id.contains_key(&id) {
            self.unavailable.insert(id, reason);
        }
    }

    /// The reason why no client may enter the export now, or `None`.
    pub(super) fn unavailable(&self, id: ExportId) -> Option<&str> {
        self.unavailable.get(&id).map(String::as_str)
    }

    /// What a client of a listener that serves `ids` may see.
    pub(super) const fn view<'a>(&'a self, ids: &'a BTreeSet<ExportId>) -> View<'a> {
        View { exports: self, ids }
    }
}

/// Some of the exports.
pub(super) struct View<'a> {
    exports: &'a Exports,
    ids: &'a BTreeSet<ExportId>,
}

impl Directory for View<'_> {
    fn find(&self, name: &[u8]) -> Option<&Export> {
        let id = if name.is_empty() && self.ids.len() == 1 {
            self.ids.first()?
        } else {
            self.exports.by_name.get(name).filter(|id| self.ids.contains(id))?
        };
        self.exports.get(*id).map(|served| &served.export)
    }

    fn unavailable(&self, id: ExportId) -> Option<&str> {
        self.exports.unavailable(id)
    }

    fn all(&self) -> impl Iterator<Item = &Export> {
        self.all_from(ExportId(0))
    }

    fn all_from(&self, first: ExportId) -> impl Iterator<Item = &Export> {
        self.ids.range(first..).filter_map(|id| self.exports.get(*id)).map(|served| &served.export)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(id: u32, name: &str) -> Export {
        Export {
            id: ExportId(id),
            name: name.into(),
            size_bytes: 4096,
            read_only: false,
            min_block_bytes: 512,
            shared: false,
            description: String::new(),
        }
    }

    #[test]
    fn impossible_exports_are_refused_by_name() {
        let mut exports = Exports::default();
        exports.add(export(1, "a"), 2).expect("it is fine");
        let longest = "x".repeat(65);
        for (wrong, error) in [
            (export(1, "b"), ExportError::DuplicateId(1)),
            (export(2, "a"), ExportError::DuplicateName("a".into())),
            (export(2, ""), ExportError::Name(String::new())),
            (export(2, "a\n"), ExportError::Name("a\n".into())),
            (export(2, &longest), ExportError::Name(longest.clone())),
            (Export { size_bytes: 513, ..export(2, "b") }, ExportError::Size(513)),
            (Export { size_bytes: 1 << 63, ..export(2, "b") }, ExportError::Size(1 << 63)),
            (Export { min_block_bytes: 1024, ..export(2, "b") }, ExportError::MinBlock(1024)),
        ] {
            assert_eq!(exports.add(wrong, 2), Err(error));
        }
        exports.add(export(2, "b"), 2).expect("there is room");
        assert_eq!(exports.add(export(3, "c"), 2), Err(ExportError::TooMany(2)));
    }

    #[test]
    fn a_listener_shows_only_its_exports() {
        let mut exports = Exports::default();
        exports.add(export(1, "a"), 9).expect("it is fine");
        exports.add(export(2, "b"), 9).expect("it is fine");
        let one = BTreeSet::from([ExportId(2)]);
        let view = exports.view(&one);
        assert!(view.find(b"a").is_none());
        assert_eq!(view.find(b"b").map(|export| export.id), Some(ExportId(2)));
        assert_eq!(view.find(b"").map(|export| export.id), Some(ExportId(2)));
        assert_eq!(view.all().count(), 1);
        let both = BTreeSet::from([ExportId(1), ExportId(2)]);
        assert!(exports.view(&both).find(b"").is_none(), "which one would it be?");
    }
}
