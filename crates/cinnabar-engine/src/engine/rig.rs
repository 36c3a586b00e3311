//! An engine with media that do everything at once, and with no data: for tests of its life.

use super::Engine;
use crate::config::Config;
use crate::metadata::MetaPage;
use crate::metadata::superblock::{Geometry, Superblock};
use crate::seam::{
    Action, Answer, Command, Event, Failure, IoDone, IoError, IoOp, IoRequest, Op, Payload,
    Request, RequestId, Target,
};
use crate::units::{BLOCK_BYTES, Instant, VolumeId};
use crate::volume::{ProofToken, VolumeSpec};
use std::collections::BTreeMap;

/// Data that is never read.
#[derive(Clone, Debug)]
pub(super) struct Nothing;

impl Payload for Nothing {
    fn alloc(_: u32) -> Self {
        Self
    }
    fn copy_from(&self, _: u64, _: &Self, _: u64, _: u64) {}
    fn zero(&self, _: u64, _: u64) {}
    fn checksum(&self, _: u64, _: u64) -> u32 {
        0
    }
}

/// The engine, what its device holds, what it answered.
pub(super) struct Rig {
    pub(super) engine: Engine<Nothing>,
    pub(super) pages: BTreeMap<u64, MetaPage>,
    answers: BTreeMap<RequestId, Result<Answer<Nothing>, Failure>>,
    /// I/O on the device ends when this is false.
    pub(super) holds: bool,
    /// Reads of metadata end when this is false.
    pub(super) holds_reads: bool,
    /// Proofs come when this is false.
    pub(super) holds_proofs: bool,
    /// Wakes come when this is false.
    pub(super) holds_wakes: bool,
    woken: bool,
    pub(super) now: Instant,
    held: Vec<IoRequest<Nothing>>,
    /// Backend flushes end when this is false.
    pub(super) holds_flushes: bool,
    /// What a proof that comes is.
    pub(super) proof: Option<ProofToken>,
    /// Backend flushes fail.
    pub(super) flush_fails: bool,
    /// New generations asked for.
    pub(super) generation_bumps: u32,
    /// The file system has no room behind this segment of a log.
    pub(super) room_end: u64,
    /// Making room ends when this is false.
    pub(super) holds_room: bool,
    /// Room made (true) and given back, in segments of a log that begins at this block: first, end.
    pub(super) room: Vec<(bool, u64, u64)>,
    next: u64,
}

impl Rig {
    pub(super) fn new(engine: Engine<Nothing>) -> Self {
        Self {
            engine,
            pages: BTreeMap::new(),
            answers: BTreeMap::new(),
            holds: false,
            holds_reads: false,
            holds_proofs: false,
            holds_wakes: false,
            woken: false,
            now: Instant(0),
            held: Vec::new(),
            holds_flushes: false,
            proof: None,
            flush_fails: false,
            generation_bumps: 0,
            room_end: u64::MAX,
            holds_room: false,
            room: Vec::new(),
            next: 0,
        }
    }

    /// An open cache of so many blocks.
    pub(super) fn open(blocks: u32) -> Self {
        Self::open_with(Config::default(), blocks)
    }

    /// The same with other settings.
    pub(super) fn open_with(config: Config, blocks: u32) -> Self {
        let mut rig = Self::new(Engine::new(config, superblock(blocks)));
        rig.begin();
        rig
    }

    pub(super) fn begin(&mut self) {
        let open = self.ask(vec![Command::Open])[0];
        self.answer(open).expect("the device opens");
    }

    /// The engine is gone, with what is held; the next one opens the device as it is left.
    pub(super) fn crash(self) -> Self {
        let copy = |block| self.pages.get(&block).cloned().unwrap_or(MetaPage::zeroed());
        let superblock = Superblock::decode(&[copy(0), copy(1)]).expect("a copy is whole");
        let mut next = Self::new(Engine::new(Config::default(), superblock));
        next.pages = self.pages;
        next.begin();
        next
    }

    /// Whether a command was answered.
    pub(super) fn is_answered(&self, id: RequestId) -> bool {
        self.answers.contains_key(&id)
    }

    /// Carries out these commands, given all at once, as far as that goes.
    pub(super) fn ask(&mut self, commands: Vec<Command>) -> Vec<RequestId> {
        let first = self.next;
        let ids = (first..).map(RequestId);
        let mut events: Vec<_> =
            ids.zip(commands).map(|(id, command)| Event::Control(id, command)).collect();
        self.next += events.len() as u64;
        self.run(&mut events);
        (first..self.next).map(RequestId).collect()
    }

    /// Stops cleanly; the next session on the same device, not opened yet.
    pub(super) fn next_session(mut self, config: Config) -> Self {
        let close = self.ask(vec![Command::Close])[0];
        self.answer(close).expect("a clean stop");
        let copies = [0, 1].map(|copy| self.pages[&copy].clone());
        let superblock = Superblock::decode(&copies).expect("a sound superblock");
        let next = Self::new(Engine::new(config, superblock));
        Self { pages: self.pages, ..next }
    }

