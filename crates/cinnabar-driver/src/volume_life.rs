//! The life of a volume in a driver: attaching, serving, leaving, gone.
//!
//! What happens is an event (the engine's answer, the proof, a server that restarted), and what is to
//! be done next is a command for the engine or a step of the driver's own. The driver opens and locks
//! the backend before, and lets go of it once [`is_over`](VolumeLife::is_over): when the engine has
//! let go of the volume and the last I/O has ended.
//!
//! ```text
//! attach ─► attached ─► [lost, put_back ► invalidations] ─► leave ─► answered ─► proved ─► answered ─► over
//! ```

use crate::io_count::IoCount;
use crate::lost_ranges::LostRanges;
use crate::volume_end::{EndStep, VolumeEnd};
use crate::warmth;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::{ByteSpan, VolumeId};
use cinnabar_engine::volume::{Belief, ProofToken, Recorded, VolumeSpec, Warmth};
use cinnabar_engine::{Answer, Command, Failure};
use std::sync::Arc;

/// See the module; of one attachment of a volume.
#[derive(Debug)]
pub struct VolumeLife {
    name: String,
    attachment: u64,
    state: State,
    ios: Arc<IoCount>,
    lost: LostRanges,
    warmth: Warmth,
    /// Others have written it meanwhile, and not all of that is durably dropped: what is recorded now
    /// proves nothing.
    returning: bool,
    /// The index was loaded since it was attached, or before.
    settled: bool,
    mutants: Mutants,
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The engine has not answered yet.
    Attaching,
    /// Requests are taken.
    Serving,
    /// No more requests; what is under way is finished, flushed and sealed.
    Leaving,
    /// The engine has let go of it, or has refused it; I/O may still be under way.
    Gone,
}

#[derive(Debug)]
enum State {
    Attaching,
    Serving(VolumeId),
    Leaving(VolumeEnd),
    Gone,
}

impl VolumeLife {
    /// Of a volume whose backend is open and locked; each attachment has a number of its own.
    pub fn new(name: String, attachment: u64, mutants: Mutants) -> Self {
        Self {
            name,
            attachment,
            state: State::Attaching,
            ios: Arc::default(),
            lost: LostRanges::default(),
            warmth: Warmth::New,
            returning: false,
            settled: false,
            mutants,
        }
    }

    /// The command that makes the engine know it. `spec.proof` is the backend's proof as it stood
    /// once it was locked; `judge` is the backend's word on what a shard has recorded, beside that.
    ///
    /// # Panics
    /// If that was asked before.
    pub fn attach(
        &self,
        mut spec: VolumeSpec,
        recorded: &[Recorded],
        judge: impl Fn(&Recorded, Option<&ProofToken>) -> Belief,
    ) -> Command {
        assert_eq!(self.phase(), Phase::Attaching, "a volume is attached once");
        let proof = spec.proof.map(|proof| proof.of_attachment(self.attachment));
        spec.belief = Belief::of_all(recorded, |record| judge(record, proof.as_ref()));
        spec.proof = proof;
        Command::Attach(spec)
    }

    /// The same for a volume that others have written since it was sealed, in these ranges at most:
    /// its other blocks are believed. The ranges are dropped before anything of it is served, as what its
    /// server lost is. Until that is durable no proof is recorded
    /// ([`proof_to_record`](Self::proof_to_record)): a crash then leaves nothing that is believed.
    ///
    /// # Panics
    /// If it was attached before.
    pub fn attach_returned(&mut self, mut spec: VolumeSpec, changed: &[ByteSpan]) -> Command {
        assert_eq!(self.phase(), Phase::Attaching, "a volume is attached once");
        (self.returning, spec.proof) = (true, None);
        spec.belief = Belief::Unchanged;
        self.lost.add(changed, 0);
        Command::Attach(spec)
    }

    /// What of a proof that was taken while it serves may be recorded.
    pub fn proof_to_record(&self, proof: Option<ProofToken>) -> Option<ProofToken> {
        proof.filter(|_| !self.returning)
    }

    /// So many invalidations are under way for what was lost. True once, for a volume that has come
    /// back: all that others have changed is durably dropped, and a proof may be recorded.
    #[must_use]
    pub fn has_returned(&mut self, under_way: usize) -> bool {
        let dropped = under_way == 0 && self.lost.is_empty();
        dropped && std::mem::take(&mut self.returning)
    }

    /// Others have written it meanwhile, and that is still being dropped.
    pub const fn is_returning(&self) -> bool {
        self.returning
    }

