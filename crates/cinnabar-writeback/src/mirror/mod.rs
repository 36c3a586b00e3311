//! The write log on two devices: a layer below it that knows nothing of what is written. Either device
//! may fail at any moment.
//!
//! A write or flush is done when all halves have done it. If one fails, nothing that it was asked for is
//! answered before the other half says, durably, that it is alone from now on (its mark): a half
//! that was left behind is never believed later. A read that fails is tried at the other half; it does
//! not cost a half its place, which may hold the only good copy of something else.
//!
//! * [`start`]: which halves count, by their marks; two that do are levelled.
//! * [`Pair`]: the halves while the log is opened, as one device.
//! * [`Mirror`]: the log's I/O, fanned out.

mod half;
mod level;
mod mark;
mod pair;
mod plan;

pub use half::Half;
pub use level::Levelled;
pub use mark::{Mark, MarkState, force_alone, read as read_mark};
pub use pair::{Pair, start};
pub use plan::HalfState;

use crate::log::{Unretired, WriteLog};
use crate::mutant::{Mutant, Mutants};
use crate::recover::OpenError;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{IoDone, IoError, IoId, IoOp, Payload, Slice, Slices};
use pair::Missing;
use slab::Slab;
use smallvec::SmallVec;

/// What a mirror wants.
#[derive(Debug)]
pub struct Out<P> {
    /// I/O of a half, 0 or 1; a name may be under way once at each half. Each is answered by one
    /// [`Mirror::done`].
    pub ios: Vec<(usize, IoId, IoOp<P>)>,
    /// What the log asked for and what has ended.
    pub done: Vec<IoDone>,
}

impl<P> Default for Out<P> {
    fn default() -> Self {
        Self { ios: Vec::new(), done: Vec::new() }
    }
}

/// An I/O under way at one half or both.
#[derive(Debug)]
enum Under<P> {
    /// A write or flush: whose answers are missing. `None`: it has been answered.
    Write { id: Option<IoId>, waits: [bool; 2], succeeded: bool },
    /// A read into memory of its own: a half that is late may still write to it.
    Read {
        id: IoId,
        offset: u64,
        data: Slices<P>,
        own: P,
        may_try: [bool; 2],
        /// A half has answered, with an error.
        answered: bool,
    },
    /// A page of a mark.
    Mark { copy: u64 },
}

/// A mark being written, one at a time.
#[derive(Clone, Copy, Debug)]
struct Marking {
    io: usize,
    half: usize,
    mark: Mark,
}

/// The layer between the log and its two devices.
#[derive(Debug)]
pub struct Mirror<P> {
    uuid: [u8; 16],
    pair: u64,
    states: [HalfState; 2],
    /// As they are durable.
    marks: [Mark; 2],
    marking: Option<Marking>,
    /// What lies before a filling half, and keeps it from counting.
    unretired: Vec<Unretired>,
    ios: Slab<Under<P>>,
    /// Done, and not to be answered before a mark is durable.
    held: Vec<IoDone>,
    /// The half that is read.
    prefers: usize,
    read_errors: [u64; 2],
    failed: bool,
    /// Why a half that was given at the start is not used.
    missing: Missing,
    mutants: Mutants,
}

impl<P: Payload> Mirror<P> {
    fn new(
        (uuid, pair): ([u8; 16], u64),
        states: [HalfState; 2],
        marks: [Mark; 2],
        (unretired, missing): (Vec<Unretired>, Missing),
        mutants: Mutants,
    ) -> Self {
        Self {
            uuid,
            pair,
            states,
            marks,
            marking: None,
            unretired,
            ios: Slab::new(),
            held: Vec::new(),
            prefers: 0,
            read_errors: [0; 2],
            failed: false,
            missing,
            mutants,
        }
    }

    /// What each half is, and says that it is: one that has become complete counts as being filled
    /// before its own mark is durable.
    pub fn states(&self) -> [HalfState; 2] {
        let says = |half: usize| match (self.states[half], self.marks[half].state) {
            (HalfState::Member, MarkState::Filling) => HalfState::Filling,
            (state, _) => state,
        };
        [says(0), says(1)]
    }

    /// Why a half that was given at the start was not used then. `None`: it was, or was not given.
    pub const fn missing(&self, half: usize) -> Option<&OpenError> {
        self.missing[half].as_ref()
    }

    /// Whether no half is left: what was not answered never will be, but with an error.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Whether a mark is being written.
    pub const fn is_marking(&self) -> bool {
        self.marking.is_some()
    }

    /// Reads that failed at each half.
    pub const fn read_errors(&self) -> [u64; 2] {
        self.read_errors
    }

