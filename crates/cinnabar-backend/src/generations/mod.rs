//! What must be known of a volume outside of any cache device: its generation, and which device it
//! was attached with last.
//!
//! A driver asks for it at an attach, before the first write that the cache device can't record, and
//! when another device takes over. Calls block: they end when it is durable.
//!
//! What a device holds of a volume is believed only under the generation kept here, and only on the
//! device named here. So a device that was away while the volume was written, or while another one
//! served it, finds another generation when it comes back. The state is one small file
//! (`generations.json`), rewritten and renamed at each change; a folder has one user, held by a
//! lock on the folder. A file that can't be read is as good as none: every generation is new then,
//! and the cache starts cold.

mod file;
#[cfg(test)]
mod tests;

use crate::disk::{DiskError, OpenOptions, lock_folder};
use crate::entropy;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Identity of a cache device: the random UUID of its superblock.
pub type DeviceId = [u8; 16];

/// Volumes remembered at most; beyond that, those not attached in this run are forgotten, which
/// costs their warmth.
const ENTRIES_MAX: usize = 8192;
/// Paths of earlier cache devices remembered at most.
const EARLIER_MAX: usize = 8;

/// What is known of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    generation: u64,
    /// The device it was last attached with.
    device: Option<DeviceId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    /// Path of the cache device that was last in use.
    cache: Option<PathBuf>,
    /// Paths of those in use before, newest first.
    earlier: Vec<PathBuf>,
    volumes: BTreeMap<String, Entry>,
}

impl Kept {
    /// The cache device at `path` is in use from now on.
    fn note_cache(&mut self, path: &Path) {
        if self.cache.as_deref() == Some(path) {
            return;
        }
        let last = self.cache.replace(path.to_owned());
        self.earlier.splice(0..0, last);
        self.earlier.retain(|earlier| earlier != path);
        self.earlier.truncate(EARLIER_MAX);
    }
}

/// Why the state can't be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Locked by another process, or no folder.
    #[error("state folder {0}")]
    Folder(DiskError),
    /// The kernel refused.
    #[error("state folder {}: {during}: {error}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What was tried.
        during: &'static str,
        /// What came of it.
        error: io::Error,
    },
}

/// The state of one folder, locked.
#[derive(Debug)]
pub struct Generations {
    folder: PathBuf,
    kept: Kept,
    /// Attached in this run.
    used: BTreeSet<String>,
    _lock: OwnedFd,
}

/// Shared with the threads that wait for the disk.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Mutex<Generations>>);

