//! What the engines say of themselves, put together.

use super::super::data_thread::DataThread;
use super::ShardSet;
use cinnabar_backend::Memory;
use cinnabar_engine::Engine;
use cinnabar_engine::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_policy::planning::Totals;

/// All counters.
pub(in super::super) struct Counters {
    pub(in super::super) health: Health,
    pub(in super::super) cache: CacheCounters,
    pub(in super::super) ram: RamBytes,
    /// In the order they were asked for.
    pub(in super::super) volumes: Vec<VolumeCounters>,
}

/// What one shard has said of itself.
pub(super) struct OfShard {
    health: Health,
    cache: CacheCounters,
    ram: RamBytes,
    /// With the names that the shard has for them.
    volumes: Vec<(Option<VolumeId>, VolumeCounters)>,
}

impl OfShard {
    fn of(engine: &Engine<Memory>, volumes: &[Option<VolumeId>]) -> Self {
        let of = |volume: &Option<VolumeId>| {
            let known = volume.and_then(|id| engine.volume_counters(id));
            (*volume, known.unwrap_or_default())
        };
        Self {
            health: engine.health(),
            cache: engine.cache_counters(),
            ram: engine.ram_bytes(),
            volumes: volumes.iter().map(of).collect(),
        }
    }
}

impl Default for OfShard {
    fn default() -> Self {
        Self {
            health: Health::Opening,
            cache: CacheCounters::default(),
            ram: RamBytes::default(),
            volumes: Vec::new(),
        }
    }
}

impl ShardSet {
    /// When the oldest backend I/O under way of each volume began, by the plane's keys.
    pub(in super::super) fn oldest(&self, data_thread: &DataThread) -> Vec<Option<Instant>> {
        let mut oldest = data_thread.io_table.oldest();
        for worker in &self.workers {
            let others = worker.call(|hands| hands.data_thread.io_table.oldest());
            oldest.resize(oldest.len().max(others.len()), None);
            for (first, other) in oldest.iter_mut().zip(others) {
                *first = (*first).into_iter().chain(other).min();
            }
        }
        oldest
    }

    /// How long engines' reads and writes took, by all threads.
    pub(in super::super) fn io_totals(&self, data_thread: &DataThread) -> Totals {
        let mut totals = data_thread.io_table.totals;
        for worker in &self.workers {
            totals += worker.call(|hands| hands.data_thread.io_table.totals);
        }
        totals
    }

    /// Requests of a volume that were answered as late and are still under way.
    pub(in super::super) fn late_requests(
        &self,
        data_thread: &DataThread,
        volume: VolumeId,
    ) -> u32 {
        let of = |shard| {
            let inner = self.router.inner(volume, shard)?;
            Some(data_thread.ask_one(shard, move |engine| engine.late_requests(inner)))
        };
        (0..self.shards()).filter_map(of).sum()
    }

    /// All counters: of the cache, and of these volumes.
    pub(in super::super) fn counters(
        &self,
        data_thread: &DataThread,
        volumes: &[Option<VolumeId>],
    ) -> Counters {
        self.ask_all(data_thread, volumes, true)
    }

    /// The same, but what a shard that is being loaded has said last will do: it is seldom free, and
    /// waiting for it holds up what this thread loads.
    pub(in super::super) fn latest(
        &self,
        data_thread: &DataThread,
        volumes: &[Option<VolumeId>],
    ) -> Counters {
        self.ask_all(data_thread, volumes, false)
    }

    fn ask_all(
        &self,
        data_thread: &DataThread,
        volumes: &[Option<VolumeId>],
        exact: bool,
    ) -> Counters {
        let inner: Vec<Vec<Option<VolumeId>>> = (0..self.shards())
            .map(|shard| {
                let name = |volume: &Option<_>| self.router.inner((*volume)?, shard);
                volumes.iter().map(name).collect()
            })
            .collect();
        let mut last = self.last.borrow_mut();
        last.resize_with(self.shards() as usize, OfShard::default);
        for (shard, last) in (0..).zip(last.iter_mut()) {
            let known = self.health[shard as usize].health();
            let names = &inner[shard as usize];
            if exact || !matches!(known, Health::Loading { .. }) {
                let names = names.clone();
                *last = data_thread.ask_one(shard, move |engine| OfShard::of(engine, &names));
            } else if let Some(answer) =
                data_thread.try_ask(shard, |engine| OfShard::of(engine, names))
            {
                *last = answer;
            } else {
                last.health = known;
            }
        }
        let of_volume = |at: usize| {
            VolumeCounters::of_shards(last.iter().zip(&inner).map(|(one, inner)| {
                let same = one.volumes.get(at).filter(|(volume, _)| *volume == inner[at]);
                same.map_or_else(VolumeCounters::default, |(_, counters)| *counters)
            }))
        };
        Counters {
            health: Health::of_all(last.iter().map(|one| one.health)),
            cache: last.iter().map(|one| one.cache).sum(),
            ram: last.iter().map(|one| one.ram).sum(),
            volumes: (0..volumes.len()).map(of_volume).collect(),
        }
    }
}
