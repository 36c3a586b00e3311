//! What is going on, for the control plane.
//!
//! Called for each status message; takes no I/O.

use super::plane::DataPlane;
use super::served::Served;
use super::volume::{Recorders, Volume};
use cinnabar_backend::Memory;
use cinnabar_backend::hybrid::HybridStatus;
use cinnabar_config::messages::{
    CacheStatus, DataStatus, HybridVolumeStatus, ModeCause, State, VolumeConfig, VolumeStatus,
    Waiting,
};
use cinnabar_config::status::latency::Latencies;
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::volume::Warmth;
use std::time::Duration;

/// Longest wait for what other data threads say; an operator gets what is known by then.
pub(super) const THREADS_WAIT_MAX: Duration = Duration::from_secs(1);

/// A state, and trouble beside it if there is some.
pub(super) fn beside((state, reason): (State, String), trouble: Option<String>) -> (State, String) {
    let Some(trouble) = trouble else { return (state, reason) };
    let reason = if reason.is_empty() { trouble } else { format!("{reason}; {trouble}") };
    (State::Degraded, reason)
}

impl DataPlane {
    pub(super) fn status(&self) -> DataStatus {
        let ids: Vec<_> = self.order.iter().map(|key| self.volumes[*key].life.id()).collect();
        let mut until = std::time::Instant::now() + THREADS_WAIT_MAX;
        let (fronts, front_ram_bytes) = self.served(&self.order, until);
        let oldest = self.shard_set.oldest(&self.data_thread, until);
        let io_totals = self.shard_set.io_totals(&self.data_thread, until);
        let silent = self.shard_set.silent();
        if silent.is_some() {
            // It may have a shard.
            until = std::time::Instant::now();
        }
        let counters = self.shard_set.latest(&self.data_thread, &ids, until);
        let now = self.data_thread.clock.now();
        let attached: u64 = counters.volumes.iter().map(|own| own.cached_blocks).sum();
        let (state, reason) = if self.stop.is_some() {
            (State::Stopping, "the daemon is stopping".to_owned())
        } else {
            let of_cache = self.cache_state(now, counters.health, &counters.cache);
            beside(self.state_folder.beside(of_cache), silent)
        };
        let passed_by = matches!(counters.health, Health::PassThrough(_));
        let cache = CacheStatus {
            device: self.cache.path.clone(),
            health: counters.health,
            loaded: self.cache.loaded,
            state,
            reason,
            io: format!("{}, {}", self.data_thread.io_table.port.name(), self.cache.way()),
            shards: self.shard_set.shards(),
            threads: self.shard_set.threads(),
            losses: self.cache.losses,
            replacements: self.cache.replacements,
            detached_blocks: match counters.health {
                Health::Serving => counters.cache.cached_blocks.saturating_sub(attached),
                _ => 0,
            },
            counters: self.cache_counters(&counters.cache, passed_by),
            throttled: self.cache.throttled,
            size: self.size_status(),
            ram: counters.ram,
            edge_ram_bytes: self.edge_ram_bytes() + front_ram_bytes,
            write_log: self.write_log_status(now),
            io_totals,
        };
        let age = |key: usize| {
            let since = oldest.get(key).copied().flatten()?;
            Some(Duration::from_nanos(now.since_ns(since)))
        };
        let each = self.order.iter().zip(counters.volumes).zip(&fronts);
        let served = each
            .map(|((key, own), front)| self.volume_status(*key, &own, front, passed_by, age(*key)));
        let absent = self.absents.all(now).map(|(config, reason, waiting)| {
            absent_status(config, self.reason_of_absent(&config.name, reason), waiting)
        });
        let volumes = served.chain(absent).collect();
        DataStatus { cache, volumes, qos_groups: self.groups.status() }
    }

    /// Nothing is cached on a device that is not in use, whatever is left in the tables.
    fn cache_counters(&self, counters: &CacheCounters, passed_by: bool) -> CacheCounters {
        let capacity_blocks = self.capacity_blocks();
        if passed_by {
            return CacheCounters { capacity_blocks, cached_blocks: 0, ram_blocks: 0, ..*counters };
        }
        CacheCounters { capacity_blocks, ..*counters }
    }

