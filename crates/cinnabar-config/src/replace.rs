//! A file's content replaced by another, at once or not at all.
//!
//! The new content is written beside the file and made durable ([`Staged::new`]), and takes its place
//! in one step ([`Staged::commit`]). Mode, owner and group stay. A symbolic link stays a link: the file
//! that it leads to is replaced, in the folder of that.

use rustix::fs::{AtFlags, CWD, OFlags, StatxAttributes, StatxFlags, getxattr_query, statx};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Most files left by processes that were killed amid a change before another name is given up.
const TRIES_MAX: u32 = 64;

/// The extended attribute of an access-control list beyond the mode.
const ACL: &str = "system.posix_acl_access";

/// Why a file was not replaced. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// It is not what was read.
    #[error("{} has changed since it was read", .0.display())]
    Changed(PathBuf),
    /// It is a folder, a device or the like.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// It has other names, which would keep the old content.
    #[error("{} has more than one name (hard links)", .0.display())]
    Linked(PathBuf),
    /// Another file system lends it its name, which can't be replaced.
    #[error("{} is a mount point", .0.display())]
    Mounted(PathBuf),
    /// It has rights that the new one would not have.
    #[error("{} has an access-control list", .0.display())]
    Listed(PathBuf),
    /// The new one can't be given to the owner of the old one.
    #[error("{} can't keep its owner and group: {source}", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system refused.
    #[error("{} {what}: {source}", path.display())]
    Io {
        /// The file, or one beside it, or its folder.
        path: PathBuf,
        /// What can't be done.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl ReplaceError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Changed(_) => "have it read first: cinnabar reload",
            Self::Owner { .. } => {
                "run the daemon as root with CAP_CHOWN, or give the file to its account"
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                "under systemd its folder needs ReadWritePaths= in the unit; else make the change with an editor"
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "let the daemon's account write the file and its folder, or make the change with an editor"
            }
            Self::NotAFile(_)
            | Self::Linked(_)
            | Self::Mounted(_)
            | Self::Listed(_)
            | Self::Io { .. } => {
                "make the change with an editor, and have it read: cinnabar reload"
            }
        }
    }
}

/// A new content beside its file; removed when dropped before it has taken its place.
#[derive(Debug)]
pub struct Staged {
    /// As it is named.
    path: PathBuf,
    /// The file itself, behind all links.
    file: PathBuf,
    was: Identity,
    beside: PathBuf,
    old: String,
    placed: bool,
}

/// Which file it is, and when it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(meta: &fs::Metadata) -> Self {
        let changed = (meta.ctime(), meta.ctime_nsec());
        Self { device: meta.dev(), inode: meta.ino(), changed }
    }
}

impl Staged {
    /// Writes `new` beside the file at `path`, whose content is `old`.
    ///
    /// # Errors
    /// If the file is not as it was read, may not be written, or the new one can't be made.
    pub fn new(path: &Path, old: &str, new: &str) -> Result<Self, ReplaceError> {
        let file = fs::canonicalize(path).map_err(failed(path, "can't be found"))?;
        let meta = fs::metadata(&file).map_err(failed(&file, "can't be looked at"))?;
        if !meta.is_file() {
            return Err(ReplaceError::NotAFile(file));
        }
        if meta.nlink() > 1 {
            return Err(ReplaceError::Linked(file));
        }
        if is_mount_point(&file).map_err(failed(&file, "can't be looked at"))? {
            return Err(ReplaceError::Mounted(file));
        }
        if has_acl(&file).map_err(failed(&file, "can't be looked at"))? {
            return Err(ReplaceError::Listed(file));
        }
        // A mode that forbids writing is meant, even where the folder may be written.
        let opened = OpenOptions::new().write(true).open(&file);
        let opened = opened.map_err(failed(&file, "can't be written"))?;
        // Of the opened file: an overlay copies one that is opened to be written, and that is another.
        let meta = opened.metadata().map_err(failed(&file, "can't be looked at"))?;
        drop(opened);
        let (beside, made) = make_beside(&file)?;
        let (path, was) = (path.to_owned(), Identity::of(&meta));
        let staged = Self { path, file, was, beside, old: old.to_owned(), placed: false };
        staged.check()?;
        staged.fill(made, &meta, new)?;
        Ok(staged)
    }

