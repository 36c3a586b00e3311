//! Proof that nobody wrote a file since we left it: who it is, how large, and when it last changed.
//!
//! Called by the data plane when a volume is attached and after it was detached.
//!
//! Change times can be coarse (a kernel tick of 4 ms; a second on some file systems): a write right
//! after ours could get the same one. So the proof is only given once the file system's own clock
//! has moved past the change time, which a file touched beside it tells.

use super::{Disk, DiskKind};
use cinnabar_engine::volume::Epoch;
use rustix::fd::AsFd;
use rustix::fs::{
    AtFlags, Mode, OFlags, StatxFlags, StatxTimestamp, fdatasync, fstatfs, fsync, futimens, statx,
    unlink,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for the file system's clock; some count in two seconds.
const CLOCK_WAIT_MAX: Duration = Duration::from_millis(2500);
/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What the layout of the 64 bytes is called.
const LAYOUT: u64 = 1;

/// Why no proof could be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochError {
    /// The kernel refused.
    #[error("{during}: {errno}")]
    Io {
        /// What was tried.
        during: &'static str,
        /// What it said.
        errno: Errno,
    },
    /// Somebody wrote meanwhile.
    #[error("the file changed while its change time was being recorded")]
    Changed,
    /// The clock did not move.
    #[error("the file system's clock did not pass the file's change time")]
    Clock,
}

/// The proof as it stands now, for comparison at attach; `None` for block devices, which have none.
///
/// # Errors
/// [`EpochError::Io`].
pub fn read_epoch(disk: &Disk) -> Result<Option<Epoch>, EpochError> {
    match disk.kind {
        DiskKind::Block => Ok(None),
        DiskKind::File => look(disk).map(|seen| Some(seen.pack())),
    }
}

/// Makes everything written durable and takes the proof, waiting until any later write would
/// change it (usually 5 to 10 ms, at most 2.5 s; blocking). `None` for block devices.
///
/// # Errors
/// [`EpochError`]; the volume's cached blocks are then not to be believed next time.
pub fn take_epoch(disk: &Disk) -> Result<Option<Epoch>, EpochError> {
    if disk.kind == DiskKind::Block {
        fdatasync(&disk.fd).map_err(|errno| EpochError::Io { during: "fdatasync", errno })?;
        return Ok(None);
    }
    // Not fdatasync: the change time itself must survive a power cut.
    fsync(&disk.fd).map_err(|errno| EpochError::Io { during: "fsync", errno })?;
    let seen = look(disk)?;
    let mut clock = Clock::beside(disk)?;
    let since = Instant::now();
    while clock.now_ns()? <= seen.change_ns {
        if since.elapsed() >= CLOCK_WAIT_MAX {
            return Err(EpochError::Clock);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    if look(disk)? == seen { Ok(Some(seen.pack())) } else { Err(EpochError::Changed) }
}

/// What the proof is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    /// 0 where the file system keeps none.
    birth_ns: i64,
    size_bytes: u64,
    change_ns: i64,
}

impl Seen {
    fn pack(self) -> Epoch {
        let mut bytes = [0; 64];
        let fields = [
            LAYOUT,
            self.device,
            self.inode,
            self.birth_ns.cast_unsigned(),
            self.size_bytes,
            self.change_ns.cast_unsigned(),
        ];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        Epoch(bytes)
    }
}

fn look(disk: &Disk) -> Result<Seen, EpochError> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let seen = statx(disk.as_fd(), "", AtFlags::EMPTY_PATH, wanted)
        .map_err(|errno| EpochError::Io { during: "stat", errno })?;
    let has_birth = StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::BTIME);
    Ok(Seen {
        device: u64::from(seen.stx_dev_major) << 32 | u64::from(seen.stx_dev_minor),
        inode: seen.stx_ino,
        birth_ns: if has_birth { stamp_ns(seen.stx_btime) } else { 0 },
        size_bytes: seen.stx_size,
        change_ns: stamp_ns(seen.stx_ctime),
    })
}

fn stamp_ns(stamp: StatxTimestamp) -> i64 {
    stamp.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(stamp.tv_nsec))
}

/// The clock that stamps the file.
enum Clock {
    /// A file beside it, touched to learn the time; removed at the end.
    Beside { fd: rustix::fd::OwnedFd, path: PathBuf },
    /// The kernel's tick: what local file systems stamp with.
    Tick,
}

impl Clock {
    fn beside(disk: &Disk) -> Result<Self, EpochError> {
        let name = disk.path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!(".{name}.{}.clock", std::process::id());
        let path = disk.path.parent().unwrap_or(Path::new(".")).join(name);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        // One left behind by a crash under the same process id.
        let _ = unlink(&path);
        match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => Ok(Self::Beside { fd, path }),
            Err(_) if is_local(disk) => Ok(Self::Tick),
            Err(errno) => Err(EpochError::Io { during: "a file beside it", errno }),
        }
    }

    fn now_ns(&mut self) -> Result<i64, EpochError> {
        match self {
            Self::Beside { fd, .. } => {
                let failed = |errno| EpochError::Io { during: "touching a file", errno };
                let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
                let stamps = rustix::fs::Timestamps { last_access: now, last_modification: now };
                futimens(&*fd, &stamps).map_err(failed)?;
                // Some network file systems tell the server's time only when asked anew.
                let seen = statx(
                    &*fd,
                    "",
                    AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC,
                    StatxFlags::CTIME,
                )
                .map_err(failed)?;
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

/// Whether the file is on a file system of this host, whose clock is the kernel's.
fn is_local(disk: &Disk) -> bool {
    const LOCAL: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010];
    fstatfs(&disk.fd).is_ok_and(|stat| LOCAL.contains(&(stat.f_type.cast_unsigned() & 0xffff_ffff)))
}
