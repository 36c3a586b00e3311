//! How a volume comes to the write log and leaves it again: the steps of a driver, in their order.
//!
//! ```text
//! join   ─► claim ─► attach at the log ─► [hold ─► flush] ─► joined
//!                                     └─► (serve ─► flush) ─► joined
//! leave  ─► drain, again and again ─► [hold ─► drain] ─► remove ─► unclaim ─► left
//! ```
//!
//! What is in brackets is for guests that go on meanwhile. A volume that joins has writes that its
//! guests know of and that no flush has covered: a flush that the log answers would not cover them, so
//! the back end is flushed between the last request that went past the log and the first one that
//! does not. A volume that leaves must have nothing in the log when the first request goes past it.
//! In both cases writes wait (*hold*) until none is under way; reads go the way that they went before.
//!
//! While a volume is drained to leave, its guests go on, and the log slows them down to half of what its back
//! end takes ([`Command::Slow`]): each time less is left. They are held once the rest takes a moment only. If it
//! does not come to that, or the rest takes longer after all, the volume stays ([`WriteMode::stay`]).
//!
//! What is in parentheses is for a volume that is attached, and of which the log has never taken a
//! write: an earlier session may have served it past the log, and ended by a crash while guests lived
//! on, or while the volume was joining.
//!
//! The claim is durable before the log can acknowledge anything, and goes when nothing is left there.

use cinnabar_writeback::{Command, LogVolumeId, Refusal};

/// Where a volume is between the two ways of its requests.
#[derive(Debug, Default)]
pub struct WriteMode {
    state: State,
    /// Guests are served while it changes.
    served: bool,
    /// It leaves with its dirty data, which are lost.
    discard: bool,
    /// Why it could not join, until it has left again.
    failed: Option<Failed>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Off,
    Claiming,
    Attaching,
    /// The engines attach it.
    Opening(LogVolumeId),
    /// It joins, and what is under way ends.
    Settling(LogVolumeId),
    Flushing(LogVolumeId),
    On(LogVolumeId),
    Draining(LogVolumeId),
    /// It leaves, and what is under way ends.
    Ending(LogVolumeId),
    /// What came before that.
    DrainingRest(LogVolumeId),
    Removing(LogVolumeId),
    Unclaiming,
}

/// What the driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes the claim durable; then [`WriteMode::claimed`].
    Claim,
    /// Has the log attach the volume; then [`WriteMode::attached`].
    Attach,
    /// Has the engines attach the volume, whose requests wait; then [`WriteMode::serves`].
    Serve,
    /// Guests' requests wait from now on; [`WriteMode::idle`] when none is under way.
    Hold,
    /// Has the engine flush the back end; then [`WriteMode::flushed`]. It has failed if something is still
    /// under way of a request that was answered as late: that may land behind the flush.
    Flush,
    /// The volume has joined: requests go to the log, those that wait first.
    Joined(LogVolumeId),
    /// Gives the log this command; then [`WriteMode::answered`].
    Ask(Command),
    /// The same, after a moment: something of the volume is under way.
    AskLater(Command),
    /// Takes the claim away; then [`WriteMode::unclaimed`].
    Unclaim,
    /// The volume has left: requests go to the engine, those that wait first.
    Left(Option<Failed>),
    /// It stays as it was, in the log if it was there.
    Stays(Failed),
}

/// Why a volume could not join or leave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The claim could not be made.
    #[error("{0}")]
    Claim(String),
    /// The log does not take it, or does not let it go.
    #[error("{0}")]
    Log(#[from] Refusal),
    /// The back end could not be flushed.
    #[error("flushing the back end failed: {0}")]
    Flush(cinnabar_engine::Failure),
    /// The back end does not take the rest.
    #[error("its back end does not take the rest of its writes in time")]
    BackEnd,
}

/// Which way a guest's request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Engine,
    Log(LogVolumeId),
    /// Neither; it waits.
    Wait,
}

impl WriteMode {
    /// Begins to join. `served`: guests use the volume already.
    ///
    /// # Panics
    /// If it is not out of the log.
    pub fn join(&mut self, served: bool) -> Step {
        assert_eq!(self.state, State::Off, "it joins once");
        *self = Self { state: State::Claiming, served, ..Self::default() };
        Step::Claim
    }

