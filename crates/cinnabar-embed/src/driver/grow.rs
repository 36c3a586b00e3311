//! A backend that has grown.
//!
//! Steps: a thread measures the backend and proves it as it stands, while requests go on; the port lets
//! requests pass that go so far; the engine, and through it the device, knows of the size; then requests
//! to the new part are taken. Nothing is dropped. A backend that has shrunk is refused: what lay beyond
//! its end is gone, and nothing here can bring it back.

use super::Driver;
use crate::error::Error;
use crate::request::Volume;
use cinnabar_backend::disk::{DiskError, DiskErrorKind};
use cinnabar_backend::{Disk, Proof};
use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{Command, Failure};
use std::sync::Arc;

/// Size of a backend in bytes, and its proof as it stands if it has grown.
type Measured = Result<(u64, Option<ProofToken>), DiskError>;

impl Driver {
    /// Serves all of a volume's backend; gives its size in bytes.
    pub(crate) fn resize(&mut self, volume: Volume) -> Result<u64, Error> {
        let attached = self.attached(volume)?;
        attached.life.serving().ok_or(Error::NoVolume)?;
        let (name, served) = (attached.name.clone(), attached.size_bytes);
        let (size, proof) =
            self.measure(volume)?.map_err(|error| Error::Disk { volume: name.clone(), error })?;
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
        self.grow(volume, size, proof)?;
        tracing::info!(volume = name, size_bytes = size, "the volume has grown");
        Ok(size)
    }

    /// Measures and proves a backend while requests go on, for as long as one operation on it may take.
    fn measure(&mut self, volume: Volume) -> Result<Measured, Error> {
        let attached = self.attached(volume)?;
        let (disk, served, bound) =
            (Arc::clone(&attached.disk), attached.size_bytes, attached.timeout);
        let path = disk.path().to_owned();
        let measured = self.beside_for(bound, move || measure(&disk, served))?;
        Ok(measured.unwrap_or(Err(DiskError { path, kind: DiskErrorKind::Silent(bound) })))
    }

    /// Has the engine serve so much of a volume. After an error it serves what it did: the port lets
    /// more pass, which nobody asks it for.
    pub(super) fn grow(
        &mut self,
        volume: Volume,
        size: u64,
        proof: Option<ProofToken>,
    ) -> Result<(), Error> {
        let what = "growing the volume";
        if size.div_ceil(BLOCK_BYTES) > VOLUME_BLOCKS_MAX {
            return Err(Error::Failed { what, failure: Failure::Limit });
        }
        let attached = self.attached(volume)?;
        let id = attached.life.serving().ok_or(Error::NoVolume)?;
        let proof = proof.map(|proof| proof.of_attachment(attached.life.attachment()));
        attached.disk.grow_to(size);
        let grown = self.command(Command::Grow(id, size, proof))?;
        grown.map_err(|failure| Error::Failed { what, failure })?;
        self.volumes[volume.key].size_bytes = size;
        Ok(())
    }
}

fn measure(disk: &Disk, served: u64) -> Measured {
    let size = disk.measure()?;
    if size <= served {
        return Ok((size, None));
    }
    // Without a proof a crash leaves the volume cold, no more.
    let proof = disk.prove().unwrap_or_else(|error| {
        tracing::warn!(path = %disk.path().display(), reason = %error, "no proof of a grown disk");
        None
    });
    Ok((size, proof))
}
