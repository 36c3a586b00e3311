//! Making a disk durable: one flush at a time, and none that failed is forgotten.
//!
//! Called by the workers, and by the epochs.
//!
//! # What Linux gives
//! What the kernel could not write back is reported once for each open file description, to the
//! first flush that asks; the pages count as clean from then on, and the next flush succeeds over
//! lost data. All flushes of a disk go through one description: the guests', each shard's, the
//! heartbeat's. The first to ask would take the error from the others.
//!
//! # What we do
//! Flushes of a disk are done one at a time, and one that failed sticks: each that ends after it
//! fails, too, for as long as the disk is open. Nobody can tell which of the writes before it are
//! lost, and every later flush covers all of them. Those that wait for a flush under way share the
//! next one, so this costs no flush more than before.
//!
//! A write that asks to be durable is a write and a flush wherever the flag alone (`RWF_DSYNC`) is
//! not known to be enough: FUSE sends no flush after an asynchronous direct write, and over the page
//! cache such a write would take other writes' errors.

use super::{Disk, DiskKind};
use rustix::fs::{StatFs, fdatasync, fsync};
use rustix::io::Errno;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// File systems of this host that carry out `RWF_DSYNC` and whose clock is the kernel's: ext2 to
/// ext4, XFS, btrfs, tmpfs, F2FS. On any other the slower, safe way is taken.
const KNOWN: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010];

/// Whether a file system is one that we know.
pub(super) fn is_known(stat: &StatFs) -> bool {
    KNOWN.contains(&(stat.f_type.cast_unsigned() & 0xffff_ffff))
}

/// What of a file is to be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Its data.
    Data,
    /// Its change time, too.
    All,
}

/// The flushes of a disk.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the newest flush that has begun.
    begun: u64,
    /// Number of the newest one that has succeeded, and of the newest that was of all.
    done: u64,
    done_all: u64,
    running: bool,
    /// The first failure, if it sticks.
    failed: Option<Errno>,
}

impl State {
    fn covers(&self, number: u64, extent: Extent) -> bool {
        match extent {
            Extent::Data => self.done >= number,
            Extent::All => self.done_all >= number,
        }
    }
}

impl Syncs {
    /// Waits for a flush that begins after this call, or carries it out.
    fn run(
        &self,
        extent: Extent,
        sticks: bool,
        flush: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut state = self.locked();
        let wanted = state.begun + 1;
        while state.running {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            if state.failed.is_none() && state.covers(wanted, extent) {
                return Ok(());
            }
        }
        if let Some(errno) = state.failed {
            return Err(errno);
        }
        state.begun += 1;
        state.running = true;
        let number = state.begun;
        drop(state);
        let result = flush();
        let mut state = self.locked();
        state.running = false;
        match result {
            Ok(()) => {
                state.done = number;
                if extent == Extent::All {
                    state.done_all = number;
                }
            }
            // Nothing was tried.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) if sticks => state.failed = Some(errno),
            Err(_) => {}
        }
        drop(state);
        self.ended.notify_all();
        result
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // Whole whenever the lock is free.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    /// Makes durable what was written before this call; blocks.
    pub(crate) fn sync(&self, extent: Extent) -> Result<(), Errno> {
        if let Some(server) = self.server() {
            // It has no lock on a flush, and tells a lost connection by an error, too.
            return server.flush();
        }
        self.syncs.run(extent, self.sync_failure_sticks, || match (self.kind, extent) {
            (DiskKind::File, Extent::All) => fsync(&self.fd),
            _ => fdatasync(&self.fd),
        })
    }

    /// The failure of a flush that sticks to this disk until it is opened again.
    pub fn sync_failure(&self) -> Option<Errno> {
        self.syncs.locked().failed
    }

    /// A failed flush of a cache device does not stick: its contents are checked when they are
    /// read, and the engine gives up a device that goes on failing.
    pub(super) fn forget_sync_failures(&mut self) {
        self.sync_failure_sticks = false;
    }

    /// Whether a write with `RWF_DSYNC` is durable when it ends, and tells only of itself.
    pub(crate) fn writes_durably(&self) -> bool {
        self.in_memory || (self.direct && self.dsync_is_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::{Arc, Barrier};

    #[test]
    fn a_failure_sticks_and_an_interruption_does_not() {
        let syncs = Syncs::default();
        let run = |result| syncs.run(Extent::Data, true, || result);
        assert_eq!(run(Err(Errno::INTR)), Err(Errno::INTR));
        assert_eq!(run(Ok(())), Ok(()));
        assert_eq!(run(Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(run(Ok(())), Err(Errno::NOSPC));
        let forgiving = Syncs::default();
        let run = |result| forgiving.run(Extent::Data, false, || result);
        assert_eq!(run(Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(run(Ok(())), Ok(()));
    }

    #[test]
    fn those_that_wait_share_one_flush_that_begins_after_they_came() {
        let (syncs, count) = (Arc::new(Syncs::default()), Arc::new(AtomicU32::new(0)));
        let (begun, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let first = {
            let (syncs, begun, go) = (syncs.clone(), begun.clone(), go.clone());
            std::thread::spawn(move || {
                syncs.run(Extent::Data, true, || {
                    begun.wait();
                    go.wait();
                    Ok(())
                })
            })
        };
        begun.wait();
        let waiting = || Arc::strong_count(&count) as u32 - 1;
        let others: Vec<_> = (0..8)
            .map(|_| {
                let (syncs, count) = (syncs.clone(), count.clone());
                std::thread::spawn(move || {
                    syncs.run(Extent::Data, true, || {
                        count.fetch_add(1, SeqCst);
                        Ok(())
                    })
                })
            })
            .collect();
        assert_eq!(waiting(), 8);
        go.wait();
        for thread in others.into_iter().chain([first]) {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
        // One for those that had come before the first ended, and one for each that came later.
        assert!((1..=8).contains(&count.load(SeqCst)));
    }

    #[test]
    fn a_flush_of_the_data_is_none_of_all() {
        let mut state = State { done: 3, ..State::default() };
        assert!(state.covers(3, Extent::Data) && !state.covers(3, Extent::All));
        assert!(!state.covers(4, Extent::Data));
        state.done_all = 3;
        assert!(state.covers(3, Extent::All));
    }
}
