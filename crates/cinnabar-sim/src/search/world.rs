//! The world: engine, media, oracle, and what is under way.

use super::class::Class;
use super::coverage::Coverage;
use super::device::{DeviceWait, Shelved};
use super::moves::{End, Move};
use super::requests::{Pending, Volume};
use super::session::Control;
use super::setup::Setup;
use crate::machine::{Format, Machine};
use crate::medium::{Backend, CacheDevice, Media, Transfer};
use crate::oracle::{Oracle, WriteTicket};
use crate::shards::{ShardedFactory, Shards};
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_driver::DeviceLife;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Action, Event, IoError, IoOp, IoRequest, Phase, RequestId, Target};
use std::collections::BTreeMap;
use std::time::Duration;

/// Events that a move may cause, and a run.
const STEPS_MAX: u32 = 50_000;
/// Time between two events, in ns.
const STEP_NS: u64 = 1_000;
/// A wake that is so near is waited for.
const NEAR_NS: u64 = 1_000_000;
/// In the set of held classes: wakes.
pub(super) const HOLD_WAKES: u16 = 1 << Class::COUNT;
/// The same: what a replacement waits for beside the engine.
pub(super) const HOLD_DEVICE: u16 = HOLD_WAKES << 1;

/// The engine's phases are the first bits of the moments, and there is room for some more.
const PHASES: u32 = Phase::ALL.len() as u32;
const _: () = assert!(PHASES + 6 <= 64);

/// An I/O under way.
pub(super) struct Held {
    pub(super) transfer: Transfer,
    pub(super) class: Class,
    pub(super) overdue: bool,
}

/// An engine in its small world.
pub struct World {
    pub(super) setup: Setup,
    pub(super) factory: ShardedFactory,
    pub(super) format: Format,
    pub(super) machine: Option<Shards<Stamped>>,
    pub(super) media: Media,
    pub(super) oracle: Oracle,
    pub(super) volumes: Vec<Volume>,
    /// I/O under way, oldest first.
    pub(super) held: Vec<Held>,
    pub(super) pending: BTreeMap<RequestId, Pending>,
    pub(super) controls: BTreeMap<RequestId, Control>,
    /// Writes that were answered as failed, but may still happen.
    pub(super) doubtful: Vec<(usize, WriteTicket)>,
    pub(super) batch: Vec<Event<Stamped>>,
    /// Requests that the batch still waits for.
    pub(super) batching: u8,
    /// Kinds of I/O that do not complete by themselves.
    pub(super) hold: u16,
    pub(super) now: Instant,
    pub(super) wake: Option<Instant>,
    pub(super) numbers: u64,
    /// There is a cache device in this session; which one.
    pub(super) present: bool,
    pub(super) devices: u8,
    pub(super) shelf: Option<Shelved>,
    pub(super) parked: Option<Shelved>,
    /// A clean stop is under way, and what comes after it.
    pub(super) stopping: Option<super::moves::Device>,
    /// The engine could not open or close its device.
    pub(super) device_failed: bool,
    pub(super) replaced: bool,
    /// What may be done with the device when, and what comes next.
    pub(super) life: DeviceLife<Box<CacheDevice>>,
    pub(super) waits: Option<DeviceWait>,
    /// The clean stop is complete.
    pub(super) closed: bool,
    /// What was met.
    pub coverage: Coverage,
    story: Option<Vec<String>>,
}