    /// Opens the device and keeps its index from being read. Reads of opening itself end: the first
    /// that is left when the command has been answered is one of loading.
    pub(super) fn open_and_hold_the_index(&mut self) {
        self.holds_reads = true;
        let open = self.ask(vec![Command::Open])[0];
        while !self.answers.contains_key(&open) {
            let held = std::mem::take(&mut self.held);
            assert!(!held.is_empty(), "opening waits for a read");
            let done = held.into_iter().map(|io| Event::IoDone(self.carry_out(io)));
            let mut events = done.collect();
            self.run(&mut events);
        }
        self.answer(open).expect("it opens");
    }

    /// A guest's request.
    pub(super) fn submit(&mut self, volume: VolumeId, op: Op<Nothing>) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.run(&mut vec![Event::Submit(Request { id, volume, op })]);
        id
    }

    /// A request takes too long.
    pub(super) fn late(&mut self, id: RequestId) {
        self.run(&mut vec![Event::Late(id)]);
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, ns: u64) {
        self.now = self.now.plus_ns(ns);
        self.run(&mut vec![Event::Wake]);
    }

    /// The wake that was held; says whether there was one.
    pub(super) fn wake(&mut self) -> bool {
        let woken = std::mem::take(&mut self.woken);
        if woken {
            self.run(&mut vec![Event::Wake]);
        }
        woken
    }

    /// What a command was answered.
    pub(super) fn answer(&mut self, id: RequestId) -> Result<Answer<Nothing>, Failure> {
        self.answers.remove(&id).expect("it is answered")
    }

    /// Ends what was held.
    pub(super) fn release(&mut self) {
        (self.holds, self.holds_reads, self.holds_room) = (false, false, false);
        (self.holds_proofs, self.holds_flushes) = (false, false);
        let held = std::mem::take(&mut self.held);
        let mut events = held.into_iter().map(|io| Event::IoDone(self.carry_out(io))).collect();
        self.run(&mut events);
    }

    pub(super) fn run(&mut self, events: &mut Vec<Event<Nothing>>) {
        let mut actions = Vec::new();
        for _ in 0..100_000 {
            self.engine.apply(self.now, events, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Io(io) if self.holds && io.target == Target::Cache => {
                        self.held.push(io);
                    }
                    Action::Io(io @ IoRequest { op: IoOp::MakeRoom { .. }, .. })
                        if self.holds_room =>
                    {
                        self.held.push(io);
                    }
                    Action::Io(io) if self.holds_proofs && matches!(io.op, IoOp::Prove) => {
                        self.held.push(io);
                    }
                    Action::Io(
                        io @ IoRequest { target: Target::Backend(_), op: IoOp::Flush, .. },
                    ) if self.holds_flushes => {
                        self.held.push(io);
                    }
                    Action::Io(io @ IoRequest { op: IoOp::ReadMeta { .. }, .. })
                        if self.holds_reads =>
                    {
                        self.held.push(io);
                    }
                    Action::Io(io) => events.push(Event::IoDone(self.carry_out(io))),
                    Action::Reply(reply) => {
                        self.answers.insert(reply.id, reply.result);
                    }
                    Action::WakeAt(at) if at <= self.now && self.holds_wakes => self.woken = true,
                    Action::WakeAt(at) if at <= self.now => events.push(Event::Wake),
                    Action::WakeAt(_) => {}
                }
            }
            if events.is_empty() {
                return;
            }
        }
        panic!("the engine never comes to rest");
    }

    pub(super) fn carry_out(&mut self, io: IoRequest<Nothing>) -> IoDone {
        let mut done = IoDone::new(io.id, Ok(()));
        match io.op {
            IoOp::BumpGeneration { .. } => {
                self.generation_bumps += 1;
                done.generation = Some(1);
            }
            IoOp::MakeRoom { span } | IoOp::Trim { span } if io.target == Target::Cache => {
                let geometry = &self.engine.superblock().geometry;
                let slots = u64::from(geometry.segment_slots());
                let segment = |byte: u64| (byte / BLOCK_BYTES - geometry.log) / slots;
                let made = matches!(io.op, IoOp::MakeRoom { .. });
                let (first, end) = (segment(span.offset), segment(span.offset + span.len));
                if made && end > self.room_end {
                    done.result = Err(IoError::NoSpace);
                } else {
                    self.room.push((made, first, end));
                }
            }
            IoOp::Prove => done.proof = self.proof.clone(),
            IoOp::Flush if io.target != Target::Cache && self.flush_fails => {
                done.result = Err(IoError::Io);
            }
            IoOp::ReadMeta { offset, mut pages } => {
                for (block, page) in (offset / BLOCK_BYTES..).zip(&mut pages) {
                    *page = self.pages.get(&block).cloned().unwrap_or(MetaPage::zeroed());
                }
                done.pages = pages;
            }
            IoOp::WriteMeta { offset, pages, .. } => {
                self.pages.extend((offset / BLOCK_BYTES..).zip(pages.iter().cloned()));
                done.pages = pages;
            }
            _ => {}
        }
        done
    }
}

/// Of a new device with so many blocks.
pub(super) fn superblock(blocks: u32) -> Superblock {
    Superblock::format([1; 16], Geometry::for_capacity(blocks, 1))
}

/// A volume of 64 blocks that no one else writes.
pub(super) fn volume(name: &str) -> VolumeSpec {
    let spec = VolumeSpec::new(name.to_owned(), 64 * BLOCK_BYTES);
    VolumeSpec { exclusive: true, ..spec }
}
