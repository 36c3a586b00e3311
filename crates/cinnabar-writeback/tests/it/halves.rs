//! A log on two devices, driven step by step: what happens when.

use crate::memory::Mem;
use crate::ssd::Ssd;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{Answer, Failure, IoDone, IoError, Op, Payload, RequestId};
use cinnabar_writeback::format::{bytes_of, directory_offset, offset_of};
use cinnabar_writeback::mirror::{Half, HalfState, Mirror, Out, force_alone, start};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::recover::{Media, OpenError, format, open, superblock};
use cinnabar_writeback::{Action, Command, Config, Done, Event, Place, Refusal, WriteLog};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Error, Result as IoResult};

const SEGMENTS: u32 = 8;
const A: Place = Place(0);

type Opened = Result<(WriteLog<Mem>, Mirror<Mem>), OpenError>;

fn open_halves(halves: [Option<&Ssd>; 2], pair: u64, mutants: Mutants) -> Opened {
    let half = |media| Half { media, bytes: bytes_of(SEGMENTS) };
    let config = Config { destage_after_ns: u64::MAX / 2, mutants, ..Config::default() };
    let pair = start::<Mem, Ssd>(halves.map(|media| media.map(half)), pair, config.mutants)?;
    let mut log = open(&pair, pair.bytes(), config)?;
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
    next: u64,
    mutants: Mutants,
}

impl Two {
    /// With a volume of 64 blocks.
    fn new(mutants: Mutants) -> Self {
        let first = Ssd::default();
        format(&first, bytes_of(SEGMENTS), [9; 16]).expect("it is large enough");
        let ssds = [first.beside(), first];
        let (log, mirror) =
            open_halves([Some(&ssds[0]), Some(&ssds[1])], 7, mutants).expect("one is formatted");
        let (replies, answers) = (BTreeMap::new(), BTreeMap::new());
        let mut two = Self { ssds, log, mirror, replies, answers, next: 0, mutants };
        two.attach();
        assert_eq!(two.mirror.states(), [HalfState::Member; 2], "there is nothing to wait for");
        two
    }

    fn attach(&mut self) {
        let (name, size_bytes) = ("a".to_owned(), 64 * 4096);
        let incarnation = self.next;
        let id = self.control(Command::Attach { name, size_bytes, incarnation });
        self.settle();
        assert_eq!(self.answers.get(&id), Some(&Ok(Done::Attached(A))));
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
                    _ => {}
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
        self.next += 1;
        self.apply(Event::Submit(RequestId(self.next), A, op));
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
        (self.log, self.mirror) = open_halves([half(0), half(1)], 8, self.mutants)?;
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

/// A volume that was discarded came back: one half had its older records.
#[test]
fn what_was_discarded_does_not_come_back_with_the_other_half() {
    for stale in 0..2 {
        let mut two = Two::new(Mutants::default());
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

#[test]
fn a_device_is_not_stamped_before_the_log_is_known_to_open() {
    let mut two = Two::new(Mutants::default());
    force_alone(&two.ssds[0]).expect("it works");
    two.ssds[1] = two.ssds[0].beside();
    let half = |media, bytes| Some(Half { media, bytes });
    let whole = bytes_of(SEGMENTS);
    let halves = [half(&two.ssds[0], whole), half(&two.ssds[1], whole - 4096)];
    let small = start::<Mem, Ssd>(halves, 1, Config::default().mutants);
    assert!(matches!(small, Err(OpenError::MirrorSmaller { .. })));
    for copy in 0..2 {
        two.ssds[0].rot_page(directory_offset(0, copy) / 4096);
    }
    assert!(matches!(two.reopen([true, true]), Err(OpenError::Directory(0))));
    assert!(superblock(&two.ssds[1]).is_err(), "nothing was written to it");
}

/// A device that takes so many writes and no more.
struct Failing<'a>(&'a Ssd, Cell<u32>);

impl Media<Mem> for Failing<'_> {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> IoResult<()> {
        self.0.read_pages(offset, pages)
    }
    fn read_data(&self, offset: u64, blocks: u32) -> IoResult<Mem> {
        self.0.read_data(offset, blocks)
    }
    fn write_page(&self, offset: u64, page: &MetaPage) -> IoResult<()> {
        let left = self.1.get().checked_sub(1).ok_or_else(|| Error::other("it fails"))?;
        self.1.set(left);
        self.0.write_page(offset, page)
    }
    fn flush(&self) -> IoResult<()> {
        self.0.flush()
    }
}

/// A device got its superblock before it was marked as being filled: alone, it was served as an empty
/// log, and claims of the log's volumes were removed.
#[test]
fn a_device_that_fails_while_it_is_filled_is_never_served_alone() {
    for writes in 0..12 {
        let source = Ssd::default();
        format(&source, bytes_of(SEGMENTS), [9; 16]).expect("it is large enough");
        let target = source.beside();
        let half = |media| Some(Half { media, bytes: bytes_of(SEGMENTS) });
        let devices = [Failing(&source, u32::MAX.into()), Failing(&target, writes.into())];
        let halves = [half(&devices[0]), half(&devices[1])];
        let pair = start::<Mem, _>(halves, 7, Mutants::default()).expect("one is a log");
        let mut log = open::<Mem>(&pair, pair.bytes(), Config::default()).expect("it is empty");
        let mirror = pair.finish(&mut log).expect("the other one is there");
        assert_eq!(mirror.states(), [HalfState::Member, HalfState::Gone], "{writes} writes");
        let whole = Half { media: &target, bytes: bytes_of(SEGMENTS) };
        let alone = start::<Mem, Ssd>([None, Some(whole)], 8, Mutants::default());
        assert!(alone.is_err(), "{writes} writes: it is served");
    }
}
