//! The end of a volume, step by step: last flush, proof, seal.
//!
//! The engine is asked to finish and flush the volume; then the backend is asked for the proof that
//! nobody wrote since; the seal records that, durably, before the end is answered. What a server lost
//! too late to be discarded before the seal ([`LostRanges`]) is forgotten behind it, all of the volume
//! with it: what remains sealed must hold.

use crate::lost_ranges::LostRanges;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::VolumeId;
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{Command, Failure};

/// See the module.
#[derive(Debug)]
pub(crate) struct VolumeEnd {
    volume: VolumeId,
    attachment: u64,
    mutants: Mutants,
    step: Step,
    /// How the seal ended.
    sealed: Result<(), Failure>,
}

/// What the engine, or the backend, was last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Detach,
    Proof,
    Seal,
    Forget,
    Gone,
}

/// What is to be done next.
#[derive(Debug)]
pub enum EndStep {
    /// The engine gets this command, and its answer comes back
    /// ([`VolumeLife::answered`](crate::VolumeLife::answered)).
    Ask(Command),
    /// The backend, which was flushed, proves who wrote it last
    /// ([`VolumeLife::proved`](crate::VolumeLife::proved)).
    TakeProof,
    /// The engine has let go of the volume.
    Gone(Result<(), EndError>),
}

/// What went wrong at the end of a volume. Its blocks are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndError {
    /// What was tried: a noun.
    pub what: &'static str,
    /// How the engine refused it.
    pub failure: Failure,
}

impl VolumeEnd {
    /// The end of a volume that serves, in this attachment, and the first command of it.
    pub(crate) fn begin(volume: VolumeId, attachment: u64, mutants: Mutants) -> (Self, Command) {
        let end = Self { volume, attachment, mutants, step: Step::Detach, sealed: Ok(()) };
        (end, Command::Detach(volume))
    }

    /// The engine's name for the volume.
    pub(crate) const fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The engine has answered the last command; `lost` is what the volume's server may have lost.
    ///
    /// # Panics
    /// If it was asked nothing.
    pub(crate) fn answered(
        &mut self,
        result: Result<(), Failure>,
        name: &str,
        lost: &LostRanges,
    ) -> EndStep {
        match self.step {
            Step::Detach => match result {
                Err(_) if !self.mutants.is(Mutant::LastFlushIgnored) => {
                    self.gone("the last flush of the backend", result)
                }
                _ => {
                    self.step = Step::Proof;
                    EndStep::TakeProof
                }
            },
            Step::Seal if lost.is_empty() => self.gone("sealing", result),
            Step::Seal => {
                self.sealed = result;
                self.step = Step::Forget;
                EndStep::Ask(Command::Forget(name.to_owned()))
            }
            // Having nothing to drop is fine.
            Step::Forget if matches!(result, Ok(()) | Err(Failure::NoVolume)) => {
                self.gone("sealing", self.sealed)
            }
            Step::Forget => self.gone("dropping what its server may have lost", result),
            Step::Proof | Step::Gone => unreachable!("the engine was asked nothing"),
        }
    }

    /// The proof was taken, or could not be. Gives the next command.
    ///
    /// # Panics
    /// If it was not asked for.
    pub(crate) fn proved(&mut self, proof: Option<ProofToken>) -> Command {
        assert_eq!(self.step, Step::Proof, "a seal follows the last flush, and comes once");
        self.step = Step::Seal;
        let proof = proof.map(|proof| proof.of_attachment(self.attachment));
        Command::Seal(self.volume, proof)
    }

    fn gone(&mut self, what: &'static str, result: Result<(), Failure>) -> EndStep {
        self.step = Step::Gone;
        EndStep::Gone(result.map_err(|failure| EndError { what, failure }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_engine::IoError;
    use cinnabar_engine::units::ByteSpan;

    const V: VolumeId = VolumeId(3);

    fn sealing() -> VolumeEnd {
        let (mut end, first) = VolumeEnd::begin(V, 7, Mutants::default());
        assert!(matches!(first, Command::Detach(V)));
        let next = end.answered(Ok(()), "v", &LostRanges::default());
        assert!(matches!(next, EndStep::TakeProof), "{next:?}");
        let Command::Seal(V, Some(proof)) = end.proved(Some(ProofToken([0; 64]))) else {
            panic!("the proof is recorded")
        };
        assert_eq!(proof.attachment(), 7);
        end
    }

    #[test]
    fn a_volume_is_flushed_proved_and_sealed() {
        let next = sealing().answered(Ok(()), "v", &LostRanges::default());
        assert!(matches!(next, EndStep::Gone(Ok(()))), "{next:?}");
        let failure = Failure::Io(IoError::Io);
        let next = sealing().answered(Err(failure), "v", &LostRanges::default());
        assert!(matches!(next, EndStep::Gone(Err(EndError { what: "sealing", .. }))), "{next:?}");
    }

    #[test]
    fn without_its_last_flush_nothing_is_proved() {
        let (mut end, _) = VolumeEnd::begin(V, 7, Mutants::default());
        let failure = Failure::Io(IoError::Io);
        let next = end.answered(Err(failure), "v", &LostRanges::default());
        assert!(matches!(next, EndStep::Gone(Err(error)) if error.failure == failure), "{next:?}");
    }

    #[test]
    fn what_was_lost_too_late_is_forgotten() {
        let mut lost = LostRanges::default();
        lost.put_back(ByteSpan::new(0, 4096));
        for (answer, good) in
            [(Ok(()), true), (Err(Failure::NoVolume), true), (Err(Failure::Io(IoError::Io)), false)]
        {
            let mut end = sealing();
            let next = end.answered(Ok(()), "v", &lost);
            assert!(matches!(&next, EndStep::Ask(Command::Forget(name)) if name == "v"));
            let EndStep::Gone(result) = end.answered(answer, "v", &lost) else { panic!("it ends") };
            assert_eq!(result.is_ok(), good);
        }
    }
}
