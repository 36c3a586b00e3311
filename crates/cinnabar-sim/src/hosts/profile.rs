//! What a seed draws before a run begins.

use crate::machine::CacheSetup;
use crate::rng::Rng;
use crate::workload::Latency;
use cinnabar_driver::ownership::Fence;
use cinnabar_engine::Config;
use cinnabar_engine::mutant::Mutants;

/// Where the image lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// A cluster whose lock fences. Each part of it learns by itself who is fenced off.
    Rbd,
    /// A file, with a lock that reaches both hosts and comes free behind the last I/O of its holder.
    File,
    /// The same, but the lock does not reach the other host.
    FarFile,
    /// A server without locks.
    Nbd,
}

impl Storage {
    pub(super) const fn fence(self) -> Fence {
        match self {
            Self::Rbd => Fence::Lock,
            Self::File | Self::FarFile | Self::Nbd => Fence::Word,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) storage: Storage,
    /// The image proves who wrote it last.
    pub(super) proves: bool,
    /// The operator vouches that no one but these two hosts writes it.
    pub(super) exclusive: bool,
    pub(super) blocks: u64,
    pub(super) setup: CacheSetup,
    pub(super) cache_latency: Latency,
    pub(super) backend_latency: Latency,
    /// Of a flush of the image, of its other I/O, and of opening it for writing.
    pub(super) sync_errors: f64,
    pub(super) io_errors: f64,
    pub(super) open_errors: f64,
    /// Of messages between the hosts.
    pub(super) lost: f64,
    pub(super) doubled: f64,
    /// Longest way of one, in ns.
    pub(super) way_ns_max: u64,
    /// Longest wait for an answer, in ns.
    pub(super) patience_ns: u64,
    /// What the operator and fate may do, so many times.
    pub(super) acts: u64,
    pub(super) act_ns_max: u64,
    pub(super) freezes: bool,
    /// One of them lasts longer than an hour.
    pub(super) long_freeze: bool,
    pub(super) crashes: bool,
    pub(super) outages: bool,
    /// The operator takes a frozen host for a dead one.
    pub(super) rash: bool,
    /// Requests of a guest at a time, and its longest pause in ns.
    pub(super) depth: u64,
    pub(super) think_ns_max: u64,
    /// Share of requests that read.
    pub(super) reads: f64,
    /// The first request of a guest is a write, as when it replays a journal.
    pub(super) writes_first: bool,
    /// So many times as many requests as others have.
    pub(super) more: u64,
    /// Requests keep to so many blocks, so that they meet.
    pub(super) hot: u64,
    /// Hosts are cut off; an owner that has just seen its lock, too.
    pub(super) cuts: bool,
    pub(super) cut_at_look: f64,
    /// A host dies or freezes behind its record of the volume.
    pub(super) dies_recorded: f64,
    /// A daemon that has died is started again at once.
    pub(super) dies_briefly: bool,
    /// A guest is started elsewhere when its host can't be reached, at each look of the operator.
    pub(super) fails_over: f64,
    /// Of messages that take longer than any pause between two attempts.
    pub(super) late: f64,
    /// Half of what the operator and fate do is one of these, if there are any.
    pub(super) favours: &'static [u64],
}

impl Profile {
    pub(super) fn draw(rng: &mut Rng, mutants: Mutants) -> Self {
        let config = Config { mutants, ..Config::default() };
        let storage =
            rng.pick(&[Storage::Rbd, Storage::File, Storage::File, Storage::FarFile, Storage::Nbd]);
        let blocks = rng.within(24..120);
        let shards = rng.pick(&[1, 1, 2]);
        let way_ns_max = rng.pick(&[1_000_000, 50_000_000, 2_000_000_000]);
        let rate = |rng: &mut Rng, some: &[f64]| rng.pick(some);
        let setup = CacheSetup { shards, span_log2: 4, ..CacheSetup::single(6 * 255, config) };
        Self {
            storage,
            proves: storage != Storage::Nbd && rng.chance(0.6),
            exclusive: rng.chance(0.6),
            blocks,
            setup,
            cache_latency: Latency::draw(rng, 10_000..200_000),
            backend_latency: Latency::draw(rng, 50_000..2_000_000),
            sync_errors: rate(rng, &[0.0, 0.0, 0.02, 0.1]),
            io_errors: rate(rng, &[0.0, 0.0, 0.01, 0.1]),
            open_errors: rate(rng, &[0.0, 0.1, 0.4]),
            lost: rate(rng, &[0.0, 0.1, 0.4]),
            doubled: rate(rng, &[0.0, 0.1, 0.5]),
            way_ns_max,
            // The shortest is too short for many answers.
            patience_ns: way_ns_max * rng.pick(&[1, 2, 4, 20]) + 20_000_000,
            acts: rng.within(4..24),
            act_ns_max: rng.pick(&[20_000_000, 200_000_000, 2_000_000_000]),
            freezes: rng.chance(0.6),
            crashes: rng.chance(0.7),
            outages: rng.chance(0.3),
            rash: rng.chance(0.5),
            depth: rng.pick(&[1, 2, 4, 8]),
            think_ns_max: rng.pick(&[100_000, 5_000_000, 50_000_000]),
            reads: rng.pick(&[0.3, 0.5, 0.8]),
            hot: rng.within(4..1 + blocks),
            long_freeze: storage == Storage::Rbd && rng.chance(0.5),
            writes_first: false,
            more: 1,
            cuts: false,
            cut_at_look: 0.0,
            dies_recorded: 0.1,
            dies_briefly: false,
            fails_over: 0.2,
            late: 0.0,
            favours: &[],
        }
    }
}
