//! What meets what: the phases of the engine beside the events it takes.

use crate::driver::world::World;
use crate::machine::{Factory, Machine};
use crate::medium::Part;
use crate::pairs::{Edge, Incident, IoKind, Moment, Moments};
use crate::stamp::Stamped;
use cinnabar_engine::{Command, Event, IoOp, IoRequest, Op, Phases, Target};

/// What is known of the engine's phases.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// After the last batch.
    phases: Phases,
    /// What began and ended in it.
    begun: Phases,
    ended: Phases,
    /// Completions of the batch being gathered.
    pub(super) noted: Vec<Incident>,
    /// Events of the batch being taken.
    taken: Vec<Incident>,
}

impl Meeting {
    /// The phases that are on, and those that began in the last batch.
    pub(super) const fn now(&self) -> (Phases, Phases) {
        (self.phases, self.begun)
    }

    /// Does the next batch come at such a moment?
    pub(super) fn comes(&self, moment: Moment) -> bool {
        let phases = match moment.edge {
            Edge::Begins => self.begun,
            Edge::Lasts => self.phases,
            Edge::Ends => self.ended,
        };
        phases.has(moment.phase)
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// A batch is about to be taken.
    pub(super) fn note_batch(&mut self) {
        let Meeting { noted, taken, .. } = &mut self.meeting;
        taken.clear();
        taken.append(noted);
        taken.extend(self.batch.iter().filter_map(incident));
    }

    /// It was taken: what met what, and what to do about it.
    pub(super) fn meet(&mut self) {
        let Some(after) = self.machine.as_ref().and_then(Machine::phases) else { return };
        let meeting = &mut self.meeting;
        let before = std::mem::replace(&mut meeting.phases, after);
        let (begun, ended) = (meeting.begun, meeting.ended);
        (meeting.begun, meeting.ended) = (after.without(before), before.without(after));
        let moments = Moments::of(before, after, begun, ended);
        if self.machine.as_ref().is_some_and(|machine| machine.shards() > 1) {
            return;
        }
        let pairs = &mut self.count.pairs;
        for moment in moments.iter() {
            for incident in &meeting.taken {
                pairs.add(moment, *incident);
            }
        }
        let begins = meeting.begun.iter().map(Incident::Begins);
        for incident in begins.chain(meeting.ended.iter().map(Incident::Ends)) {
            for phase in before.iter() {
                pairs.add(Moment { phase, edge: Edge::Lasts }, incident);
            }
        }
    }

    /// A crash comes behind the last batch.
    pub(super) fn meet_crash(&mut self, host: bool) {
        let Some(machine) = &self.machine else { return };
        if machine.shards() == 1 && machine.phases().is_some() {
            let incident = if host { Incident::PowerCut } else { Incident::Kill };
            let Meeting { phases, begun, ended, .. } = self.meeting;
            let moments = Moments { begin: begun, last: phases, end: ended };
            for moment in moments.iter() {
                self.count.pairs.add(moment, incident);
            }
        }
    }

    /// What kind of I/O this is.
    pub(super) fn kind_of(&self, request: &IoRequest<Stamped>) -> IoKind {
        let on_cache = request.target == Target::Cache;
        match &request.op {
            IoOp::Read { .. } if on_cache => IoKind::CacheRead,
            IoOp::ReadMeta { .. } => IoKind::MetaRead,
            IoOp::Write { .. } if on_cache => IoKind::ChunkWrite,
            IoOp::WriteMeta { offset, .. } => match self.media.cache.part(*offset) {
                Part::Superblock => IoKind::SuperblockWrite,
                Part::Journal => IoKind::JournalWrite,
                Part::Checkpoint => IoKind::CheckpointWrite,
                Part::Log => IoKind::ChunkWrite,
            },
            IoOp::Flush if on_cache => IoKind::CacheFlush,
            IoOp::Flush => IoKind::BackendFlush,
            IoOp::Read { .. } => IoKind::BackendRead,
            // Room of the cache device: a step between two superblocks.
            IoOp::MakeRoom { .. } => IoKind::SuperblockWrite,
            IoOp::Trim { .. } if on_cache => IoKind::SuperblockWrite,
            IoOp::Write { .. } | IoOp::Trim { .. } | IoOp::WriteZeroes { .. } => {
                IoKind::BackendWrite
            }
            IoOp::Prove => IoKind::Prove,
            IoOp::BumpGeneration { .. } => IoKind::BumpGeneration,
        }
    }
}

/// What an event is; completions are noted when they are made.
fn incident(event: &Event<Stamped>) -> Option<Incident> {
    Some(match event {
        Event::Submit(request) => match request.op {
            Op::Read { .. } => Incident::Read,
            Op::Write { .. } => Incident::Write,
            Op::Flush => Incident::Flush,
            Op::Trim { .. } => Incident::Trim,
            Op::WriteZeroes { .. } => Incident::Zeroes,
            Op::Invalidate { .. } => Incident::Invalidate,
        },
        // The second two are the router's.
        Event::IoDone(_) | Event::Invalidating(_) | Event::Invalidated(_) => return None,
        Event::Wake => Incident::Wake,
        Event::Overdue(_) | Event::Late(_) => Incident::Overdue,
        Event::Adopt(_) => Incident::Plan,
        Event::Control(_, command) => match command {
            Command::Attach(_) => Incident::Attach,
            Command::Detach(_) => Incident::Detach,
            Command::Seal(..) => Incident::Seal,
            Command::Forget(_) => Incident::Forget,
            Command::Abandon => Incident::Abandon,
            Command::Replace(_) => Incident::Replace,
            Command::Close => Incident::Close,
            // No simulated back end grows or is a server.
            Command::Open
            | Command::AwaitLoad
            | Command::Grow(..)
            | Command::Discard(_)
            | Command::Resize { .. } => return None,
        },
    })
}