impl Ledger {
    /// See [`Generations::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(folder: &Path, options: &OpenOptions) -> Result<Self, StateError> {
        Generations::open(folder, options).map(|open| Self(Arc::new(Mutex::new(open))))
    }

    /// Does something with the state, alone.
    pub fn with<T>(&self, act: impl FnOnce(&mut Generations) -> T) -> T {
        // Each change is made as a whole or not at all.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Generations {
    /// Opens the state in `folder`, making the folder (mode 0700) if there is none.
    ///
    /// # Errors
    /// If another process has it, or can't be read and written.
    pub fn open(folder: &Path, options: &OpenOptions) -> Result<Self, StateError> {
        let failed = |during, error| StateError::Io { path: folder.to_owned(), during, error };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| failed("making it", error))?;
        let lock = lock_folder(folder, options).map_err(StateError::Folder)?;
        let kept = match file::read(folder).map_err(|error| failed("reading", error))? {
            file::Found::State(kept) => kept,
            file::Found::Nothing => Kept::default(),
            file::Found::Damaged(reason) => {
                file::set_aside(folder).map_err(|error| failed("renaming", error))?;
                tracing::error!(
                    file = %folder.join(file::NAME).display(), reason,
                    "it can't be believed and was renamed; every volume starts cold (hint: keep \
                     state_dir on a healthy disk of this host, and leave its files alone)"
                );
                Kept::default()
            }
        };
        Ok(Self { folder: folder.to_owned(), kept, used: BTreeSet::new(), _lock: lock })
    }

    /// Whether the cache device at `path` was in use before, the last one or an earlier one: after a
    /// replacement, a configuration may still name the old one.
    pub fn knows_cache(&self, path: &Path) -> bool {
        self.kept.cache.as_deref() == Some(path)
            || self.kept.earlier.iter().any(|earlier| earlier == path)
    }

    /// Path of the cache device that was last in use, if it is another one.
    pub fn cache_elsewhere(&self, path: &Path) -> Option<PathBuf> {
        self.kept.cache.clone().filter(|last| last != path)
    }

    /// The generations of volumes that are about to be attached with `device` (`None`: without
    /// one): new ones for those that are not known, or were last attached with another device.
    ///
    /// # Errors
    /// If it can't be made durable; nothing has changed then.
    pub fn attach(
        &mut self,
        names: &[String],
        device: Option<(DeviceId, &Path)>,
    ) -> Result<Vec<u64>, StateError> {
        let mut kept = self.kept.clone();
        let mut generations = Vec::with_capacity(names.len());
        for name in names {
            let known = kept.volumes.get(name).copied();
            let id = device.map(|(id, _)| id);
            let entry = match known {
                // Without a device nothing is recorded anywhere, and nothing has to be disproved.
                Some(entry) if id.is_none() || entry.device == id => entry,
                Some(entry) if entry.device.is_none() => Entry { device: id, ..entry },
                _ => Entry { generation: self.fresh()?, device: id },
            };
            kept.volumes.insert(name.clone(), entry);
            generations.push(entry.generation);
        }
        if let Some((_, path)) = device {
            kept.note_cache(path);
        }
        self.used.extend(names.iter().cloned());
        self.make_room(&mut kept);
        self.keep(kept)?;
        Ok(generations)
    }

    /// New generations: what any device holds of these volumes under the one named is not believed
    /// any more. Where it is not the newest, the newest is given: it was asked for before.
    ///
    /// # Errors
    /// If it can't be made durable; nothing has changed then.
    pub fn bump_generation(&mut self, held: &[(String, u64)]) -> Result<Vec<u64>, StateError> {
        let mut kept = self.kept.clone();
        let mut generations = Vec::with_capacity(held.len());
        for (name, held) in held {
            let known = kept.volumes.get(name).copied();
            if let Some(entry) = known.filter(|entry| entry.generation != *held) {
                generations.push(entry.generation);
                continue;
            }
            let generation = self.fresh()?;
            let device = known.and_then(|entry| entry.device);
            kept.volumes.insert(name.clone(), Entry { generation, device });
            generations.push(generation);
        }
        self.keep(kept)?;
        Ok(generations)
    }

    /// The same for a volume that is not attached, whatever its generation is; false if it is not
    /// known, so that no device can have any of it to be believed.
    ///
    /// # Errors
    /// If it can't be made durable; nothing has changed then.
    pub fn disown(&mut self, name: &str) -> Result<bool, StateError> {
        let Some(known) = self.kept.volumes.get(name) else { return Ok(false) };
        let held = [(name.to_owned(), known.generation)];
        self.bump_generation(&held).map(|_| true)
    }

    /// From now on these volumes are recorded on `device`, an empty one. Their generations stay:
    /// any other device is not its own any more.
    ///
    /// # Errors
    /// If it can't be made durable; nothing has changed then.
    pub fn entrust(
        &mut self,
        names: &[String],
        device: DeviceId,
        path: &Path,
    ) -> Result<(), StateError> {
        let mut kept = self.kept.clone();
        for name in names {
            if let Some(entry) = kept.volumes.get_mut(name) {
                entry.device = Some(device);
            }
        }
        kept.note_cache(path);
        self.keep(kept)
    }

    /// Writes what is to be kept, if it is not what is there.
    fn keep(&mut self, kept: Kept) -> Result<(), StateError> {
        if kept != self.kept {
            file::write(&self.folder, &kept).map_err(|error| self.failed("writing", error))?;
            self.kept = kept;
        }
        Ok(())
    }

    fn make_room(&self, kept: &mut Kept) {
        let mut excess = kept.volumes.len().saturating_sub(ENTRIES_MAX);
        kept.volumes.retain(|name, _| {
            let goes = excess > 0 && !self.used.contains(name);
            excess -= usize::from(goes);
            !goes
        });
    }

    fn fresh(&self) -> Result<u64, StateError> {
        let bytes = entropy::bytes().map_err(|error| self.failed("a new generation", error))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn failed(&self, during: &'static str, error: io::Error) -> StateError {
        StateError::Io { path: self.folder.clone(), during, error }
    }
}

impl StateError {
    /// A line that helps.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Folder(_) => "each daemon needs a folder of its own: set state_dir in [cache]",
            Self::Io { .. } => {
                "set state_dir in [cache] to a folder on this host that the daemon may write"
            }
        }
    }
}
