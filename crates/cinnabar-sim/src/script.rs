//! The scripted driver: nothing happens but what a test says, in the order in which it says it.
//!
//! I/O that the machine asks for is *held* until the test lets it happen on the medium
//! ([`Script::touch`]), completes it ([`Script::complete`]) or fails it ([`Script::fail`]).
//! Everything panics on a broken promise: this is for tests only.

use crate::machine::{CacheSetup, Factory, Machine};
use crate::medium::proof::judge;
use crate::medium::{Backend, CacheDevice, Media, Transfer};
use crate::stamp::{Stamp, Stamped};
use cinnabar_engine::units::{ByteSpan, Instant, SECTOR_BYTES, VolumeId};
use cinnabar_engine::volume::{ProofToken, VolumeSpec, Warmth};
use cinnabar_engine::{
    Action, Answer, Command, Event, Failure, IoError, IoId, IoOp, IoRequest, Op, Payload, Request,
    RequestId, Target,
};
use std::collections::BTreeMap;

/// Virtual time between two steps.
const STEP_NS: u64 = 1_000;
/// Steps that [`Script::settle`] takes before it gives up.
const STEPS_MAX: u32 = 1_000_000;

/// A machine, its media, and what it waits for.
pub struct Script<F: Factory<Stamped>> {
    factory: F,
    setup: CacheSetup,
    pub machine: F::Machine,
    pub media: Media,
    held: Vec<Held>,
    answers: BTreeMap<RequestId, Result<Answer<Stamped>, Failure>>,
    now: Instant,
    wake: Option<Instant>,
    ticks: u64,
}

/// An I/O that the test has not let complete yet.
struct Held {
    transfer: Transfer,
    touched: bool,
}

impl<F: Factory<Stamped>> Script<F> {
    /// A formatted and opened cache beside these backends.
    ///
    /// # Panics
    /// If the machine does not open.
    pub fn new(mut factory: F, setup: CacheSetup, backends: Vec<Backend>) -> Self {
        let format = factory.format(&setup, 0);
        let cache = CacheDevice::new(&format);
        let machine = factory.start(&setup, &format.superblocks).expect("just formatted");
        let mut script = Self {
            factory,
            setup,
            machine,
            media: Media::new(cache, backends),
            held: Vec::new(),
            answers: BTreeMap::new(),
            now: Instant(0),
            wake: None,
            ticks: 0,
        };
        script.command(Command::Open).expect("a formatted device opens");
        script
    }

    /// Attaches a backend as a volume. The spec's size, alignment and proof are the backend's.
    ///
    /// # Panics
    /// If the machine refuses.
    pub fn attach(&mut self, backend: usize, spec: VolumeSpec) -> (VolumeId, Warmth) {
        let medium = &self.media.backends[backend];
        let then = self.machine.recorded(&spec.name);
        let spec = VolumeSpec {
            size_bytes: medium.sectors() * SECTOR_BYTES,
            align_bytes: medium.align_bytes as u32,
            belief: judge(&then, Some(&medium.proof()), self.setup.config.mutants),
            proof: Some(medium.proof()),
            ..spec
        };
        match self.command(Command::Attach(spec)) {
            Ok(Answer::Attached { volume, warmth }) => {
                self.media.attach(volume, backend);
                (volume, warmth)
            }
            other => panic!("attach was answered with {other:?}"),
        }
    }

    /// Detaches a volume and seals it with its backend's proof.
    ///
    /// # Panics
    /// If the machine refuses.
    pub fn detach(&mut self, volume: VolumeId) {
        self.command(Command::Detach(volume)).expect("the volume detaches");
        let proof = self.take_proof(volume);
        self.command(Command::Seal(volume, proof)).expect("the volume is sealed");
        self.media.detach(volume);
    }

    fn take_proof(&mut self, volume: VolumeId) -> Option<ProofToken> {
        let backend = self.media.backend_of(Target::Backend(volume))?;
        self.media.backends[backend].take_proof()
    }

    /// Stops clean, all volumes being detached, and starts again.
    ///
    /// # Panics
    /// If the machine refuses.
    pub fn restart(&mut self) {
        self.settle();
        self.command(Command::Close).expect("the cache closes");
        assert!(self.held.is_empty(), "I/O after the close");
        self.start();
    }

