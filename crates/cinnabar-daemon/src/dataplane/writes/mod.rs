//! Write-back: the write log at work, between guests' requests and the engines
//! (docs/design/write-back.md).
//!
//! The first data thread owns the log, as it owns the volumes. A request of a volume in write-back
//! mode goes to the log under its own number; what the log asks of the engines becomes a request that
//! the log has asked for. I/O on the log's devices goes through the thread's own I/O table.

mod attach;
mod claims;
mod commands;
mod halves;
mod leaving;
mod memory;
mod mirrored;
mod mode;
mod open;
mod status;

pub(super) use cinnabar_config::status::traffic::Traffic;
pub(super) use claims::{ClaimPlace, Claimed, Claims, Known};
pub(super) use halves::Halves;
pub(super) use leaving::Leaving;
pub(super) use open::{OpenFailed, open};

use claims::KnownLog;

use super::plane::DataPlane;
use super::requests::Origin;
use cinnabar_backend::Memory;
use cinnabar_backend::write_memory::WriteMemory;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind};
use cinnabar_driver::Phase;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Failure, IoError, Op, Reply, RequestId};
use cinnabar_writeback::{Action, Command, EngineId, Event, LogVolumeId, Refusal, WriteLog};
use slab::Slab;
use std::path::PathBuf;

/// The write log, or why there is none.
pub(super) enum Writes {
    /// None is configured.
    Off,
    /// It could not be opened: volumes that need it are not served.
    Missing { path: PathBuf, reason: String },
    /// See there.
    On(Box<Running>),
}

/// An open write log.
pub(super) struct Running {
    pub(super) log: WriteLog<Memory>,
    halves: Halves,
    /// As claims name it.
    known: KnownLog,
    /// Where writes are acknowledged from, if it has such a memory.
    memory: Option<WriteMemory>,
    events: Vec<Event<Memory>>,
    actions: Vec<Action<Memory>>,
    /// When it wants to be woken.
    wake: Option<Instant>,
    /// Keys of the volumes at the log's places.
    volumes: Vec<Option<usize>>,
    /// Commands in the log's hands.
    asked: Slab<PendingCommand>,
    /// Requests for volumes that the engines do not have yet, in order.
    early: Vec<Early>,
    /// Commands to be given at these times.
    later: Vec<(Instant, PendingCommand, Command)>,
    /// Volumes that waited for their back ends and are being taken out of the log.
    going: Vec<String>,
    /// Volumes whose writes were given up after the log's device had failed.
    given_up: Vec<String>,
    /// The device's failure was reported.
    told_lost: bool,
    /// When it was last told how long reads of back ends take.
    told_misses: Instant,
    /// Volumes that leave while their guests go on, and when they were last looked at.
    leaving: Vec<usize>,
    looked_at_leaving: Instant,
}

/// What the log asks the engines for while they don't have the volume yet.
struct Early {
    id: EngineId,
    key: usize,
    op: Op<Memory>,
    /// When it takes too long.
    answer_by: Option<Instant>,
}

/// A volume: its key may be another one's later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    key: usize,
    number: u64,
}

impl Subject {
    /// The volume's number, which no other one has.
    pub(super) const fn number(self) -> u64 {
        self.number
    }
}

/// Who waits for the log's answer to a command.
enum PendingCommand {
    /// A volume's attach to the log.
    Attach(Subject),
    /// Another step of a volume's way into the log or out of it.
    Step(Subject),
    /// A volume's claim gets a number.
    Number(Subject),
    /// Of a volume that has grown to so many bytes.
    Grow(Subject, u64, AnswerTo<u64>),
    /// An operator who wants the back end to have everything.
    Flush(AnswerTo<()>),
    /// An operator who gives up the writes of a volume that is not served.
    Discard(Box<Claims>, Command, AnswerTo<()>),
    /// The volume goes in another way.
    Nothing,
    /// The stop.
    Close,
}

impl Writes {
    pub(super) fn running(&mut self) -> Option<&mut Running> {
        match self {
            Self::On(running) => Some(running),
            Self::Off | Self::Missing { .. } => None,
        }
    }

    pub(super) fn log(&self) -> Option<&WriteLog<Memory>> {
        match self {
            Self::On(running) => Some(&running.log),
            Self::Off | Self::Missing { .. } => None,
        }
    }

    /// The place of a volume of this name in the log.
    pub(super) fn place_of(&self, name: &str) -> Option<LogVolumeId> {
        let Self::On(running) = self else { return None };
        running.place_of(name)
    }

    /// Whether a volume that is not there any more is being taken out of the log.
    pub(super) fn is_going(&self, name: &str) -> bool {
        matches!(self, Self::On(running) if running.going.iter().any(|going| going == name))
    }

