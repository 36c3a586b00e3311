//! How a run of the whole is.

use crate::rng::Rng;
use crate::settings::Settings;
use cinnabar_engine::{Bounds, Config};
use rand::RngExt;

/// A deliberate bug of what stands between the write log, the engines and the ports: the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// The log does not hear of a server that restarted.
    RestartNotPassedOn,
    /// Only the thread that hears of it first passes it on, and that may be later than another's answer
    /// of the new server.
    RestartPassedOnOnce,
    /// Requests of the log are submitted in another order.
    RequestsReordered,
    /// Guests are served by the engine until the log has attached the volume.
    EngineBeforeLog,
    /// What is destaged goes past the engine, which keeps its copy of it.
    CopyKept,
    /// After a flush that failed the engine is attached again, and flushed again; the epoch is not
    /// repeated.
    FailedFlushRepeated,
    /// A volume joins without a flush of its back end.
    JoinedUnflushed,
    /// A volume joins while requests that went past the log are under way.
    JoinedUnheld,
    /// The same of requests that were answered as late.
    JoinedBesideLate,
    /// A volume leaves while requests of the log are under way.
    LeftUnheld,
    /// A volume leaves with what was written while it was drained.
    LeftUndrained,
    /// The log's flushes of the back end are answered without one.
    FlushNotPassedOn,
    /// A volume that is attached, and new to the log, is not flushed first: an earlier session may have served
    /// it past the log.
    OpenedUnflushed,
    /// What a server may have lost is not dropped from the cache.
    LostRangesKept,
    /// Requests of the log are lost while the engines attach the volume again.
    EarlyDropped,
    /// They come in another order once it is attached.
    EarlyReordered,
    /// The log does not hear that a back end that failed a flush gets another chance.
    RenewedUntold,
    /// What the log has asked for counts as done when its time is over.
    LateCountsAsDone,
    /// A guest is told at once that the time of its request is over, and the log is not.
    LateNotTold,
    /// The cache believes its device without looking at checksums.
    CacheUnverified,
    /// After the log's device has failed, guests' requests go past it.
    LossPassesThrough,
}

impl Bug {
    pub(super) const ALL: &[Self] = &[
        Self::RestartNotPassedOn,
        Self::RestartPassedOnOnce,
        Self::RequestsReordered,
        Self::EngineBeforeLog,
        Self::CopyKept,
        Self::FailedFlushRepeated,
        Self::JoinedUnflushed,
        Self::JoinedUnheld,
        Self::JoinedBesideLate,
        Self::LeftUnheld,
        Self::LeftUndrained,
        Self::FlushNotPassedOn,
        Self::OpenedUnflushed,
        Self::LostRangesKept,
        Self::EarlyDropped,
        Self::EarlyReordered,
        Self::RenewedUntold,
        Self::LateCountsAsDone,
        Self::LateNotTold,
        Self::CacheUnverified,
        Self::LossPassesThrough,
    ];
}

/// See the module. Probabilities are for each step.
#[derive(Clone, Copy, Debug)]
pub(super) struct JointSettings {
    /// Guests, crashes, restarts and the write log.
    pub(super) base: Settings,
    pub(super) shards: u32,
    pub(super) threads: usize,
    /// How readily the first thread looks at what the others have for it.
    pub(super) inbox: usize,
    /// log2 of the blocks that stay together in a shard.
    pub(super) span_log2: u32,
    /// Of each I/O of the cache device: it fails, and all others from then on.
    pub(super) cache_fails: f64,
    /// Of each I/O of a back end.
    pub(super) backend_fails: f64,
    /// Of each flush of a back end.
    pub(super) flush_fails: f64,
    /// From such a failure to the renewal of the volume, at most, in ns.
    pub(super) pause_ns: u64,
    /// The time of a request is over.
    pub(super) late: f64,
    /// A page of the cache device changes by itself.
    pub(super) cache_rot: f64,
    /// A volume joins the log or leaves it.
    pub(super) change: f64,
    /// Everything is stopped as by an operator, and started again.
    pub(super) stop: f64,
    pub(super) engine: Config,
    pub(super) bug: Option<Bug>,
}

impl JointSettings {
    pub(super) fn drawn(seed: u64) -> Self {
        let mut rng = Rng::seed_from_u64(seed ^ 0x101A7);
        let mut base = Settings::drawn(seed);
        (base.rot, base.memory_lost) = (0.0, 0.0);
        base.steps = rng.random_range(200..1_500);
        let mut pick = |list: &[f64]| list[rng.random_range(0..list.len())];
        let (cache_fails, backend_fails) = (pick(&[0.0, 0.0, 0.0, 0.01]), pick(&[0.0, 0.0, 0.02]));
        let (flush_fails, change) = (pick(&[0.0, 0.0, 0.05]), pick(&[0.0, 0.005, 0.03]));
        let stop = pick(&[0.0, 0.0, 0.002]);
        let (late, cache_rot) = (pick(&[0.0, 0.0, 0.003, 0.03]), pick(&[0.0, 0.0, 0.01]));
        let pause_ns = [1, 100_000, 2_000_000][rng.random_range(0..3)];
        let shards = rng.random_range(1..=4);
        let engine = Config {
            probation_blocks: Some(rng.random_range(8..40)),
            chunk_age_ns_max: [100_000, 5_000_000][rng.random_range(0..2)],
            heartbeat_ns: [200_000, 2_000_000][rng.random_range(0..2)],
            // Regions by the seed alone: a draw more would move every seed.
            bounds: Bounds {
                regions: [0, 1, 0, 4, 0, 240][(seed % 6) as usize],
                ..Self::bounds(&mut rng)
            },
            ..Config::default()
        };
        Self {
            base,
            shards,
            threads: rng.random_range(1..=shards as usize),
            inbox: [4, 1][rng.random_range(0..2)],
            span_log2: rng.random_range(0..4),
            cache_fails,
            backend_fails,
            flush_fails,
            pause_ns,
            late,
            cache_rot,
            change,
            stop,
            engine,
            bug: None,
        }
    }

    fn bounds(rng: &mut Rng) -> Bounds {
        let mut bounds = Bounds { incarnations: 256, ..Bounds::default() };
        if rng.random_bool(0.3) {
            bounds.parts = 2;
            (bounds.miss_blocks, bounds.write_blocks, bounds.zero_blocks) = (2, 2, 2);
        }
        if rng.random_bool(0.3) {
            bounds.partial_blocks = 1;
        }
        if rng.random_bool(0.3) {
            (bounds.open_pages, bounds.load_pages, bounds.load_reads) = (4, 1, 2);
            (bounds.replay_reads, bounds.replay_blocks, bounds.passed_ranges) = (1, 8, 2);
        }
        bounds
    }
}
