//! A log on two devices, driven step by step: what happens when.

pub(crate) mod level;
mod start;

use crate::memory::Mem;
use crate::memory_file::MemFile;
use crate::ssd::Ssd;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{Answer, Failure, IoDone, IoError, Op, Payload, RequestId};
use cinnabar_writeback::format::{bytes_of, directory_offset, offset_of};
use cinnabar_writeback::memory::{Host, MemoryAt, open_with};
use cinnabar_writeback::mirror::{Half, HalfState, Mirror, Out, force_alone, start};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::recover::{OpenError, format};
use cinnabar_writeback::{
    Action, Command, Config, Done, EngineId, Event, LogVolumeId, Refusal, WriteLog,
};
use std::collections::{BTreeMap, VecDeque};

const SEGMENTS: u32 = 8;
const A: LogVolumeId = LogVolumeId(0);

type Opened = Result<(WriteLog<Mem>, Mirror<Mem>), OpenError>;

fn open_halves(
    halves: [Option<&Ssd>; 2],
    file: Option<&MemFile>,
    pair: u64,
    mutants: Mutants,
) -> Opened {
    let half = |media| Half { media, bytes: bytes_of(SEGMENTS) };
    let config = Config { destage_after_ns: u64::MAX / 2, mutants, ..Config::default() };
    let pair = start::<Mem, Ssd>(halves.map(|media| media.map(half)), pair, config.mutants)?;
    let path = "/dev/shm/memory";
    let memory = file.map(|file| MemoryAt { file, path, nonce: 5, may_be_lost: false });
    let mut log = open_with(&pair, pair.bytes(), config, &Host { boot: [1; 16], memory })?;
    let mirror = pair.finish(&mut log)?;
    Ok((log, mirror))
}

/// See the module.
struct Two {
    ssds: [Ssd; 2],
    log: WriteLog<Mem>,
    mirror: Mirror<Mem>,
    replies: BTreeMap<RequestId, Result<Answer<Mem>, Failure>>,
    answers: BTreeMap<RequestId, Result<Done, Refusal>>,
    /// What the log has asked the engine for.
    asked: VecDeque<(EngineId, Op<Mem>)>,
    /// What the back end has got, by blocks.
    back_end: BTreeMap<u64, Option<u64>>,
    next: u64,
    file: Option<MemFile>,
    mutants: Mutants,
}

impl Two {
    /// With a volume of 64 blocks.
    fn new(mutants: Mutants) -> Self {
        Self::with(None, mutants)
    }

    fn with(file: Option<MemFile>, mutants: Mutants) -> Self {
        let first = Ssd::default();
        format(&first, bytes_of(SEGMENTS), [9; 16]).expect("it is large enough");
        let ssds = [first.beside(), first];
        let (log, mirror) =
            open_halves([Some(&ssds[0]), Some(&ssds[1])], file.as_ref(), 7, mutants)
                .expect("one is formatted");
        let (replies, answers) = (BTreeMap::new(), BTreeMap::new());
        let (asked, back_end) = (VecDeque::new(), BTreeMap::new());
        let next = 0;
        let mut two =
            Self { ssds, log, mirror, replies, answers, asked, back_end, next, file, mutants };
        assert_eq!(two.attach("a"), A);
        assert_eq!(two.mirror.states(), [HalfState::Member; 2], "there is nothing to wait for");
        two
    }

    fn attach(&mut self, name: &str) -> LogVolumeId {
        let (name, size_bytes) = (name.to_owned(), 64 * 4096);
        let incarnation = self.next;
        let id =
            self.control(Command::Attach { name, size_bytes, incarnation, group: String::new() });
        self.settle();
        match self.answers.get(&id) {
            Some(Ok(Done::Attached(place))) => *place,
            other => panic!("not attached: {other:?}"),
        }
    }

    fn take(&mut self, out: Out<Mem>) -> Vec<IoDone> {
        for (half, id, op) in out.ios {
            self.ssds[half].submit(id, op);
        }
        out.done
    }

