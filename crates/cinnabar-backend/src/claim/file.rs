//! The file: written so that there is always a whole one or none, and never over another's.

use super::error::{ClaimError, ClaimErrorKind};
use super::record::Claim;
use super::text::{BYTES_MAX, parse, render};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, fstat, fsync, open,
    renameat_with, statx,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// What a claim's name has behind that of the back end.
const SUFFIX: &str = ".cinnabar-claim";

/// Where the claim of a back end in a file is: `vm1.raw.cinnabar-claim` beside `vm1.raw`. Symbolic links are
/// followed, and a file with hard links is not claimed: a disk has one claim, whatever it is called. A block device has no folder that other
/// hosts see: its claim needs a path of its own.
pub fn path_beside(backend: &Path) -> PathBuf {
    let real = fs::canonicalize(backend).or_else(|_| std::path::absolute(backend));
    let mut path = real.unwrap_or_else(|_| backend.to_owned()).into_os_string();
    path.push(SUFFIX);
    path.into()
}

/// How many names the file has beside which a claim is. `None`: there is no such file.
fn names_of_disk(claim: &Path) -> Option<u64> {
    use std::os::unix::{ffi::OsStrExt, fs::MetadataExt};
    let disk = claim.as_os_str().as_bytes().strip_suffix(SUFFIX.as_bytes())?;
    let found = fs::metadata(std::ffi::OsStr::from_bytes(disk)).ok()?;
    found.is_file().then_some(found.nlink())
}

/// The claim at a path, if there is one.
///
/// # Errors
/// If there is something else, or it can't be read: then it is not known whose the volume is.
pub(super) fn read(path: &Path) -> Result<Option<Claim>, ClaimError> {
    // An NFS client believes that there is none for as long as it believes the folder's attributes: they are asked
    // for again. What is wrong with the folder shows in what follows.
    if let Some(folder) = path.parent() {
        let _attributes = statx(CWD, folder, AtFlags::STATX_FORCE_SYNC, StatxFlags::CTIME);
    }
    // Without waiting: a pipe has no end to wait for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        // Nor can there be one whose name would be too long.
        Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(None),
        // A socket can't be opened.
        Err(Errno::NXIO) => return Err(ClaimError::new(path, ClaimErrorKind::WrongKind)),
        Err(errno) => return Err(ClaimError::io(path, "open", errno)),
    };
    let stat = fstat(&file).map_err(|errno| ClaimError::io(path, "stat", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(ClaimError::new(path, ClaimErrorKind::WrongKind));
    }
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| ClaimError::io(path, "read", error))?;
    parse(&bytes).map(Some).map_err(|kind| ClaimError::new(path, kind))
}

/// Makes a claim, durably. One of the same log and incarnation is written again.
///
/// # Errors
/// [`ClaimErrorKind::Held`] if there is another's, also if two hosts try at the same time: one of them
/// wins. Otherwise if something else is in its place, or it can't be made durable; then there may be a
/// claim.
pub(super) fn write(path: &Path, claim: &Claim) -> Result<(), ClaimError> {
    let bytes = render(claim).map_err(|kind| ClaimError::new(path, kind))?;
    let is_there = is_own(path, claim)?;
    if let Some(names) = names_of_disk(path).filter(|names| *names > 1 && !is_there) {
        return Err(ClaimError::new(path, ClaimErrorKind::Names(names)));
    }
    let new = new_path(path, claim);
    let made = make(&new, &bytes).and_then(|()| {
        if is_there {
            fs::rename(&new, path).map_err(|error| ClaimError::io(path, "rename", error))
        } else {
            put_in_place(&new, path, claim)
        }
    });
    // Of no use any more, whatever came of it.
    let _gone = fs::remove_file(&new);
    made?;
    sync_folder(path)
}

/// Removes a claim, durably. There may be none.
///
/// # Errors
/// If it is another's, or not to be read; it stays then.
pub(super) fn remove(path: &Path, claim: &Claim) -> Result<(), ClaimError> {
    if is_own(path, claim)? {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(ClaimError::io(path, "remove", error));
            }
            _ => {}
        }
    }
    // What a crash has left behind.
    let _gone = fs::remove_file(new_path(path, claim));
    // Also if it is gone: that need not be durable yet.
    sync_folder(path)
}

/// Whether there is a claim; another's is an error.
fn is_own(path: &Path, claim: &Claim) -> Result<bool, ClaimError> {
    match read(path)? {
        None => Ok(false),
        Some(found) if found.is_of(claim.write_log, claim.incarnation) => Ok(true),
        Some(found) => Err(ClaimError::new(path, ClaimErrorKind::Held(Box::new(found)))),
    }
}

/// Where a claim is written before it has its name. Each log has its own: two hosts may try at the same
/// time, and a log is one process's.
fn new_path(path: &Path, claim: &Claim) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{:08x}.new", u128::from_be_bytes(claim.write_log) >> 96));
    new.into()
}

fn make(new: &Path, bytes: &[u8]) -> Result<(), ClaimError> {
    // A crash may have left one behind.
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // Another host's operator is to read it.
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let failed = |during, error: std::io::Error| ClaimError::io(new, during, error);
    let fd = open(new, flags, mode).map_err(|errno| failed("create", errno.into()))?;
    let mut file = File::from(fd);
    file.write_all(bytes).map_err(|error| failed("write", error))?;
    file.sync_all().map_err(|error| failed("sync", error))
}

/// Gives a new claim its name, unless there is one now.
fn put_in_place(new: &Path, path: &Path, claim: &Claim) -> Result<(), ClaimError> {
    // A link fails if the name is taken, on network file systems, too.
    let done = match rustix::fs::link(new, path) {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE)
        }
        done => done,
    };
    match done {
        Ok(()) => Ok(()),
        // Another host was quicker; or the answer to this one's link was lost and it was sent again.
        Err(Errno::EXIST) if is_own(path, claim)? => Ok(()),
        // Neither is known there: what was looked for a moment ago has to do.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::rename(new, path).map_err(|error| ClaimError::io(path, "rename", error))
        }
        Err(errno) => Err(ClaimError::io(path, "link", errno)),
    }
}

fn sync_folder(path: &Path) -> Result<(), ClaimError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open(folder, flags, Mode::empty());
    let fd = opened.map_err(|errno| ClaimError::io(folder, "open", errno))?;
    match fsync(fd) {
        // Folders of some network file systems have nothing to sync: the server has the name.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(ClaimError::io(folder, "sync", errno)),
    }
}
