//! What has changed of a disk since a snapshot that was left: of RBD images, which alone can tell.

use super::Disk;
#[cfg(feature = "ceph")]
use super::remote::Remote;
use crate::proof::{Proof, ProofError};
use crate::returning::{ReturnError, SnapNames};
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::volume::ProofToken;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

impl Disk {
    /// [`Proof::take_proof`], with a snapshot if the back end can: behind the last write that was made
    /// durable, and named in the proof. It is given up at `by`; then, and if it fails, the proof is
    /// the ordinary one. The lock is released by that: nothing is written here any more.
    ///
    /// # Errors
    /// [`ProofError`].
    #[cfg_attr(not(feature = "ceph"), expect(unused_variables, reason = "RBD images alone can"))]
    pub fn take_proof_and_snap(
        &self,
        names: &SnapNames,
        by: Instant,
    ) -> Result<Option<ProofToken>, ProofError> {
        #[cfg(feature = "ceph")]
        if let Some(Remote::Rbd(image)) = self.remote() {
            self.sync(super::SyncExtent::All).map_err(ProofError::Flush)?;
            return image.take_proof_and_snap(names, by);
        }
        self.take_proof()
    }

    /// The number of the snapshot of this disk that a recorded proof names.
    #[cfg_attr(not(feature = "ceph"), expect(unused_variables, reason = "RBD images alone can"))]
    pub fn left_snap(&self, proof: &ProofToken) -> Option<u64> {
        #[cfg(feature = "ceph")]
        if let Some(Remote::Rbd(image)) = self.remote() {
            return image.left_snap(proof);
        }
        None
    }

    /// Every byte that may differ between this snapshot and the disk now is in what this gives. Blocks;
    /// what the back end is asked for is bounded in time, and `given_up` ends it early.
    ///
    /// # Errors
    /// [`ReturnError`]: it is not known what has changed.
    #[cfg_attr(not(feature = "ceph"), expect(unused_variables, reason = "RBD images alone can"))]
    pub fn changed_since(
        &self,
        snap: u64,
        given_up: &AtomicBool,
    ) -> Result<Vec<ByteSpan>, ReturnError> {
        #[cfg(feature = "ceph")]
        if let Some(Remote::Rbd(image)) = self.remote() {
            return image.changed_since(snap, given_up);
        }
        Err(ReturnError::None)
    }

    /// Removes snapshots of these names, and the one of this number. Gives how many there were. Blocks.
    ///
    /// # Errors
    /// [`ReturnError`].
    #[cfg_attr(not(feature = "ceph"), expect(unused_variables, reason = "RBD images alone can"))]
    pub fn sweep_snaps(
        &self,
        names: &SnapNames,
        number: Option<u64>,
    ) -> Result<usize, ReturnError> {
        #[cfg(feature = "ceph")]
        if let Some(Remote::Rbd(image)) = self.remote() {
            return image.sweep_snaps(names, number);
        }
        Ok(0)
    }
}