    fn fill(&self, mut made: File, meta: &fs::Metadata, new: &str) -> Result<(), ReplaceError> {
        let own = made.metadata().map_err(failed(&self.beside, "can't be looked at"))?;
        // While it is still the daemon's own: with CAP_CHOWN alone it may not later.
        let mode = Permissions::from_mode(meta.mode() & 0o7777);
        made.set_permissions(mode).map_err(failed(&self.beside, "can't get its mode"))?;
        if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
            fchown(&made, Some(meta.uid()), Some(meta.gid()))
                .map_err(|source| ReplaceError::Owner { path: self.file.clone(), source })?;
        }
        made.write_all(new.as_bytes()).map_err(failed(&self.beside, "can't be written"))?;
        made.sync_all().map_err(failed(&self.beside, "can't be made durable"))
    }

    /// Whether the file is still what was read.
    fn check(&self) -> Result<(), ReplaceError> {
        let changed = || Err(ReplaceError::Changed(self.path.clone()));
        if !fs::canonicalize(&self.path).is_ok_and(|file| file == self.file) {
            return changed();
        }
        let mut now = Vec::new();
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&self.file);
        let file = file.map_err(failed(&self.file, "can't be read"))?;
        let meta = file.metadata().map_err(failed(&self.file, "can't be looked at"))?;
        if Identity::of(&meta) != self.was {
            return changed();
        }
        let most = self.old.len() as u64 + 1;
        file.take(most).read_to_end(&mut now).map_err(failed(&self.file, "can't be read"))?;
        if now == self.old.as_bytes() { Ok(()) } else { changed() }
    }

    /// Puts it in the file's place, durably.
    ///
    /// # Errors
    /// If the file has changed meanwhile, or the system refuses.
    pub fn commit(mut self) -> Result<(), ReplaceError> {
        self.check()?;
        fs::rename(&self.beside, &self.file).map_err(failed(&self.file, "can't be replaced"))?;
        self.placed = true;
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        let sync = File::open(folder).and_then(|folder| folder.sync_all());
        sync.map_err(failed(folder, "can't be made durable; the file is replaced"))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.placed {
            // What stays does no harm: it is a name that is not read.
            let _stays = fs::remove_file(&self.beside);
        }
    }
}

/// A new file in the folder of another one, which no other account may read.
fn make_beside(file: &Path) -> Result<(PathBuf, File), ReplaceError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let folder = file.parent().unwrap_or(Path::new("/"));
    for number in 0..TRIES_MAX {
        let beside = folder.join(format!(".{name}.{}-{number}.new", std::process::id()));
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
        match options {
            Ok(made) => return Ok((beside, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&beside, "can't be made")(error)),
        }
    }
    let error = io::Error::from(io::ErrorKind::AlreadyExists);
    Err(failed(folder, "has too many files of earlier changes (.NAME.*.new)")(error))
}