impl World {
    /// A world before its first session; `told`: with a story.
    pub(super) fn new(setup: Setup, told: bool) -> Self {
        let format = setup.format(0);
        let backends = setup.volumes.iter().enumerate().map(|(index, volume)| {
            Backend::new(index, volume.sectors, u64::from(volume.align_bytes), false)
        });
        let media = Media::new(CacheDevice::new(&format), backends.collect());
        let sectors: Vec<u64> = setup.volumes.iter().map(|volume| volume.sectors).collect();
        let volumes = setup.volumes.iter().map(|volume| Volume::new(*volume)).collect();
        let mut world = Self {
            factory: ShardedFactory,
            format,
            machine: None,
            media,
            oracle: Oracle::new(&sectors),
            volumes,
            held: Vec::new(),
            pending: BTreeMap::new(),
            controls: BTreeMap::new(),
            doubtful: Vec::new(),
            batch: Vec::new(),
            batching: 0,
            hold: 0,
            now: Instant(0),
            wake: None,
            numbers: 0,
            present: true,
            devices: 0,
            shelf: None,
            parked: None,
            stopping: None,
            device_failed: false,
            replaced: false,
            life: new_life(setup.cache.config.mutants),
            waits: None,
            closed: false,
            coverage: Coverage::default(),
            story: told.then(Vec::new),
            setup,
        };
        world.note(|world| format!("{:?}", world.setup));
        world
    }

    /// What happened, if it was told.
    pub(super) fn into_story(self) -> Vec<String> {
        self.story.unwrap_or_default()
    }