    /// Whether answers wait for a half to say that it is alone.
    pub fn holds(&self) -> bool {
        let alone = |half: usize| self.marks[half].state == MarkState::Alone;
        (0..2).any(|half| {
            self.states[half] == HalfState::Member
                && self.states[1 - half] == HalfState::Gone
                && !alone(half)
        })
    }

    /// The log asks for an I/O. `before`: how often it has read the page that it wants
    /// ([`WriteLog::reads_again`]); the second read goes to one half, the third to the other one,
    /// whichever has answered the first.
    pub fn submit(&mut self, id: IoId, op: IoOp<P>, before: u8, out: &mut Out<P>) {
        if self.failed {
            return out.done.push(IoDone::new(id, Err(IoError::Io)));
        }
        if let IoOp::Read { offset, data } = op {
            return self.read(id, (offset, data), before, out);
        }
        let waits = self.states.map(|state| state != HalfState::Gone);
        let io = self.ios.insert(Under::Write { id: Some(id), waits, succeeded: false });
        for half in (0..2).filter(|half| waits[*half]) {
            out.ios.push((half, IoId(io as u64), op.clone()));
        }
    }

    fn read(&mut self, id: IoId, (offset, data): (u64, Slices<P>), before: u8, out: &mut Out<P>) {
        let blocks = data.iter().map(|slice| slice.len).sum::<u64>() / BLOCK_BYTES;
        let may_try = self.states.map(|state| state == HalfState::Member);
        // The half that is read may be another one than it was then.
        let first = match before {
            1 if !self.mutants.is(Mutant::ReadAgainFromSame) => 1,
            2 if !self.mutants.is(Mutant::ReadAgainFromSame) => 0,
            _ => self.prefers,
        };
        let own = P::alloc(blocks as u32);
        let io = self.ios.insert(Under::Read { id, offset, data, own, may_try, answered: false });
        let tried = self.try_read(io, first, out);
        assert!(tried, "one half counts until all have failed");
    }

    /// Sends a read to a half, or to the other one if it can't be read there. False: to none.
    fn try_read(&mut self, io: usize, first: usize, out: &mut Out<P>) -> bool {
        let Under::Read { offset, data, own, may_try, .. } = &mut self.ios[io] else {
            unreachable!("a read")
        };
        let half = [first, 1 - first].into_iter().find(|half| may_try[*half]);
        let Some(half) = half else { return false };
        may_try[half] = false;
        let len: u64 = data.iter().map(|slice| slice.len).sum();
        *own = P::alloc((len / BLOCK_BYTES) as u32);
        let slice = Slice { data: own.clone(), at: 0, len };
        let op = IoOp::Read { offset: *offset, data: std::iter::once(slice).collect() };
        out.ios.push((half, IoId(io as u64), op));
        true
    }

    /// An I/O of a half has ended.
    pub fn done(&mut self, half: usize, done: &IoDone, out: &mut Out<P>) {
        let (io, result) = (done.id.0 as usize, done.result);
        match &mut self.ios[io] {
            Under::Read { .. } => self.read_done(io, half, result, out),
            Under::Mark { .. } => self.mark_done(io, half, result, out),
            Under::Write { waits, succeeded, .. } => {
                waits[half] = false;
                *succeeded |= result.is_ok();
                if result.is_err() {
                    self.lose(half, out);
                }
                self.answer(io, out);
            }
        }
    }

    fn read_done(&mut self, io: usize, half: usize, result: Result<(), IoError>, out: &mut Out<P>) {
        if result.is_err() {
            self.read_errors[half] += 1;
            if let Under::Read { answered, .. } = &mut self.ios[io] {
                *answered |= result != Err(IoError::TimedOut);
            }
            if result == Err(IoError::TimedOut) && self.states[1 - half] == HalfState::Member {
                // Each further read would take as long.
                self.prefers = 1 - half;
            }
            if self.try_read(io, 1 - half, out) {
                return;
            }
        }
        let Under::Read { id, data, own, answered, .. } = self.ios.remove(io) else {
            unreachable!("a read")
        };
        if result.is_ok() {
            let mut at = 0;
            for slice in data {
                slice.data.copy_from(slice.at, &own, at, slice.len);
                at += slice.len;
            }
        }
        // The log gives up a device that is silent: the pair is not, if one of them has answered.
        let result = if answered { result.map_err(|_| IoError::Io) } else { result };
        out.done.push(IoDone::new(id, result));
    }