    /// Why what the log holds of a volume can't come to its back end.
    pub(super) fn cannot_drain(&self, place: LogVolumeId) -> Option<Refusal> {
        let log = self.log()?;
        if log.is_lost() {
            return Some(Refusal::Lost);
        }
        log.group(place).filter(|group| group.damaged).map(|_| Refusal::Damaged)
    }

    /// Its devices.
    pub(super) fn halves(&self) -> Option<&Halves> {
        match self {
            Self::On(running) => Some(&running.halves),
            Self::Off | Self::Missing { .. } => None,
        }
    }

    /// When it is to be looked at.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Self::On(running) = self else { return None };
        let later = running.later.iter().map(|(at, ..)| *at);
        later.chain(running.wake).min()
    }

    /// Whether it has something to do at once.
    pub(super) fn is_filled(&self) -> bool {
        matches!(self, Self::On(running) if !running.events.is_empty())
    }

    /// Whether a half of a mirrored log is saying what it is.
    pub(super) fn is_marking(&self) -> bool {
        self.halves().is_some_and(Halves::is_marking)
    }

    /// Something for the log; without one it is dropped.
    pub(super) fn give(&mut self, event: Event<Memory>) {
        if let Self::On(running) = self {
            running.events.push(event);
        }
    }
}

impl Running {
    /// See [`Writes::place_of`]. One that was given up when the device had failed has none.
    fn place_of(&self, name: &str) -> Option<LogVolumeId> {
        let has = |place: &LogVolumeId| self.log.status(*place).is_some_and(|of| of.name == name);
        let given_up = self.given_up.iter().any(|given_up| given_up == name);
        self.log.places().find(has).filter(|_| !given_up)
    }

    /// What a volume has asked the log for is of no concern any more.
    fn forget_steps(&mut self, subject: Subject) {
        let asked = self.asked.iter_mut().map(|(_, asked)| asked);
        for asked in asked.chain(self.later.iter_mut().map(|(_, asked, _)| asked)) {
            if matches!(asked, PendingCommand::Step(of) if *of == subject) {
                *asked = PendingCommand::Nothing;
            }
        }
    }

    fn ask(&mut self, asked: PendingCommand, command: Command) {
        let id = RequestId(self.asked.insert(asked) as u64);
        self.events.push(Event::Control(id, command));
    }
}

