//! What a fault-simulation run is made of: cache, volumes, guests, media and their moods.
//!
//! Swarm style: each seed turns some kinds of things off altogether, because what always happens
//! together hides what happens alone.

mod bounds;
pub(crate) use bounds::{draw_regions, has_regions};
mod guest;
mod latency;

pub use guest::{Guest, GuestProfile, Plea, Refusal, Wanted};
pub use latency::{Faults, Latency};

use crate::machine::CacheSetup;
use crate::rng::Rng;
use cinnabar_engine::plan::Mode;
use cinnabar_engine::{Config, Eviction};

/// Kinds of things a run may contain; a seed turns some of the allowed ones off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// More than one volume.
    pub several_volumes: bool,
    /// Requests that are no whole blocks.
    pub partial: bool,
    /// A volume whose backend wants 4 KiB alignment.
    pub aligned: bool,
    pub trims: bool,
    pub zeroes: bool,
    /// Flushes and FUA.
    pub flushes: bool,
    /// Requests that must be refused.
    pub refusals: bool,
    /// Backends that fail.
    pub backend_faults: bool,
    /// A cache device that fails.
    pub cache_faults: bool,
    /// Also while it is being opened.
    pub start_faults: bool,
    /// Cached blocks that rot on the cache device.
    pub rot: bool,
    /// New plans at run time.
    pub plans: bool,
    /// Plans that let nothing in, and later ones that do.
    pub throttles: bool,
    /// Volumes that go and come back while others work on.
    pub detaches: bool,
    /// Clean stops in the middle.
    pub stops: bool,
    /// Crashes in the middle.
    pub crashes: bool,
    /// Crashes that cut the host's power.
    pub power_cuts: bool,
    /// Crashes that cut the power of backends' hosts.
    pub backend_power_cuts: bool,
    /// Backends changed by another writer while no engine has them.
    pub foreign_writes: bool,
    /// Attached volumes changed by another writer, and invalidated.
    pub invalidations: bool,
    /// Volumes deleted and created again under their names.
    pub recreations: bool,
    /// Volumes whose blocks the operator has forgotten.
    pub forgets: bool,
    /// Metadata that rot on the cache device.
    pub metadata_rot: bool,
    /// Data that the cache device reads from, or puts in, another place.
    pub misdirections: bool,
    /// Media that are slow for a while, or answer nothing.
    pub stalls: bool,
    /// A cache device that dies.
    pub deaths: bool,
    /// Sessions without the cache device, or with another one.
    pub absences: bool,
    /// Cache devices that are replaced in the middle of a session.
    pub replacements: bool,
    /// Plain CLOCK instead of probation.
    pub clock: bool,
    /// Bypasses of sequential and large requests.
    pub bypass: bool,
    /// More than one shard, and more than one thread.
    pub shards: bool,
    /// Guests whose frontend knows after a crash what it has not answered, and asks again.
    pub replays: bool,
    /// Engines whose steps and tables are tiny.
    pub tiny_bounds: bool,
    /// Backends whose clocks are set back.
    pub clock_steps: bool,
    /// Backends on servers that restarts, and lose what no flush covers.
    pub server_restarts: bool,
    /// Backends that lose writes when a flush fails.
    pub lost_syncs: bool,
    /// Volumes, and a cache device, with bounds after which they are not waited for.
    pub time_outs: bool,
    /// Media with such a bound that fall silent.
    pub silences: bool,
    /// A time-out of the cache device, after which it is given up, and devices that fall silent for
    /// good.
    pub device_time_outs: bool,
    /// Volumes that become larger.
    pub growth: bool,
    /// A driver's clock that steps back and forth.
    pub time_jumps: bool,
    /// A cache that gets another size while it serves.
    pub resizes: bool,
}

impl Features {
    /// Everything.
    pub const ALL: Self = Self {
        several_volumes: true,
        partial: true,
        aligned: true,
        trims: true,
        zeroes: true,
        flushes: true,
        refusals: true,
        backend_faults: true,
        cache_faults: true,
        start_faults: true,
        rot: true,
        plans: true,
        throttles: true,
        detaches: true,
        stops: true,
        crashes: true,
        power_cuts: true,
        backend_power_cuts: true,
        foreign_writes: true,
        invalidations: true,
        recreations: true,
        forgets: true,
        metadata_rot: true,
        misdirections: true,
        stalls: true,
        deaths: true,
        absences: true,
        replacements: true,
        clock: true,
        bypass: true,
        shards: true,
        replays: true,
        tiny_bounds: true,
        clock_steps: true,
        server_restarts: true,
        lost_syncs: true,
        time_outs: true,
        silences: true,
        device_time_outs: true,
        growth: true,
        time_jumps: true,
        resizes: true,
    };

