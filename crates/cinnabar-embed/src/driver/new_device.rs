//! A device that is to take another's place: opened, locked and formatted on a thread of its own, for
//! it may be silent.

use super::device::{Prepared, fresh_superblocks};
use crate::NewDevice;
use crate::error::Error;
use cinnabar_backend::disk::{
    CacheOptions, Contents, DiskError, DiskErrorKind, OpenOptions, Progress, open_cache,
};
use cinnabar_backend::format;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// What is to be opened, and how.
pub(super) struct Opening {
    new: NewDevice,
    shards: u32,
    options: OpenOptions,
    given_up: GivenUp,
}

/// Tells the thread that its device is not waited for any more.
#[derive(Clone, Default)]
pub(super) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    pub(super) fn set(&self) {
        self.0.store(true, SeqCst);
    }
}

impl Opening {
    /// Of a device with so many shards.
    pub(super) fn new(new: &NewDevice, shards: u32, lock_wait: Duration) -> Self {
        let given_up = GivenUp::default();
        let cancel = Some(Arc::clone(&given_up.0));
        let options = OpenOptions { lock_wait, cancel, ..OpenOptions::default() };
        Self { new: new.clone(), shards, options, given_up }
    }

    /// By which it is given up, and how far it has come.
    pub(super) fn watch(&self) -> (GivenUp, Progress) {
        (self.given_up.clone(), self.options.progress.clone())
    }

    /// Blocks. What answers when it was given up is left as it is.
    pub(super) fn run(self) -> Result<Prepared, Error> {
        let Self { new, shards, options, given_up } = self;
        let wanted = CacheOptions {
            size_bytes: new.size_bytes,
            force: new.format,
            format: new.format,
            open: options,
        };
        let cache = open_cache(&new.device, &wanted).map_err(Error::Device)?;
        if let Contents::Ours(_) = cache.contents {
            return Err(Error::HoldsCache(new.device));
        }
        let superblocks = fresh_superblocks(&cache.disk, shards)?;
        if given_up.0.load(SeqCst) {
            let kind = DiskErrorKind::Cancelled;
            return Err(Error::Device(DiskError { path: new.device, kind }));
        }
        format::write(&cache.disk, &superblocks).map_err(Error::Device)?;
        Ok(Prepared { disk: cache.disk, superblocks })
    }
}
