//! What is going on, for the control plane.
//!
//! Called for each status message; takes no I/O.

use super::plane::Plane;
use super::volume::Volume;
use crate::daemon::messages::{CacheStatus, DataStatus, State, VolumeStatus};
use cinnabar_backend::Memory;
use cinnabar_engine::counters::CacheCounters;
use cinnabar_engine::health::Health;

impl Plane {
    pub(super) fn status(&self) -> DataStatus {
        let (state, reason) = if self.stop.is_some() {
            (State::Stopping, "the daemon is stopping".to_owned())
        } else {
            self.cache_state()
        };
        let cache = CacheStatus {
            device: self.cache.path.clone(),
            health: self.engine.health(),
            loaded: self.cache.loaded,
            state,
            reason,
            io: format!("{}, {}", self.port.name(), self.cache.way()),
            counters: self.cache_counters(),
            ram: self.engine.ram_bytes(),
            edge_ram_bytes: self.edge_ram_bytes(),
        };
        let volumes = self.order.iter().map(|key| self.volume_status(*key)).collect();
        DataStatus { cache, volumes }
    }

    /// Nothing is cached on a device that is not in use, whatever is left in the tables.
    fn cache_counters(&self) -> CacheCounters {
        let counters = self.engine.cache_counters();
        let capacity_blocks = self.capacity_blocks();
        if self.is_passed_by() {
            return CacheCounters { capacity_blocks, cached_blocks: 0, ram_blocks: 0, ..counters };
        }
        CacheCounters { capacity_blocks, ..counters }
    }

    fn is_passed_by(&self) -> bool {
        matches!(self.engine.health(), Health::PassThrough(_))
    }

    fn volume_status(&self, key: usize) -> VolumeStatus {
        let volume = &self.volumes[key];
        let (state, reason) = volume.state();
        let mut counters =
            volume.id.and_then(|id| self.engine.volume_counters(id)).unwrap_or_default();
        if self.is_passed_by() {
            counters.cached_blocks = 0;
        }
        VolumeStatus {
            config: volume.config.clone(),
            state,
            reason,
            size_bytes: volume.disk.size_bytes(),
            connections: self.connections(key),
            overdue_now: volume.overdue_now,
            warmth: volume.warmth,
            counters,
            latencies: volume.latencies.summary(),
        }
    }

    /// Buffers that are free, tables, queues. Buffers in use are bounded by the server's limits.
    fn edge_ram_bytes(&self) -> u64 {
        let tables = self.ios.capacity() * size_of::<super::io::Io>()
            + self.requests.capacity() * size_of::<super::requests::GuestRequest>()
            + self.volumes.capacity() * size_of::<Volume>();
        Memory::kept_bytes() + tables as u64
    }
}
