//! Making a disk durable: one flush at a time, and none that failed is forgotten.
//!
//! # What Linux gives
//! What the kernel could not write back is reported once for each open file description, to the
//! first flush that asks; the pages count as clean from then on, and the next flush succeeds over
//! lost data. All flushes of a disk go through one description: the guests', each shard's, the
//! heartbeat's. The first to ask would take the error from the others.
//!
//! # What we do
//! Flushes of a disk are done one at a time, and one that failed sticks: each that ends after it
//! fails, too, for as long as the disk is open, or until all that no flush has covered is to be written
//! again (`Disk::forget_failed_flush`). It is unknown which of the writes before it are
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
    /// One of those that wait needs a flush of all.
    all_wanted: bool,
    /// The newest failure and the number of its flush; the first and only one if it sticks.
    failed: Option<(u64, Errno)>,
    /// Those that have come to wait, ever.
    #[cfg(test)]
    came: usize,
}

impl State {
    fn covers(&self, number: u64, extent: Extent) -> bool {
        match extent {
            Extent::Data => self.done >= number,
            Extent::All => self.done_all >= number,
        }
    }

    /// A failure that is for those that flush, too, who came while this flush was under way or
    /// next: it was told once, and may have been of what they wrote.
    fn failed_since(&self, number: u64, sticks: bool) -> Option<Errno> {
        self.failed.filter(|(failed, _)| sticks || *failed >= number).map(|(_, errno)| errno)
    }
}

impl Syncs {
    /// Waits for a flush that begins after this call, or carries it out.
    fn run(
        &self,
        extent: Extent,
        sticks: bool,
        flush: impl FnOnce(Extent) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut state = self.locked();
        let wanted = state.begun + 1;
        let since = if state.running { state.begun } else { wanted };
        #[cfg(test)]
        {
            state.came += usize::from(state.running);
        }
        while state.running {
            // Else many that want the data alone could keep it from its turn.
            state.all_wanted |= extent == Extent::All;
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            if let Some(errno) = state.failed_since(since, sticks) {
                return Err(errno);
            }
            if state.covers(wanted, extent) {
                return Ok(());
            }
        }
        if let Some(errno) = state.failed_since(since, sticks) {
            return Err(errno);
        }
        let all = std::mem::take(&mut state.all_wanted) || extent == Extent::All;
        let extent = if all { Extent::All } else { Extent::Data };
        state.begun += 1;
        state.running = true;
        let number = state.begun;
        drop(state);
        let result = flush(extent);
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
            Err(errno) => state.failed = Some((number, errno)),
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
        if let Some(remote) = self.remote() {
            // It has no lock on a flush, and tells a lost connection by an error, too.
            return remote.flush();
        }
        self.syncs.run(extent, self.sync_failure_sticks, |extent| match (self.kind, extent) {
            (DiskKind::File, Extent::All) => fsync(&self.fd),
            _ => fdatasync(&self.fd),
        })
    }

    /// The failure of a flush that sticks to this disk until it is opened again.
    pub fn sync_failure(&self) -> Option<Errno> {
        match self.remote() {
            Some(remote) => remote.failed_flush(),
            None => self.syncs.locked().failed_since(u64::MAX, self.sync_failure_sticks),
        }
    }

    /// Lets flushes be tried again after one that failed. Only for who then repeats every write that
    /// no earlier flush has covered; no I/O may be under way.
    pub fn forget_failed_flush(&self) {
        match self.remote() {
            Some(remote) => remote.forget_failed_flush(),
            None => self.syncs.locked().failed = None,
        }
    }

    /// A failed flush of a cache device does not stick: its contents are checked when they are
    /// read, and the engine gives up a device that goes on failing. Over the page cache it does:
    /// there a durable write is a flush, too, and one that succeeds over the lost mark of another
    /// shard would be believed.
    pub(super) fn serve_as_cache(&mut self) {
        self.is_cache = true;
        self.sync_failure_sticks = !self.direct && !self.in_memory;
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
        let run = |result| syncs.run(Extent::Data, true, |_| result);
        assert_eq!(run(Err(Errno::INTR)), Err(Errno::INTR));
        assert_eq!(run(Ok(())), Ok(()));
        assert_eq!(run(Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(run(Ok(())), Err(Errno::NOSPC));
        let forgiving = Syncs::default();
        let run = |result| forgiving.run(Extent::Data, false, |_| result);
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
                syncs.run(Extent::Data, true, |_| {
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
                    syncs.run(Extent::Data, true, |_| {
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

    /// Begins a flush that ends with `result`, has others come meanwhile, and gives what all were
    /// told: the first, then the others.
    fn meet(sticks: bool, others: &[Extent], result: Result<(), Errno>) -> Met {
        let (syncs, done) = (Syncs::default(), Mutex::new(Vec::new()));
        let (begun, go) = (Barrier::new(2), Barrier::new(2));
        let told = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                syncs.run(Extent::Data, sticks, |_| {
                    begun.wait();
                    go.wait();
                    result
                })
            });
            begun.wait();
            let others: Vec<_> = others
                .iter()
                .map(|&extent| {
                    let (syncs, done) = (&syncs, &done);
                    let begin = move |extent| {
                        done.lock().expect("no panic").push(extent);
                        Ok(())
                    };
                    scope.spawn(move || syncs.run(extent, sticks, begin))
                })
                .collect();
            while syncs.locked().came < others.len() {
                std::thread::yield_now();
            }
            go.wait();
            let all = std::iter::once(first).chain(others);
            all.map(|thread| thread.join().expect("no panic")).collect()
        });
        (told, done.into_inner().expect("no panic"))
    }

    type Met = (Vec<Result<(), Errno>>, Vec<Extent>);

    #[test]
    fn those_that_waited_hear_of_a_failure_that_does_not_stick() {
        let failed = Err(Errno::IO);
        let (told, done) = meet(false, &[Extent::Data; 3], failed);
        assert_eq!((told, done), (vec![failed; 4], vec![]));
    }

    #[test]
    fn a_flush_of_all_that_waits_is_the_next_one() {
        let mut wanted = [Extent::Data; 12];
        wanted[5] = Extent::All;
        // Who wakes first is chance.
        for _ in 0..20 {
            let (told, done) = meet(true, &wanted, Ok(()));
            assert_eq!((told, done), (vec![Ok(()); 13], vec![Extent::All]));
        }
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