    /// A selection of these.
    fn draw(&self, rng: &mut Rng) -> Self {
        let mut keep = |allowed: bool, probability: f64| rng.chance(probability) && allowed;
        Self {
            several_volumes: keep(self.several_volumes, 0.8),
            partial: keep(self.partial, 0.7),
            aligned: keep(self.aligned, 0.6),
            trims: keep(self.trims, 0.6),
            zeroes: keep(self.zeroes, 0.6),
            flushes: keep(self.flushes, 0.6),
            refusals: keep(self.refusals, 0.5),
            backend_faults: keep(self.backend_faults, 0.4),
            cache_faults: keep(self.cache_faults, 0.4),
            start_faults: keep(self.start_faults, 0.3),
            rot: keep(self.rot, 0.5),
            plans: keep(self.plans, 0.5),
            throttles: false,
            detaches: keep(self.detaches, 0.5),
            stops: keep(self.stops, 0.6),
            crashes: keep(self.crashes, 0.8),
            power_cuts: keep(self.power_cuts, 0.6),
            backend_power_cuts: keep(self.backend_power_cuts, 0.5),
            foreign_writes: keep(self.foreign_writes, 0.5),
            invalidations: keep(self.invalidations, 0.4),
            recreations: keep(self.recreations, 0.3),
            forgets: keep(self.forgets, 0.3),
            metadata_rot: keep(self.metadata_rot, 0.2),
            misdirections: keep(self.misdirections, 0.3),
            stalls: keep(self.stalls, 0.4),
            deaths: keep(self.deaths, 0.15),
            absences: keep(self.absences, 0.3),
            replacements: keep(self.replacements, 0.2),
            clock: keep(self.clock, 0.25),
            bypass: keep(self.bypass, 0.3),
            shards: false,
            replays: false,
            tiny_bounds: false,
            clock_steps: false,
            server_restarts: false,
            lost_syncs: false,
            time_outs: false,
            silences: false,
            device_time_outs: false,
            growth: false,
            time_jumps: false,
            resizes: false,
        }
    }

    /// What came to the selection later, by a generator of their own: without it a run stays what it was.
    fn draw_more(self, rng: &mut Rng, allowed: &Self) -> Self {
        let shards = rng.chance(0.6) && allowed.shards;
        let replays = rng.chance(0.7) && allowed.replays;
        Self { shards, replays, ..self }
    }
}

/// How one session of the cache ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Clean: everything detached, sealed and closed.
    Stop,
    /// The engine is gone at an arbitrary point between two events.
    Crash,
    /// It is gone while it is being started.
    CrashInStart,
    /// It is gone while it loads its index, or soon after.
    CrashInLoading,
    /// It is gone while it is being stopped.
    CrashInStop,
}

/// Which cache device a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The one that the session before had.
    Same,
    /// None.
    Away,
    /// Another: a new one, or the one that was there before.
    Other,
}

/// One session of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub device: Device,
    /// Its end.
    pub ending: Ending,
    /// Threads that share the shards.
    pub threads: u32,
}

#[derive(Clone, Debug)]
pub struct VolumeProfile {
    /// Size.
    pub sectors: u64,
    /// Alignment of its backend, in bytes.
    pub align_bytes: u32,
    /// Refuses writes.
    pub read_only: bool,
    /// Its backend does trims and zeroes by itself.
    pub can_zero: bool,
    /// Its backend can prove that it was not written.
    pub proof: bool,
    /// The operator's assertion that no one else writes.
    pub exclusive: bool,
    /// Mode it is first attached with.
    pub mode: Mode,
    /// See [`cinnabar_engine::volume::VolumeSpec`].
    pub bypass_sequential_bytes: u64,
    /// See [`cinnabar_engine::volume::VolumeSpec`].
    pub bypass_large_bytes: u64,
    /// It is on a server that can restarts.
    pub server: bool,
    /// Its requests, and its backend's I/O, are not waited for any longer than this, in ns.
    pub timeout_ns: Option<u64>,
    /// Its frontend asks again after a crash for what it has not answered.
    pub replays: bool,
    /// What its guest does.
    pub guest: GuestProfile,
}

