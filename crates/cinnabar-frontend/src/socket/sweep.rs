//! Folders that a daemon left behind when it was killed while it made a socket.
//!
//! Called when the next socket is made in the same folder.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};
use std::ffi::CStr;
use std::time::{Duration, SystemTime};

/// Their names: this, the number of the process, and a number of its own.
const PREFIX: &str = ".cinnabar-";
/// They live for milliseconds. A process that is not seen here, in another container, may have made a
/// younger one.
const AGE_MIN: Duration = Duration::from_mins(1);

/// The name of the `number`th folder of this process.
pub(super) fn name(number: u64) -> String {
    format!("{PREFIX}{}-{number}", std::process::id())
}

/// Removes what was left behind in `parent`. `made`: how many folders this process made or tried to.
/// Nothing depends on it, so errors are passed over.
pub(super) fn sweep(parent: &OwnedFd, made: u64) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(parent) = openat(parent, ".", flags, Mode::empty()) else { return };
    let Ok(entries) = Dir::read_from(&parent) else { return };
    for entry in entries.flatten() {
        if is_of_the_dead(entry.file_name(), made) && empty(&parent, entry.file_name()).is_ok() {
            let _ = unlinkat(&parent, entry.file_name(), AtFlags::REMOVEDIR);
        }
    }
}

fn is_of_the_dead(name: &CStr, made: u64) -> bool {
    let numbers = |name: &str| {
        let (process, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
        Some((process.parse::<u32>().ok()?, number.parse::<u64>().ok()?))
    };
    let Some((process, number)) = name.to_str().ok().and_then(numbers) else { return false };
    if process == std::process::id() {
        // Of an earlier process of this number.
        return number >= made;
    }
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Removes the sockets in a folder, if it is an old one of ours.
fn empty(parent: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty())?;
    let stat = fstat(&folder)?;
    let others = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    let old = now.checked_sub(changed).is_some_and(|age| age > AGE_MIN);
    if stat.st_uid != geteuid().as_raw() || !others.is_empty() || !old {
        return Err(Errno::PERM);
    }
    for entry in Dir::read_from(folder.as_fd())?.flatten() {
        if entry.file_type() == FileType::Socket {
            unlinkat(&folder, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SocketAccess, UnixListener};
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn leave(folder: &Path, name: &str, mode: u32, age: Duration) {
        let den = folder.join(name);
        std::fs::create_dir(&den).expect("a new folder");
        std::fs::set_permissions(&den, Permissions::from_mode(mode)).expect("it is ours");
        drop(std::os::unix::net::UnixListener::bind(den.join("a.sock")).expect("a socket"));
        let then = SystemTime::now() - age;
        File::open(&den).and_then(|den| den.set_modified(then)).expect("it is ours");
    }

    #[test]
    fn what_the_dead_left_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = std::process::Command::new("true").spawn().expect("it is there");
        let dead = child.id();
        child.wait().expect("it ends");
        let (own, hour) = (std::process::id(), Duration::from_hours(1));
        let parent = std::os::unix::process::parent_id();
        for swept in [format!(".cinnabar-{dead}-0"), format!(".cinnabar-{own}-{}", u64::MAX)] {
            leave(folder.path(), &swept, 0o700, hour);
        }
        let stay = [
            (format!(".cinnabar-{dead}-1"), 0o700, Duration::ZERO),
            (format!(".cinnabar-{dead}-2"), 0o750, hour),
            (format!(".cinnabar-{dead}-x"), 0o700, hour),
            (format!(".cinnabar-{parent}-0"), 0o700, hour),
            (format!("cinnabar-{dead}-0"), 0o700, hour),
        ];
        for (name, mode, age) in &stay {
            leave(folder.path(), name, *mode, *age);
        }
        let path = folder.path().join("a.sock");
        let listener = UnixListener::new(&path, &SocketAccess::default()).expect("a socket");
        let entries = std::fs::read_dir(folder.path()).expect("readable");
        let mut left: Vec<_> = entries.map(|entry| entry.expect("readable").file_name()).collect();
        left.sort_unstable();
        let mut expected: Vec<std::ffi::OsString> =
            stay.iter().map(|(name, ..)| name.into()).collect();
        expected.push("a.sock".into());
        expected.sort_unstable();
        assert_eq!(left, expected);
        drop(listener);
    }
}