    fn apply(&mut self, event: Event<Mem>) {
        let mut events = vec![event];
        while !events.is_empty() {
            let (mut actions, mut done) = (Vec::new(), Vec::new());
            self.log.apply(Instant(1), &mut events, &mut actions);
            let mut out = Out::default();
            for action in actions {
                match action {
                    Action::Log(id, op) => {
                        self.mirror.submit(id, op, self.log.reads_again(id), &mut out);
                    }
                    Action::Reply(id, result) => drop(self.replies.insert(id, result)),
                    Action::Answer(id, result) => drop(self.answers.insert(id, result)),
                    Action::Engine(id, _, op) => self.asked.push_back((id, op)),
                    Action::Memory(op) => op.carry_out(self.file.as_ref().expect("there is one")),
                    Action::WakeAt(_) => {}
                }
            }
            self.mirror.advance(&self.log, &mut out);
            done.extend(self.take(out));
            events.extend(done.into_iter().map(Event::LogDone));
        }
    }

    fn control(&mut self, command: Command) -> RequestId {
        self.next += 1;
        self.apply(Event::Control(RequestId(self.next), command));
        RequestId(self.next)
    }

    fn submit(&mut self, op: Op<Mem>) -> RequestId {
        self.submit_to(A, op)
    }

    fn submit_to(&mut self, place: LogVolumeId, op: Op<Mem>) -> RequestId {
        self.next += 1;
        self.apply(Event::Submit(RequestId(self.next), place, op));
        RequestId(self.next)
    }

    fn write(&mut self, block: u64, value: u64) -> RequestId {
        let (data, span) = (Mem::of(0, &[value; 8]), ByteSpan::new(block * 4096, 4096));
        self.submit(Op::Write { span, data, fua: false })
    }

    /// The I/O under way first at a half ends.
    fn end(&mut self, half: usize, result: Result<(), IoError>) {
        let ssd = &self.ssds[half];
        let done = match result {
            Ok(()) => ssd.end(0),
            failed => IoDone::new(ssd.drop_one(0), failed),
        };
        let mut out = Out::default();
        self.mirror.done(half, &done, &mut out);
        for done in self.take(out) {
            self.apply(Event::LogDone(done));
        }
    }

    fn settle(&mut self) {
        while let Some(half) = (0..2).find(|half| self.ssds[*half].under_way() > 0) {
            self.end(half, Ok(()));
        }
    }

    /// The back end does all that it is asked for.
    fn serve(&mut self) {
        while let Some((id, op)) = self.asked.pop_front() {
            if let Op::Write { span, data, .. } = op {
                for n in 0..span.blocks() {
                    let value = data.value(n as usize * 8);
                    self.back_end.insert(span.first_block() + n, value);
                }
            }
            self.apply(Event::EngineDone(id, Ok(Answer::Done)));
            self.settle();
        }
    }

    /// A block, as its guest reads it.
    fn read(&mut self, block: u64) -> Result<Option<u64>, Failure> {
        let (span, data) = (ByteSpan::new(block * 4096, 4096), Mem::alloc(1));
        let id = self.submit(Op::Read { span, data: data.clone() });
        self.settle();
        let reply = self.replies[&id].clone();
        reply.map(|_| data.value(0))
    }

    fn reopen(&mut self, present: [bool; 2]) -> Result<(), OpenError> {
        for ssd in &self.ssds {
            ssd.forget();
        }
        let half = |half: usize| present[half].then_some(&self.ssds[half]);
        (self.log, self.mirror) =
            open_halves([half(0), half(1)], self.file.as_ref(), 8, self.mutants)?;
        Ok(())
    }
}

#[test]
fn both_halves_failing_at_once_fail_closed_and_the_next_start_says_what_to_do() {
    let mut two = Two::new(Mutants::default());
    let write = two.write(1, 7);
    two.end(0, Err(IoError::Io));
    assert!(two.mirror.holds() && !two.replies.contains_key(&write));
    two.end(1, Ok(()));
    assert!(!two.replies.contains_key(&write), "the mark is not durable");
    two.end(1, Err(IoError::TimedOut));
    assert!(two.replies[&write].is_err() && two.log.is_lost());
    assert!(matches!(two.reopen([true, false]), Err(OpenError::HalfMissing)));
    assert!(matches!(two.reopen([false, true]), Err(OpenError::HalfMissing)));
    two.reopen([true, true]).expect("they are back");
    assert_eq!(two.mirror.states(), [HalfState::Member; 2]);
}

