//! Which of two hosts serves a volume: the hand-over between two daemons (docs/design/migration.md).
//!
//! Each host runs one of these for a volume that may move. It sees what its own guest wants, what the
//! other host says, and what became of its own steps; it gives the steps, in their order.
//!
//! ```text
//! give   owner ─► hold ─► drain ─► release ─► answer ─► standby
//! take   standby ─► ask ─► lock ─► record ─► attach ─► serve: owner
//! ```
//!
//! A host owns the volume from the step `Serve` to the end of the step `Release`, and no other host does
//! meanwhile. That rests on three rules:
//!
//! * **A host that takes says so to no one else.** While it asks, locks, records or attaches it refuses to
//!   say "not the owner". So of two hosts that ask each other at most one gets an answer it can take by.
//! * **An answer counts for the attempt that asked.** Answers that come later are dropped.
//! * **Release is the last step of giving.** All acknowledged writes are flushed at the back end before, and
//!   no I/O is under way.
//!
//! Where the back end has a lock that fences ([`Fence::Lock`]), it is enough to have the lock; elsewhere
//! ([`Fence::Word`]) the other host's answer is needed, or the operator's word that it serves the volume
//! no more. A host that finds its lock broken ([`Event::Lost`]) can't write any more, and has served nothing
//! from its cache since before the next owner did: it becomes a standby without a flush.
//!
//! **Epochs** count the owners. Each taking has one above all that this host and the other know of, durable
//! on the taking host before it serves. Hosts that take without an answer may use the same number, so epochs
//! of two hosts are not compared: a host keeps the last epoch that the other one *owned*, as it was told
//! when it took the volume. While that stays the same nobody else owned the volume ([`Trust::Word`]).

use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::volume::Recorded;

/// Counts the owners of a volume, upwards. Zero: none is known.
pub type Epoch = u64;

/// Epochs from this on are no one's: what another host says of them is not taken note of, so that counting
/// on never overflows.
pub const EPOCH_MAX: Epoch = 1 << 62;

/// In place of the last epoch that the other host owned: none is equal to it.
const UNKNOWN: Epoch = EPOCH_MAX * 2 - 1;

/// What keeps two hosts from serving a volume at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// The back end's lock: who has lost it can't write any more, and it reaches all hosts.
    Lock,
    /// Nothing that reaches all hosts: the other daemon's answer, or the operator's word.
    Word,
}

/// What is kept of a volume on this host, durably.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The highest epoch known.
    pub epoch: Epoch,
    /// The last one in which this host was the owner.
    pub owned: Epoch,
    /// The last one in which the other host was, as it said when this one took the volume from it. One that
    /// no host has after the operator's word has taken the volume.
    pub other: Epoch,
}

/// An attempt to take the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u64);

/// What the other host says when it is asked for the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAnswer {
    /// It was the owner, and has let go. Or it was none, and is not about to become one before it has
    /// asked this host.
    Free {
        /// The highest epoch that it knows.
        epoch: Epoch,
        /// The last one in which it was the owner.
        owned: Epoch,
    },
    /// It keeps the volume, or wants it itself.
    Refused(Epoch),
    /// It says nothing, or nothing that can be understood.
    Silent,
}

/// How the request of the other host is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// This host does not own the volume ([`PeerAnswer::Free`]).
    Free {
        /// The highest epoch known here.
        epoch: Epoch,
        /// The last one in which this host was the owner.
        owned: Epoch,
    },
    /// It does, or wants to.
    Refused(Refusal, Epoch),
}

/// Why the other host does not get the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Hash)]
pub enum Refusal {
    /// Both want it.
    #[error("this host is taking the volume itself")]
    Taking,
    /// An earlier request is being served.
    #[error("the volume is being handed over already")]
    Giving,
    /// Acknowledged writes may be lost: only this host knows that.
    #[error("the last flush of the back end failed, so the volume stays here")]
    Flush,
    /// This host could not read it afterwards.
    #[error("this host can't open the back end as a standby, so the volume stays here")]
    Standby,
    /// This host was the owner, and can't flush any more.
    #[error("this host has lost the back end's lock, and becomes a standby")]
    Lost,
}

