//! Reads into a guest's own memory: a scripted guest that changes it at the worst moment.

use super::Engine;
use super::rig::{superblock, volume};
use crate::config::{Config, Eviction};
use crate::metadata::MetaPage;
use crate::mutant::Mutants;
use crate::seam::{
    Action, Answer, Command, Event, Failure, IoDone, IoError, IoOp, IoRequest, Op, Payload,
    Request, RequestId, Slices, Target,
};
use crate::units::{BLOCK_BYTES, ByteSpan, Instant, VolumeId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// One number a block; a guest's or the engine's.
#[derive(Clone)]
pub(super) struct Blocks {
    pub(super) values: Rc<RefCell<Vec<u64>>>,
    private: bool,
}

impl Blocks {
    pub(super) fn new(blocks: u32, private: bool) -> Self {
        Self { values: Rc::new(RefCell::new(vec![0; blocks as usize])), private }
    }

    pub(super) fn get(&self, block: u64) -> u64 {
        self.values.borrow()[block as usize]
    }

    pub(super) fn set(&self, block: u64, value: u64) {
        self.values.borrow_mut()[block as usize] = value;
    }
}

impl Payload for Blocks {
    fn alloc(blocks: u32) -> Self {
        Self::new(blocks, true)
    }
    fn copy_from(&self, at: u64, from: &Self, from_at: u64, len: u64) {
        assert!(from.private, "nothing is ever taken from a guest's own memory");
        for block in 0..len / BLOCK_BYTES {
            self.set(at / BLOCK_BYTES + block, from.get(from_at / BLOCK_BYTES + block));
        }
    }
    fn zero(&self, _: u64, _: u64) {}
    fn checksum(&self, at: u64, seed: u64) -> u32 {
        (self.get(at / BLOCK_BYTES) ^ seed) as u32
    }
    fn is_private(&self) -> bool {
        self.private
    }
}

/// An engine whose cache reads the test ends as it likes.
pub(super) struct Rig {
    pub(super) engine: Engine<Blocks>,
    pages: BTreeMap<u64, MetaPage>,
    /// Blocks of the cache device.
    flash: BTreeMap<u64, u64>,
    /// Blocks of the backend that were written.
    backend: BTreeMap<u64, u64>,
    pub(super) answers: BTreeMap<RequestId, Result<Answer<Blocks>, Failure>>,
    /// Data reads of the cache device, and what else the test holds.
    pub(super) held: Vec<IoRequest<Blocks>>,
    /// Reads of the backend are held, too.
    pub(super) holds_backend: bool,
    /// All I/O of the cache device is held.
    pub(super) holds_device: bool,
    /// Writes of the backend are held.
    pub(super) holds_writes: bool,
    next: u64,
}

pub(super) const VOLUME: VolumeId = VolumeId(0);

impl Rig {
    /// A cache of whose volume all 64 blocks are on flash; block `b` holds `b + 100`.
    fn warm() -> Self {
        Self::warm_with(Mutants::default())
    }

    pub(super) fn warm_with(mutants: Mutants) -> Self {
        let config = Config { eviction: Eviction::Clock, mutants, ..Config::default() };
        let mut rig = Self {
            engine: Engine::new(config, superblock(1020)),
            pages: BTreeMap::new(),
            flash: BTreeMap::new(),
            backend: BTreeMap::new(),
            answers: BTreeMap::new(),
            held: Vec::new(),
            holds_backend: false,
            holds_device: false,
            holds_writes: false,
            next: 0,
        };
        for command in [Command::Open, Command::Attach(volume("vm"))] {
            let id = rig.id();
            rig.run(vec![Event::Control(id, command)]);
            rig.answers.remove(&id).expect("at once").expect("well");
        }
        for block in 0..64 {
            let id = rig.read(block, 1, &Blocks::new(1, true));
            rig.answers.remove(&id).expect("at once").expect("well");
        }
        // What waits in a chunk is written when it is old enough.
        rig.engine.now = Instant(10_000_000_000);
        rig.run(vec![Event::Wake]);
        rig
    }

    pub(super) fn id(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.next)
    }

    pub(super) fn read(&mut self, block: u64, blocks: u64, data: &Blocks) -> RequestId {
        let id = self.id();
        let span = ByteSpan::new(block * BLOCK_BYTES, blocks * BLOCK_BYTES);
        let op = Op::Read { span, data: data.clone() };
        self.run(vec![Event::Submit(Request { id, volume: VOLUME, op })]);
        id
    }

    pub(super) fn run(&mut self, mut events: Vec<Event<Blocks>>) {
        let (mut actions, now) = (Vec::new(), self.engine.now);
        while !events.is_empty() {
            self.engine.apply(now, &mut events, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Io(io) if self.holds(&io) => self.held.push(io),
                    Action::Io(io) => events.push(self.carry_out(io, Ok(()))),
                    Action::Reply(reply) => {
                        self.answers.insert(reply.id, reply.result);
                    }
                    Action::WakeAt(at) if at <= now => events.push(Event::Wake),
                    Action::WakeAt(_) => {}
                }
            }
        }
    }

    fn holds(&self, io: &IoRequest<Blocks>) -> bool {
        match (io.target, &io.op) {
            (Target::Cache, IoOp::Read { .. }) => true,
            (Target::Cache, _) => self.holds_device,
            (_, IoOp::Read { .. }) => self.holds_backend,
            (_, IoOp::Write { .. }) => self.holds_writes,
            _ => false,
        }
    }

    pub(super) fn carry_out(
        &mut self,
        io: IoRequest<Blocks>,
        result: Result<(), IoError>,
    ) -> Event<Blocks> {
        let mut done = IoDone::new(io.id, result);
        match io.op {
            IoOp::Read { offset, data } if result.is_ok() => {
                each_block(offset, &data, |block, payload, at| {
                    let value = match io.target {
                        Target::Cache => self.flash.get(&block).copied().unwrap_or(0),
                        Target::Backend(_) => {
                            self.backend.get(&block).copied().unwrap_or(block + 100)
                        }
                    };
                    payload.set(at, value);
                });
            }
            IoOp::Write { offset, data, .. } if io.target == Target::Cache => {
                each_block(offset, &data, |block, payload, at| {
                    self.flash.insert(block, payload.get(at));
                });
            }
            IoOp::Write { offset, data, .. } if result.is_ok() => {
                each_block(offset, &data, |block, payload, at| {
                    self.backend.insert(block, payload.get(at));
                });
            }
            IoOp::BumpGeneration { held } => done.generation = Some(held + 1),
            IoOp::ReadMeta { offset, mut pages } => {
                for (block, page) in (offset / BLOCK_BYTES..).zip(&mut pages) {
                    *page = self.pages.get(&block).cloned().unwrap_or(MetaPage::zeroed());
                }
                done.pages = pages;
            }
            IoOp::WriteMeta { offset, pages, data, .. } => {
                let behind = offset + pages.len() as u64 * BLOCK_BYTES;
                each_block(behind, &data, |block, payload, at| {
                    self.flash.insert(block, payload.get(at));
                });
                self.pages.extend((offset / BLOCK_BYTES..).zip(pages.iter().cloned()));
                done.pages = pages;
            }
            _ => {}
        }
        Event::IoDone(done)
    }

    /// Ends the oldest read that is held.
    fn end(&mut self, result: Result<(), IoError>, meanwhile: impl FnOnce()) {
        let io = self.held.remove(0);
        let done = self.carry_out(io, result);
        meanwhile();
        self.run(vec![done]);
    }

    fn goes_to(&self, data: &Blocks) -> bool {
        let IoOp::Read { data: to, .. } = &self.held[0].op else { panic!("a read") };
        Rc::ptr_eq(&to[0].data.values, &data.values)
    }
}

