//! Where a local volume is: two folders and a table.

use super::crew::Crew;
use super::folder::{Folder, io};
use super::objects::Objects;
use super::table::{self, Unread};
use crate::pools::{Contents, OpenError, Place, Pools, Wait};
use cinnabar_placement::{Header, Pool};
use rustix::fs::{Mode, OFlags, fsync};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the table is called in the fast pool's folder, if nothing else is said.
pub const TABLE_NAME: &str = "table";
/// Times a table is opened that another one has taken the place of meanwhile, or read that is written.
const TRIES: u32 = 5;
/// Between two tries to read a table that is being written.
const PAUSE: Duration = Duration::from_millis(20);

/// A local volume, not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPlace {
    /// The fast pool's folder.
    pub fast: PathBuf,
    /// The slow pool's folder.
    pub slow: PathBuf,
    /// The table's file.
    pub table: PathBuf,
}

impl LocalPlace {
    /// With the table where it is by default.
    pub fn new(fast: PathBuf, slow: PathBuf) -> Self {
        let table = fast.join(TABLE_NAME);
        Self { fast, slow, table }
    }

    fn folder(&self, pool: Pool) -> Result<Folder, OpenError> {
        let path = if pool == Pool::Fast { &self.fast } else { &self.slow };
        let mut folder = Folder::open(path, pool)?;
        folder.keep(&self.table);
        Ok(folder)
    }

    pub(super) fn folders(&self, header: &Header) -> Result<[Folder; 2], OpenError> {
        let open = |pool| -> Result<Folder, OpenError> {
            let mut folder = self.folder(pool)?;
            folder.check(header.identity)?;
            Ok(folder)
        };
        Ok([open(Pool::Slow)?, open(Pool::Fast)?])
    }
}

impl Place for LocalPlace {
    fn name(&self) -> String {
        format!("fast={},slow={}", self.fast.display(), self.slow.display())
    }

    fn create(&mut self, header: &Header) -> Result<(), OpenError> {
        if self.table.symlink_metadata().is_ok() {
            return Err(OpenError::Exists(self.table.display().to_string()));
        }
        for path in [&self.fast, &self.slow] {
            std::fs::create_dir_all(path).map_err(|error| {
                let errno = Errno::from_io_error(&error);
                io(format!("making {}", path.display()), errno.unwrap_or(Errno::IO))
            })?;
        }
        let (slow, fast) = (self.folder(Pool::Slow)?, self.folder(Pool::Fast)?);
        slow.make(header.identity)?;
        if let Err(error) = fast.make(header.identity) {
            slow.unmake();
            return Err(error);
        }
        // The volume is there when its table is.
        let mut new = self.table.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        let _left = std::fs::remove_file(&new);
        let made = table::create(&new, header).and_then(|()| put(&new, &self.table));
        if made.is_err() {
            let _left = std::fs::remove_file(&new);
            slow.unmake();
            fast.unmake();
        }
        made
    }

    fn look(&mut self) -> Result<Contents, OpenError> {
        let unread = Unread::open(&self.table, false)?;
        let mut tries = TRIES;
        let loaded = loop {
            tries -= 1;
            match unread.load() {
                // Its owner may have written what was being read.
                Err(OpenError::Table(_)) if tries > 0 => std::thread::sleep(PAUSE),
                loaded => break loaded?,
            }
        };
        self.folders(&loaded.header)?;
        Ok(Contents { header: loaded.header, records: loaded.records })
    }

    fn take_over(
        &mut self,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
    ) -> Result<(Contents, Box<dyn Pools>), OpenError> {
        let mut tries = TRIES;
        let unread = loop {
            let unread = Unread::open(&self.table, true)?;
            while !unread.lock()? {
                if !wait(Wait::Holder("another process")) {
                    return Err(OpenError::InUse("another process".into()));
                }
            }
            // Its former owner may have put another one in its place.
            tries -= 1;
            if unread.is_at(&self.table) {
                break unread;
            }
            if tries == 0 {
                let path = self.table.display();
                return Err(OpenError::Other(format!("the table {path} is replaced all the time")));
            }
        };
        // Before anything is written: a folder that is not mounted is not to be taken over.
        let folders = self.folders(&unread.load()?.header)?;
        let (table, contents) = unread.take_over()?;
        let objects = Objects::new(folders, contents.header.geometry.extent_bytes());
        let crew =
            Crew::start(objects, table).map_err(|errno| io("starting threads".into(), errno))?;
        Ok((contents, Box::new(crew)))
    }
}

/// Gives a file its name, durably. A table of that name, made meanwhile, stays.
fn put(new: &Path, path: &Path) -> Result<(), OpenError> {
    let failed = |errno| io(format!("making {}", path.display()), errno);
    match rustix::fs::link(new, path) {
        Err(Errno::EXIST) => return Err(OpenError::Exists(path.display().to_string())),
        linked => linked.and_then(|()| rustix::fs::unlink(new)).map_err(failed)?,
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty()).map_err(failed)?;
    fsync(&folder).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_no_other_ones_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let (new, path) = (folder.path().join("table.new"), folder.path().join("table"));
        for text in ["first", "second"] {
            std::fs::write(&new, text).expect("a file");
            let put = put(&new, &path);
            assert_eq!(put.is_ok(), text == "first", "{put:?}");
        }
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "first");
    }
}