#[test]
fn a_write_is_answered_when_the_other_half_says_that_it_is_alone() {
    let mut two = Two::new(Mutants::default());
    let write = two.write(1, 7);
    two.end(1, Err(IoError::Io));
    two.end(0, Ok(()));
    two.end(0, Ok(()));
    assert!(!two.replies.contains_key(&write), "one page of the mark");
    two.end(0, Ok(()));
    assert!(two.replies[&write].is_ok());
    assert!(matches!(two.reopen([false, true]), Err(OpenError::HalfMissing)), "it is stale");
    two.reopen([true, false]).expect("it is alone");
    assert_eq!(two.read(1), Ok(Some(7)));
    assert!(matches!(force_alone(&two.ssds[1]).map(|mark| mark.generation), Ok(3)));
    assert!(matches!(two.reopen([true, true]), Err(OpenError::Split)));
}

#[test]
fn a_half_is_not_mirrored_by_its_copy() {
    a_copy_of_a_half_is_refused(Mutants::default());
}

pub(crate) fn a_copy_of_a_half_is_refused(mutants: Mutants) {
    let mut two = Two::new(mutants);
    let write = two.write(1, 7);
    two.settle();
    assert!(two.replies[&write].is_ok());
    for half in 0..2 {
        let (ssd, copy) = (&two.ssds[half], two.ssds[half].copy());
        let opened = open_halves([Some(ssd), Some(&copy)], None, 9, mutants);
        assert!(matches!(opened, Err(OpenError::Copies)), "half {half}");
    }
    // So are two of a log that never had a mirror.
    let log = Ssd::default();
    format(&log, bytes_of(SEGMENTS), [9; 16]).expect("it is large enough");
    let opened = open_halves([Some(&log), Some(&log.copy())], None, 9, mutants);
    assert!(matches!(opened, Err(OpenError::Copies)));
    two.reopen([true, true]).expect("they are two");
    assert_eq!(two.read(1), Ok(Some(7)));
}

#[test]
fn reads_are_tried_at_both_halves() {
    a_half_that_reads_badly_keeps_its_place(Mutants::default());
}

pub(crate) fn a_half_that_reads_badly_keeps_its_place(mutants: Mutants) {
    let mut two = Two::new(mutants);
    for block in 1..3 {
        two.write(block, block);
        two.settle();
    }
    // The data of the first one on one half, those of the other one on the other.
    two.ssds[0].rot_page(offset_of(1) / 4096);
    two.ssds[1].spoil(offset_of(3) / 4096);
    assert_eq!((two.read(1), two.read(2)), (Ok(Some(1)), Ok(Some(2))));
    assert_eq!(two.mirror.states(), [HalfState::Member; 2]);
    two.reopen([true, true]).expect("each has what the other one lacks");
    assert_eq!((two.read(1), two.read(2)), (Ok(Some(1)), Ok(Some(2))));
}

#[test]
fn a_start_goes_page_by_page() {
    let mut two = Two::new(Mutants::default());
    two.write(1, 7);
    two.settle();
    // The record that counts, here and there, and the header of the chunk.
    for copy in 0..2 {
        two.ssds[0].spoil(directory_offset(0, copy) / 4096);
        two.ssds[1].spoil(directory_offset(1, copy) / 4096);
    }
    two.ssds[1].spoil(offset_of(0) / 4096);
    two.ssds[0].spoil(0);
    two.reopen([true, true]).expect("all of it is there");
    assert_eq!(two.read(1), Ok(Some(7)));
    force_alone(&two.ssds[1]).expect("it works");
    two.reopen([false, true]).expect("it was healed");
    assert_eq!(two.read(1), Ok(Some(7)));
}

