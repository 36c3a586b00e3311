//! What is done with objects, by whichever thread.

use super::folder::Folder;
use super::open_files::OpenFiles;
use super::transfer::{self, Way};
use crate::pools::{Answer, Op, OpError};
use cinnabar_placement::{Object, Pool};
use rustix::fd::OwnedFd;
use rustix::fs::{fdatasync, fstat, fsync, ftruncate};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Objects that are made at a time, at most.
const MAKING: usize = 16;

/// See the module.
pub(super) struct Objects {
    /// Slow and fast.
    folders: [Folder; 2],
    extent_bytes: u64,
    open: OpenFiles,
    /// One is held while an object is made.
    making: [Mutex<()>; MAKING],
    moved: AtomicU64,
}

/// A call on an object failed.
fn failed(pool: Pool) -> impl Fn(Errno) -> OpError {
    move |errno| match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => OpError::NoSpace(pool),
        errno => OpError::Other(errno),
    }
}

impl Objects {
    pub(super) fn new(folders: [Folder; 2], extent_bytes: u64) -> Self {
        let (open, moved) = (OpenFiles::default(), AtomicU64::new(0));
        Self { folders, extent_bytes, open, making: Default::default(), moved }
    }

    /// Bytes that copies have moved.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    pub(super) fn align_bytes(&self) -> u32 {
        self.folders.iter().map(Folder::align_bytes).max().unwrap_or(512)
    }

    fn folder(&self, pool: Pool) -> &Folder {
        &self.folders[pool as usize]
    }

    /// Carries an operation out, but for flushes and what is the table's.
    pub(super) fn perform(&self, op: &Op) -> Result<Answer, OpError> {
        match op {
            Op::Read { object, offset, memory, may_be_missing } => {
                match self.existing(*object, *may_be_missing)? {
                    Some(file) => {
                        let memory = memory.parts();
                        // SAFETY: the memory is the operation's until it has ended.
                        let read = unsafe { transfer::transfer(&file, Way::Read, *offset, memory) };
                        read.map_err(failed(object.pool))?;
                    }
                    None if *may_be_missing => memory.zero_from(0),
                    None => return Err(OpError::Missing),
                }
            }
            Op::Write { object, offset, memory, may_be_missing, durable } => {
                self.change(*object, *may_be_missing, *durable, |file| {
                    // SAFETY: the memory is the operation's until it has ended.
                    unsafe { transfer::transfer(file, Way::Write, *offset, memory.parts()) }
                })?;
            }
            Op::Zero { object, offset, length, may_be_missing, punch, durable } => {
                let zero = |file: &OwnedFd| transfer::zero(file, *offset, *length, *punch);
                self.change(*object, *may_be_missing, *durable, zero)?;
            }
            Op::Probe { object } => {
                let found = self.existing(*object, false)?;
                return Ok(Answer::Exists(found.is_some()));
            }
            Op::Copy { from, to } => self.copy(*from, *to)?,
            Op::Patch { from, to, ranges } => self.patch(*from, *to, ranges)?,
            Op::Delete { object } => {
                self.open.forget(*object);
                self.folder(object.pool).remove_object(*object).map_err(OpError::Other)?;
            }
            Op::List { pool, after } => {
                let listing = self.folder(*pool).list(after.is_some()).map_err(OpError::Other)?;
                return Ok(Answer::Listed(listing));
            }
            Op::Flush | Op::StoreRecord { .. } | Op::StoreHeader { .. } | Op::Check { .. } => {
                unreachable!("not an object's")
            }
        }
        Ok(Answer::Done)
    }

    /// An object's file, if there is one. One that is too short was not made to its end, if it may be missing;
    /// else it was cut off.
    fn existing(
        &self,
        object: Object,
        may_be_missing: bool,
    ) -> Result<Option<Arc<OwnedFd>>, OpError> {
        if let Some(file) = self.open.get(object) {
            return Ok(Some(file));
        }
        let file = match self.open_file(object, false) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(OpError::Other(errno)),
        };
        let size = fstat(&file).map_err(OpError::Other)?.st_size.cast_unsigned();
        match (size == self.extent_bytes, may_be_missing) {
            // That it exists may not be durable yet: only what is known to be is kept open.
            (true, true) => Ok(Some(Arc::new(file))),
            (true, false) => Ok(Some(self.open.put(object, file))),
            (false, true) => Ok(None),
            (false, false) => Err(OpError::Other(Errno::NODATA)),
        }
    }

    /// Opens a file. A process that may open no more does without those that it keeps open.
    fn open_file(&self, object: Object, make: bool) -> Result<OwnedFd, Errno> {
        let folder = self.folder(object.pool);
        match folder.open_object(object, make) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.sync_written();
                self.open.close_clean();
                folder.open_object(object, make)
            }
            opened => opened,
        }
    }

    fn change(
        &self,
        object: Object,
        may_be_missing: bool,
        durable: bool,
        work: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<(), OpError> {
        let file = if may_be_missing {
            self.made(object)?
        } else {
            self.existing(object, false)?.ok_or(OpError::Missing)?
        };
        let done = work(&file);
        // Also of a write that failed: some of it may be there.
        let too_many = self.open.note_write(object, &file);
        done.map_err(failed(object.pool))?;
        if durable {
            self.sync(&file).map_err(OpError::Other)?;
        }
        if too_many {
            self.sync_written();
        }
        Ok(())
    }

    /// Makes what was written to one file durable. If that fails, what others wrote may be lost as well, and
    /// this is the only time that it is told: no flush may come in between.
    fn sync(&self, file: &OwnedFd) -> Result<(), Errno> {
        let _alone = self.open.syncing();
        fdatasync(file).inspect_err(|errno| self.open.note_failure(*errno))
    }

    /// An object that may not have been made. Makes one of zeros, durably: a file of full length that was
    /// just found may be one that a power cut takes back.
    fn made(&self, object: Object) -> Result<Arc<OwnedFd>, OpError> {
        let making = &self.making[object.extent as usize % MAKING];
        if let Some(file) = self.open.get(object) {
            return Ok(file);
        }
        let _alone = making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = self.open.get(object) {
            return Ok(file);
        }
        let file = self.open_file(object, true).map_err(failed(object.pool))?;
        self.lay_out(object, &file)?;
        Ok(self.open.put(object, file))
    }

    fn lay_out(&self, object: Object, file: &OwnedFd) -> Result<(), OpError> {
        ftruncate(file, self.extent_bytes)
            .and_then(|()| fsync(file))
            .and_then(|()| self.folder(object.pool).sync())
            .map_err(failed(object.pool))
    }

    fn copy(&self, from: Object, to: Object) -> Result<(), OpError> {
        let source = self.existing(from, false)?.ok_or(OpError::Missing)?;
        // The source goes, and with it what its file would have told of writes that failed.
        self.sync(&source).map_err(OpError::Other)?;
        let copy = self.open_file(to, true).map_err(failed(to.pool))?;
        // One that an earlier attempt made may have what this one leaves out.
        ftruncate(&copy, 0).map_err(failed(to.pool))?;
        ftruncate(&copy, self.extent_bytes).map_err(failed(to.pool))?;
        let moved = transfer::copy(&source, &copy, 0..self.extent_bytes, true);
        self.moved.fetch_add(moved.map_err(failed(to.pool))?, Relaxed);
        self.open.forget(to);
        self.lay_out(to, &copy)?;
        self.open.put(to, copy);
        Ok(())
    }

    fn patch(&self, from: Object, to: Object, ranges: &[Range<u64>]) -> Result<(), OpError> {
        let source = self.existing(from, false)?.ok_or(OpError::Missing)?;
        let copy = self.existing(to, false)?.ok_or(OpError::Missing)?;
        let align = u64::from(self.align_bytes());
        for range in ranges {
            // Nothing writes to the source meanwhile, so more than was asked for may be copied.
            let (start, end) = (range.start / align * align, range.end.next_multiple_of(align));
            let moved = transfer::copy(&source, &copy, start..end.min(self.extent_bytes), false);
            self.moved.fetch_add(moved.map_err(failed(to.pool))?, Relaxed);
        }
        fdatasync(&copy).map_err(failed(to.pool))
    }

    /// Makes durable all that was written before this was called.
    pub(super) fn flush(&self) -> Result<(), OpError> {
        self.sync_written();
        self.open.take_failure().map_or(Ok(()), |errno| Err(OpError::Other(errno)))
    }

    /// Notes what fails.
    fn sync_written(&self) {
        // A flush that begins while one is under way must not end before it: that one has what it
        // would look for.
        let _alone = self.open.syncing();
        for file in self.open.take_dirty() {
            // Each of them is asked, whatever the others say.
            if let Err(errno) = fdatasync(&file) {
                self.open.note_failure(errno);
            }
        }
    }
}
