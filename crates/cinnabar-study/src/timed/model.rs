//! The hosts, the link, the file server, and the loop over events.
//!
//! An event belongs to a job, whose stage says what it means; the ways of a block from stage to
//! stage are in `read` and `write`.

use super::agenda::{Agenda, JOBS_MAX};
use super::cinnabar::Engines;
use super::config::{Architecture, Background, Config, Placement, Restart, WritePolicy};
use super::host::{FLASH, Host, RAM};
use super::jobs::{Job, Jobs, Kind, Stage};
use super::outcome::Outcome;
use super::source::{Operation, Source, operations};
use super::station::{Link, Station, Way, Yielded};
use super::{Pace, RunError, Workload};
use crate::rng::Rng;
use cinnabar_engine::prefetch::prefetch;

/// Operations between two words about progress.
const PROGRESS_EVERY: u64 = 1 << 17;
/// Tells the seed of pauses from that of other draws.
const PAUSES: u64 = 0x5057_5345;
/// Jobs under way at most between two events; one event makes far fewer than the rest.
const UNDER_WAY_MAX: usize = JOBS_MAX - (4 << 20);

pub(super) struct Model<'a> {
    pub(super) config: Config,
    /// Where the flash of a host is looked for: nowhere, in it, or in the file server.
    pub(super) flash: FlashAt,
    pub(super) ram_policy: WritePolicy,
    pub(super) flash_policy: WritePolicy,
    pub(super) flash_write_ns: u64,
    /// The hosts; the file server's flash behind them.
    pub(super) hosts: Vec<Host>,
    links: Vec<Link>,
    pub(super) filer: Station,
    pub(super) source: Source<'a>,
    pub(super) jobs: Jobs,
    agenda: Agenda,
    rng: Rng,
    pub(super) outcome: Outcome,
    /// The production engines, if they are the flash caches.
    pub(super) engines: Option<Box<Engines>>,
    /// Of pauses alone: they change no other draw.
    pub(super) pauses: Rng,
    pub(super) measuring: bool,
    pub(super) measured_from_ns: u64,
    /// Operations until measuring begins.
    warm_up: u64,
    operations: u64,
    /// How many there will be.
    expected: Option<u64>,
    /// What each thread will ask for next.
    drawn: Vec<Option<Operation>>,
    /// Threads that go on, and operations of a trace under way.
    active: u64,
    pub(super) last_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlashAt {
    Nowhere,
    Client,
    Server,
}

impl<'a> Model<'a> {
    pub(super) fn new(config: &Config, workload: Workload<'a>) -> Result<Self, RunError> {
        let all = operations(config);
        #[expect(clippy::cast_sign_loss, reason = "checked to be a share")]
        let first = (all as f64 * config.warm_up_share).round() as u64;
        let (warm_up, expected) = match &workload {
            Workload::Generated => (first, Some(all)),
            Workload::Records { warm_up, expected, .. } => (*warm_up, *expected),
        };
        let generated = matches!(workload, Workload::Generated);
        let words = if generated { config.scaled(config.total_blocks) as usize } else { 1 << 16 };
        let flash = match config.placement {
            _ if config.flash_blocks == 0 => FlashAt::Nowhere,
            // The engines have it.
            _ if config.architecture == Architecture::Cinnabar => FlashAt::Nowhere,
            Placement::Client => FlashAt::Client,
            Placement::Server => FlashAt::Server,
        };
        let has_engines = config.architecture == Architecture::Cinnabar;
        let flash_blocks = if has_engines { 0 } else { config.flash_blocks };
        let host = Config { flash_blocks, ..*config };
        let mut hosts: Vec<_> = (0..config.hosts).map(|_| Host::client(&host, words)).collect();
        if flash == FlashAt::Server {
            hosts.push(Host::server(config, words));
        }
        let links = if config.one_link { 1 } else { config.hosts as usize };
        #[expect(clippy::cast_sign_loss, reason = "a time is not negative")]
        let flash_write_ns =
            (config.timings.flash_write_ns as f64 * config.flash_write_factor).round() as u64;
        Ok(Self {
            config: *config,
            flash,
            ram_policy: config.ram_policy,
            flash_policy: config.flash_policy(),
            flash_write_ns,
            hosts,
            links: vec![Link::new(config); links],
            filer: Station::new(config.filer_service),
            source: Source::new(config, workload)?,
            jobs: Jobs::default(),
            agenda: Agenda::default(),
            rng: Rng::new(config.seed),
            outcome: Outcome::default(),
            engines: has_engines.then(|| Box::new(Engines::new(config))),
            pauses: Rng::new(config.seed ^ PAUSES),
            measuring: false,
            measured_from_ns: 0,
            warm_up,
            operations: 0,
            expected,
            drawn: Vec::new(),
            active: 0,
            last_ns: 0,
        })
    }

