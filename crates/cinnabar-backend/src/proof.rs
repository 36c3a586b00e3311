//! Proof of who a volume is and whether another writer wrote it: what every kind of backend brings
//! in its own way.
//!
//! Files prove it by their change time (`disk::change_proof`), RBD images by the version of their
//! header (`rbd::proof`), hybrid volumes by their owner's epoch (`hybrid::proof`). Block devices and NBD servers have nothing.

use cinnabar_engine::volume::{Belief, ProofToken, Recorded};
use rustix::io::Errno;

/// Why no proof could be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// What was written could not be made durable.
    #[error("flushing: {0}")]
    Flush(Errno),
    /// The kernel refused something else.
    #[error("{during}: {errno}")]
    Io {
        /// What was tried.
        during: &'static str,
        /// What it said.
        errno: Errno,
    },
    /// It was written meanwhile.
    #[error("the file changed while its change time was being recorded")]
    Changed,
    /// The clock did not move.
    #[error("the file system's clock did not pass the file's change time")]
    Clock,
}

/// A backend that may be able to prove who wrote it last. All calls block.
///
/// `None` in place of an [`ProofToken`]: this backend can't prove anything.
pub trait Proof {
    /// The proof as it stands, for the attach: no I/O of this process is under way.
    ///
    /// # Errors
    /// [`ProofError::Io`].
    fn read_proof(&self) -> Result<Option<ProofToken>, ProofError>;

    /// For the clean detach: makes everything written durable and takes the proof, waiting until
    /// any later write, even one right afterwards, would change it.
    ///
    /// # Errors
    /// [`ProofError`]; the volume's cached blocks are then not to be believed next time.
    fn take_proof(&self) -> Result<Option<ProofToken>, ProofError>;

    /// For the heartbeat, while we write: makes durable whatever was written before this call, then
    /// takes the proof and the backend's own time. Never waits for a clock.
    ///
    /// # Errors
    /// [`ProofError::Flush`]: nothing is durable. Any other: what was written is durable, but there
    /// is no proof.
    fn prove(&self) -> Result<Option<ProofToken>, ProofError>;

    /// What the time between a recorded proof and `now` was.
    fn judge(&self, recorded: &Recorded, now: Option<&ProofToken>) -> Belief;

    /// The same of a proof that another host has taken of the same back end: what hosts number each for
    /// itself is left out.
    fn judge_elsewhere(&self, recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
        self.judge(recorded, now)
    }
}