impl DataPlane {
    /// Takes note of the time, for the log.
    pub(super) fn look_at_writes(&mut self, now: Instant) {
        let Some(running) = self.writes.running() else { return };
        if running.wake.is_some_and(|at| at <= now) {
            running.wake = None;
            running.events.push(Event::Wake);
        }
        let overdue = |early: &mut Early| early.answer_by.is_some_and(|at| at <= now);
        for early in running.early.extract_if(.., overdue) {
            let late = Err(Failure::Io(IoError::TimedOut));
            running.events.push(Event::EngineDone(early.id, late));
        }
        let due = running.early.iter().filter_map(|early| early.answer_by).min();
        self.look_at = self.look_at.into_iter().chain(due).min();
        let due: Vec<_> = running.later.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, asked, command) in due {
            running.ask(asked, command);
        }
        self.look_at_leaving(now);
    }

    /// Says how long reads of back ends took, about as often as that decides on the pace of a destage.
    fn tell_misses(&mut self, now: Instant) {
        let Some(running) = self.writes.running() else { return };
        let tick_ns = running.log.pace_ns();
        if tick_ns == 0 || now.since_ns(running.told_misses) < tick_ns {
            return;
        }
        running.told_misses = now;
        for (_, volume) in &self.volumes {
            if let Some(place) = volume.writes.place() {
                running.events.push(Event::Misses(place, volume.io.reads.take()));
            }
        }
    }

    /// Lets the log take what there is, and does what it says.
    pub(super) fn apply_writes(&mut self, now: Instant) {
        self.tell_misses(now);
        let Some(running) = self.writes.running().filter(|running| !running.events.is_empty())
        else {
            return;
        };
        let Running { log, events, actions, .. } = running;
        log.apply(now, events, actions);
        let mut actions = std::mem::take(actions);
        for action in actions.drain(..) {
            match action {
                Action::Log(id, op) => self.start_log_io(now, id, op),
                Action::Memory(op) => self.writes.store(&op),
                Action::Engine(id, place, op) => self.submit_of_log(now, id, place, op),
                Action::Reply(id, result) => self.replies.push(Reply { id, result }),
                Action::Answer(id, result) => self.log_answered(now, id, result),
                Action::WakeAt(at) => {
                    if let Some(running) = self.writes.running() {
                        running.wake = Some(running.wake.map_or(at, |wake| wake.min(at)));
                    }
                }
            }
        }
        self.log_has_moved(now);
        if let Some(running) = self.writes.running() {
            running.actions = actions;
            if running.log.is_lost() && !std::mem::replace(&mut running.told_lost, true) {
                let device = running.halves.path().display();
                tracing::error!(
                    %device,
                    reason = running.halves.loss(),
                    "the write log is lost: volumes in write-back mode fail their \
                     requests (hint: see docs/guide/write-back.md, \"The write log's device failed\")"
                );
            }
        }
    }

    /// A request of the log's, on behalf of the volume at a place.
    fn submit_of_log(
        &mut self,
        now: Instant,
        id: EngineId,
        LogVolumeId(place): LogVolumeId,
        op: Op<Memory>,
    ) {
        let Some(running) = self.writes.running() else { return };
        let key = running.volumes.get(usize::from(place)).copied().flatten();
        let volume = key.and_then(|key| Some((key, self.volumes.get(key)?)));
        match volume.map(|(key, volume)| (key, volume.life.phase())) {
            Some((key, Phase::Serving)) => {
                let asker = Origin::Log(id, matches!(op, Op::Flush));
                self.submit_for(now, key, op, asker);
            }
            Some((key, phase)) if phase == Phase::Attaching || self.volumes[key].is_renewed() => {
                let volume = &self.volumes[key];
                if !volume.takes_from_log() {
                    running.events.push(Event::EngineDone(id, Err(Failure::NoVolume)));
                    return;
                }
                let answer_by = volume.answer_by(now);
                running.early.push(Early { id, key, op, answer_by });
                self.look_at = self.look_at.into_iter().chain(answer_by).min();
            }
            Some(_) | None => {
                running.events.push(Event::EngineDone(id, Err(Failure::NoVolume)));
            }
        }
    }

    /// The engines have a volume now, or will not: what the log has asked for goes on.
    pub(super) fn submit_early(&mut self, now: Instant, key: usize) {
        let Some(running) = self.writes.running() else { return };
        let early: Vec<_> = running.early.extract_if(.., |early| early.key == key).collect();
        let serves = self
            .volumes
            .get(key)
            .is_some_and(|volume| volume.life.serving().is_some() && volume.takes_from_log());
        for Early { id, key, op, .. } in early {
            if serves {
                let asker = Origin::Log(id, matches!(op, Op::Flush));
                self.submit_for(now, key, op, asker);
            } else {
                self.writes.give(Event::EngineDone(id, Err(Failure::NoVolume)));
            }
        }
    }

    /// The log has answered a command.
    fn log_answered(
        &mut self,
        now: Instant,
        id: RequestId,
        result: Result<cinnabar_writeback::Done, Refusal>,
    ) {
        let Some(running) = self.writes.running() else { return };
        match running.asked.remove(id.0 as usize) {
            PendingCommand::Attach(subject) => self.attached_at_log(now, subject, result),
            PendingCommand::Step(subject) => self.log_step_done(now, subject, result.map(drop)),
            PendingCommand::Number(subject) => self.claim_numbered(subject, result.map(drop)),
            PendingCommand::Grow(subject, size_bytes, answer) => {
                self.log_has_grown(subject, size_bytes, result.map(drop), answer);
            }
            PendingCommand::Flush(answer) => {
                let _ = answer.send(result.map(drop).map_err(refused));
            }
            PendingCommand::Discard(claims, command, answer) => {
                self.discarded(now, (claims, command, answer), result.map(drop));
            }
            PendingCommand::Nothing => {}
            PendingCommand::Close => self.log_closed(now, result.map(drop)),
        }
    }
}

/// What it means to an operator that the log refuses something.
fn refused(refusal: Refusal) -> CommandError {
    let (kind, hint) = match refusal {
        Refusal::NoPlace => (CommandErrorKind::Limit, "take another volume out of write-back mode"),
        Refusal::Dirty | Refusal::Busy => (CommandErrorKind::Busy, "try again in a moment"),
        Refusal::Closed => (CommandErrorKind::Stopping, ""),
        Refusal::NoVolume | Refusal::Invalid => (CommandErrorKind::Invalid, ""),
        Refusal::Smaller => (
            CommandErrorKind::Invalid,
            "make the back end as large as it was, or give the writes up with --discard-dirty",
        ),
        Refusal::Damaged => (
            CommandErrorKind::Io,
            "see docs/guide/write-back.md; `volume remove --discard-dirty` gives the writes up",
        ),
        Refusal::Lost => (
            CommandErrorKind::Io,
            "restart the daemon once the device is back; `volume remove --discard-dirty` gives the \
             writes up",
        ),
    };
    CommandError::new(kind, refusal.to_string(), hint)
}