    /// Answers a write or flush that no half has to end any more.
    fn answer(&mut self, io: usize, out: &mut Out<P>) {
        let holds = self.holds() && !self.mutants.is(Mutant::MarkNotAwaited);
        let Some(Under::Write { id, waits, succeeded }) = self.ios.get_mut(io) else { return };
        let awaited = (0..2).any(|half| waits[half] && self.states[half] != HalfState::Gone);
        let hasty = *succeeded && self.mutants.is(Mutant::OneHalfAnswers);
        if (!awaited || self.failed || hasty)
            && let Some(id) = id.take()
        {
            if self.failed {
                out.done.push(IoDone::new(id, Err(IoError::Io)));
            } else if holds {
                self.held.push(IoDone::new(id, Ok(())));
            } else {
                out.done.push(IoDone::new(id, Ok(())));
            }
        }
        if *waits == [false; 2] {
            self.ios.remove(io);
        }
    }

    fn answer_all(&mut self, out: &mut Out<P>) {
        let all: Vec<usize> = self.ios.iter().map(|(io, _)| io).collect();
        for io in all {
            self.answer(io, out);
        }
        if !self.holds() || self.failed {
            let failed = self.failed;
            let result = |mut done: IoDone| {
                if failed {
                    done.result = Err(IoError::Io);
                }
                done
            };
            out.done.extend(self.held.drain(..).map(result));
        }
    }

    /// A write or flush of a half has failed.
    fn lose(&mut self, half: usize, out: &mut Out<P>) {
        if self.states[half] == HalfState::Gone {
            return;
        }
        let counts = self.states[half] == HalfState::Member;
        if counts && self.states[1 - half] != HalfState::Member {
            self.failed = true;
        } else {
            self.states[half] = HalfState::Gone;
            self.unretired.clear();
            self.prefers = 1 - half;
            // What was being written there is of no concern.
            self.marking.take_if(|marking| marking.half == half);
            self.write_mark(out);
        }
        self.answer_all(out);
    }

    /// Has a half say what it is, if it says something else.
    fn write_mark(&mut self, out: &mut Out<P>) {
        if self.marking.is_some() || self.failed {
            return;
        }
        let generations = self.marks.map(|mark| mark.generation);
        let newest = generations[0].max(generations[1]);
        let complete = self.states.contains(&HalfState::Filling) && self.unretired.is_empty();
        let states = self.states;
        for half in (0..2).filter(|half| states[*half] == HalfState::Member) {
            let (is, other) = (self.marks[half], self.marks[1 - half]);
            let (state, generation) = match states[1 - half] {
                HalfState::Gone => (MarkState::Alone, newest + 1),
                // The one that has become complete says so after the other one.
                HalfState::Member if other.state == MarkState::Both => {
                    (MarkState::Both, other.generation)
                }
                HalfState::Filling if complete => (MarkState::Both, newest + 1),
                HalfState::Filling | HalfState::Member => continue,
            };
            if is.state != state {
                let mark = Mark { state, generation, pair: self.pair, half: is.half };
                let io = self.ios.insert(Under::Mark { copy: 0 });
                self.marking = Some(Marking { io, half, mark });
                self.send_mark(0, out);
                return;
            }
        }
    }

    fn send_mark(&mut self, copy: u64, out: &mut Out<P>) {
        let Some(Marking { io, half, mark }) = self.marking else { return };
        let (offset, pages) = (mark::offset(copy), vec![mark.encode(self.uuid)]);
        let op = IoOp::WriteMeta { offset, pages, data: SmallVec::new(), fua: true };
        out.ios.push((half, IoId(io as u64), op));
    }

    fn mark_done(&mut self, io: usize, half: usize, result: Result<(), IoError>, out: &mut Out<P>) {
        let Under::Mark { copy } = &mut self.ios[io] else { unreachable!("a mark") };
        let is_last = std::mem::replace(copy, 1) == 1;
        let Some(marking) = self.marking.filter(|marking| marking.io == io) else {
            // The half was dropped meanwhile.
            self.ios.remove(io);
            return;
        };
        if result.is_err() {
            self.ios.remove(io);
            self.marking = None;
            return self.lose(half, out);
        }
        if !is_last {
            return self.send_mark(1, out);
        }
        self.ios.remove(io);
        self.marking = None;
        self.marks[half] = marking.mark;
        if marking.mark.state == MarkState::Both && self.states[1 - half] == HalfState::Filling {
            self.states[1 - half] = HalfState::Member;
        }
        self.write_mark(out);
        self.answer_all(out);
    }

    /// To be called after each event of the log: a half that is filled counts once the log holds nothing
    /// any more that was written before it was there.
    pub fn advance(&mut self, log: &WriteLog<P>, out: &mut Out<P>) {
        if !self.states.contains(&HalfState::Filling) {
            return;
        }
        let early = self.mutants.is(Mutant::FilledTooEarly);
        self.unretired.retain(|old| !early && !log.has_retired(old));
        if self.unretired.is_empty() {
            self.write_mark(out);
        }
    }
}