/// Who asks for the volume, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The other host, which this one asks in its turn.
    Peer,
    /// A third one, of which the other host knows nothing.
    Stranger,
    /// A host that can't be told from others.
    Unknown,
}

/// Whether another host may have owned the volume since this one had it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// None has: the operator's word `exclusive` holds, and what changed soon after a crash of this host
    /// was its own doing.
    Word,
    /// One may have: only an equal change proof of the back end makes cached blocks believed.
    ProofOnly,
}

impl Trust {
    /// What a record of the cache device counts for. A change soon after the last proof of a crashed owner
    /// is taken for its own ([`change_proof`](crate::change_proof)); here it may as well be the other
    /// host's.
    pub fn weigh(self, record: &Recorded) -> Recorded {
        Recorded { written: record.written && self == Self::Word, ..record.clone() }
    }
}

/// What happens. Results carry no reason: the driver shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A guest of this host changes the volume, or the operator wants it here.
    Want,
    /// The operator vouches that the other host does not serve the volume, and will not.
    Force,
    /// The other host asks for the volume ([`Ownership::may_ask`]); the highest epoch that it knows.
    Asked(Epoch),
    /// After [`Action::Ask`] of this attempt.
    Answered(Attempt, PeerAnswer),
    /// After [`Action::Drain`].
    Drained(bool),
    /// After [`Action::Release`].
    Released,
    /// After [`Action::Release`] of a host that was asked for the volume: it can't let go of the back end, and
    /// has it as before.
    NotReleased,
    /// After [`Action::Lock`].
    Locked(bool),
    /// After [`Action::Record`].
    Recorded(bool),
    /// After [`Action::Attach`].
    Attached(bool),
    /// The back end's lock is another client's: it was broken, and this host fenced off. May be told again.
    Lost,
    /// The pause after [`Action::Retry`] is over.
    Again,
    /// Nothing that wants the volume waits any more: its time was over.
    Unwanted,
}

/// What the driver does, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Requests of guests wait from now on, those for reading, too.
    Hold,
    /// Ends what is under way, flushes the back end and has the engine let go of the volume. Good only
    /// if the flush was.
    Drain,
    /// Lets go of the back end, lock included, behind its last I/O.
    Release,
    /// Answers the request of the other host.
    Answer(Reply),
    /// Guests' reads are served from the back end, uncached; requests that change it wait.
    StandBy,
    /// Asks the other host for the volume, and tells it the highest epoch known.
    Ask(Attempt, Epoch),
    /// Opens the back end for writing, under its lock; refuses one that is claimed.
    Lock,
    /// Makes this durable on this host. Before that, with [`Trust::ProofOnly`], all that only the word
    /// `exclusive` would make believed is dropped, durably: the record counts as a host's word that its
    /// cached blocks are of its last epoch.
    Record(Record, Trust),
    /// Reads the change proof and has the engine attach the volume.
    Attach(Trust),
    /// Guests are served, those that wait first.
    Serve,
    /// This attempt has failed; an [`Event::Again`] after a pause, if the volume is still wanted.
    Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Standby,
    Asking(Attempt),
    Locking(Trust, Record),
    Recording(Trust, Record),
    Attaching,
    /// After a step that failed: what it has, it lets go of.
    Undoing,
    Owner,
    Draining,
    Releasing,
    /// A hand-over has failed: it is to serve as before. `true`: after a pause.
    Returning(bool),
    /// It was fenced off: the engine lets go of it, and then the back end is let go of.
    Losing,
    Leaving,
}

/// Where a volume is, for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This host serves it.
    Owner,
    /// It is being handed over.
    Giving,
    /// Another host may serve it.
    Standby,
    /// This host is about to.
    Taking,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    state: State,
    fence: Fence,
    record: Record,
    attempts: u64,
    wanted: bool,
    /// The operator's word for the next attempt.
    forced: bool,
    /// This attempt rests on it.
    by_word: bool,
    mutants: Mutants,
}