    /// The machine is gone between two events, its I/O with it; the next one starts.
    ///
    /// # Panics
    /// If the next one does not open.
    pub fn crash(&mut self) {
        self.held.clear();
        let tick = self.tick();
        self.media.crash(tick);
        self.start();
    }

    fn start(&mut self) {
        let superblocks = self.media.cache.superblocks();
        self.machine = self.factory.start(&self.setup, &superblocks).expect("a superblock");
        self.answers.clear();
        self.wake = None;
        self.command(Command::Open).expect("the device opens");
    }

    /// Submits a request; its I/O is held.
    pub fn submit(&mut self, volume: VolumeId, op: Op<Stamped>) -> RequestId {
        let id = RequestId(self.tick());
        self.step(Event::Submit(Request { id, volume, op }));
        id
    }

    pub fn submit_read(&mut self, volume: VolumeId, span: ByteSpan) -> RequestId {
        let data = Stamped::alloc(span.blocks() as u32);
        self.submit(volume, Op::Read { span, data })
    }

    /// Submits a write of this version to each sector.
    ///
    /// # Panics
    /// If the volume is not attached.
    pub fn submit_write(
        &mut self,
        volume: VolumeId,
        span: ByteSpan,
        version: u64,
        fua: bool,
    ) -> RequestId {
        let backend = self.media.backend_of(Target::Backend(volume)).expect("it is attached");
        let first = span.offset / SECTOR_BYTES;
        let values: Vec<Stamp> = (first..first + span.len / SECTOR_BYTES)
            .map(|sector| Stamp::new(backend, sector, version))
            .collect();
        let data = Stamped::alloc(span.blocks() as u32);
        data.set((span.head_bytes() / SECTOR_BYTES) as usize, &values);
        self.submit(volume, Op::Write { span, data, fua })
    }