/// Everything about a run that the seed decides beforehand.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What may happen in it.
    pub features: Features,
    pub setup: CacheSetup,
    pub volumes: Vec<VolumeProfile>,
    /// The sessions of the cache.
    pub sessions: Vec<Session>,
    /// Speed of the cache device.
    pub cache_latency: Latency,
    /// Speed of the backends.
    pub backend_latency: Latency,
    /// Errors of the media.
    pub faults: Faults,
    /// Part of the cache device's I/O that goes astray, if any does.
    pub astray: f64,
    /// Without time-outs of the volumes, I/O of a backend that takes longer than this, in ns, is
    /// reported as overdue.
    pub overdue_ns: u64,
    /// The cache device is given up when an I/O takes longer than this, in ns.
    pub device_timeout_ns: Option<u64>,
    /// Reads of metadata take so many times longer than others: a large index.
    pub metadata_slowness: u64,
    /// Most events in a batch, and the time in ns that it may gather.
    pub batch: (usize, u64),
    /// Longest time, in ns, that a thread takes to see what it has been given.
    pub handoff_ns_max: u64,
}

impl Profile {
    /// The profile of a seed. `more` is a second source of chance, for what concerns shards and
    /// replays, `sizes` a third, for the engine's bounds, and `waits` a fourth, for what is waited for.
    pub fn draw(
        rng: &mut Rng,
        more: &mut Rng,
        sizes: &mut Rng,
        waits: &mut Rng,
        allowed: &Features,
    ) -> Self {
        let mut features = allowed.draw(rng).draw_more(more, allowed);
        features.tiny_bounds = allowed.tiny_bounds && sizes.chance(0.85);
        features.clock_steps = allowed.clock_steps && sizes.chance(0.4);
        features.server_restarts = allowed.server_restarts && sizes.chance(0.4);
        features.lost_syncs = allowed.lost_syncs;
        let mut capacity_blocks = rng.within(1000..2200);
        let shards = if features.shards { more.within(2..5) } else { 1 };
        if shards > 1 {
            // A region has four segments at least.
            capacity_blocks = shards * more.within(1000..1300);
        }
        let mut setup = CacheSetup {
            capacity_blocks,
            shards: shards as u32,
            span_log2: more.pick(&[2, 4, 6, 8]),
            threads: 1,
            journal_pages: None,
            segment_chunks: if rng.chance(0.8) { 1 } else { 2 },
            config: Config {
                eviction: if features.clock { Eviction::Clock } else { Eviction::Probation },
                probation_blocks: rng.chance(0.7).then(|| rng.within(16..256) as u32),
                chunk_age_ns_max: rng.pick(&[1_000_000, 20_000_000, 1_000_000_000]),
                heartbeat_ns: {
                    // The draw of a setting that is gone: seeds mean what they meant.
                    rng.chance(0.1);
                    rng.pick(&[20_000_000, 200_000_000, 1_000_000_000])
                },
                ..Config::default()
            },
        };
        // No generator of its own: a draw more would move every seed.
        features.throttles =
            allowed.throttles && features.plans && capacity_blocks.is_multiple_of(2);
        if features.tiny_bounds {
            setup.config.bounds = bounds::draw(sizes);
            setup.journal_pages = sizes.pick(&[None, Some(16), Some(24), Some(40)]);
        }
        let mut volumes = draw_volumes(rng, &features, capacity_blocks);
        draw_servers(&mut volumes, &features, more, sizes);
        let mut sessions = draw_sessions(rng, &features);
        for session in &mut sessions {
            // What is more than the shards has no owner.
            session.threads = if features.shards { more.within(1..5) as u32 } else { 1 };
        }
        let mut profile = Self {
            features,
            setup,
            volumes,
            sessions,
            cache_latency: Latency::draw(rng, 5_000..200_000),
            backend_latency: Latency::draw(rng, 20_000..10_000_000),
            faults: Faults::draw(rng, features.backend_faults, features.cache_faults),
            astray: rng.pick(&[0.003, 0.02, 0.1]),
            overdue_ns: rng.pick(&[50_000_000, 1_000_000_000, 10_000_000_000]),
            device_timeout_ns: None,
            metadata_slowness: rng.pick(&[1, 10, 300]),
            batch: (rng.pick(&[1, 4, 32]), rng.pick(&[1_000, 100_000, 2_000_000])),
            handoff_ns_max: more.pick(&[0, 2_000, 50_000, 5_000_000]),
        };
        profile.draw_waits(waits, allowed);
        profile
    }