    /// The claim is durable, or could not be made.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn claimed(&mut self, result: Result<(), String>) -> Step {
        assert_eq!(self.state, State::Claiming, "it was asked for");
        match result {
            Ok(()) => {
                self.state = State::Attaching;
                Step::Attach
            }
            Err(reason) => {
                self.state = State::Off;
                Step::Stays(Failed::Claim(reason))
            }
        }
    }

    /// The log has given it a place, or refuses. `holds`: it has a place there all the same. `taken`:
    /// the log has taken writes of it ([`Status::taken`](cinnabar_writeback::Status::taken)).
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn attached(
        &mut self,
        result: Result<LogVolumeId, Refusal>,
        (holds, taken): (bool, bool),
    ) -> Step {
        assert_eq!(self.state, State::Attaching, "it was asked for");
        match result {
            Ok(place) if self.served => {
                self.state = State::Settling(place);
                Step::Hold
            }
            Ok(place) if taken => self.joined(place),
            Ok(place) => {
                self.state = State::Opening(place);
                Step::Serve
            }
            // What the log holds of it stays claimed.
            Err(refusal) if holds => {
                self.state = State::Off;
                Step::Stays(refusal.into())
            }
            Err(refusal) => {
                self.failed = Some(refusal.into());
                self.unclaim()
            }
        }
    }

    fn joined(&mut self, place: LogVolumeId) -> Step {
        self.state = State::On(place);
        Step::Joined(place)
    }

    /// The engines have attached it. What follows, if the log waits for that.
    pub fn serves(&mut self) -> Option<Step> {
        let State::Opening(place) = self.state else { return None };
        self.state = State::Flushing(place);
        Some(Step::Flush)
    }

    /// No request is under way.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn idle(&mut self) -> Step {
        match self.state {
            State::Settling(place) => {
                self.state = State::Flushing(place);
                Step::Flush
            }
            State::Ending(place) => {
                self.state = State::DrainingRest(place);
                Step::Ask(Command::Drain(place))
            }
            state => panic!("nothing was held: {state:?}"),
        }
    }

    /// Whether requests wait until none is under way.
    pub const fn awaits_idle(&self) -> bool {
        matches!(self.state, State::Settling(_) | State::Ending(_))
    }

    /// The back end was flushed, or not.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn flushed(&mut self, result: Result<(), cinnabar_engine::Failure>) -> Step {
        let State::Flushing(place) = self.state else { panic!("it was asked for") };
        match result {
            Ok(()) => self.joined(place),
            Err(failure) => {
                self.failed = Some(Failed::Flush(failure));
                self.remove(place)
            }
        }
    }

    /// Begins to leave. `served`: guests go on using the volume. `discard`: its dirty data are lost.
    /// `None`: it is not in the log, or on its way already.
    pub fn leave(&mut self, served: bool, discard: bool) -> Option<Step> {
        let State::On(place) = self.state else { return None };
        (self.served, self.discard) = (served, discard);
        if discard && !served {
            return Some(self.remove(place));
        }
        self.state = State::Draining(place);
        Some(Step::Ask(Command::Drain(place)))
    }

    /// One that is being drained goes with its dirty data, which are lost, and its guests do not use it
    /// any more. Answers to what the log was asked before count no more. `None`: it is not being
    /// drained.
    pub fn give_up(&mut self) -> Option<Step> {
        let (State::Draining(place) | State::Ending(place) | State::DrainingRest(place)) =
            self.state
        else {
            return None;
        };
        (self.served, self.discard) = (false, true);
        Some(self.remove(place))
    }

    /// One that is being drained stays, if its guests go on using it: its back end does not take the rest.
    /// Answers to what the log was asked before count no more. `None`: it can't stay any more.
    pub fn stay(&mut self) -> Option<Step> {
        let (State::Draining(place) | State::Ending(place) | State::DrainingRest(place)) =
            self.state
        else {
            return None;
        };
        if !self.served {
            return None;
        }
        self.state = State::On(place);
        Some(Step::Stays(Failed::BackEnd))
    }

    fn remove(&mut self, place: LogVolumeId) -> Step {
        self.state = State::Removing(place);
        Step::Ask(Command::Remove { place, discard: self.discard })
    }

    /// The log has answered the command of the last step. `little`: what has been written meanwhile is at the
    /// back end within a moment.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn answered(&mut self, result: Result<(), Refusal>, little: bool) -> Step {
        match (self.state, result) {
            (State::Draining(place), Ok(())) if self.served && !little => {
                Step::Ask(Command::Drain(place))
            }
            (State::Draining(place), Ok(())) if self.served => {
                self.state = State::Ending(place);
                Step::Hold
            }
            (State::Draining(place) | State::DrainingRest(place), Ok(())) => self.remove(place),
            (State::Removing(_), Ok(()) | Err(Refusal::NoVolume)) => self.unclaim(),
            // Given up: should the log's device come back, it has no claim to the back end.
            (State::Removing(_), Err(Refusal::Lost)) if self.discard => self.unclaim(),
            (State::Removing(place), Err(Refusal::Busy)) => {
                Step::AskLater(Command::Remove { place, discard: self.discard })
            }
            // Written since, by a request that was under way.
            (State::Removing(place), Err(Refusal::Dirty)) => {
                self.state = State::DrainingRest(place);
                Step::Ask(Command::Drain(place))
            }
            (
                State::Draining(place) | State::DrainingRest(place) | State::Removing(place),
                Err(refusal),
            ) => {
                self.state = State::On(place);
                Step::Stays(refusal.into())
            }
            (state, _) => panic!("the log was asked nothing: {state:?}"),
        }
    }

    fn unclaim(&mut self) -> Step {
        self.state = State::Unclaiming;
        Step::Unclaim
    }

    /// The claim is gone, as far as it could be taken away.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn unclaimed(&mut self) -> Step {
        assert_eq!(self.state, State::Unclaiming, "it was asked for");
        self.state = State::Off;
        Step::Left(self.failed.take())
    }

    /// Where guests' reads go: those of a volume whose writes are held do not wait, unless nothing serves it.
    pub const fn read_route(&self) -> Route {
        match self.state {
            State::Settling(_) | State::Flushing(_) if self.served => Route::Engine,
            State::Ending(place) | State::DrainingRest(place) => Route::Log(place),
            _ => self.route(),
        }
    }

    /// Where guests' other requests go.
    pub const fn route(&self) -> Route {
        match self.state {
            State::Off | State::Claiming | State::Attaching => Route::Engine,
            State::On(place) | State::Draining(place) => Route::Log(place),
            State::Opening(_)
            | State::Settling(_)
            | State::Flushing(_)
            | State::Ending(_)
            | State::DrainingRest(_)
            | State::Removing(_)
            | State::Unclaiming => Route::Wait,
        }
    }

    /// Its place in the log, from when it is attached there until it is removed.
    pub const fn place(&self) -> Option<LogVolumeId> {
        match self.state {
            State::Off | State::Claiming | State::Attaching | State::Unclaiming => None,
            State::Opening(place)
            | State::Settling(place)
            | State::Flushing(place)
            | State::On(place)
            | State::Draining(place)
            | State::Ending(place)
            | State::DrainingRest(place)
            | State::Removing(place) => Some(place),
        }
    }

    /// Whether all that guests were answered for went to the log: of a volume that joins, the back end
    /// has to be flushed before.
    pub const fn has_joined(&self) -> bool {
        let joins =
            matches!(self.state, State::Opening(_) | State::Settling(_) | State::Flushing(_));
        !joins && self.place().is_some()
    }

    /// Whether it is on its way.
    pub const fn changes(&self) -> bool {
        !matches!(self.state, State::Off | State::On(_))
    }

    /// Whether it is on its way out.
    pub const fn leaves(&self) -> bool {
        matches!(
            self.state,
            State::Draining(_)
                | State::Ending(_)
                | State::DrainingRest(_)
                | State::Removing(_)
                | State::Unclaiming
        )
    }
}

#[cfg(test)]
mod tests;
