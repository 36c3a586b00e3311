//! What happens: I/O that ends, threads that take turns, guests that ask, servers that restart.

use super::machine::Machine;
use super::settings::{Bug, JointSettings};
use super::volume::Volume;
use crate::host::Hosted;
use crate::memory::Mem;
use crate::rng::Rng;
use crate::ssd::Ssd;
use crate::world::Checked;
use cinnabar_driver::write_mode::Route;
use cinnabar_engine::RequestId;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_writeback::recover::format;
use cinnabar_writeback::{EngineId, Event, WriteLog};
use rand::RngExt;
use std::collections::{BTreeMap, VecDeque};

pub(super) const SEGMENTS: u32 = 8;

/// Who waits for an answer of the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    Guest(usize),
    Log(usize, EngineId),
    /// A volume that joins, and is flushed for that.
    Mode(usize),
    /// The copies of these bytes must go.
    Doubt(usize, ByteSpan),
    Open,
    AwaitLoad,
    Attach(usize),
    /// A step of a volume's end.
    End(usize),
    Discard,
    Close,
}

/// Who waits for an answer of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogAsker {
    Attach(usize),
    Step(usize),
    Close,
}

/// Something that can happen next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Cache,
    Log,
    Backend(usize),
    Turn(usize),
    Inbox,
    Background,
}

/// What has happened.
#[derive(Clone, Debug, Default)]
pub(super) struct JointCounts(pub(super) BTreeMap<&'static str, u64>);

impl JointCounts {
    pub(super) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

/// See the module.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) settings: JointSettings,
    pub(super) now: Instant,
    pub(super) log: WriteLog<Mem>,
    pub(super) log_ssd: Ssd,
    /// With the write memory, in some runs.
    pub(super) host: Hosted,
    pub(super) cache: Ssd,
    /// Which of all cache devices it is; with its geometry.
    pub(super) cache_serial: u8,
    /// Each I/O of the cache device fails.
    pub(super) cache_dead: bool,
    /// The log's device does not answer any more.
    pub(super) log_silent: bool,
    /// It is used at all.
    pub(super) present: bool,
    pub(super) machine: Machine,
    pub(super) volumes: Vec<Volume>,
    pub(super) askers: BTreeMap<u64, Asker>,
    pub(super) log_askers: BTreeMap<u64, LogAsker>,
    pub(super) next_id: u64,
    pub(super) next_value: u64,
    /// What guests' misses take is drawn from a generator of its own.
    pub(super) misses: Rng,
    /// Memory that may be used for something else once a request is answered: what guests read into, and
    /// what the log has copied. Then what was used so, oldest first.
    pub(super) lent: BTreeMap<u64, Mem>,
    pub(super) reused: VecDeque<Mem>,
    /// Requests that a deliberate bug has answered.
    pub(super) given_up: std::collections::BTreeSet<u64>,
    pub(super) log_wake: Option<Instant>,
    pub(super) log_events: VecDeque<Event<Mem>>,
    /// Claims to be made (true) or taken away by a background thread.
    pub(super) background: Vec<(usize, bool)>,
    /// Commands to be given to the log then.
    pub(super) later: Vec<(Instant, usize, cinnabar_writeback::Command)>,
    /// What could not be dropped from the cache is tried again then.
    pub(super) look_at: Option<Instant>,
    /// Nothing fails, and no back end is away.
    pub(super) calm: bool,
    /// Everything is being stopped.
    pub(super) stopping: bool,
    pub(super) opened: Option<bool>,
    pub(super) closed: Option<bool>,
    pub(super) log_closed: bool,
    /// Sums of crashes in this run.
    pub(super) traces: bool,
    pub(super) counts: JointCounts,
}

impl World {
    pub(super) fn new(seed: u64, settings: &JointSettings) -> Self {
        let log_ssd = Ssd::default();
        let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
        let uuid = ((u128::from(seed) << 64) + 78).to_le_bytes();
        format(&log_ssd, bytes, uuid).expect("it is large enough");
        let host = Hosted::new(seed, &settings.base);
        let log = host.open(&log_ssd, bytes, settings.base.config(), false);
        let log = log.expect("just formatted");
        let mut rng = Rng::seed_from_u64(seed);
        let sectors = settings.base.blocks * 8 + settings.base.tail;
        let volume = |index| Volume::new(index, sectors, rng.random_bool(0.7));
        let volumes = (0..settings.base.volumes).map(volume).collect();
        Self {
            rng,
            settings: *settings,
            now: Instant(1),
            log,
            log_ssd,
            host,
            cache: Ssd::default(),
            cache_serial: 0,
            cache_dead: false,
            log_silent: false,
            present: true,
            machine: Machine::new(settings.engine, Vec::new(), 1),
            volumes,
            askers: BTreeMap::new(),
            log_askers: BTreeMap::new(),
            next_id: 0,
            next_value: 0,
            misses: Rng::seed_from_u64(seed ^ 0x9ACE),
            lent: BTreeMap::new(),
            reused: VecDeque::new(),
            given_up: std::collections::BTreeSet::new(),
            log_wake: None,
            log_events: VecDeque::new(),
            background: Vec::new(),
            later: Vec::new(),
            look_at: None,
            calm: false,
            stopping: false,
            opened: None,
            closed: None,
            log_closed: false,
            traces: std::env::var_os("CINNABAR_TRACE").is_some(),
            counts: JointCounts::default(),
        }
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.settings.bug == Some(bug)
    }

    pub(super) fn run(&mut self) -> Checked {
        self.format_cache();
        self.start()?;
        for _ in 0..self.settings.base.steps {
            self.step()?;
        }
        self.finish()
    }

    /// The end: everything is answered, and at the back ends.
    pub(super) fn finish(&mut self) -> Checked {
        if self.log.is_lost() || self.host.is_killed() {
            self.crash()?;
        }
        self.host.revive();
        self.calm = true;
        self.settle()?;
        for key in 0..self.volumes.len() {
            self.volumes[key].wanted = false;
            self.change_mode(key)?;
        }
        self.settle()?;
        for volume in &self.volumes {
            if volume.mode.route() != Route::Engine {
                return Err(format!("{} never leaves: {:?}", volume.name, volume.mode));
            }
        }
        for key in 0..self.volumes.len() {
            self.look_at_all(key, false, false)?;
        }
        self.check_reused(0)?;
        self.machine.check_invariants();
        if self.machine.cached_blocks() > 0 {
            self.counts.note("runs with blocks in the cache");
        }
        Ok(())
    }

    pub(super) fn new_id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId(self.next_id)
    }

    pub(super) fn trace(&self, way: &str, what: &impl std::fmt::Debug) {
        if self.traces {
            crate::world::trace(self.now, way, what);
        }
    }
}