    /// Runs to the end of the last operation.
    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Result<Outcome, RunError> {
        self.start();
        let mut told = 0;
        while self.active > 0 {
            if self.jobs.len() > UNDER_WAY_MAX {
                return Err(RunError::Overrun(UNDER_WAY_MAX, self.last_ns / 1_000_000_000));
            }
            let (now, id) = self.agenda.next().expect("a thread is active");
            let stage = self.jobs[id].stage;
            self.note(now, u64::from(id) << 8 | stage as u64);
            self.handle(now, id, stage);
            if self.operations >= told + PROGRESS_EVERY {
                told = self.operations;
                if let Some(expected) = self.expected.filter(|expected| *expected > 0) {
                    progress((told as f64 / expected as f64).min(1.0));
                }
            }
        }
        if self.engines.is_some() {
            self.close_engines();
        }
        if let Some(error) = self.source.failure() {
            return Err(error);
        }
        self.outcome.simulated_ns = self.last_ns - self.measured_from_ns.min(self.last_ns);
        Ok(self.outcome)
    }

    fn start(&mut self) {
        if let Source::Recorded(recorded) = &self.source
            && recorded.pace == Pace::Recorded
        {
            self.active = 1;
            let job = self.add_job(Job::new(Kind::Arrivals, 0, Stage::Take));
            self.drawn.push(self.source.next(0));
            self.at(0, job, Stage::Take);
        } else {
            let threads = self.config.hosts * self.config.threads;
            for thread in 0..threads {
                let host = (thread / self.config.threads) as usize;
                let id = self.add_job(Job::new(Kind::Thread, host, Stage::Take));
                debug_assert_eq!(id, thread, "threads come first");
                // The requests of a trace stay in order: a thread takes no request that it can't
                // issue yet.
                let made = matches!(self.source, Source::Made(_));
                let drawn = if made { self.source.next(thread) } else { None };
                self.drawn.push(drawn);
                let first = self.pause_ns();
                self.at(first, id, Stage::Take);
            }
            self.active = u64::from(threads);
        }
        for host in 0..self.hosts.len() {
            for tier in [RAM, FLASH] {
                if let Some(syncer) = &self.hosts[host].syncers[tier] {
                    let period_ns = syncer.period_ns;
                    let id = self.add_job(Job::new(Kind::Tick(tier as u8), host, Stage::Take));
                    self.at(period_ns, id, Stage::Take);
                }
            }
        }
        if self.engines.is_some() {
            self.start_engines();
        }
    }

    fn handle(&mut self, now: u64, id: u32, stage: Stage) {
        match stage {
            Stage::Take => self.take(now, id),
            Stage::Finish => self.finish(now, id),
            Stage::FlashRead | Stage::EngineRead => self.fill_ram(now, id),
            Stage::ServerRead => self.server_read(now, id),
            Stage::ServerData => self.send_data(now, id),
            Stage::FilerArrived => self.filer_arrived(now, id),
            Stage::FilerRead => self.filer_read(now, id),
            Stage::DataArrived => self.data_arrived(now, id),
            Stage::Down => self.down(now, id),
            Stage::FlashWrite => self.flash_write(now, id),
            Stage::FlashWritten => self.flash_written(now, id),
            Stage::ToFiler => self.send_to_filer(now, id),
            Stage::FilerWriteArrived => self.filer_write(now, id),
            Stage::FilerWritten => self.filer_written(now, id),
            Stage::DownDone | Stage::EngineWritten => self.down_done(now, id),
            Stage::Store => self.store(now, id),
            Stage::Stored => self.stored(now, id),
            Stage::EngineWake => self.engine_wake(now, id),
            Stage::EngineServe => self.engine_serve(now, id),
            Stage::EngineServed => self.engine_served(now, id),
            Stage::EngineDone => self.engine_io_done(now, id),
        }
    }

    /// A thread, or the arrivals of a trace, or a syncer's clock, is at its next turn.
    fn take(&mut self, now: u64, id: u32) {
        match self.jobs[id].kind {
            Kind::Tick(_) => self.tick(now, id),
            Kind::Arrivals => self.arrive(now, id),
            Kind::Idle(way) => {
                self.idle(now, id, if way == 0 { Way::Up } else { Way::Down });
            }
            _ => self.take_next(now, id),
        }
    }