fn each_block(offset: u64, data: &Slices<Blocks>, mut act: impl FnMut(u64, &Blocks, u64)) {
    let mut block = offset / BLOCK_BYTES;
    for slice in data {
        for at in slice.at / BLOCK_BYTES..(slice.at + slice.len) / BLOCK_BYTES {
            act(block, &slice.data, at);
            block += 1;
        }
    }
}

#[test]
fn a_hit_goes_straight_to_the_guest() {
    let mut rig = Rig::warm();
    let guest = Blocks::new(4, false);
    let id = rig.read(8, 4, &guest);
    assert!(rig.goes_to(&guest) && !rig.answers.contains_key(&id));
    rig.end(Ok(()), || {});
    rig.answers.remove(&id).expect("answered").expect("well");
    assert_eq!(*guest.values.borrow(), [108, 109, 110, 111]);
}

#[test]
fn what_the_guest_changed_is_read_again_before_it_counts_as_rotten() {
    let mut rig = Rig::warm();
    let guest = Blocks::new(2, false);
    for result in [Ok(()), Err(IoError::Io)] {
        let id = rig.read(8, 2, &guest);
        rig.end(result, || guest.set(1, 7));
        // One block, or both if the kernel could not reach the guest's memory.
        while !rig.held.is_empty() {
            assert!(!rig.goes_to(&guest), "into the engine's own memory");
            rig.end(Ok(()), || {});
        }
        rig.answers.remove(&id).expect("answered").expect("well");
        assert_eq!(*guest.values.borrow(), [108, 109]);
    }
    let counters = rig.engine.cache_counters();
    assert_eq!((counters.checksum_failures, counters.device_errors), (0, 0));
    let own = rig.engine.volume_counters(VOLUME).expect("it is attached");
    assert_eq!((own.misses, own.cached_blocks), (64, 64), "nothing was dropped");
}