#[test]
fn both_halves_have_the_newest_records() {
    what_was_discarded_does_not_come_back_with_the_other_half(Mutants::default());
}

/// A volume that was discarded came back: one half had its older records.
pub(crate) fn what_was_discarded_does_not_come_back_with_the_other_half(mutants: Mutants) {
    for stale in 0..2 {
        let mut two = Two::new(mutants);
        two.write(1, 7);
        two.settle();
        let old = two.ssds[stale].copy();
        two.control(Command::Remove { place: A, discard: true });
        two.settle();
        two.ssds[stale] = old;
        two.reopen([true, true]).expect("it is levelled");
        assert_eq!(two.log.places().count(), 0);
        force_alone(&two.ssds[stale]).expect("it works");
        two.reopen([stale == 0, stale == 1]).expect("it is alone");
        assert_eq!(two.log.places().count(), 0);
    }
}

#[test]
fn one_bad_sector_does_not_end_filling() {
    let mut two = Two::new(Mutants::default());
    two.write(1, 7);
    two.settle();
    two.ssds[1] = two.ssds[0].beside();
    force_alone(&two.ssds[0]).expect("it works");
    two.ssds[0].spoil(offset_of(7) / 4096);
    two.reopen([true, true]).expect("one is alone");
    assert_eq!(two.mirror.states(), [HalfState::Member, HalfState::Filling]);
    assert_eq!(two.read(1), Ok(Some(7)));
    two.control(Command::Remove { place: A, discard: true });
    two.settle();
    assert_eq!(two.mirror.states(), [HalfState::Member; 2], "nothing is older than it");
}

/// A run of pages was read from one half as a whole, then from the other one.
#[test]
fn pages_that_either_half_has_reach_the_back_end() {
    let mut two = Two::new(Mutants::default());
    let (data, span) = (Mem::of(0, &[7; 64]), ByteSpan::new(4096, 8 * 4096));
    two.submit(Op::Write { span, data, fua: false });
    two.settle();
    two.ssds[0].rot_page(offset_of(1) / 4096);
    two.ssds[0].spoil(offset_of(2) / 4096);
    two.ssds[1].rot_page(offset_of(4) / 4096);
    two.ssds[1].spoil(offset_of(5) / 4096);
    let drained = two.control(Command::Drain(A));
    two.settle();
    two.serve();
    assert_eq!(two.answers[&drained], Ok(Done::Nothing));
    assert_eq!(two.back_end, (1..9).map(|block| (block, Some(7))).collect());
    assert_eq!(two.mirror.states(), [HalfState::Member; 2]);
}

/// The half that is read had changed meanwhile: the second read went to the one that had answered.
#[test]
fn a_page_is_read_again_from_the_half_that_did_not_answer() {
    let mut two = Two::new(Mutants::default());
    for block in 1..3 {
        two.write(block, block);
        two.settle();
    }
    two.ssds[0].rot_page(offset_of(1) / 4096);
    let reads = [1, 2].map(|block| {
        let span = ByteSpan::new(block * 4096, 4096);
        two.submit(Op::Read { span, data: Mem::alloc(1) })
    });
    two.ssds[0].swap_first();
    two.end(0, Err(IoError::TimedOut));
    two.settle();
    assert!(reads.iter().all(|read| two.replies[read].is_ok()));
    assert_eq!(two.mirror.states(), [HalfState::Member; 2]);
}

/// One bad page of a run at one half, and one half that is slow: the log took both as silent.
#[test]
fn a_pair_of_which_one_half_has_answered_is_not_silent() {
    let mut two = Two::new(Mutants::default());
    two.write(1, 7);
    two.settle();
    let (span, data) = (ByteSpan::new(4096, 4096), Mem::alloc(1));
    let read = two.submit(Op::Read { span, data: data.clone() });
    two.end(0, Err(IoError::Io));
    two.end(1, Err(IoError::TimedOut));
    two.settle();
    assert!(two.replies[&read].is_ok() && !two.log.is_lost());
    assert_eq!(data.value(0), Some(7));
}
