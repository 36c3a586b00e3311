//! A backend that has grown.
//!
//! Steps: the backend is measured and proved as it stands; the port lets requests pass that go so far; the
//! engine, and through it the device, knows of the size. Nothing is dropped. A backend that has shrunk
//! is refused: what lay beyond its end is gone, and nothing here can bring it back.

use super::Driver;
use crate::error::Error;
use crate::request::Volume;
use cinnabar_backend::Proof;
use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{Command, Failure};
use std::sync::Arc;

impl Driver {
    /// Serves all of a volume's backend; gives its size in bytes.
    pub(crate) fn resize(&mut self, volume: Volume) -> Result<u64, Error> {
        let attached = self.attached(volume)?;
        let id = attached.life.serving().ok_or(Error::NoVolume)?;
        let (name, attachment) = (attached.name.clone(), attached.life.attachment());
        let (disk, served) = (Arc::clone(&attached.disk), attached.disk.size_bytes());
        let measured = disk.measure();
        let size = measured.map_err(|error| Error::Disk { volume: name.clone(), error })?;
        if size == served {
            return Ok(served);
        }
        if size < served {
            return Err(Error::Shrunk { volume: name, size, served });
        }
        // What is cached of such a block is padded with zeros, which the backend's bytes need not be.
        if !served.is_multiple_of(BLOCK_BYTES) {
            return Err(Error::OddEnd { volume: name, served });
        }
        let what = "growing the volume";
        if size.div_ceil(BLOCK_BYTES) > VOLUME_BLOCKS_MAX {
            return Err(Error::Failed { what, failure: Failure::Limit });
        }
        // Without a proof a crash leaves the volume cold, no more.
        let proof = disk.prove().unwrap_or_else(|error| {
            tracing::warn!(volume = name, reason = %error, "no proof of a grown disk");
            None
        });
        let proof = proof.map(|proof| proof.of_attachment(attachment));
        disk.grow_to(size);
        let grown = self.command(Command::Grow(id, size, proof))?;
        grown.map_err(|failure| Error::Failed { what, failure })?;
        tracing::info!(volume = name, size_bytes = size, "the volume has grown");
        Ok(size)
    }
}
