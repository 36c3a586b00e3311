//! The world of one run: machine, media, guests, oracle, clock.
//!
//! [`World::pump`] is the loop: gather what is due into a batch, let the machine take it, carry out
//! its actions.

use crate::driver::account::Account;
use crate::driver::agenda::{Agenda, Item};
use crate::driver::between::Shelved;
use crate::driver::commands::Control;
use crate::driver::crash::CrashNote;
use crate::driver::device::{Exchange, Life};
use crate::driver::doubts::Doubt;
use crate::driver::guests::{Pending, Volume};
use crate::driver::io::Flight;
use crate::driver::log::{Log, describe};
use crate::driver::meet::Meeting;
use crate::driver::qos_queues::QosQueues;
use crate::driver::replies::Sent;
use crate::driver::steer::Steering;
use crate::driver::threads::Threads;
use crate::driver::{Options, Report};
use crate::machine::{Factory, Machine};
use crate::medium::{Backend, CacheDevice, Media, Transfer};
use crate::oracle::{Oracle, WriteTicket};
use crate::rng::Rng;
use crate::stamp::{Stamped, mix};
use crate::violation::{Kind, Violation};
use crate::workload::{Features, Profile, VolumeProfile, draw_regions};
use cinnabar_driver::{DeviceLife, PendingProofs};
use cinnabar_engine::health::LoadReport;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Action, Event, IoId, IoRequest, RequestId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A machine that has not replied after so much virtual time never will: ten times the slowest
/// straggler of the slowest medium, a few times over, for each of the thousand pieces that the
/// tiniest bounds make of a long request. One that goes on and on without a reply is caught by
/// `STEPS_MAX`.
const PATIENCE_NS: u64 = 12_000_000_000_000;
/// Tells the random numbers of the engine's bounds from the others of a seed.
const DOORS: u64 = 0xD002_5000_0000_0000;
/// Its own.
const SIZES: u64 = 0x5173_5000_0000_0000;
/// Tells the random numbers of what media lose and mix up from the others of a seed.
const TROUBLE: u64 = 0x10_57ED_0000_0000;
/// The same, of those of the cache's size.
const RESIZES: u64 = 0x2e51_2e00_0000_0000;
/// The same, of those of what is waited for.
const WAITS: u64 = 0x3a17_5000_0000_0000;
/// Steps between two checks of the machine's invariants.
const STEPS_A_CHECK: u64 = 200;
/// More events than any phase of a run needs.
const STEPS_MAX: u64 = 5_000_000;

/// Why the loop ended early.
#[derive(Debug)]
pub(super) enum Halt {
    /// A promise was broken.
    Broken(Violation),
    /// The engine is to vanish here.
    Crash,
}