    #[inline]
    pub(super) fn take_next(&mut self, now: u64, id: u32) {
        if let Source::Recorded(_) = self.source {
            match self.source.next(id) {
                Some(operation) => self.begin(now, id, operation),
                None => self.active -= 1,
            }
            return;
        }
        let Some(operation) = self.drawn[id as usize].take() else {
            self.active -= 1;
            return;
        };
        // Drawn one ahead, so that what is known of its block is in the CPU's cache by then.
        let next = self.source.next(id);
        if let Some(next) = &next {
            prefetch(&self.hosts[next.host].words, next.first_key as usize);
        }
        self.drawn[id as usize] = next;
        self.begin(now, id, operation);
    }

    fn arrive(&mut self, now: u64, id: u32) {
        let Some(operation) = self.drawn[0].take() else {
            self.active -= 1;
            return;
        };
        let next = self.source.next(0);
        self.drawn[0] = next;
        // Without a next one it ends at once; what is under way keeps the simulation going.
        self.at(next.map_or(now, |next| next.at_ns.max(now)), id, Stage::Take);
        self.active += 1;
        let job = self.add_job(Job::new(Kind::Arrived, 0, Stage::Take));
        self.begin(now, job, operation);
    }

    fn begin(&mut self, now: u64, id: u32, operation: Operation) {
        self.operations += 1;
        if self.operations > self.warm_up && !self.measuring {
            self.measure(now);
        }
        let Operation { host, write, first_key, end_key, .. } = operation;
        let measured = self.measuring;
        let job = &mut self.jobs[id];
        *job = Job { write, measured, started_ns: now, ..Job::new(job.kind, host, Stage::Take) };
        if self.engines.as_ref().is_some_and(|engines| engines.takes_whole()) {
            return self.begin_whole(now, id, operation);
        }
        if end_key == first_key + 1 {
            return self.begin_block(now, id, first_key);
        }
        (job.next_key, job.end_key) = (first_key, end_key);
        for _ in 0..self.config.operation_depth {
            self.begin_part(now, id);
        }
    }

    /// The next block of an operation of several, if there is one.
    fn begin_part(&mut self, now: u64, parent: u32) {
        let job = &mut self.jobs[parent];
        if job.next_key == job.end_key {
            return;
        }
        let key = job.next_key;
        job.next_key += 1;
        job.parts += 1;
        let Job { write, measured, host, .. } = *job;
        let part = Job::new(Kind::Part, usize::from(host), Stage::Take);
        let id = self.add_job(Job { write, measured, parent, ..part });
        self.begin_block(now, id, key);
    }

    #[inline]
    fn begin_block(&mut self, now: u64, id: u32, key: u64) {
        let block = self.source.number(key);
        self.outcome.block_ios += 1;
        let job = &mut self.jobs[id];
        job.block = block;
        let host = usize::from(job.host);
        self.hosts[host].know(block);
        if job.write { self.write_block(now, id) } else { self.read_block(now, id) }
    }

    /// A read or write, or a block of one, is done.
    pub(super) fn finish(&mut self, now: u64, id: u32) {
        match self.jobs[id].kind {
            Kind::Part => {
                let parent = self.jobs[id].parent;
                self.jobs.free(id);
                self.jobs[parent].parts -= 1;
                self.begin_part(now, parent);
                if self.jobs[parent].parts == 0 {
                    self.finish(now, parent);
                }
            }
            Kind::Thread => {
                self.record(now, id);
                self.rest(now, id);
            }
            Kind::Arrived => {
                self.record(now, id);
                self.jobs.free(id);
                self.active -= 1;
            }
            kind => unreachable!("{kind:?} does not read or write for a thread"),
        }
    }

    #[inline]
    fn record(&mut self, now: u64, id: u32) {
        self.last_ns = now;
        let Job { measured, write, started_ns, .. } = self.jobs[id];
        if measured {
            let outcome = &mut self.outcome;
            let latency = if write { &mut outcome.writes } else { &mut outcome.reads };
            latency.record(now - started_ns);
        }
    }

    /// The warm-up is over.
    fn measure(&mut self, now: u64) {
        self.measuring = true;
        self.measured_from_ns = now;
        if let Restart::Cold { ram_too } = self.config.restart {
            for host in &mut self.hosts {
                host.empty(ram_too);
            }
        }
        if self.engines.is_some() {
            self.measure_engines(now);
        }
    }