#[test]
fn rot_is_still_rot() {
    let mut rig = Rig::warm();
    let places: Vec<u64> =
        rig.flash.iter().filter(|(_, value)| **value == 108).map(|(place, _)| *place).collect();
    rig.flash.extend(places.into_iter().map(|place| (place, 5)));
    let guest = Blocks::new(1, false);
    let id = rig.read(8, 1, &guest);
    rig.end(Ok(()), || {});
    assert!(!rig.goes_to(&guest), "once more, into the engine's own memory");
    rig.end(Ok(()), || {});
    rig.answers.remove(&id).expect("answered").expect("from the backend");
    assert_eq!(guest.get(0), 108);
    assert_eq!(rig.engine.cache_counters().checksum_failures, 1);
}

#[test]
fn nothing_is_written_to_a_guest_after_its_answer() {
    let mut rig = Rig::warm();
    let span = ByteSpan::new(9 * BLOCK_BYTES, BLOCK_BYTES);
    let id = rig.id();
    let op = Op::Invalidate { span };
    rig.run(vec![Event::Submit(Request { id, volume: VOLUME, op })]);
    // A hit and a miss; the miss takes too long.
    rig.holds_backend = true;
    let guest = Blocks::new(2, false);
    let id = rig.read(8, 2, &guest);
    let late = rig.held.iter().position(|io| io.target != Target::Cache).expect("a miss");
    let late = rig.held.remove(late);
    rig.run(vec![Event::Overdue(late.id)]);
    assert!(!rig.answers.contains_key(&id), "the SSD may still write to the guest's memory");
    rig.end(Ok(()), || {});
    let answer = rig.answers.remove(&id).expect("now nothing does");
    assert_eq!(answer.err(), Some(Failure::Io(IoError::TimedOut)));
    guest.set(1, 77);
    let done = rig.carry_out(late, Ok(()));
    rig.run(vec![done]);
    assert_eq!(guest.get(1), 77, "it is the guest's own again");
}