impl Ownership {
    /// Of a volume that this host does not own, at the start of a daemon, too: a host that owned it when
    /// it died does not know who did since.
    pub fn standby(fence: Fence, record: Record) -> Self {
        Self::new(State::Standby, fence, record)
    }

    fn new(state: State, fence: Fence, record: Record) -> Self {
        let (attempts, wanted, forced, by_word) = (0, false, false, false);
        let mutants = Mutants::default();
        Self { state, fence, record, attempts, wanted, forced, by_word, mutants }
    }

    /// The same, with deliberate bugs, for tests.
    #[must_use]
    pub fn with_mutants(self, mutants: Mutants) -> Self {
        Self { mutants, ..self }
    }

    /// Of a volume that this host serves as its only one, and that may move from now on. `record` has been
    /// made durable ([`first_record`](Self::first_record)).
    ///
    /// # Panics
    /// If it names another owner.
    pub fn owner(fence: Fence, record: Record) -> Self {
        assert!(record.owned == record.epoch && record.epoch > 0, "its own epoch is the last one");
        Self::new(State::Owner, fence, record)
    }

    /// The record of a host that serves a volume which may move from now on; `known` is what an earlier time
    /// has left.
    pub const fn first_record(known: Record) -> Record {
        let epoch = next(known.epoch);
        Record { epoch, owned: epoch, ..known }
    }

    /// Where it is.
    pub const fn role(&self) -> Role {
        match self.state {
            State::Owner => Role::Owner,
            State::Draining
            | State::Releasing
            | State::Returning(_)
            | State::Losing
            | State::Leaving => Role::Giving,
            State::Standby | State::Undoing => Role::Standby,
            State::Asking(_) | State::Locking(..) | State::Recording(..) | State::Attaching => {
                Role::Taking
            }
        }
    }

    /// Whether reads of guests are served from the back end. Not while the volume is wanted: the request
    /// that wants it may be a write that they must not overtake.
    pub const fn reads_through(&self) -> bool {
        matches!(self.state, State::Standby) && !self.wanted
    }

    /// Whether an [`Event::Asked`] of this host counts. Rules for two hold for no third one; one that can't be
    /// told from others is believed where the back end's lock keeps the wrong one out.
    pub fn may_ask(&self, asker: Asker) -> bool {
        match asker {
            Asker::Peer => true,
            Asker::Stranger => false,
            Asker::Unknown => self.fence == Fence::Lock,
        }
    }

    /// Whether [`Action::Lock`] may break a lock of a host that is not known to be dead: the operator vouches
    /// that it is.
    pub const fn may_break(&self) -> bool {
        self.by_word
    }

    /// Whether it may keep the volume if it can't let go of the back end ([`Event::NotReleased`]).
    pub const fn may_return(&self) -> bool {
        matches!(self.state, State::Releasing)
    }

    /// Whether it was fenced off, and lets go of what it had.
    pub const fn is_lost(&self) -> bool {
        matches!(self.state, State::Losing | State::Leaving)
    }

    /// What is known of owners, as it is durable or about to be.
    pub const fn record(&self) -> Record {
        self.record
    }

    /// Takes note of what happened, and gives what is to be done.
    ///
    /// # Panics
    /// If a step's result comes that was not asked for.
    pub fn apply(&mut self, event: Event) -> Vec<Action> {
        match (event, self.state) {
            (Event::Want, _) => self.want(),
            (Event::Force, state) => {
                self.forced = matches!(state, State::Standby | State::Asking(_));
                self.want()
            }
            (Event::Unwanted, State::Standby) if self.wanted => {
                self.wanted = false;
                vec![Action::StandBy]
            }
            (Event::Again, State::Standby) if self.wanted => self.ask(),
            (Event::Again, State::Returning(true)) => {
                self.state = State::Returning(false);
                // It has been the owner all along.
                vec![Action::Attach(Trust::Word)]
            }
            (Event::Asked(epoch), _) => self.asked(epoch),
            (Event::Answered(attempt, answer), State::Asking(own))
                if attempt == own || self.mutants.is(Mutant::LateAnswerCounts) =>
            {
                self.answered(answer)
            }
            // An answer of an attempt that is over, or a pause that no longer matters.
            (Event::Answered(..) | Event::Unwanted | Event::Again, _) => vec![],
            _ => self.ended(event),
        }
    }