    /// What is waited for, and how much of it there may be.
    fn draw_waits(&mut self, rng: &mut Rng, allowed: &Features) {
        let features = &mut self.features;
        features.growth = allowed.growth && rng.chance(0.4);
        features.time_jumps = allowed.time_jumps && rng.chance(0.3);
        features.time_outs = allowed.time_outs && rng.chance(0.5);
        features.silences = features.time_outs && allowed.silences && rng.chance(0.6);
        features.device_time_outs = features.time_outs && allowed.device_time_outs;
        if features.tiny_bounds {
            // What must be dropped is not refused: who says so would have to say it again.
            let refuses = !features.invalidations && !features.server_restarts;
            bounds::draw_many(rng, &mut self.setup.config.bounds, refuses);
        }
        if !features.time_outs {
            return;
        }
        for volume in &mut self.volumes {
            let bounds_ns = [self.overdue_ns, 300_000_000, 2_000_000_000, 10_000_000_000];
            volume.timeout_ns = rng.chance(0.75).then(|| rng.pick(&bounds_ns));
        }
        let bounds_ns = [1_000_000_000, 3_000_000_000, 10_000_000_000];
        let bound_ns = rng.chance(0.8).then(|| rng.pick(&bounds_ns));
        self.device_timeout_ns = bound_ns.filter(|_| self.features.device_time_outs);
    }
}

/// Which volumes are on servers, and which are recorded.
fn draw_servers(
    volumes: &mut [VolumeProfile],
    features: &Features,
    more: &mut Rng,
    sizes: &mut Rng,
) {
    for volume in volumes {
        // Where edges of blocks are read, changed and written back, what was lost can come back.
        let merges = volume.align_bytes > 512;
        if features.server_restarts && !merges && sizes.chance(0.5) {
            // A server can prove nothing.
            volume.server = true;
            volume.proof = false;
            volume.exclusive |= sizes.chance(0.6);
        }
        volume.replays = features.replays && more.chance(0.7);
    }
}

fn draw_volumes(rng: &mut Rng, features: &Features, capacity: u64) -> Vec<VolumeProfile> {
    let count = if features.several_volumes { rng.within(2..5) } else { 1 };
    let mut volumes = Vec::new();
    // One plain, one of odd size, one with an aligned backend, one read-only.
    for index in 0..count {
        let blocks = rng.within(capacity / 4..capacity * 3 / 2);
        let odd_size = if index == 1 { rng.below(8) } else { 0 };
        let aligned = features.aligned && index == (count - 1).min(2);
        let bypass = |rng: &mut Rng, bytes| {
            if features.bypass && rng.chance(0.5) { bytes } else { 0 }
        };
        volumes.push(VolumeProfile {
            sectors: blocks * 8 + if aligned { 0 } else { odd_size },
            align_bytes: if aligned { 4096 } else { 512 },
            read_only: index == 3,
            can_zero: rng.chance(0.8),
            proof: rng.chance(0.9),
            exclusive: rng.chance(0.15),
            mode: if rng.chance(0.8) {
                Mode::WriteThrough
            } else {
                rng.pick(&[Mode::WriteAround, Mode::PassThrough])
            },
            bypass_sequential_bytes: bypass(rng, 256 << 10),
            bypass_large_bytes: bypass(rng, 128 << 10),
            server: false,
            timeout_ns: None,
            replays: false,
            guest: GuestProfile::draw(rng, features, capacity),
        });
    }
    volumes
}

fn draw_sessions(rng: &mut Rng, features: &Features) -> Vec<Session> {
    let mut endings = Vec::new();
    if features.stops {
        endings.extend([Ending::Stop; 2]);
    }
    if features.crashes {
        endings.extend([Ending::Crash; 4]);
        endings.extend([Ending::CrashInStart, Ending::CrashInLoading, Ending::CrashInStop]);
    }
    let sessions = if endings.is_empty() { 0 } else { rng.within(1..5) };
    let device = |rng: &mut Rng| match rng.below(10) {
        0 | 1 if features.absences => Device::Away,
        2 | 3 if features.absences => Device::Other,
        _ => Device::Same,
    };
    let session = |device, ending| Session { device, ending, threads: 1 };
    let mut sessions: Vec<Session> =
        (0..sessions).map(|_| session(device(rng), rng.pick(&endings))).collect();
    sessions.push(session(Device::Same, Ending::Stop));
    sessions
}
