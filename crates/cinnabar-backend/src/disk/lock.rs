//! Waiting for the lock on a disk, bounded and shown.

use super::error::{DiskError, DiskErrorKind};
use super::progress::Progress;
use super::qemu_lock;
use rustix::fd::BorrowedFd;
use rustix::fs::{FlockOperation, Stat, flock, fstat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often the lock is tried.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// How often the log says what is waited for.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Times the kernel's list is searched for the holder.
const LOOKS: u32 = 10;

/// A wait with a bound, shared by all that one opening waits for.
pub(super) struct Patience {
    since: Instant,
    bound: Duration,
    cancel: Option<Arc<AtomicBool>>,
    told: Option<Instant>,
    progress: Progress,
}

impl Patience {
    pub(super) fn new(
        bound: Duration,
        cancel: Option<Arc<AtomicBool>>,
        progress: Progress,
    ) -> Self {
        Self { since: Instant::now(), bound, cancel, told: None, progress }
    }

    /// Sleeps a little and returns true, or false once the bound is reached. `holder` says who has it.
    pub(super) fn wait(&mut self, path: &Path, holder: impl FnOnce() -> Option<String>) -> bool {
        if self.since.elapsed() >= self.bound || self.is_cancelled() {
            return false;
        }
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told = Some(Instant::now());
            let left_s = self.bound.saturating_sub(self.since.elapsed()).as_secs();
            let holder = holder().unwrap_or_default();
            tracing::warn!(
                path = %path.display(),
                "it is in use{holder}; waiting for it, {left_s} s at most"
            );
        }
        std::thread::sleep(TRY_EVERY.min(self.bound));
        // This wait has a bound of its own.
        self.progress.step();
        true
    }

    /// A moment of a wait that has a bound of its own is over; false if it is to end.
    pub(super) fn pause(&self) -> bool {
        self.progress.step();
        !self.is_cancelled()
    }

    /// Logs that a wait that was logged is over.
    fn log_free(&self, path: &Path) {
        if self.told.is_some() {
            let waited_s = self.since.elapsed().as_secs_f64();
            tracing::info!(path = %path.display(), waited_s, "it is free now");
        }
    }

    fn is_cancelled(&self) -> bool {
        let cancelled = self.cancel.as_ref().is_some_and(|cancel| cancel.load(Relaxed));
        cancelled || self.progress.is_given_up()
    }

    /// The error once the bound is reached.
    pub(super) fn in_use(&self, path: &Path, holder: Option<String>) -> DiskError {
        if self.is_cancelled() {
            return DiskError::new(path, DiskErrorKind::Cancelled);
        }
        let waited = if self.told.is_some() { self.since.elapsed() } else { Duration::ZERO };
        DiskError::new(path, DiskErrorKind::InUse { waited, holder })
    }
}

/// Locks the open file description, alone or shared with other readers, and against QEMU as well.
pub(super) fn lock(
    fd: BorrowedFd<'_>,
    path: &Path,
    shared: bool,
    patience: &mut Patience,
) -> Result<(), DiskError> {
    let operation = if shared {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    loop {
        match flock(fd, operation) {
            Ok(()) if qemu_lock::try_lock(fd, shared) => {
                patience.log_free(path);
                return Ok(());
            }
            Ok(()) => {
                let holder = || Some(" by QEMU, or a tool that locks as it does".to_owned());
                if !patience.wait(path, holder) {
                    return Err(patience.in_use(path, holder()));
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                if !patience.wait(path, || holder(fd)) {
                    return Err(patience.in_use(path, holder(fd)));
                }
            }
            Err(errno) => return Err(DiskError::new(path, DiskErrorKind::Lock(errno))),
        }
    }
}

/// Who holds a lock on this file, as far as the kernel's list tells (not for network file systems).
fn holder(fd: BorrowedFd<'_>) -> Option<String> {
    let stat = fstat(fd).ok()?;
    // The list is read in pieces, and one that others change meanwhile may lack a line.
    let pid = (0..LOOKS).find_map(|_| {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| holder_in(line, &stat))
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!(" by process {pid} ({})", name.trim()))
}

/// One line: `1: FLOCK  ADVISORY  WRITE 123 fe:00:4567 0 EOF`.
fn holder_in(line: &str, stat: &Stat) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace();
    let kind = fields.nth(1)?;
    let pid = fields.nth(2)?;
    let mut place = fields.next()?.split(':');
    let major = u32::from_str_radix(place.next()?, 16).ok()?;
    let minor = u32::from_str_radix(place.next()?, 16).ok()?;
    let inode: u64 = place.next()?.parse().ok()?;
    let same = major == rustix::fs::major(stat.st_dev)
        && minor == rustix::fs::minor(stat.st_dev)
        && inode == stat.st_ino;
    (kind == "FLOCK" && same).then(|| pid.parse().ok()).flatten()
}