    /// A step has ended.
    fn ended(&mut self, event: Event) -> Vec<Action> {
        match (event, self.state) {
            (Event::Drained(good), State::Draining)
                if good || self.mutants.is(Mutant::DrainErrorForgotten) =>
            {
                self.state = State::Releasing;
                vec![Action::Release]
            }
            (Event::Drained(_), State::Draining) => {
                self.state = State::Returning(false);
                vec![self.refuse(Refusal::Flush), Action::Attach(Trust::Word)]
            }
            (Event::Released, State::Releasing) => {
                (self.state, self.wanted) = (State::Standby, false);
                if self.mutants.is(Mutant::FreeBeforeDrained) {
                    return vec![Action::StandBy];
                }
                vec![self.free(), Action::StandBy]
            }
            (Event::NotReleased, State::Releasing) => {
                self.state = State::Returning(false);
                vec![self.refuse(Refusal::Standby), Action::Attach(Trust::Word)]
            }
            (Event::Released, State::Undoing) => {
                self.state = State::Standby;
                vec![Action::Retry]
            }
            (Event::Lost, _) => self.lost(),
            (Event::Drained(_), State::Losing) => {
                self.state = State::Leaving;
                vec![Action::Release]
            }
            (Event::Released, State::Leaving) => {
                (self.state, self.wanted) = (State::Standby, false);
                vec![Action::StandBy]
            }
            (Event::Locked(true), State::Locking(trust, record))
                if self.mutants.is(Mutant::RecordedAfterServing) =>
            {
                (self.record, self.state) = (record, State::Attaching);
                vec![Action::Attach(trust)]
            }
            (Event::Recorded(_), _) if self.mutants.is(Mutant::RecordedAfterServing) => vec![],
            (Event::Locked(true), State::Locking(trust, record)) => {
                self.state = State::Recording(trust, record);
                vec![Action::Record(record, trust)]
            }
            (Event::Locked(false), State::Locking(..)) => self.failed(),
            (Event::Recorded(true), State::Recording(trust, record)) => {
                (self.record, self.state) = (record, State::Attaching);
                vec![Action::Attach(trust)]
            }
            // It may be durable all the same.
            (Event::Recorded(false), State::Recording(_, record)) => {
                self.record.epoch = record.epoch;
                self.undo()
            }
            (Event::Attached(true), State::Attaching | State::Returning(false)) => {
                (self.state, self.wanted, self.forced) = (State::Owner, false, false);
                if self.mutants.is(Mutant::RecordedAfterServing) {
                    return vec![Action::Serve, Action::Record(self.record, Trust::Word)];
                }
                vec![Action::Serve]
            }
            (Event::Attached(false), State::Attaching) => self.undo(),
            // Its guest has been told of the flush, or will be; no other host can tell it.
            (Event::Attached(false), State::Returning(false)) => {
                self.state = State::Returning(true);
                vec![Action::Retry]
            }
            (event, state) => panic!("{event:?} was not asked for in {state:?}"),
        }
    }

    fn lost(&mut self) -> Vec<Action> {
        match self.state {
            State::Owner => {
                self.state = State::Losing;
                vec![Action::Hold, Action::Drain]
            }
            State::Draining => {
                self.state = State::Losing;
                vec![self.refuse(Refusal::Lost)]
            }
            State::Returning(true) => {
                self.state = State::Leaving;
                vec![Action::Release]
            }
            // What it has it lets go of, or it will be told again as the owner.
            _ => vec![],
        }
    }

    fn want(&mut self) -> Vec<Action> {
        let waits = matches!(self.state, State::Standby) && (!self.wanted || self.forced);
        self.wanted |= !matches!(self.state, State::Owner);
        if waits { self.ask() } else { vec![] }
    }

