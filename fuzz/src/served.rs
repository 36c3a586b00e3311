//! What the data plane of the target `api` serves: two volumes, so that there is something to draw.

use cinnabar_config::messages::{
    CacheStatus, DataStatus, ModeCause, SizeStatus, State, VolumeStatus,
};
use cinnabar_config::settings::VolumeConfig;
use cinnabar_config::status::latency::Latencies;
use cinnabar_engine::seam::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::seam::health::Health;
use cinnabar_engine::seam::volume::Warmth;
use cinnabar_policy::planning::Totals;

/// What the second one's name has, which would be more than text where it is not escaped.
pub const MARKUP: &[u8] = b"<img src=x";
const CONFIG: &str = r#"
[cache]
device = "cache.img"
size = "1GiB"
[[volume]]
name = "vm1"
backend = "file:vm1.raw"
[[volume]]
name = "<img src=x onerror=odd()>&lt;"
backend = "file:odd.raw"
"#;

/// Says it.
///
/// # Panics
/// Never: the configuration is fine.
pub fn status() -> DataStatus {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("c.toml");
    std::fs::write(&path, CONFIG).expect("it is ours");
    let config = cinnabar_config::load(&path).expect("it is right");
    let counters = CacheCounters { capacity_blocks: 1 << 18, ..CacheCounters::default() };
    let cache = CacheStatus {
        device: config.cache.device.clone(),
        state: State::Serving,
        reason: String::new(),
        throttled: false,
        size: SizeStatus { bytes: 1 << 30, bytes_max: 1 << 30, ..SizeStatus::default() },
        health: Health::Serving,
        loaded: None,
        io: "threads".into(),
        shards: 1,
        threads: 1,
        counters,
        losses: 0,
        replacements: 0,
        detached_blocks: 0,
        ram: RamBytes::default(),
        edge_ram_bytes: 0,
        write_log: None,
        io_totals: Totals::default(),
    };
    let volumes = config.volumes.iter().cloned().map(volume).collect();
    DataStatus { cache, volumes, qos_groups: Vec::new() }
}

fn volume(config: VolumeConfig) -> VolumeStatus {
    let counters = VolumeCounters {
        reads: 1000,
        writes: 300,
        blocks_read: 1000,
        read_hits: 700,
        blocks_written: 300,
        backend_reads: 300,
        backend_writes: 300,
        ..VolumeCounters::default()
    };
    VolumeStatus {
        config,
        state: State::Serving,
        reason: String::new(),
        waiting: None,
        size_bytes: 1 << 30,
        connections: 1,
        guest_waited: 0,
        overdue_now: 0,
        oldest: None,
        backend_size_bytes: 1 << 30,
        warmth: Warmth::New,
        counters,
        read_hits_log: 0,
        latencies: Latencies::default(),
        write_back: None,
        mode_by_operator: false,
        mode_cause: ModeCause::default(),
        qos: None,
        parent: None,
        migration: None,
        hybrid: None,
    }
}