impl From<Violation> for Halt {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

pub(super) struct World<'f, F: Factory<Stamped>> {
    pub(super) factory: &'f mut F,
    pub(super) machine: Option<F::Machine>,
    pub(super) options: Options,
    pub(super) profile: Profile,
    pub(super) rng: Rng,
    /// For what media lose and mix up.
    pub(super) trouble: Rng,
    /// For the size of the cache.
    pub(super) resizes: Rng,
    /// Segments of a shard that the last resize has left.
    pub(super) last_size: Option<u32>,
    pub(super) now: Instant,
    pub(super) agenda: Agenda,
    pub(super) media: Media,
    pub(super) oracle: Oracle,
    pub(super) volumes: Vec<Volume>,
    /// What the cache device may believe of each volume.
    pub(super) accounts: Vec<Account>,
    /// A cache device that is put away.
    pub(super) shelf: Option<Shelved>,
    /// The one that is missing in this session only.
    pub(super) parked: Option<Shelved>,
    /// Cache devices formatted so far.
    pub(super) devices: u8,
    /// There is a cache device in this session.
    pub(super) present: bool,
    /// It could not be opened or closed.
    pub(super) device_failed: bool,
    /// It was given up, or is about to be, in this session.
    pub(super) replaced: bool,
    /// Until when it answers nothing.
    pub(super) cache_stalled: Instant,
    /// It is dead, and none of its I/O ends by itself.
    pub(super) cache_silent: bool,
    /// What may be done with it when, and what comes next.
    pub(super) device: Life,
    /// Another one that is to take its place.
    pub(super) exchange: Exchange,
    /// Dice of what is waited for.
    pub(super) waits: Rng,
    /// By how much the driver's clock is behind just now, in ns.
    pub(super) behind_ns: u64,
    /// What was cached at the last crash.
    pub(super) crash_note: Option<CrashNote>,
    /// What the machine said of its index, once it was loaded.
    pub(super) loaded: Option<LoadReport>,
    /// A dead daemon's writes that have not landed yet: when, and which part.
    pub(super) late: BTreeMap<u64, (Instant, Transfer, Range<usize>)>,
    /// Writes that were answered as failed, but may still happen.
    pub(super) doubtful: Vec<Doubt>,
    /// What backends lost when a flush failed, while the machine need not know.
    pub(super) losses: Vec<(usize, WriteTicket)>,
    /// A loss that takes with it what a flush had covered.
    pub(super) disorder: Option<Violation>,
    /// When the machine last answered a request or a command.
    pub(super) answered_at: Instant,
    /// Requests under way.
    pub(super) pending: BTreeMap<RequestId, Pending>,
    /// Commands under way.
    pub(super) controls: BTreeMap<RequestId, Control>,
    /// I/O under way.
    pub(super) flights: BTreeMap<IoId, Flight>,
    /// Proofs asked for, by backend; those without a flight of their own wait for one that has.
    pub(super) proofs: PendingProofs<usize, IoId>,
    pub(super) proofs_waiting: BTreeMap<IoId, IoRequest<Stamped>>,
    /// Where backend I/O waits for its turn.
    pub(super) qos_queues: QosQueues,
    /// Buffers of replies that their frontends still use.
    pub(super) sent: BTreeMap<u64, Sent>,
    /// What the machine will see next.
    pub(super) batch: Vec<Event<Stamped>>,
    /// Where in time the machine asked to be woken, and the number of that wish.
    pub(super) wake: Option<(Instant, u64)>,
    /// Who lets the shards take their turns.
    pub(super) threads: Threads,
    /// What the engine is doing, and what this session looks for.
    pub(super) meeting: Meeting,
    pub(super) steering: Steering,
    pub(super) numbers: u64,
    /// Batches that machines have taken.
    steps: u64,
    /// Steps until the machine vanishes.
    pub(super) fuse: Option<u64>,
    /// This session is to end by a crash, now or later.
    pub(super) may_crash: bool,
    /// Requests that guests may still make in this session.
    pub(super) quota: u64,
    /// Media may fail.
    pub(super) faults_on: bool,
    pub(super) log: Log,
    pub(super) count: Report,
}

impl<'f, F: Factory<Stamped>> World<'f, F> {
    pub(super) fn new(seed: u64, options: Options, factory: &'f mut F, words: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut more = Rng::new(mix(seed));
        let mut sizes = Rng::new(mix(seed ^ SIZES));
        let mut waits = Rng::new(mix(seed ^ WAITS));
        let mut profile =
            Profile::draw(&mut rng, &mut more, &mut sizes, &mut waits, &options.features);
        let (queued, mutants) = (options.qos_queues, options.mutants);
        profile.setup.config.mutants = mutants;
        let resizes = draw_resizes(seed, &mut profile, &options);
        let format = factory.format(&profile.setup, 0);
        let media = Media::new(CacheDevice::new(&format), backends_of(&profile));
        let sectors: Vec<u64> = profile.volumes.iter().map(|volume| volume.sectors).collect();
        let volumes: Vec<Volume> =
            profile.volumes.iter().map(|v| Volume::new(&mut rng, v)).collect();
        Self {
            factory,
            machine: None,
            options,
            profile,
            rng,
            trouble: Rng::new(mix(seed ^ TROUBLE)),
            resizes,
            last_size: None,
            now: Instant(0),
            agenda: Agenda::default(),
            media,
            oracle: Oracle::new(&sectors),
            accounts: volumes.iter().map(|_| Account::new()).collect(),
            volumes,
            shelf: None,
            parked: None,
            devices: 0,
            present: true,
            device_failed: false,
            replaced: false,
            cache_stalled: Instant(0),
            cache_silent: false,
            device: DeviceLife::new(Duration::ZERO, options.mutants),
            exchange: Exchange::default(),
            waits,
            behind_ns: 0,
            crash_note: None,
            loaded: None,
            late: BTreeMap::new(),
            doubtful: Vec::new(),
            losses: Vec::new(),
            disorder: None,
            answered_at: Instant(0),
            pending: BTreeMap::new(),
            controls: BTreeMap::new(),
            flights: BTreeMap::new(),
            proofs: PendingProofs::new(options.mutants),
            proofs_waiting: BTreeMap::new(),
            qos_queues: QosQueues::new(mix(seed ^ DOORS), queued, sectors.len(), mutants),
            sent: BTreeMap::new(),
            batch: Vec::new(),
            wake: None,
            threads: Threads::default(),
            meeting: Meeting::default(),
            steering: Steering::new(mix(mix(seed))),
            numbers: 0,
            steps: 0,
            fuse: None,
            may_crash: false,
            quota: 0,
            faults_on: false,
            log: Log::new(words),
            count: Report::default(),
        }
    }