    fn ask(&mut self) -> Vec<Action> {
        self.attempts += 1;
        let attempt = Attempt(self.attempts);
        self.state = State::Asking(attempt);
        vec![Action::Hold, Action::Ask(attempt, self.record.epoch)]
    }

    fn answered(&mut self, answer: PeerAnswer) -> Vec<Action> {
        let forced = std::mem::take(&mut self.forced);
        self.by_word = forced && answer == PeerAnswer::Silent;
        match answer {
            PeerAnswer::Free { epoch, owned } => {
                self.note(epoch);
                let nobody_since = owned == self.record.other;
                self.lock(if nobody_since { Trust::Word } else { Trust::ProofOnly }, owned)
            }
            // The word was that it does not serve the volume: it says the opposite.
            PeerAnswer::Refused(epoch) => {
                self.note(epoch);
                self.failed()
            }
            // What it says later is compared with what it has said.
            PeerAnswer::Silent if self.fence == Fence::Lock => {
                self.lock(Trust::ProofOnly, self.record.other)
            }
            // If the word was wrong, it goes on in the epoch that it has: nothing that it says later tells
            // whether it has written since.
            PeerAnswer::Silent if forced => {
                let told = self.mutants.is(Mutant::ForcedTrusted);
                self.lock(Trust::ProofOnly, if told { self.record.other } else { UNKNOWN })
            }
            PeerAnswer::Silent => self.failed(),
        }
    }

    /// Takes note of an epoch that the other host knows.
    fn note(&mut self, epoch: Epoch) {
        if epoch < EPOCH_MAX {
            self.record.epoch = self.record.epoch.max(epoch);
        }
    }

    fn lock(&mut self, trust: Trust, other: Epoch) -> Vec<Action> {
        let kept = self.mutants.is(Mutant::EpochKept);
        let epoch = if kept { self.record.epoch.max(1) } else { next(self.record.epoch) };
        self.state = State::Locking(trust, Record { epoch, owned: epoch, other });
        vec![Action::Lock]
    }

    fn failed(&mut self) -> Vec<Action> {
        self.state = State::Standby;
        vec![Action::Retry]
    }

    fn undo(&mut self) -> Vec<Action> {
        self.state = State::Undoing;
        vec![Action::Release]
    }

    fn asked(&mut self, epoch: Epoch) -> Vec<Action> {
        self.note(epoch);
        match self.state {
            State::Owner if self.mutants.is(Mutant::ReleasedUndrained) => {
                self.state = State::Releasing;
                vec![Action::Hold, Action::Release]
            }
            State::Owner if self.mutants.is(Mutant::FreeBeforeDrained) => {
                self.state = State::Draining;
                vec![self.free(), Action::Hold, Action::Drain]
            }
            State::Owner => {
                self.state = State::Draining;
                vec![Action::Hold, Action::Drain]
            }
            State::Asking(_) | State::Locking(..) | State::Recording(..)
                if self.mutants.is(Mutant::TakingSaysFree) =>
            {
                vec![self.free()]
            }
            State::Standby => vec![self.free()],
            State::Draining | State::Releasing | State::Returning(_) => {
                vec![self.refuse(Refusal::Giving)]
            }
            State::Losing | State::Leaving => vec![self.refuse(Refusal::Lost)],
            State::Asking(_)
            | State::Locking(..)
            | State::Recording(..)
            | State::Attaching
            | State::Undoing => vec![self.refuse(Refusal::Taking)],
        }
    }

    const fn free(&self) -> Action {
        let Record { epoch, owned, .. } = self.record;
        Action::Answer(Reply::Free { epoch, owned })
    }

    const fn refuse(&self, refusal: Refusal) -> Action {
        Action::Answer(Reply::Refused(refusal, self.record.epoch))
    }
}

/// The epoch after that one.
const fn next(epoch: Epoch) -> Epoch {
    assert!(epoch < UNKNOWN - 1, "epochs are counted by hand-overs");
    epoch + 1
}

#[cfg(test)]
mod tests;
