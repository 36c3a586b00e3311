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
//! no more.
//!
//! **Epochs** order the owners. Each taking has one above all that this host and the other know of, durable
//! on the taking host before it serves. A host whose last own epoch is not below the other's knows that
//! nobody else owned the volume since it did ([`Trust::Word`]).

/// Counts the owners of a volume, upwards. Zero: none is known.
pub type Epoch = u64;

/// Epochs beyond this are no one's: what another host says is cut to it, so that counting on never
/// overflows.
pub const EPOCH_MAX: Epoch = 1 << 62;

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
}

/// An attempt to take the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u64);

/// What the other host says when it is asked for the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAnswer {
    /// It was the owner, and has let go. Or it was none, and is not about to become one before it has
    /// asked this host.
    Free(Epoch),
    /// It keeps the volume, or wants it itself.
    Refused(Epoch),
    /// It says nothing, or nothing that can be understood.
    Silent,
}

/// How the request of the other host is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// This host does not own the volume ([`PeerAnswer::Free`]).
    Free(Epoch),
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
}

/// Whether the operator's word `exclusive` holds for the time since this host had the volume last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// It does: no other host owned the volume since.
    Word,
    /// It does not: only a change proof of the back end may make cached blocks believed.
    ProofOnly,
}

/// What happens. Results carry no reason: the driver shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A guest of this host changes the volume, or the operator wants it here.
    Want,
    /// The operator vouches that the other host does not serve the volume, and will not.
    Force,
    /// The other host asks for the volume; the highest epoch that it knows.
    Asked(Epoch),
    /// After [`Action::Ask`] of this attempt.
    Answered(Attempt, PeerAnswer),
    /// After [`Action::Drain`].
    Drained(bool),
    /// After [`Action::Release`].
    Released,
    /// After [`Action::Lock`].
    Locked(bool),
    /// After [`Action::Record`].
    Recorded(bool),
    /// After [`Action::Attach`].
    Attached(bool),
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
    /// Makes this durable on this host.
    Record(Record),
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
    Locking(Trust, Epoch),
    Recording(Trust, Epoch),
    Attaching,
    /// After a step that failed: what it has, it lets go of.
    Undoing,
    Owner,
    Draining,
    Releasing,
    /// A hand-over has failed: it is to serve as before. `true`: after a pause.
    Returning(bool),
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
}

impl Ownership {
    /// Of a volume that this host does not own, at the start of a daemon, too: a host that owned it when
    /// it died does not know who did since.
    pub const fn standby(fence: Fence, record: Record) -> Self {
        Self { state: State::Standby, fence, record, attempts: 0, wanted: false, forced: false }
    }

    /// Of a volume that this host serves as its only one, and that may move from now on. `record` has been
    /// made durable ([`first_record`](Self::first_record)).
    ///
    /// # Panics
    /// If it names another owner.
    pub const fn owner(fence: Fence, record: Record) -> Self {
        assert!(record.owned == record.epoch && record.epoch > 0, "its own epoch is the last one");
        let state = State::Owner;
        Self { state, fence, record, attempts: 0, wanted: false, forced: false }
    }

    /// The record of a host that serves a volume which may move from now on; `known` is what an earlier time
    /// has left.
    pub const fn first_record(known: Record) -> Record {
        let epoch = next(known.epoch);
        Record { epoch, owned: epoch }
    }

    /// Where it is.
    pub const fn role(&self) -> Role {
        match self.state {
            State::Owner => Role::Owner,
            State::Draining | State::Releasing | State::Returning(_) => Role::Giving,
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
            (Event::Unwanted, _) => vec![],
            (Event::Again, State::Standby) if self.wanted => self.ask(),
            (Event::Again, State::Returning(true)) => {
                self.state = State::Returning(false);
                // It has been the owner all along.
                vec![Action::Attach(Trust::Word)]
            }
            (Event::Again, _) => vec![],
            (Event::Asked(epoch), _) => self.asked(epoch),
            (Event::Answered(attempt, answer), State::Asking(own)) if attempt == own => {
                self.answered(answer)
            }
            // Of an attempt that is over.
            (Event::Answered(..), _) => vec![],
            (Event::Drained(true), State::Draining) => {
                self.state = State::Releasing;
                vec![Action::Release]
            }
            (Event::Drained(false), State::Draining) => {
                self.state = State::Returning(false);
                vec![self.refuse(Refusal::Flush), Action::Attach(Trust::Word)]
            }
            (Event::Released, State::Releasing) => {
                (self.state, self.wanted) = (State::Standby, false);
                vec![Action::Answer(Reply::Free(self.record.epoch)), Action::StandBy]
            }
            (Event::Released, State::Undoing) => {
                self.state = State::Standby;
                vec![Action::Retry]
            }
            (Event::Locked(true), State::Locking(trust, epoch)) => {
                self.state = State::Recording(trust, epoch);
                vec![Action::Record(Record { epoch, owned: epoch })]
            }
            (Event::Locked(false), State::Locking(..)) => self.failed(),
            (Event::Recorded(true), State::Recording(trust, epoch)) => {
                self.record = Record { epoch, owned: epoch };
                self.state = State::Attaching;
                vec![Action::Attach(trust)]
            }
            // It may be durable all the same.
            (Event::Recorded(false), State::Recording(_, epoch)) => {
                self.record.epoch = epoch;
                self.undo()
            }
            (Event::Attached(true), State::Attaching | State::Returning(false)) => {
                (self.state, self.wanted, self.forced) = (State::Owner, false, false);
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
        match answer {
            PeerAnswer::Free(theirs) => {
                self.record.epoch = self.record.epoch.max(theirs.min(EPOCH_MAX));
                let nobody_since = theirs <= self.record.owned;
                self.lock(if nobody_since { Trust::Word } else { Trust::ProofOnly })
            }
            // The word was that it does not serve the volume: it says the opposite.
            PeerAnswer::Refused(theirs) => {
                self.record.epoch = self.record.epoch.max(theirs.min(EPOCH_MAX));
                self.failed()
            }
            PeerAnswer::Silent if forced || self.fence == Fence::Lock => {
                self.lock(Trust::ProofOnly)
            }
            PeerAnswer::Silent => self.failed(),
        }
    }

    fn lock(&mut self, trust: Trust) -> Vec<Action> {
        self.state = State::Locking(trust, next(self.record.epoch));
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
        self.record.epoch = self.record.epoch.max(epoch.min(EPOCH_MAX));
        match self.state {
            State::Owner => {
                self.state = State::Draining;
                vec![Action::Hold, Action::Drain]
            }
            State::Standby => vec![Action::Answer(Reply::Free(self.record.epoch))],
            State::Draining | State::Releasing | State::Returning(_) => {
                vec![self.refuse(Refusal::Giving)]
            }
            State::Asking(_)
            | State::Locking(..)
            | State::Recording(..)
            | State::Attaching
            | State::Undoing => vec![self.refuse(Refusal::Taking)],
        }
    }

    const fn refuse(&self, refusal: Refusal) -> Action {
        Action::Answer(Reply::Refused(refusal, self.record.epoch))
    }
}

/// The epoch after that one.
const fn next(epoch: Epoch) -> Epoch {
    assert!(epoch < EPOCH_MAX * 2, "epochs are counted by hand-overs");
    epoch + 1
}

#[cfg(test)]
mod tests;
