//! A device that is to take another's place: opened, locked and formatted on a thread of its own, for
//! it may be silent.

use super::device::{Prepared, fresh_superblocks};
use crate::NewDevice;
use crate::error::Error;
use cinnabar_backend::disk::{CacheOptions, Contents, OpenOptions, Progress, open_cache};
use cinnabar_backend::format;
use std::time::Duration;

/// What is to be opened, and how.
pub(super) struct Opening {
    new: NewDevice,
    shards: u32,
    options: OpenOptions,
}

impl Opening {
    /// Of a device with so many shards.
    pub(super) fn new(new: &NewDevice, shards: u32, lock_wait: Duration) -> Self {
        let options = OpenOptions { lock_wait, ..OpenOptions::default() };
        Self { new: new.clone(), shards, options }
    }

    /// How far it has come, and by which it is given up.
    pub(super) fn progress(&self) -> Progress {
        self.options.progress.clone()
    }

    /// Blocks. What answers when it was given up is left as it is.
    pub(super) fn run(self) -> Result<Prepared, Error> {
        let Self { new, shards, options } = self;
        let wanted = CacheOptions {
            size_bytes: new.size_bytes,
            force: new.format,
            format: new.format,
            room: None,
            open: options,
        };
        let cache = open_cache(&new.device, &wanted).map_err(Error::Device)?;
        if let Contents::Ours(_) = cache.contents {
            return Err(Error::HoldsCache(new.device));
        }
        let superblocks = fresh_superblocks(&cache.disk, shards)?;
        format::write(&cache.disk, &superblocks).map_err(Error::Device)?;
        Ok(Prepared { disk: cache.disk, superblocks })
    }
}
