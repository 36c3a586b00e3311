//! The clock that stamps a file: that of its file system, which may be another host's.

use super::{Disk, durable};
use crate::proof::ProofError;
use rustix::fs::{
    AtFlags, Mode, OFlags, StatxFlags, StatxTimestamp, fstatfs, futimens, statx, unlink,
};
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Makes the names of clock files differ within a process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// See the module.
pub(super) enum Clock {
    /// A file beside it, touched to learn the time; removed at the end.
    Beside { fd: rustix::fd::OwnedFd, path: PathBuf },
    /// The kernel's tick: what local file systems stamp with.
    Tick,
}

impl Clock {
    pub(super) fn of(disk: &Disk) -> Result<Self, ProofError> {
        let name = disk.path.file_name().unwrap_or_default().to_string_lossy();
        let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let name = format!(".{name}.{pid}-{count}.clock");
        let path = disk.path.parent().unwrap_or(Path::new(".")).join(name);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        // One left behind by a crash under the same process id.
        let _ = unlink(&path);
        match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => Ok(Self::Beside { fd, path }),
            Err(_) if is_local(disk) => Ok(Self::Tick),
            Err(errno) => Err(ProofError::Io { during: "a file beside it", errno }),
        }
    }

    /// What a file changed now would be stamped with, or a little less, in ns since 1970.
    pub(super) fn now_ns(&self) -> Result<i64, ProofError> {
        match self {
            Self::Beside { fd, .. } => {
                let failed = |errno| ProofError::Io { during: "touching a file", errno };
                let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
                let stamps = rustix::fs::Timestamps { last_access: now, last_modification: now };
                futimens(fd, &stamps).map_err(failed)?;
                // Some network file systems give the server's time only when asked again.
                let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
                let seen = statx(fd, "", flags, StatxFlags::CTIME).map_err(failed)?;
                Ok(stamp_ns(seen.stx_ctime))
            }
            Self::Tick => {
                // A second less: the file system may cut its stamps down to whole ones.
                let now = clock_gettime(ClockId::RealtimeCoarse);
                Ok((now.tv_sec - 1).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec))
            }
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        if let Self::Beside { path, .. } = self {
            let _ = unlink(&*path);
        }
    }
}

pub(super) fn stamp_ns(stamp: StatxTimestamp) -> i64 {
    stamp.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(stamp.tv_nsec))
}

/// Whether the file is on a file system of this host, whose clock is the kernel's.
fn is_local(disk: &Disk) -> bool {
    fstatfs(&disk.fd).is_ok_and(|stat| durable::is_known(&stat))
}