    /// A thread is done with an operation: it takes the next one, at once or after a pause.
    #[inline]
    fn rest(&mut self, now: u64, id: u32) {
        match self.pause_ns() {
            0 => self.take_next(now, id),
            pause_ns => self.at(now + pause_ns, id, Stage::Take),
        }
    }

    /// The next pause of a thread.
    #[inline]
    fn pause_ns(&mut self) -> u64 {
        match self.config.pause_ns {
            0 => 0,
            mean_ns => self.pauses.below(2 * mean_ns + 1),
        }
    }

    /// What happened, folded into the digest.
    #[inline]
    fn note(&mut self, now: u64, what: u64) {
        self.outcome.events += 1;
        let mixed = (self.outcome.digest ^ now).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ what;
        self.outcome.digest = mixed.rotate_left(29).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }

    /// The next event for a job.
    #[inline]
    pub(super) fn at(&mut self, at_ns: u64, id: u32, stage: Stage) {
        self.jobs[id].stage = stage;
        self.agenda.add(at_ns, id);
    }

    pub(super) fn add_job(&mut self, job: Job) -> u32 {
        self.jobs.add(job)
    }

    /// Sends a packet of a job; gives when it arrives, or `None` if it has to wait for that to be
    /// known: then the job is at stage `then` on arrival.
    #[inline]
    pub(super) fn send(
        &mut self,
        now: u64,
        id: u32,
        way: Way,
        data: bool,
        then: Stage,
    ) -> Option<u64> {
        let Job { host, kind, .. } = self.jobs[id];
        let link = if self.config.one_link { 0 } else { usize::from(host) };
        let unseen = matches!(kind, Kind::Background | Kind::Syncer(_) | Kind::EngineUnseen);
        match self.config.background {
            Background::Yield if unseen => self.give_way(now, id, link, way, data, then),
            Background::Free if unseen => Some(self.links[link].pass(now, data)),
            _ => Some(self.links[link].send(now, way, data)),
        }
    }

    /// Sends so many bytes for a job that a thread waits for; returns the time of their arrival.
    pub(super) fn send_bytes(&mut self, now: u64, id: u32, way: Way, bytes: u64) -> u64 {
        let host = usize::from(self.jobs[id].host);
        let link = if self.config.one_link { 0 } else { host };
        self.links[link].send_bytes(now, way, bytes)
    }

    fn give_way(
        &mut self,
        now: u64,
        id: u32,
        link: usize,
        way: Way,
        data: bool,
        then: Stage,
    ) -> Option<u64> {
        match self.links[link].give_way(now, id, way, data) {
            Yielded::Arrives(arrival) => return Some(arrival),
            Yielded::Waits => {}
            Yielded::AskAgain(at_ns) => {
                let watch = Job::new(Kind::Idle(way as u8), link, Stage::Take);
                let watch = self.add_job(watch);
                self.at(at_ns, watch, Stage::Take);
            }
        }
        self.jobs[id].stage = then;
        None
    }

    /// A link may be idle: the next packet that gave way goes, if it is.
    fn idle(&mut self, now: u64, id: u32, way: Way) {
        let link = usize::from(self.jobs[id].host);
        let (gone, again) = self.links[link].idle(now, way);
        if let Some((gone, arrival)) = gone {
            let then = self.jobs[gone].stage;
            self.at(arrival, gone, then);
        }
        match again {
            Some(at_ns) => self.at(at_ns, id, Stage::Take),
            None => self.jobs.free(id),
        }
    }

    /// What the file server takes for its next read.
    #[inline]
    pub(super) fn filer_read_ns(&mut self, ahead: bool) -> u64 {
        self.outcome.filer_reads += u64::from(self.measuring);
        if ahead || self.rng.chance(self.config.fast_read_share) {
            self.config.timings.filer_fast_read_ns
        } else {
            self.config.timings.filer_slow_read_ns
        }
    }

    /// Where the flash behind a host's RAM is, by the number of its host.
    #[inline]
    pub(super) fn flash_of(&self, host: usize) -> Option<usize> {
        match self.flash {
            FlashAt::Nowhere => None,
            FlashAt::Client => Some(host),
            FlashAt::Server => Some(self.hosts.len() - 1),
        }
    }

    #[inline]
    pub(super) fn is(&self, architecture: Architecture) -> bool {
        self.config.architecture == architecture
    }
}