    /// The engine has answered that. After an error the volume is gone.
    ///
    /// # Errors
    /// The engine's.
    ///
    /// # Panics
    /// If it was not asked.
    pub fn attached<P>(
        &mut self,
        answer: &Result<Answer<P>, Failure>,
    ) -> Result<(VolumeId, Warmth), Failure> {
        assert_eq!(self.phase(), Phase::Attaching, "a volume is attached once");
        match *answer {
            Ok(Answer::Attached { volume, warmth }) => {
                (self.state, self.warmth) = (State::Serving(volume), warmth);
                Ok((volume, warmth))
            }
            Ok(_) => Err(self.refuse(Failure::Invalid)),
            Err(failure) => Err(self.refuse(failure)),
        }
    }

    fn refuse(&mut self, failure: Failure) -> Failure {
        self.refused();
        failure
    }

    /// The engine has not taken it, or was not even asked.
    pub fn refused(&mut self) {
        self.state = State::Gone;
        self.ios.leave();
    }

    /// The index is loaded, and these are the volume's counters: it is known what became of its
    /// blocks of an earlier run. Counts once: later the counters tell of what was cached since.
    pub fn settle(&mut self, counters: &VolumeCounters) {
        if !std::mem::replace(&mut self.settled, true) {
            self.warmth = warmth::settled(self.warmth, counters);
        }
    }

    /// What became of its blocks of an earlier run.
    pub const fn warmth(&self) -> Warmth {
        self.warmth
    }

    /// The volume is to leave: gives the first command of its end, to be given after what
    /// [`discard`](Self::discard) says then. `None`: it does not serve.
    #[must_use]
    pub fn leave(&mut self) -> Option<Command> {
        let State::Serving(id) = self.state else { return None };
        let (end, first) = VolumeEnd::begin(id, self.attachment, self.mutants);
        self.state = State::Leaving(end);
        Some(first)
    }

    /// The engine has answered the last command of the end.
    ///
    /// # Panics
    /// If it was asked nothing.
    pub fn answered(&mut self, result: Result<(), Failure>) -> EndStep {
        let State::Leaving(end) = &mut self.state else {
            panic!("only the end of a volume asks for this: {self:?}")
        };
        let step = end.answered(result, &self.name, &self.lost);
        if let EndStep::Gone(_) = step {
            self.refused();
        }
        step
    }

    /// The proof of its end was taken, or could not be. Gives the next command.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn proved(&mut self, proof: Option<ProofToken>) -> Command {
        let State::Leaving(end) = &mut self.state else {
            panic!("only the end of a volume asks for this: {self:?}")
        };
        end.proved(proof)
    }

    /// Its server may have lost these ranges, while so many invalidations are under way for it.
    pub fn lost(&mut self, ranges: &[ByteSpan], under_way: usize) {
        self.lost.add(ranges, under_way);
    }

    /// This one could not be invalidated; to be tried again after
    /// [`AGAIN_AFTER_NS`](crate::lost_ranges::AGAIN_AFTER_NS).
    pub fn put_back(&mut self, range: ByteSpan) {
        self.lost.put_back(range);
    }

    /// What is to be invalidated now: all that was lost, if the volume serves.
    pub fn invalidations(&mut self) -> Vec<ByteSpan> {
        if let State::Serving(_) = self.state { self.lost.take() } else { Vec::new() }
    }

    /// The command by which the engine keeps nothing of a volume that leaves, if its server may have
    /// lost some of it: before the last flush ends, which would seem to cover that. Given once.
    #[must_use]
    pub fn discard(&mut self) -> Option<Command> {
        let State::Leaving(end) = &self.state else { return None };
        self.lost.discards().then(|| Command::Discard(end.volume()))
    }

    /// Where it is in its life.
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Attaching => Phase::Attaching,
            State::Serving(_) => Phase::Serving,
            State::Leaving(_) => Phase::Leaving,
            State::Gone => Phase::Gone,
        }
    }

    /// The engine's name for it, while it serves.
    pub const fn serving(&self) -> Option<VolumeId> {
        match self.state {
            State::Serving(id) => Some(id),
            _ => None,
        }
    }

    /// The engine's name for it, from the answer to its attach until the engine has let go of it.
    pub const fn id(&self) -> Option<VolumeId> {
        match &self.state {
            State::Serving(id) => Some(*id),
            State::Leaving(end) => Some(end.volume()),
            State::Attaching | State::Gone => None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of this attachment, for its proofs.
    pub const fn attachment(&self) -> u64 {
        self.attachment
    }

    /// Its I/O under way, for those who start and end it.
    pub const fn ios(&self) -> &Arc<IoCount> {
        &self.ios
    }

    /// Nothing is left of it: its backend is to be let go of, lock included; the command that ends it
    /// is answered after that.
    pub fn is_over(&self) -> bool {
        let quiet = self.ios.is_quiet() || self.mutants.is(Mutant::BusyVolumeLetGo);
        self.phase() == Phase::Gone && quiet
    }
}

#[cfg(test)]
mod tests;