fn is_mount_point(file: &Path) -> io::Result<bool> {
    let found = statx(CWD, file, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn has_acl(file: &Path) -> io::Result<bool> {
    match getxattr_query(file, ACL) {
        Ok(length) => Ok(length > 0),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> ReplaceError {
    let path = path.to_owned();
    move |source| ReplaceError::Io { path, what, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Site {
        dir: tempfile::TempDir,
        path: PathBuf,
    }

    fn site() -> Site {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("c.toml");
        fs::write(&path, "old").expect("a file");
        Site { dir, path }
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        let mut names: Vec<_> =
            names.map(|entry| entry.file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }

    #[test]
    fn content_changes_and_mode_stays() {
        let Site { dir, path } = site();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("it is ours");
        let staged = Staged::new(&path, "old", "new").expect("it can be staged");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "old");
        staged.commit().expect("it can be placed");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o7777, 0o640);
        assert_eq!(names(dir.path()), ["c.toml"]);
    }

    #[test]
    fn owner_and_group_stay() {
        let Site { dir: _dir, path } = site();
        if std::os::unix::fs::chown(&path, Some(65_534), Some(48_211)).is_err() {
            eprintln!("skipped: it needs root");
            return;
        }
        Staged::new(&path, "old", "new").and_then(Staged::commit).expect("root may");
        let meta = fs::metadata(&path).expect("it is there");
        assert_eq!((meta.uid(), meta.gid()), (65_534, 48_211));
    }

    #[test]
    fn a_link_stays_one_and_leads_to_the_new_content() {
        let Site { dir, path } = site();
        let folder = dir.path().join("etc");
        fs::create_dir(&folder).expect("a folder");
        let link = folder.join("link.toml");
        symlink("../c.toml", &link).expect("a link");
        Staged::new(&link, "old", "new").and_then(Staged::commit).expect("it can be replaced");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
        assert_eq!(names(&folder), ["link.toml"]);
    }

    #[test]
    fn a_file_that_was_changed_stays_and_nothing_is_left_beside_it() {
        let Site { dir, path } = site();
        for read in ["", "ol", "older"] {
            let error = Staged::new(&path, read, "new").expect_err("it is another");
            assert!(matches!(error, ReplaceError::Changed(_)), "{error}");
        }
        let staged = Staged::new(&path, "old", "new").expect("it can be staged");
        fs::write(&path, "edited").expect("it is ours");
        let error = staged.commit().expect_err("it has changed");
        assert!(matches!(error, ReplaceError::Changed(_)), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "edited");
        assert_eq!(names(dir.path()), ["c.toml"]);
    }

    #[test]
    fn what_is_no_file_of_one_name_is_refused() {
        let Site { dir, path } = site();
        fs::hard_link(&path, dir.path().join("other")).expect("a second name");
        let error = Staged::new(&path, "old", "new").expect_err("it has two names");
        assert!(matches!(error, ReplaceError::Linked(_)), "{error}");
        let error = Staged::new(dir.path(), "", "new").expect_err("it is a folder");
        assert!(matches!(error, ReplaceError::NotAFile(_)), "{error}");
        let error = Staged::new(&dir.path().join("none"), "", "new").expect_err("there is none");
        assert!(error.to_string().contains("can't be found"), "{error}");
        assert_eq!(names(dir.path()), ["c.toml", "other"]);
    }

    #[test]
    fn a_mount_point_is_one() {
        let Site { dir: _dir, path } = site();
        assert!(is_mount_point(Path::new("/")).expect("it is there"));
        assert!(!is_mount_point(&path).expect("it is there"));
        // Containers have some that are files.
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("it is there");
        for mount in mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new) {
            let Ok(text) = fs::read_to_string(mount) else { continue };
            if fs::metadata(mount).is_ok_and(|meta| meta.is_file() && meta.nlink() == 1) {
                let error = Staged::new(mount, &text, "new").expect_err("it is mounted");
                assert!(matches!(error, ReplaceError::Mounted(_)), "{error}");
            }
        }
    }

    #[test]
    fn a_file_with_other_rights_than_a_mode_is_refused() {
        let Site { dir, path } = site();
        // Version, and entries (what, rights, whose) of the owner, a user, the group, a mask, others.
        let mut list = vec![2, 0, 0, 0];
        for (what, rights, whose) in
            [(1, 6, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
        {
            list.extend([what, 0, rights, 0]);
            list.extend(whose.to_le_bytes());
        }
        if rustix::fs::setxattr(&path, ACL, &list, rustix::fs::XattrFlags::empty()).is_err() {
            eprintln!("skipped: the file system has no such lists");
            return;
        }
        let error = Staged::new(&path, "old", "new").expect_err("it has a list");
        assert!(matches!(error, ReplaceError::Listed(_)), "{error}");
        assert_eq!(names(dir.path()), ["c.toml"]);
    }

    #[test]
    fn another_file_of_the_same_content_is_another() {
        let Site { dir, path } = site();
        let link = dir.path().join("link.toml");
        symlink("c.toml", &link).expect("a link");
        let staged = Staged::new(&link, "old", "new").expect("it can be staged");
        let other = dir.path().join("other.toml");
        fs::write(&other, "old").expect("a file");
        fs::remove_file(&link).expect("it is ours");
        symlink("other.toml", &link).expect("a link");
        let error = staged.commit().expect_err("the link leads elsewhere");
        assert!(matches!(error, ReplaceError::Changed(_)), "{error}");
        let staged = Staged::new(&path, "old", "new").expect("it can be staged");
        fs::rename(&other, &path).expect("it is ours");
        let error = staged.commit().expect_err("it is another");
        assert!(matches!(error, ReplaceError::Changed(_)), "{error}");
        let staged = Staged::new(&path, "old", "new").expect("it can be staged");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        let error = staged.commit().expect_err("its mode is another");
        assert!(matches!(error, ReplaceError::Changed(_)), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "old");
    }

    /// As under systemd: root that may change owners, and no file that is not its own.
    #[test]
    fn the_right_to_change_owners_is_enough() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let Site { dir: _dir, path } = site();
        fs::set_permissions(&path, Permissions::from_mode(0o660)).expect("it is ours");
        if std::os::unix::fs::chown(&path, Some(65_534), Some(48_211)).is_err() {
            eprintln!("skipped: it needs root");
            return;
        }
        // A thread has capabilities of its own.
        let replaced = std::thread::scope(|scope| {
            let replaces = scope.spawn(|| {
                let mut sets = capabilities(None).expect("they can be asked for");
                sets.effective.remove(CapabilitySet::FOWNER);
                set_capabilities(None, sets).expect("one less");
                Staged::new(&path, "old", "new").and_then(Staged::commit)
            });
            replaces.join().expect("it does not panic")
        });
        replaced.expect("it needs no more");
        let meta = fs::metadata(&path).expect("it is there");
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (65_534, 48_211, 0o660));
    }

    #[test]
    fn a_leftover_of_a_killed_process_is_in_nobodys_way() {
        let Site { dir, path } = site();
        let left = dir.path().join(format!(".c.toml.{}-0.new", std::process::id()));
        fs::write(&left, "half").expect("a file");
        Staged::new(&path, "old", "new").and_then(Staged::commit).expect("it can be replaced");
        assert_eq!(fs::read_to_string(&left).expect("it stays"), "half");
    }
}
