//! What the engines say of themselves, put together.

use super::super::data_thread::DataThread;
use super::super::worker::{Worker, WorkerState};
use super::ShardSet;
use cinnabar_backend::Memory;
use cinnabar_engine::Engine;
use cinnabar_engine::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_policy::planning::Totals;
use std::time::Instant as StdInstant;

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
    /// When the oldest backend I/O under way of each volume began, by the plane's keys. `until`: threads that do not
    /// answer by then are left out.
    pub(in super::super) fn oldest(
        &self,
        data_thread: &DataThread,
        until: StdInstant,
    ) -> Vec<Option<Instant>> {
        let mut oldest = data_thread.io_table.oldest();
        let question = |hands: &mut WorkerState| hands.data_thread.io_table.oldest();
        for worker in &self.workers {
            let others = worker.ask_until(until, question).unwrap_or_default();
            oldest.resize(oldest.len().max(others.len()), None);
            for (first, other) in oldest.iter_mut().zip(others) {
                *first = (*first).into_iter().chain(other).min();
            }
        }
        oldest
    }

    /// How long engines' reads and writes took, by all threads that answer until then.
    pub(in super::super) fn io_totals(
        &self,
        data_thread: &DataThread,
        until: StdInstant,
    ) -> Totals {
        let mut totals = data_thread.io_table.totals;
        for worker in &self.workers {
            let others = worker.ask_until(until, |hands| hands.data_thread.io_table.totals);
            totals += others.unwrap_or_default();
        }
        totals
    }

    /// Which threads have not answered what they were asked for a status.
    pub(in super::super) fn silent(&self) -> Option<String> {
        let silent: Vec<String> = self.workers.iter().filter_map(Worker::silence).collect();
        (!silent.is_empty()).then(|| silent.join("; "))
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
        self.ask_all(data_thread, volumes, None)
    }

    /// The same, but what a shard has said last will do if it does not answer until then, and if it is being
    /// loaded: it is seldom free, and waiting for it holds up what this thread loads.
    pub(in super::super) fn latest(
        &self,
        data_thread: &DataThread,
        volumes: &[Option<VolumeId>],
        until: StdInstant,
    ) -> Counters {
        self.ask_all(data_thread, volumes, Some(until))
    }

    fn ask_all(
        &self,
        data_thread: &DataThread,
        volumes: &[Option<VolumeId>],
        until: Option<StdInstant>,
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
            let names = inner[shard as usize].clone();
            let question = move |engine: &Engine<Memory>| OfShard::of(engine, &names);
            let is_loading = matches!(known, Health::Loading { .. });
            let answer = match until {
                None => Some(data_thread.ask_one(shard, question)),
                Some(until) if is_loading || until <= StdInstant::now() => {
                    data_thread.try_ask(shard, question)
                }
                Some(until) => data_thread.ask_until(shard, until, question),
            };
            match answer {
                Some(answer) => *last = answer,
                None => last.health = known,
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