    pub(super) fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        let Some(mut story) = self.story.take() else { return };
        story.push(line(self));
        self.story = Some(story);
    }

    /// A name for a request: the lowest that is free where time stands still, so that ways which lead
    /// to the same state do so by the same names.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn machine(&self) -> &Shards<Stamped> {
        self.machine.as_ref().expect("a machine is alive")
    }

    /// One move, and what follows from it.
    pub(super) fn step(&mut self, next: Move) -> Result<(), Violation> {
        self.note(|_| format!("* {next}"));
        self.coverage.moves += 1;
        let moments = self.moments();
        self.coverage.met(next.kind(), moments);
        self.make(next)?;
        self.settle()
    }

    fn make(&mut self, next: Move) -> Result<(), Violation> {
        match next {
            Move::Hold(classes) => self.hold = classes,
            Move::Submit(ask, place) => self.ask(ask, place),
            Move::Row(ask, place, count) => self.row(ask, place, count)?,
            Move::Batch(count) => self.batching = count,
            Move::Complete(which, end) => self.complete_one(which, end)?,
            Move::CompleteAll(class) => self.end_all(class)?,
            Move::Overdue(which) => self.overdue(which),
            Move::Time(ms) => self.pass_ns(u64::from(ms) * 1_000_000),
            Move::Wake => self.batch.push(Event::Wake),
            Move::Plan(volume, what) => self.plan(volume, what),
            Move::Toggle(volume) => self.toggle(volume),
            Move::Forget(volume) => self.forget(volume),
            Move::Foreign(place) => self.foreign(place),
            Move::Replace => self.replace(),
            Move::NextOfDevice => drop(self.advance_device()),
            Move::Rot(what) => self.rot(what),
            Move::DeviceFails => self.device_fails(),
            Move::Crash(crash, device) => self.crash(crash, device)?,
            Move::Stop(device) => self.stop(device),
        }
        Ok(())
    }

    fn row(
        &mut self,
        ask: super::moves::Ask,
        place: super::moves::Place,
        count: u8,
    ) -> Result<(), Violation> {
        for step in 0..u16::from(count) {
            let block = place.block.wrapping_add(step);
            self.ask(ask, super::moves::Place { block, blocks: 1, ..place });
            self.settle()?;
        }
        Ok(())
    }

    /// Lets everything happen that is not held.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        if self.batching > 0 {
            return Ok(());
        }
        for _ in 0..STEPS_MAX {
            if !self.batch.is_empty() {
                self.apply()?;
            } else if let Some(index) =
                self.held.iter().position(|held| held.class.bit() & self.hold == 0)
            {
                let held = self.held.remove(index);
                self.end(held, End::Well)?;
            } else if self.hold & HOLD_WAKES == 0
                && self.wake.is_some_and(|at| at <= self.now.plus_ns(NEAR_NS))
            {
                let at = self.wake.take().expect("just seen");
                self.advance_to(at);
                self.batch.push(Event::Wake);
            } else if !self.go_on()? {
                return Ok(());
            }
        }
        Err(Violation::new(Kind::NoReply, "the engine never comes to rest"))
    }

    /// Ends what is held, and all that follows, whatever was held.
    pub(super) fn release(&mut self) -> Result<(), Violation> {
        self.note(|_| "* release everything".to_owned());
        self.hold = 0;
        self.batching = 0;
        self.settle()
    }

    /// What lasts at the moment, one bit each: the engine's phases, and some that only the world knows.
    pub(super) fn moments(&self) -> u64 {
        let Some(machine) = &self.machine else { return 0 };
        let bit = |on: bool, bit: u32| u64::from(on) << (PHASES + bit);
        machine.phases().unwrap_or_default().0
            | bit(self.hold & HOLD_WAKES != 0 && self.wake.is_some(), 0)
            | bit(self.held.iter().any(|held| held.overdue), 1)
            | bit(self.held.iter().any(|held| held.class == Class::BackendRead), 2)
            | bit(self.held.iter().any(|held| held.class == Class::BackendWrite), 3)
            | bit(self.held.iter().any(|held| held.class == Class::LogRead), 4)
            | bit(self.pending.len() > 1, 5)
    }

    /// The machine takes the batch, and what it asks for begins.
    fn apply(&mut self) -> Result<(), Violation> {
        self.pass_ns(STEP_NS);
        self.coverage.events += self.batch.len() as u64;
        let Some(machine) = &mut self.machine else {
            self.batch.clear();
            return Ok(());
        };
        let mut actions = Vec::new();
        machine.apply(self.now, &mut self.batch, &mut actions);
        self.batch.clear();
        for action in actions {
            match action {
                Action::Io(request) => self.take_off(request)?,
                Action::Reply(reply) => self.replied(reply)?,
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                }
            }
        }
        Ok(())
    }

    fn take_off(&mut self, request: IoRequest<Stamped>) -> Result<(), Violation> {
        if request.target == Target::Cache && !self.present {
            let what = format!("cache I/O without a cache device: {request:?}");
            return Err(Violation::new(Kind::BadIo, what));
        }
        if self.held.iter().any(|held| held.transfer.request.id == request.id) {
            let what = format!("{:?} is used twice at a time", request.id);
            return Err(Violation::new(Kind::BadIo, what));
        }
        let class = Class::of(&request, &self.format);
        self.note(|_| format!("  begin I/O {} {class:?} {}", request.id.0, describe(&request)));
        let tick = self.oracle.tick();
        let transfer = self.media.start(request, tick)?;
        self.held.push(Held { transfer, class, overdue: false });
        Ok(())
    }

    fn end_all(&mut self, class: u8) -> Result<(), Violation> {
        let (ended, held): (Vec<Held>, _) =
            self.held.drain(..).partition(|held| held.class as u8 == class);
        self.held = held;
        ended.into_iter().try_for_each(|held| self.end(held, End::Well))
    }

    fn complete_one(&mut self, which: u8, end: End) -> Result<(), Violation> {
        if self.held.is_empty() {
            return Ok(());
        }
        let held = self.held.remove(usize::from(which) % self.held.len());
        self.end(held, end)
    }

    /// An I/O ends.
    pub(super) fn end(&mut self, mut held: Held, end: End) -> Result<(), Violation> {
        let on_cache = held.transfer.backend().is_none();
        let end = if on_cache && self.media.cache.is_dead() { End::Failed } else { end };
        let units = held.transfer.units();
        let done = match end {
            End::Well | End::FailedDone => units,
            End::Failed => 0,
            End::FailedHalf => units / 2,
        };
        self.media.effect(&mut held.transfer, 0..done);
        if done < units && on_cache {
            self.media.miss(&held.transfer, done..units);
        }
        let result = if end == End::Well { Ok(()) } else { Err(IoError::Io) };
        if result.is_err() {
            match held.transfer.backend() {
                Some(backend) => {
                    let volume = &mut self.volumes[backend];
                    volume.errors += 1;
                    volume.sync_failed |= held.class == Class::BackendFlush;
                }
                None => self.media.cache.damaged = true,
            }
        }
        let moments = self.moments();
        let failed = if result.is_ok() { 0 } else { u64::from(Class::COUNT) };
        let event = 32 + held.class as u64 + failed;
        self.coverage.met(event, moments);
        let id = held.transfer.request.id.0;
        self.note(|_| format!("  end I/O {id} {:?}: {end:?}", held.class));
        let tick = self.oracle.tick();
        let backend = held.transfer.backend();
        let mut done = self.media.finish(held.transfer, result, tick)?;
        if let Some(backend) = backend {
            done.proof = done.proof.filter(|_| self.volumes[backend].setup.proof);
            if held.overdue {
                self.volumes[backend].overdue -= 1;
                self.settle_doubts();
            }
        }
        self.batch.push(Event::IoDone(done));
        Ok(())
    }

    fn overdue(&mut self, which: u8) {
        let mut open: Vec<&mut Held> = self
            .held
            .iter_mut()
            .filter(|held| held.transfer.backend().is_some() && !held.overdue)
            .collect();
        if open.is_empty() {
            return;
        }
        let index = usize::from(which) % open.len();
        let held = &mut *open[index];
        held.overdue = true;
        let backend = held.transfer.backend().expect("just filtered");
        let id = held.transfer.request.id;
        self.volumes[backend].errors += 1;
        self.volumes[backend].overdue += 1;
        self.batch.push(Event::Overdue(id));
    }

    /// Writes that were answered as failed have happened or never will, once nothing of their volume
    /// is overdue any more.
    fn settle_doubts(&mut self) {
        let (volumes, oracle) = (&self.volumes, &mut self.oracle);
        self.doubtful.retain(|(volume, ticket)| {
            let settled = volumes[*volume].overdue == 0;
            if settled {
                oracle.write_ended(ticket, crate::oracle::Outcome::Perhaps);
            }
            !settled
        });
    }

    /// Time passes; what the engine asked for is due.
    pub(super) fn pass_ns(&mut self, ns: u64) {
        self.media.pass_ns(ns);
        self.now = self.now.plus_ns(ns);
    }

    fn advance_to(&mut self, at: Instant) {
        if at > self.now {
            self.pass_ns(at.since_ns(self.now));
        }
    }
}