    /// Reads, with everything held and everything new completing in order.
    ///
    /// # Errors
    /// What the machine answers.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn read(&mut self, volume: VolumeId, span: ByteSpan) -> Result<Vec<Stamp>, Failure> {
        let id = self.submit_read(volume, span);
        self.settle();
        self.values(id, span)
    }

    /// The values that a read of this span was answered with.
    ///
    /// # Errors
    /// What the machine answered.
    ///
    /// # Panics
    /// If it did not answer, or with something else.
    pub fn values(&mut self, id: RequestId, span: ByteSpan) -> Result<Vec<Stamp>, Failure> {
        match self.answer(id).expect("the read was answered")? {
            Answer::Data(data) => {
                let first = (span.head_bytes() / SECTOR_BYTES) as usize;
                Ok(data.get(first, (span.len / SECTOR_BYTES) as usize))
            }
            other => panic!("a read was answered with {other:?}"),
        }
    }

    /// Writes as [`Script::read`] reads.
    ///
    /// # Errors
    /// What the machine answers.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn write(&mut self, volume: VolumeId, span: ByteSpan, version: u64) -> Result<(), Failure> {
        let id = self.submit_write(volume, span, version, false);
        self.settle();
        self.answer(id).expect("the write was answered").map(|_| ())
    }

    /// Carries out a command to its end.
    ///
    /// # Errors
    /// What the machine answers.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn command(&mut self, command: Command) -> Result<Answer<Stamped>, Failure> {
        let id = RequestId(self.tick());
        self.step(Event::Control(id, command));
        self.settle();
        self.answer(id).expect("the command was answered")
    }

    /// The answer to a request, once.
    pub fn answer(&mut self, id: RequestId) -> Option<Result<Answer<Stamped>, Failure>> {
        self.answers.remove(&id)
    }

    /// Was the request answered?
    pub fn is_answered(&self, id: RequestId) -> bool {
        self.answers.contains_key(&id)
    }

    /// I/O that is held, oldest first.
    pub fn held(&self) -> impl Iterator<Item = &IoRequest<Stamped>> {
        self.held.iter().map(|held| &held.transfer.request)
    }

    /// Lets the oldest held I/O that is wanted happen on its medium, without completing it.
    /// False if there is none.
    pub fn touch(&mut self, wanted: impl Fn(&IoRequest<Stamped>) -> bool) -> bool {
        let held = self.held.iter_mut().find(|held| wanted(&held.transfer.request));
        let Some(held) = held.filter(|held| !held.touched) else { return false };
        held.touched = true;
        let units = 0..held.transfer.units();
        self.media.effect(&mut held.transfer, units);
        true
    }

    /// Completes the oldest held I/O that is wanted. False if there is none.
    pub fn complete(&mut self, wanted: impl Fn(&IoRequest<Stamped>) -> bool) -> bool {
        self.end(wanted, Ok(()))
    }

    /// Fails the oldest held I/O that is wanted; nothing of it happens that has not happened yet.
    /// False if there is none.
    pub fn fail(&mut self, wanted: impl Fn(&IoRequest<Stamped>) -> bool) -> bool {
        self.end(wanted, Err(IoError::Io))
    }

    /// Says that an I/O takes too long.
    pub fn overdue(&mut self, id: IoId) {
        self.step(Event::Overdue(id));
    }

    fn end(
        &mut self,
        wanted: impl Fn(&IoRequest<Stamped>) -> bool,
        result: Result<(), IoError>,
    ) -> bool {
        let found = self.held.iter().position(|held| wanted(&held.transfer.request));
        let Some(index) = found else { return false };
        let mut held = self.held.remove(index);
        if result.is_ok() && !held.touched {
            let units = 0..held.transfer.units();
            self.media.effect(&mut held.transfer, units);
        }
        let tick = self.tick();
        let done = self.media.finish(held.transfer, result, tick).expect("untouched memory");
        self.step(Event::IoDone(done));
        true
    }

    /// Completes everything, what follows from it too, and wakes the machine as it wishes, until
    /// nothing is left to do.
    ///
    /// # Panics
    /// If that never ends.
    pub fn settle(&mut self) {
        self.settle_but(|_| false);
    }

    /// As [`Script::settle`], but keeps holding some I/O.
    ///
    /// # Panics
    /// If that never ends.
    pub fn settle_but(&mut self, keep: impl Fn(&IoRequest<Stamped>) -> bool) {
        for _ in 0..STEPS_MAX {
            if self.complete(|io| !keep(io)) {
                continue;
            }
            // A timer that is far off can wait: it is no consequence of what was asked.
            match self.wake {
                Some(at) if at <= self.now.plus_ns(1_000_000) => self.step(Event::Wake),
                _ => return,
            }
        }
        panic!("the machine never comes to rest");
    }

    /// Lets time pass; the machine is woken if it wished to be.
    pub fn wait(&mut self, ns: u64) {
        self.now = self.now.plus_ns(ns);
        if self.wake.is_some_and(|at| at <= self.now) {
            self.step(Event::Wake);
        }
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn step(&mut self, event: Event<Stamped>) {
        self.now = self.now.plus_ns(STEP_NS);
        if matches!(event, Event::Wake) {
            self.now = self.now.max(self.wake.take().unwrap_or(self.now));
        }
        let mut actions = Vec::new();
        self.machine.apply(self.now, &mut vec![event], &mut actions);
        for action in actions {
            match action {
                Action::Io(request) => {
                    let tick = self.tick();
                    let transfer = self.media.start(request, tick).expect("I/O by the rules");
                    self.held.push(Held { transfer, touched: false });
                }
                Action::Reply(reply) => {
                    let twice = self.answers.insert(reply.id, reply.result).is_some();
                    assert!(!twice, "{:?} was answered twice", reply.id);
                }
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |earlier| earlier.min(at)));
                }
            }
        }
    }
}

/// An I/O to a backend?
pub fn to_backend(io: &IoRequest<Stamped>) -> bool {
    matches!(io.target, Target::Backend(_))
}

/// A read of cached data?
pub fn cache_read(io: &IoRequest<Stamped>) -> bool {
    io.target == Target::Cache && matches!(io.op, IoOp::Read { .. })
}

/// A write to the cache device?
pub fn cache_write(io: &IoRequest<Stamped>) -> bool {
    io.target == Target::Cache && matches!(io.op, IoOp::Write { .. } | IoOp::WriteMeta { .. })
}
