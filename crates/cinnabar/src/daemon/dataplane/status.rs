//! What is going on, for the control plane.
//!
//! Called for each status message; takes no I/O.

use super::plane::Plane;
use super::volume::Volume;
use crate::daemon::messages::{CacheStatus, DataStatus, State, VolumeStatus};
use cinnabar_backend::Memory;

impl Plane {
    pub(super) fn status(&self) -> DataStatus {
        let direct = if self.cache.disk.is_direct() { "direct" } else { "page cache" };
        let stopping = self.stop.is_some();
        let cache = CacheStatus {
            device: self.cache.disk.path().to_owned(),
            health: self.engine.health(),
            loaded: None,
            state: if stopping { State::Stopping } else { State::Serving },
            reason: if stopping { "the daemon is stopping".into() } else { String::new() },
            io: format!("{}, {direct}", self.port.name()),
            counters: self.engine.cache_counters(),
            ram: self.engine.ram_bytes(),
            edge_ram_bytes: self.edge_ram_bytes(),
        };
        let volumes = self.order.iter().map(|key| self.volume_status(*key)).collect();
        DataStatus { cache, volumes }
    }

    fn volume_status(&self, key: usize) -> VolumeStatus {
        let volume = &self.volumes[key];
        let state = volume.state();
        VolumeStatus {
            config: volume.config.clone(),
            state,
            reason: match state {
                State::Starting => "being attached".into(),
                State::Stopping => "being detached".into(),
                _ => String::new(),
            },
            size_bytes: volume.disk.size_bytes(),
            connections: self.connections(key),
            overdue_now: 0,
            warmth: volume.warmth,
            counters: volume.id.and_then(|id| self.engine.volume_counters(id)).unwrap_or_default(),
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