/// A session's device, which is not open yet. No new one is silent here: a move that opens it comes or
/// does not.
pub(super) const fn new_life(mutants: Mutants) -> DeviceLife<Box<CacheDevice>> {
    DeviceLife::new(Duration::MAX, mutants)
}

fn describe(request: &IoRequest<Stamped>) -> String {
    let target = match request.target {
        Target::Cache => "cache".to_owned(),
        Target::Backend(volume) => format!("backend of volume {}", volume.0),
    };
    let sectors = |bytes: u64| bytes / 512;
    let what = match &request.op {
        IoOp::Read { offset, data } => {
            let len = data.iter().map(|slice| slice.len).sum();
            format!("sectors {}+{}", sectors(*offset), sectors(len))
        }
        IoOp::Write { offset, data, fua } => {
            let len = data.iter().map(|slice| slice.len).sum();
            format!("sectors {}+{} fua {fua}", sectors(*offset), sectors(len))
        }
        IoOp::ReadMeta { offset, pages } => format!("page {}+{}", offset / 4096, pages.len()),
        IoOp::WriteMeta { offset, pages, data, fua } => {
            let len: u64 = data.iter().map(|slice| slice.len).sum();
            format!("page {}+{}+{} fua {fua}", offset / 4096, pages.len(), len / 4096)
        }
        IoOp::Trim { span } | IoOp::MakeRoom { span } | IoOp::WriteZeroes { span, .. } => {
            format!("sectors {}+{}", sectors(span.offset), sectors(span.len))
        }
        IoOp::Flush => "flush".to_owned(),
        IoOp::Prove => "prove".to_owned(),
        IoOp::BumpGeneration { held } => format!("bump generation {held}"),
    };
    format!("{target} {what}")
}
