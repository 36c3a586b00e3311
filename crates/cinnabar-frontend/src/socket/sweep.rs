//! Folders that a daemon left behind when it was killed while it made a socket.
//!
//! Called when the next socket is made in the same folder.
//!
//! Each maker holds a lock on its folder, which ends with the process. So no clock decides whether
//! a maker is alive: a clock may step, be a file server's, or run on while a maker is stopped. Nor
//! does a process number alone, which in another container belongs to another process.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::{Pid, geteuid, test_kill_process};
use std::ffi::CStr;

/// Their names: this, the number of the process, and a number of its own.
const PREFIX: &str = ".cinnabar-";
/// Entries of a folder that are looked at. The folder may be a tenant's, who may fill it, and a data thread waits
/// for the last one.
const LOOKED_AT_MAX: usize = 1024;

/// The name of the `number`th folder of this process.
pub(super) fn name(number: u64) -> String {
    format!("{PREFIX}{}-{number}", std::process::id())
}

/// Opens a folder that was just made: it is not swept as long as it is open. `None`: it was swept in
/// the moment before.
pub(super) fn claim(parent: &OwnedFd, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    let folder = match open(parent, name) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    match lock(&folder) {
        Ok(()) => Ok(is_at(parent, name, &folder).then_some(folder)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        // This file system has no locks, so no process sweeps there.
        Err(_) => Ok(Some(folder)),
    }
}

/// Removes what was left behind in `parent`, as far as it is among the first entries, and gives the number of
/// those that were looked at. Nothing depends on it, so errors are passed over.
pub(super) fn sweep(parent: &OwnedFd) -> usize {
    let Ok(parent) = open(parent, ".") else { return 0 };
    let Ok(entries) = Dir::read_from(&parent) else { return 0 };
    let mut looked_at = 0;
    for entry in entries.take(LOOKED_AT_MAX).flatten() {
        looked_at += 1;
        if may_be_of_the_dead(entry.file_name()) {
            let _ = remove(&parent, entry.file_name());
        }
    }
    looked_at
}

/// Whether no process here that makes folders under other names has this number.
fn may_be_of_the_dead(name: &CStr) -> bool {
    let numbers = |name: &str| {
        let (process, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
        number.parse::<u64>().ok()?;
        process.parse::<u32>().ok()
    };
    let Some(process) = name.to_str().ok().and_then(numbers) else { return false };
    if process == std::process::id() {
        // Of an earlier process of this number, or locked.
        return true;
    }
    // An older version of Cinnabar holds no lock.
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Removes a folder and the sockets in it, if Cinnabar made it and its maker is dead.
fn remove(parent: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
    let folder = open(parent, name)?;
    let stat = fstat(&folder)?;
    let others = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO);
    if stat.st_uid != geteuid().as_raw() || !others.is_empty() {
        return Err(Errno::PERM);
    }
    lock(&folder)?;
    if !is_at(parent, name, &folder) {
        // Swept by another, and the name may be that of a living one's folder by now.
        return Err(Errno::NOENT);
    }
    for entry in Dir::read_from(folder.as_fd())?.flatten() {
        if entry.file_type() == FileType::Socket {
            unlinkat(&folder, entry.file_name(), AtFlags::empty())?;
        }
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn open(parent: &OwnedFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn lock(folder: &OwnedFd) -> rustix::io::Result<()> {
    flock(folder, FlockOperation::NonBlockingLockExclusive)
}

/// Whether this folder is what the name leads to.
fn is_at(parent: &OwnedFd, name: impl Arg, folder: &OwnedFd) -> bool {
    let named = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let open = fstat(folder);
    named.is_ok_and(|named| {
        open.is_ok_and(|open| (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SocketAccess, UnixListener};
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    fn leave(folder: &Path, name: &str, mode: u32) {
        let den = folder.join(name);
        std::fs::create_dir(&den).expect("a new folder");
        std::fs::set_permissions(&den, Permissions::from_mode(mode))
            .expect("the test's own folder");
        drop(std::os::unix::net::UnixListener::bind(den.join("a.sock")).expect("a socket"));
    }

    /// As after the clock was set, by so much.
    fn made(den: &Path, ago: Duration) -> File {
        let file = File::open(den).expect("it is there");
        file.set_modified(SystemTime::now() - ago).expect("the test's own folder");
        file
    }

    /// The number of a process that is no more.
    fn dead() -> u32 {
        let mut child = std::process::Command::new("true").spawn().expect("it is there");
        child.wait().expect("it ends");
        child.id()
    }

    fn listen(path: &Path) -> UnixListener {
        UnixListener::new(path, &SocketAccess::default()).expect("a socket")
    }

    fn entries(folder: &Path) -> Vec<std::ffi::OsString> {
        let entries = std::fs::read_dir(folder).expect("readable");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("readable").file_name()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_the_dead_left_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let (dead, own) = (dead(), std::process::id());
        let parent = std::os::unix::process::parent_id();
        // Whatever the clock says of them.
        for (swept, ago_s) in [(dead, 0), (own, 3600)] {
            for number in [0, u64::MAX] {
                let name = format!(".cinnabar-{swept}-{number}");
                leave(folder.path(), &name, 0o700);
                made(&folder.path().join(name), Duration::from_secs(ago_s));
            }
        }
        let stay = [
            (format!(".cinnabar-{dead}-2"), 0o750),
            (format!(".cinnabar-{dead}-x"), 0o700),
            (format!(".cinnabar-{parent}-0"), 0o700),
            (format!("cinnabar-{dead}-0"), 0o700),
        ];
        for (name, mode) in &stay {
            leave(folder.path(), name, *mode);
        }
        let listener = listen(&folder.path().join("a.sock"));
        let mut expected: Vec<std::ffi::OsString> =
            stay.iter().map(|(name, ..)| name.into()).collect();
        expected.push("a.sock".into());
        expected.sort_unstable();
        assert_eq!(entries(folder.path()), expected);
        drop(listener);
    }

    /// In another container the maker may have any process number, or this process's.
    #[test]
    fn a_maker_that_takes_an_hour_keeps_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        for process in [dead(), std::process::id()] {
            let name = format!(".cinnabar-{process}-{}", u64::MAX);
            let den = folder.path().join(&name);
            leave(folder.path(), &name, 0o700);
            let slow = made(&den, Duration::from_hours(1));
            flock(&slow, FlockOperation::NonBlockingLockExclusive)
                .expect("no other process has it");
            drop(listen(&folder.path().join("a.sock")));
            assert!(den.join("a.sock").exists(), "its maker is alive");
            // Killed.
            drop(slow);
            drop(listen(&folder.path().join("a.sock")));
            assert!(!den.exists());
        }
    }

    /// A tenant's folder held up a data thread, with all its guests.
    #[test]
    fn of_a_folder_full_of_names_a_bounded_number_is_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let dead = dead();
        let parent = OwnedFd::from(File::open(folder.path()).expect("it is there"));
        leave(folder.path(), &format!(".cinnabar-{dead}-0"), 0o700);
        assert_eq!(sweep(&parent), 3, "the folder itself, the one above it, and one in it");
        assert!(entries(folder.path()).is_empty());
        let names = 2 * LOOKED_AT_MAX;
        for number in 0..names {
            let name = format!(".cinnabar-{dead}-{number}");
            std::fs::write(folder.path().join(name), []).expect("a file");
        }
        assert_eq!(sweep(&parent), LOOKED_AT_MAX);
        drop(listen(&folder.path().join("a.sock")));
        assert_eq!(entries(folder.path()).len(), names, "and a socket is made there");
    }

    #[test]
    fn a_folder_that_is_swept_before_it_is_claimed_is_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let parent = OwnedFd::from(File::open(folder.path()).expect("it is there"));
        assert!(claim(&parent, "gone").expect("no error").is_none());
        std::fs::create_dir(folder.path().join("swept")).expect("a new folder");
        let sweeper = open(&parent, "swept").expect("it is there");
        lock(&sweeper).expect("it is free");
        assert!(claim(&parent, "swept").expect("no error").is_none());
        // Of one that another has swept, only the name is left, and that is another one's.
        std::fs::rename(folder.path().join("swept"), folder.path().join("old"))
            .expect("the test's own folder");
        std::fs::create_dir(folder.path().join("swept")).expect("a new folder");
        assert!(!is_at(&parent, "swept", &sweeper));
        assert!(claim(&parent, "swept").expect("no error").is_some());
    }

    #[test]
    fn many_that_start_at_once_sweep_no_folder_of_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = folder.path().join(format!("{thread}.sock"));
                scope.spawn(move || (0..100).for_each(|_| drop(listen(&path))));
            }
        });
        assert!(entries(folder.path()).is_empty());
    }
}
