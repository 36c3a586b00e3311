//! What files are, whatever they are called, found out in bounded time.
//!
//! Volumes are compared with each other by it. Looking at a file on storage that does not answer may
//! take as long as that lasts (a hard NFS mount, for one). So each file is looked at once, by a
//! thread that is left behind if it gets no answer, and others on the same file system are passed
//! over. A file that could not be looked at is told from others by its path alone: when it is opened
//! its lock tells the rest.

use cinnabar_backend::spec::Place;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Longest look at one file.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// File systems that are waited for in vain before all others are passed over.
const SILENT_MAX: usize = 8;

/// What a backend is, whatever it is called: two names of one file are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileIdentity {
    /// Device and inode.
    Inode(u64, u64),
    /// A file that does not exist, or can't be looked at.
    Path(PathBuf),
    /// An export of a server, or an RBD image.
    Server(String),
}

impl FileIdentity {
    /// The identity of what is at `path` now. (A block device is known by its own number, not by
    /// the inode of one of its names.)
    fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(meta) if meta.rdev() != 0 => Self::Inode(u64::MAX, meta.rdev()),
            Ok(meta) => Self::Inode(meta.dev(), meta.ino()),
            Err(_) => Self::Path(path.to_owned()),
        }
    }
}

/// Looks at files, each of which is remembered.
#[derive(Debug)]
pub struct Looks {
    known: BTreeMap<PathBuf, FileIdentity>,
    /// Files that were not looked at.
    silent: Vec<PathBuf>,
    /// File systems, or folders, that did not answer.
    away: Vec<PathBuf>,
    /// Where file systems are mounted.
    mounts: Vec<PathBuf>,
    look: fn(&Path) -> FileIdentity,
    look_max: Duration,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            silent: Vec::new(),
            away: Vec::new(),
            mounts: mounts(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()),
            look: FileIdentity::of,
            look_max: LOOK_MAX,
        }
    }
}

impl Looks {
    /// What is at `place`.
    pub fn at(&mut self, place: &Place) -> FileIdentity {
        match place {
            Place::File(path) => self.at_path(path),
            Place::Nbd(server) => FileIdentity::Server(server.place()),
            Place::Rbd(image) => FileIdentity::Server(image.place()),
            Place::Hybrid(volume) => FileIdentity::Server(volume.place()),
        }
    }

    /// What is at `path`.
    pub fn at_path(&mut self, path: &Path) -> FileIdentity {
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let identity = self.look_at(path).unwrap_or_else(|| {
            self.silent.push(path.to_owned());
            FileIdentity::Path(path.to_owned())
        });
        self.known.insert(path.to_owned(), identity.clone());
        identity
    }

    /// What deserves a word: files that did not answer.
    pub fn warnings(&self) -> Vec<String> {
        let warning = |path: &PathBuf| {
            format!(
                "{} was not compared with the files of other volumes: its file system does not answer",
                path.display()
            )
        };
        self.silent.iter().map(warning).collect()
    }

    fn look_at(&mut self, path: &Path) -> Option<FileIdentity> {
        let place = self.place_of(path);
        if self.away.len() >= SILENT_MAX || self.away.contains(&place) {
            return None;
        }
        let (look, own) = (self.look, path.to_owned());
        let (answer, answered) = mpsc::channel();
        let thread = std::thread::Builder::new().name("cinnabar-look".into());
        let spawned = thread.spawn(move || {
            // It may come too late for a reader.
            let _ = answer.send(look(&own));
        });
        let answered = spawned.ok().and_then(|_| answered.recv_timeout(self.look_max).ok());
        if answered.is_none() {
            self.away.push(place);
        }
        answered
    }

    /// Where the file system of `path` is mounted, as its name says. The root's has links to others
    /// more often: of that, its folder.
    fn place_of(&self, path: &Path) -> PathBuf {
        let of = self.mounts.iter().filter(|mount| path.starts_with(mount));
        let mount = of.max_by_key(|mount| mount.components().count());
        let folder = || path.parent().unwrap_or(path).to_owned();
        mount.filter(|mount| **mount != Path::new("/")).cloned().unwrap_or_else(folder)
    }
}

/// The mount points in the kernel's list; blanks in names are written as `\040`.
fn mounts(list: &str) -> Vec<PathBuf> {
    let name = |line: &str| Some(PathBuf::from(line.split(' ').nth(4)?.replace("\\040", " ")));
    list.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    static ASKED: AtomicU32 = AtomicU32::new(0);

    /// What is below `/away` never answers.
    fn away(path: &Path) -> FileIdentity {
        if path.starts_with("/away") {
            ASKED.fetch_add(1, SeqCst);
            loop {
                std::thread::park();
            }
        }
        FileIdentity::Inode(1, path.as_os_str().len() as u64)
    }

    #[test]
    fn file_systems_that_do_not_answer_are_given_up_and_told() {
        let look_max = Duration::from_millis(200);
        let mounts = ["/", "/away", "/a way"].map(PathBuf::from).to_vec();
        let mut looks = Looks { look: away, look_max, mounts, ..Looks::default() };
        for _ in 0..2 {
            for number in 0..9 {
                let path = PathBuf::from(format!("/away/{number}/disk.raw"));
                assert_eq!(looks.at_path(&path), FileIdentity::Path(path));
                let path = PathBuf::from(format!("/there/{number}"));
                assert_eq!(looks.at_path(&path), FileIdentity::Inode(1, 8));
            }
        }
        assert_eq!(ASKED.load(SeqCst), 1, "the others are on the same file system");
        let warnings = looks.warnings();
        assert_eq!(warnings.len(), 9);
        assert!(warnings[8].starts_with("/away/8/disk.raw was not compared"), "{warnings:?}");
    }

    #[test]
    fn a_file_is_where_the_longest_name_says() {
        let list = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /srv rw,x - nfs b rw\n\
            3 1 0:3 / /srv/a\\040b rw - nfs c rw\nx\n";
        let looks = Looks { mounts: mounts(list), ..Looks::default() };
        assert_eq!(looks.mounts.len(), 3);
        for (path, place) in [
            ("/srv/vm.raw", "/srv"),
            ("/srv/a b/vm.raw", "/srv/a b"),
            ("/srv/a bc/vm.raw", "/srv"),
            ("/var/a/vm.raw", "/var/a"),
            ("/", "/"),
        ] {
            assert_eq!(looks.place_of(Path::new(path)), Path::new(place), "{path}");
        }
    }
}
