//! Two pools and a table, as several hosts see them: an operation on an object under a newer epoch
//! keeps out all later ones under older epochs, as a client that is on a blocklist is kept out by each
//! server that knows the newer map.

use cinnabar_placement::volume::Stored;
use cinnabar_placement::{Header, Object, Pool, Record, State};
use std::collections::{BTreeMap, BTreeSet};

/// The version that each part of an extent holds; 0 was never written.
pub(crate) type Parts = Vec<u64>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Media {
    objects: BTreeMap<Object, Parts>,
    /// The highest epoch under which an operation came to this name.
    fences: BTreeMap<Object, u64>,
    /// Objects that no host has made.
    pub(crate) junk: BTreeSet<Object>,
    header: Option<Vec<u8>>,
    records: BTreeMap<u32, Vec<u8>>,
    /// Writes that came to this name.
    versions: BTreeMap<Object, u64>,
    pub(crate) parts: usize,
    /// A deliberate bug: the table takes all that is written to it.
    pub(crate) epoch_ignored: bool,
}

/// Another host owns the volume, as this object knows.
#[derive(Debug)]
pub(crate) struct KeptOut;

impl Media {
    fn enter(&mut self, object: Object, epoch: u64) -> Result<(), KeptOut> {
        let fence = self.fences.entry(object).or_default();
        if *fence > epoch {
            return Err(KeptOut);
        }
        *fence = epoch;
        Ok(())
    }

    pub(crate) fn exists(&mut self, object: Object, epoch: u64) -> Result<bool, KeptOut> {
        self.enter(object, epoch)?;
        Ok(self.objects.contains_key(&object))
    }

    /// A part, or `None` if there is no such object.
    pub(crate) fn read(
        &mut self,
        object: Object,
        part: usize,
        epoch: u64,
    ) -> Result<Option<u64>, KeptOut> {
        self.enter(object, epoch)?;
        Ok(self.objects.get(&object).map(|parts| parts[part]))
    }

    /// As a server reads the source of a copy: nothing is kept out.
    pub(crate) fn read_by_server(&self, object: Object, part: usize) -> Option<u64> {
        self.objects.get(&object).map(|parts| parts[part])
    }

    /// Rises with each write.
    pub(crate) fn version(&self, object: Object) -> u64 {
        self.versions.get(&object).copied().unwrap_or(0)
    }

    /// Whether the part was written: not if the object is missing and must not be made.
    pub(crate) fn write(
        &mut self,
        object: Object,
        part: usize,
        version: u64,
        makes: bool,
        epoch: u64,
    ) -> Result<bool, KeptOut> {
        self.enter(object, epoch)?;
        if makes {
            let zeros = vec![0; self.parts];
            self.objects.entry(object).or_insert(zeros);
        }
        let Some(parts) = self.objects.get_mut(&object) else { return Ok(false) };
        parts[part] = version;
        *self.versions.entry(object).or_default() += 1;
        Ok(true)
    }

    pub(crate) fn delete(&mut self, object: Object, epoch: u64) -> Result<(), KeptOut> {
        self.enter(object, epoch)?;
        self.objects.remove(&object);
        self.junk.remove(&object);
        Ok(())
    }

    /// An object that no host has made, unless there is one.
    pub(crate) fn throw_in(&mut self, object: Object, version: u64) {
        if !self.objects.contains_key(&object) {
            self.objects.insert(object, vec![version; self.parts]);
            self.junk.insert(object);
        }
    }

    pub(crate) fn list(&self) -> Vec<Object> {
        self.objects.keys().copied().collect()
    }

    /// Objects in the fast pool that hosts have made.
    pub(crate) fn fast_objects(&self) -> u64 {
        let made = |object: &&Object| object.pool == Pool::Fast && !self.junk.contains(object);
        self.objects.keys().filter(made).count() as u64
    }

    pub(crate) fn header(&self) -> Option<Header> {
        let bytes = self.header.as_ref()?;
        Some(Header::decode(bytes).expect("the table's header is read as it was written"))
    }

    /// Makes the volume, if there is none.
    pub(crate) fn create(&mut self, header: &Header) {
        if self.header.is_none() {
            self.header = Some(header.encode().to_vec());
        }
    }

    pub(crate) fn store_header(&mut self, expected: &Header, new: &Header) -> Stored {
        if self.header() != Some(*expected) {
            return Stored::NotOwner;
        }
        self.header = Some(new.encode().to_vec());
        Stored::Done
    }

    pub(crate) fn store(
        &mut self,
        extent: u32,
        expected: Record,
        new: Record,
        epoch: u64,
    ) -> Stored {
        let owner = self.header().is_some_and(|header| header.epoch == epoch);
        if !(owner || self.epoch_ignored) || self.record(extent) != expected {
            return Stored::NotOwner;
        }
        if new.state == State::Absent {
            self.records.remove(&extent);
        } else {
            self.records.insert(extent, new.encode(extent).to_vec());
        }
        Stored::Done
    }

    pub(crate) fn record(&self, extent: u32) -> Record {
        let decode = |bytes: &Vec<u8>| Record::decode(extent, bytes).expect("a record is sound");
        self.records.get(&extent).map_or(Record::ABSENT, decode)
    }

    pub(crate) fn records(&self) -> Vec<(u32, Record)> {
        self.records.keys().map(|extent| (*extent, self.record(*extent))).collect()
    }
}
