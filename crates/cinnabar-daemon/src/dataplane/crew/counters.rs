//! What the engines say of themselves, put together.

use super::super::lane::Lane;
use super::Crew;
use cinnabar_engine::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::units::{Instant, VolumeId};

/// All counters.
pub(in super::super) struct Counters {
    pub(in super::super) health: Health,
    pub(in super::super) cache: CacheCounters,
    pub(in super::super) ram: RamBytes,
    /// In the order they were asked for.
    pub(in super::super) volumes: Vec<VolumeCounters>,
}

impl Crew {
    /// When the oldest backend I/O under way of each volume began, by the plane's keys.
    pub(in super::super) fn oldest(&self, lane: &Lane) -> Vec<Option<Instant>> {
        let mut oldest = lane.desk.oldest();
        for worker in &self.workers {
            let others = worker.call(|hands| hands.lane.desk.oldest());
            oldest.resize(oldest.len().max(others.len()), None);
            for (first, other) in oldest.iter_mut().zip(others) {
                *first = (*first).into_iter().chain(other).min();
            }
        }
        oldest
    }

    /// Requests of a volume that were answered as late and are still under way.
    pub(in super::super) fn late_requests(&self, lane: &Lane, volume: VolumeId) -> u32 {
        let inner: Vec<_> =
            (0..self.shards()).map(|shard| self.router.inner(volume, shard)).collect();
        let all = lane.ask(|shard, engine| {
            inner[shard as usize].map_or(0, |inner| engine.late_requests(inner))
        });
        all.into_iter().sum()
    }

    /// All counters: of the cache, and of these volumes.
    pub(in super::super) fn counters(&self, lane: &Lane, volumes: &[Option<VolumeId>]) -> Counters {
        let inner: Vec<Vec<Option<VolumeId>>> = (0..self.shards())
            .map(|shard| {
                let name = |volume: &Option<_>| self.router.inner((*volume)?, shard);
                volumes.iter().map(name).collect()
            })
            .collect();
        let all = lane.ask(|shard, engine| {
            let of = |volume: &Option<VolumeId>| volume.and_then(|id| engine.volume_counters(id));
            let all = inner[shard as usize].iter();
            let volumes: Vec<VolumeCounters> = all.map(|v| of(v).unwrap_or_default()).collect();
            (engine.health(), engine.cache_counters(), engine.ram_bytes(), volumes)
        });
        let of_volume = |at: usize| VolumeCounters::of_shards(all.iter().map(|one| one.3[at]));
        Counters {
            health: Health::of_all(all.iter().map(|one| one.0)),
            cache: all.iter().map(|one| one.1).sum(),
            ram: all.iter().map(|one| one.2).sum(),
            volumes: (0..volumes.len()).map(of_volume).collect(),
        }
    }
}