    fn volume_status(
        &self,
        key: usize,
        own: &VolumeCounters,
        front: &Served,
        passed_by: bool,
        oldest: Option<Duration>,
    ) -> VolumeStatus {
        let volume = &self.volumes[key];
        let own = &volume.io.counted(own);
        let own = &volume.renewal.counted(volume.life.phase(), own);
        let trouble = self.write_back_trouble(self.data_thread.clock.now(), volume);
        let (state, reason) = match volume.state(oldest) {
            (State::Serving, _) if let Some(trouble) = trouble => (State::Degraded, trouble),
            found => found,
        };
        let (state, reason) = beside((state, reason), front.silent.clone());
        let cached_blocks = if passed_by { 0 } else { own.cached_blocks };
        // Most are refused by the servers, and never come to an engine.
        let refused = own.refused + front.refused;
        let mut traffic = volume.traffic;
        if let Some(blocks) = self.answered_alone(volume) {
            traffic.answered_alone(blocks);
        }
        let own = traffic.of_guests(own);
        let counters = VolumeCounters { cached_blocks, refused, ..own };
        let here = || volume.latencies.as_ref().map(Recorders::summary).unwrap_or_default();
        let latencies = front.latencies.unwrap_or_else(here);
        VolumeStatus {
            config: volume.config.clone(),
            mode_by_operator: volume.mode_by_operator,
            mode_cause: volume.mode_cause,
            state,
            reason,
            waiting: None,
            size_bytes: volume.io.disk.size_bytes(),
            connections: front.connections,
            guest_waited: front.guest_waited,
            overdue_now: volume.overdue_now(),
            oldest,
            backend_size_bytes: volume.measured.unwrap_or(0),
            warmth: volume.life.warmth(),
            counters,
            read_hits_log: traffic.read_hits_log(),
            latencies,
            write_back: self.write_back_status(self.data_thread.clock.now(), volume),
            qos: volume.io.qos.status(),
            parent: self.parent_status(key),
            migration: self.migration_status(key),
            hybrid: volume.io.disk.hybrid_status().map(hybrid_status),
        }
    }

    /// Buffers that are free, tables, queues. Buffers in use are bounded by the server's limits.
    fn edge_ram_bytes(&self) -> u64 {
        let tables = self.requests.capacity() * size_of::<super::requests::GuestRequest>()
            + self.volumes.capacity() * size_of::<Volume>();
        let tables = tables + self.recordings.ram_bytes();
        let tables = tables as u64 + self.clones_ram_bytes();
        Memory::kept_bytes() + self.data_thread.io_table.ram_bytes() + tables
    }
}

/// Of a volume that waits.
fn absent_status(config: &VolumeConfig, reason: String, waiting: Waiting) -> VolumeStatus {
    VolumeStatus {
        config: config.clone(),
        mode_by_operator: false,
        mode_cause: ModeCause::Opened,
        state: State::Waiting,
        reason,
        waiting: Some(waiting),
        size_bytes: 0,
        connections: 0,
        guest_waited: 0,
        overdue_now: 0,
        oldest: None,
        backend_size_bytes: 0,
        warmth: Warmth::New,
        counters: VolumeCounters::default(),
        read_hits_log: 0,
        latencies: Latencies::default(),
        write_back: None,
        qos: None,
        parent: None,
        migration: None,
        hybrid: None,
    }
}

/// What a hybrid volume tells of itself.
fn hybrid_status(status: HybridStatus) -> HybridVolumeStatus {
    let [moved_slow, moved_fast] = status.counts.moved;
    let [objects_slow, objects_fast] = status.objects;
    HybridVolumeStatus {
        planner: status.planner.to_owned(),
        extent_bytes: status.extent_bytes,
        extents: status.extents_present,
        objects_slow,
        objects_fast,
        budget_bytes: status.budget_bytes,
        fast_bytes: status.fast_bytes,
        moving: status.moving as u64,
        moved_fast,
        moved_slow,
        given_up: status.counts.given_up,
        over_budget: status.counts.over_budget,
        host_bytes: status.host_bytes,
        held_writes: status.counts.held,
        gain_ms_per_s: status.gain_ms_per_s,
        last_move: status.last_move.unwrap_or_default(),
        foreign_objects: status.foreign,
        lost_objects: status.counts.lost,
    }
}