    pub(super) fn features(&self) -> Features {
        self.profile.features
    }

    pub(super) fn digest(&self) -> u64 {
        self.log.digest()
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn report(&self) -> Report {
        Report {
            digest: self.digest(),
            virtual_ns: self.now.0,
            rotten_reads: self.media.cache.rotten_reads(),
            log_wraps_percent: self.count.log_wraps_percent + self.log_wraps_percent(),
            stale_in_window: self.oracle.excused(),
            ..self.count.clone()
        }
    }

    /// How often the log of this device was written from end to end, in per cent.
    pub(super) fn log_wraps_percent(&self) -> u64 {
        100 * self.media.cache.written_blocks().0 / self.profile.setup.capacity_blocks
    }

    /// A number never given before: a token of any kind.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Enters an item some time between now and `ns_max` later.
    pub(super) fn soon(&mut self, ns_max: u64, item: Item) {
        let at = self.now.plus_ns(self.rng.below(ns_max + 1));
        self.agenda.enter(at, item);
    }

    /// Lets things happen until `done`.
    pub(super) fn pump(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Halt> {
        let began = self.now;
        for _ in 0..STEPS_MAX {
            if done(self) && self.batch.is_empty() && !self.threads.is_due() {
                return Ok(());
            }
            self.gather()?;
            let idle = self.batch.is_empty() && !self.threads.is_due();
            if idle && self.agenda.next_at().is_none() && !done(self) {
                return Err(self.stuck("nothing is left to happen").into());
            }
            if self.now.since_ns(began.max(self.answered_at)) > PATIENCE_NS {
                return Err(self.stuck("it does not end").into());
            }
            self.step()?;
        }
        Err(self.stuck("it takes too many steps").into())
    }

    fn stuck(&self, why: &str) -> Violation {
        let what = format!(
            "{why}; requests {:?}, commands {:?}, I/O {:?}",
            self.pending.iter().map(|(id, pending)| (id, pending.summary())).collect::<Vec<_>>(),
            self.controls,
            self.flights.values().map(|flight| describe(flight.request())).collect::<Vec<_>>()
        );
        Violation::new(Kind::NoReply, what)
    }

    /// Moves the clock to what is due next, and takes a batch of it.
    fn gather(&mut self) -> Result<(), Halt> {
        let (events_max, window_ns) = self.profile.batch;
        let Some(first) = self.agenda.next_at() else { return Ok(()) };
        let last = first.max(self.now).plus_ns(window_ns);
        let size = 1 + self.rng.below(events_max as u64) as usize;
        while self.batch.len() < size
            && !self.threads.is_due()
            && self.agenda.next_at().is_some_and(|at| at <= last)
        {
            let (at, item) = self.agenda.pop().expect("there is a next one");
            self.advance(at);
            self.happen(&item)?;
        }
        Ok(())
    }

    /// Moves every clock on, if it is not later already.
    pub(super) fn advance(&mut self, at: Instant) {
        if at > self.now {
            self.media.pass_ns(at.since_ns(self.now));
            self.now = at;
        }
    }

    fn happen(&mut self, item: &Item) -> Result<(), Violation> {
        match *item {
            Item::Effect(id, number, start, end) if self.is_under_way(id, number) => {
                self.effect(id, start..end);
            }
            Item::Finish(id, number) if self.is_under_way(id, number) => {
                if self.is_held_up(self.flights[&id].kind) {
                    let at = self.again_at();
                    self.agenda.enter(at, Item::Finish(id, number));
                } else {
                    self.finish(id)?;
                }
            }
            Item::Overdue(id, number) if self.is_under_way(id, number) => self.overdue(id),
            // It ended before its time.
            Item::Effect(..) | Item::Finish(..) | Item::Overdue(..) => {}
            Item::Late(number, _, _) => self.landed(number),
            Item::Invalidate(volume, first, count) => self.invalidate(volume, first, count),
            Item::Wake(number) => {
                if self.wake.is_some_and(|(_, wanted)| wanted == number) {
                    self.wake = None;
                    self.batch.push(Event::Wake);
                }
            }
            Item::Turn(door, number) => self.turn(door, number)?,
            Item::Letter(number) => self.letter(number)?,
            Item::Call(call) => self.threads.called(call),
            Item::Arrive(volume) => self.arrive(volume),
            Item::Sent(number) => self.check_sent(number)?,
            Item::Return(volume) => self.come_back(volume),
            Item::Due(number) => self.due(number),
            Item::Judge(number) => self.judge_answer(number)?,
            Item::Awake(volume, silence) => self.awake_from(volume, silence),
            Item::Grow(volume) => self.ask_to_grow(volume),
            Item::NewDevice(number) => self.new_device_opened(number),
            Item::LookAtNewDevice(number) => self.look_at_new_device(number),
            Item::Entrusted => self.entrusted(),
        }
        Ok(())
    }

    /// The machine takes the batch, or shards what they have been given.
    fn step(&mut self) -> Result<(), Halt> {
        let call = self.threads.due();
        if self.batch.is_empty() && call.is_none() {
            // What is held up may wait for nothing but this.
            self.provoke();
            return Ok(());
        }
        let mut last = false;
        if let Some(fuse) = &mut self.fuse {
            last = *fuse == 0;
            *fuse = fuse.saturating_sub(1);
        }
        if last && self.rng.chance(0.5) {
            return Err(Halt::Crash);
        }
        self.count.events += self.batch.len() as u64;
        self.note_batch();
        if call.is_none() {
            self.expect_answers();
        }
        let mut actions = Vec::new();
        self.steps += 1;
        let check = self.steps.is_multiple_of(STEPS_A_CHECK);
        let machine = self.machine.as_mut().expect("a machine is alive");
        let clock = Instant(self.now.0.saturating_sub(self.behind_ns));
        let (now, batch, threads) = (clock, &mut self.batch, &self.threads);
        let apply = || {
            match call {
                Some(call) => threads.answer(call, machine, now, &mut actions),
                None if threads.is_single() => machine.apply(now, batch, &mut actions),
                None => machine.route(now, batch, &mut actions),
            }
            if check {
                machine.check_invariants();
            }
        };
        catch_unwind(AssertUnwindSafe(apply))
            .map_err(|panic| Violation::new(Kind::Panic, panic_text(&*panic)))?;
        if call.is_none() {
            self.batch.clear();
            self.losses_heard();
        }
        if let Some(violation) = self.disorder.take() {
            return Err(violation.into());
        }
        self.meet();
        self.call_threads();
        if last {
            // The daemon dies while it carries the actions out.
            let kept = self.rng.below(actions.len() as u64 + 1) as usize;
            actions.truncate(kept);
        }
        for action in actions {
            self.log.digest_action(self.now, &action);
            match action {
                Action::Io(request) => self.take_off(request)?,
                Action::Reply(reply) => self.replied(reply)?,
                Action::WakeAt(at) => self.wake_at(at),
            }
        }
        if last {
            return Err(Halt::Crash);
        }
        self.watch_device();
        Ok(self.steer()?)
    }

    /// Keeps the earliest wish only, as a driver may.
    fn wake_at(&mut self, at: Instant) {
        let at = at.plus_ns(self.behind_ns);
        if self.wake.is_none_or(|(earlier, _)| at < earlier) {
            let number = self.number();
            self.wake = Some((at, number));
            let late = self.rng.pick(&[0, 0, 1_000, 1_000_000]);
            self.agenda.enter(at.max(self.now).plus_ns(late), Item::Wake(number));
        }
    }
}

fn backends_of(profile: &Profile) -> Vec<Backend> {
    let of = |(index, volume): (usize, &VolumeProfile)| {
        let align = u64::from(volume.align_bytes);
        let mut backend = Backend::new(index, volume.sectors, align, volume.read_only);
        backend.can_zero = volume.can_zero;
        backend
    };
    profile.volumes.iter().enumerate().map(of).collect()
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// Whether the cache is resized in this run: then its device has room for sizes above and below what
/// volumes and guests were drawn for.
fn draw_resizes(seed: u64, profile: &mut Profile, options: &Options) -> Rng {
    draw_regions(seed, options.regions, &mut profile.setup.config.bounds);
    let mut rng = Rng::new(mix(seed ^ RESIZES));
    profile.features.resizes = options.features.resizes && rng.chance(0.3);
    profile.setup.capacity_blocks *= 1 + u64::from(profile.features.resizes);
    rng
}
