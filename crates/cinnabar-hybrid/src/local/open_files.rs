//! Open files of objects: a bounded number, those with writes that no flush has covered among them.

use cinnabar_placement::Object;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files that stay open at a time, those in use apart.
const OPEN_MAX: usize = 128;
/// Objects with writes that no flush has covered, at most.
const DIRTY_MAX: usize = 64;

const _: () = assert!(DIRTY_MAX < OPEN_MAX);

/// See the module.
#[derive(Default)]
pub(super) struct OpenFiles(Mutex<Open>, Mutex<()>);

#[derive(Default)]
struct Open {
    files: BTreeMap<Object, Entry>,
    clock: u64,
    dirty: usize,
    /// A flush of something that was written has failed, and no guest's flush was told yet.
    failed: Option<Errno>,
}

struct Entry {
    file: Arc<OwnedFd>,
    used: u64,
    dirty: bool,
}

impl OpenFiles {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by the one flush that is under way.
    pub(super) fn syncing(&self) -> MutexGuard<'_, ()> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, object: Object) -> Option<Arc<OwnedFd>> {
        let mut open = self.lock();
        open.clock += 1;
        let clock = open.clock;
        let entry = open.files.get_mut(&object)?;
        entry.used = clock;
        Some(Arc::clone(&entry.file))
    }

    /// Keeps a file open; if another thread has opened it meanwhile, that one.
    pub(super) fn put(&self, object: Object, file: OwnedFd) -> Arc<OwnedFd> {
        let mut open = self.lock();
        open.clock += 1;
        let used = open.clock;
        if open.files.len() >= OPEN_MAX && !open.files.contains_key(&object) {
            // Those with writes stay: a failure to write them back is told to this description.
            let clean = open.files.iter().filter(|(_, entry)| !entry.dirty);
            let oldest = clean.min_by_key(|(_, entry)| entry.used).map(|(object, _)| *object);
            oldest.map(|object| open.files.remove(&object));
        }
        let new = || Entry { file: Arc::new(file), used, dirty: false };
        Arc::clone(&open.files.entry(object).or_insert_with(new).file)
    }

    /// Notes that `file` was written; whether too many are, so that some have to be made durable.
    pub(super) fn note_write(&self, object: Object, file: &Arc<OwnedFd>) -> bool {
        let mut open = self.lock();
        let used = open.clock;
        let new = || Entry { file: Arc::clone(file), used, dirty: false };
        let entry = open.files.entry(object).or_insert_with(new);
        // Another description may stand there: both count as written then, for the newer one sees what
        // was not told to the older one.
        let first = !std::mem::replace(&mut entry.dirty, true);
        open.dirty += usize::from(first);
        open.dirty > DIRTY_MAX
    }

    /// All files with writes that no flush has covered; they count as covered from now on.
    pub(super) fn take_dirty(&self) -> Vec<Arc<OwnedFd>> {
        let mut open = self.lock();
        open.dirty = 0;
        let written = open.files.values_mut().filter(|entry| entry.dirty);
        let take = |entry: &mut Entry| {
            entry.dirty = false;
            Arc::clone(&entry.file)
        };
        written.map(take).collect()
    }

    /// Closes what no flush has to cover.
    pub(super) fn close_clean(&self) {
        self.lock().files.retain(|_, entry| entry.dirty);
    }

    /// The object is deleted.
    pub(super) fn forget(&self, object: Object) {
        let mut open = self.lock();
        let entry = open.files.remove(&object);
        open.dirty -= usize::from(entry.is_some_and(|entry| entry.dirty));
    }

    /// A flush has failed that no guest waits for.
    pub(super) fn note_failure(&self, errno: Errno) {
        self.lock().failed = Some(errno);
    }

    /// The failure that no guest's flush was told yet.
    pub(super) fn take_failure(&self) -> Option<Errno> {
        self.lock().failed.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_placement::Pool;

    fn object(extent: u32) -> Object {
        Object { extent, pool: Pool::Slow, generation: 1 }
    }

    #[test]
    fn what_was_written_stays_open_until_a_flush_covers_it() {
        let open = OpenFiles::default();
        let new = || OwnedFd::from(tempfile::tempfile().expect("a file"));
        let written = open.put(object(0), new());
        assert!(!open.note_write(object(0), &written));
        for extent in 1..=OPEN_MAX as u32 {
            open.put(object(extent), new());
        }
        open.close_clean();
        assert_eq!(open.lock().files.len(), 1);
        for extent in 1..=OPEN_MAX as u32 {
            open.put(object(extent), new());
        }
        assert!(open.get(object(0)).is_some() && open.get(object(1)).is_none());
        assert_eq!(open.lock().files.len(), OPEN_MAX);
        assert_eq!((open.take_dirty().len(), open.take_dirty().len()), (1, 0));
        assert!(!open.note_write(object(0), &written));
        open.forget(object(0));
        assert_eq!((open.take_dirty().len(), open.lock().dirty), (0, 0));
    }

    #[test]
    fn too_many_written_ones_are_told() {
        let open = OpenFiles::default();
        let told: Vec<bool> = (0..=DIRTY_MAX as u32)
            .map(|extent| {
                let file = OwnedFd::from(tempfile::tempfile().expect("a file"));
                let file = open.put(object(extent), file);
                open.note_write(object(extent), &file)
            })
            .collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 1);
        assert!(told[DIRTY_MAX]);
    }
}
