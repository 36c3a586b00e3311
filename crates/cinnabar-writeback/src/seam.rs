//! The way in and out of the write log: events in, actions out. It never waits and does no I/O.
//!
//! # Rules for the driver
//!
//! * Each [`Action::Log`] is answered by one [`Event::LogDone`], each [`Action::Engine`] by one
//!   [`Event::EngineDone`], in any order.
//! * Requests for the engine are submitted in the order of the actions: requests that overlap are
//!   carried out in that order.
//! * A volume's requests for the engine begin with its [`Command::Attach`].
//! * Stores to the write memory are carried out in the order of the actions, and before the actions
//!   behind them.
//! * If a back end's server may have restarted, [`Command::Restarted`] comes before the answers to
//!   whatever was sent to the server that came back.

use crate::memory::MemoryOp;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Answer, Failure, IoDone, IoId, IoOp, Op, RequestId};

/// A volume's place in the directory of the write log, as long as it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogVolumeId(pub u16);

/// Names a request that the write log has given to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId(pub u64);

/// Into the write log.
#[derive(Clone, Debug)]
pub enum Event<P> {
    /// A guest's request to a volume in write-back mode.
    Submit(RequestId, LogVolumeId, Op<P>),
    /// An I/O on the log's device has ended.
    LogDone(IoDone),
    /// The engine has answered.
    EngineDone(EngineId, Result<Answer<P>, Failure>),
    /// The time of a guest's request is over: if it still waits for room, it is answered with
    /// [`TimedOut`](cinnabar_engine::IoError::TimedOut), and what was not appended of it never is.
    Late(RequestId),
    /// How long reads of a volume's back end took, about every
    /// [`Config::pace_ns`](crate::Config::pace_ns); without it nothing is paced.
    Misses(LogVolumeId, Misses),
    /// An instant asked for has come.
    Wake,
    /// A command of the driver's or the operator's.
    Control(RequestId, Command),
}

/// What the driver or the operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give a volume a place, or say which one it has. Answered with [`Done::Attached`] once that is
    /// durable.
    Attach {
        name: String,
        size_bytes: u64,
        /// Drawn at random; used if the volume has no place yet.
        incarnation: u64,
        /// Its write group, empty for none; used if the volume has no place yet.
        group: String,
    },
    /// Raise the number of a volume's claim at its back end. Answered with [`Done::Nothing`] once that is durable;
    /// then the claim gets it. One with a higher number than the log's was made by a newer state of the log.
    Claim(LogVolumeId),
    /// A volume that is attached has grown. Answered as `Attach`, or refused if it has left: it gets no place again.
    Grow {
        /// The volume's place.
        place: LogVolumeId,
        size_bytes: u64,
    },
    /// Destage all that is dirty. Answered with [`Done::Nothing`] when the back end, and those of the others of its
    /// group, have everything that was acknowledged before the command came.
    Drain(LogVolumeId),
    /// Give up the place of a volume. With dirty data it is refused unless `discard` says that they
    /// may be lost: then it is answered when nothing of the volume is under way any more, and what waits
    /// for room or is on its way to the back end is given up at once. With others of its group that have dirty data
    /// it waits until those are given up, too.
    Remove {
        /// The volume's place.
        place: LogVolumeId,
        /// Dirty data may be lost.
        discard: bool,
    },
    /// The volume's server may have restarted and lost what was not flushed: the epoch under way is
    /// destaged again. Not answered.
    Restarted(LogVolumeId),
    /// From now on writes of a volume are acknowledged when they are in the write memory, if the log has
    /// one, or, as they are at first, when the log's device has them. Not answered.
    Acknowledge {
        /// The volume's place.
        place: LogVolumeId,
        memory: bool,
    },
    /// From now on writes of a volume, and of its group, get room only as its destage goes on: half as many blocks as the
    /// back end has taken, so that what is dirty becomes less; or, as at first, as long as there is
    /// room. Not answered.
    Slow {
        /// The volume's place.
        place: LogVolumeId,
        /// They are slowed down.
        slow: bool,
    },
    /// Make everything durable on the log's device; dirty data stay there. Requests and commands are
    /// refused from now on, also those that wait for room; nothing more is destaged.
    Close,
}

/// What comes back with a command that has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Nothing,
    /// A volume has this place.
    Attached(LogVolumeId),
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// All 256 places are taken.
    #[error("the write log has no place for another volume")]
    NoPlace,
    /// The volume has dirty data.
    #[error("the volume has writes that its back end does not have yet")]
    Dirty,
    /// Something of it is under way.
    #[error("the volume is busy")]
    Busy,
    /// Its name is empty or too long, or its size is beyond all limits.
    #[error("not a name or size of a volume")]
    Invalid,
    /// The write log is being closed.
    #[error("the write log is being closed")]
    Closed,
    /// The place is free.
    #[error("no such volume in the write log")]
    NoVolume,
    /// The volume's size is less than what its dirty data need.
    #[error("the volume was larger when it was written")]
    Smaller,
    /// Some of the volume's dirty data are damaged.
    #[error("dirty data of the volume are damaged")]
    Damaged,
    /// The write log's device has failed.
    #[error("the write log's device has failed")]
    Lost,
}

/// Out of the write log.
#[derive(Clone, Debug)]
pub enum Action<P> {
    /// Carry out an I/O on the log's device.
    Log(IoId, IoOp<P>),
    /// Do this to the write memory, at once: answers behind it say that it was done.
    Memory(MemoryOp<P>),
    /// Have the engine do this, on behalf of the volume at this place.
    Engine(EngineId, LogVolumeId, Op<P>),
    /// Answer a guest.
    Reply(RequestId, Result<Answer<P>, Failure>),
    /// Answer a command.
    Answer(RequestId, Result<Done, Refusal>),
    /// Send [`Event::Wake`] at this instant or soon after.
    WakeAt(Instant),
}

/// Reads of a volume's back end, since the driver last told of them. Those of a time in which no guest has
/// read past the log don't count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// How many have ended.
    pub reads: u64,
    /// How long they took, in all.
    pub total_ns: u64,
}
