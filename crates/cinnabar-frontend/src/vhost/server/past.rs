//! What connections of the past have left behind: requests that are still being answered, and reads
//! into guest memory that are still under way.
//!
//! Both outlive their connection, and the export as well if that is removed: one that is added under
//! the same name or at the same socket serves the same guest, and inherits them.

use super::{Served, Server};
use crate::load::Load;
use crate::vhost::budget::Account;
use crate::vhost::export::Export;
use cinnabar_engine::seam::RawMemory;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One period of service of an export, from being added until nothing of it is left.
pub(super) struct Life {
    name: String,
    path: PathBuf,
    /// It is served still.
    served: bool,
    /// Reads into guest memory under way for connections that are gone.
    pub(super) leases: usize,
    /// What requests of such connections hold.
    pub(super) load: Load,
    /// What its front-ends have mapped.
    pub(super) account: Arc<Account>,
}

impl Life {
    fn is_over(&self) -> bool {
        !self.served && self.leases == 0 && self.load.requests == 0
    }
}

impl<M: RawMemory> Server<M> {
    /// Makes an entry for a new export. Returns its key, followed by those of earlier exports of
    /// the same name or path that have left something behind.
    pub(super) fn begin_life(&mut self, export: &Export, path: PathBuf) -> Vec<u64> {
        let same = |life: &Life| life.name == export.name || life.path == path;
        let past = self.lives.iter().filter(|(_, life)| same(life)).map(|(key, _)| key);
        let past: Vec<u64> = past.collect();
        let own = self.lives.insert(Life {
            name: export.name.clone(),
            path,
            served: true,
            leases: 0,
            load: Load::default(),
            account: Arc::default(),
        });
        [vec![own], past].concat()
    }

    /// Whether an export of this name or at this path has left something behind here: one that takes
    /// its place has to be served by this server, which knows what it has to wait for.
    pub fn has_left_behind(&self, name: &str, path: &Path) -> bool {
        self.lives.iter().any(|(_, life)| !life.served && (life.name == name || life.path == path))
    }

    /// The export of this entry was removed.
    pub(super) fn end_life(&mut self, key: u64) {
        if let Some(life) = self.lives.get_mut(key) {
            life.served = false;
        }
        self.forget_if_over(key);
    }

    /// Changes what is left behind, and forgets the entry when nothing is.
    pub(super) fn change_past(&mut self, key: u64, change: impl FnOnce(&mut Life)) {
        if let Some(life) = self.lives.get_mut(key) {
            change(life);
        }
        self.forget_if_over(key);
    }

    fn forget_if_over(&mut self, key: u64) {
        if self.lives.get(key).is_some_and(Life::is_over) {
            self.lives.remove(key);
        }
    }

    /// What connections of the past still hold of what this export may have.
    pub(super) fn past_load(&self, served: &Served) -> Load {
        let lives = served.lives.iter().filter_map(|key| self.lives.get(*key));
        lives.fold(Load::default(), |sum, life| sum + life.load)
    }

    /// Whether reads of the past may still write to its guests' memory.
    pub(super) fn has_leases(&self, served: &Served) -> bool {
        let mut lives = served.lives.iter().filter_map(|key| self.lives.get(*key));
        lives.any(|life| life.leases > 0)
    }
}
