//! The command line: its shape, its help, what people see.

use super::Cli;
use super::status::render;
use cinnabar_config::settings::Ack;
use cinnabar_config::status::latency::{Latencies, LatencyRecorder};
use cinnabar_config::status::raw::{
    CacheStatus, DataStatus, Loaded, LogHalfState, LogHalfStatus, ModeCause, PaceReason,
    PaceStatus, ParentStatus, SizeStatus, State, VolumeStatus, Waiting, WriteBackStatus,
    WriteLogCounters, WriteLogStatus, WriteMemoryStatus,
};
use cinnabar_config::status::report::StatusReport;
use cinnabar_engine::counters::{Bypassed, CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::health::{Health, LoadReport, Start};
use cinnabar_engine::volume::{DropReason, Warmth};
use cinnabar_text::cli::told::assert_told;
use clap::{CommandFactory, Parser};
use std::path::Path;
use std::time::Duration;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split(' '))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn what_is_promised_is_understood() {
    for line in [
        "cinnabar serve --config c.toml",
        "cinnabar serve --config c.toml --force --io threads",
        "cinnabar serve --demo --dir d",
        "cinnabar status --socket a.sock --json",
        "cinnabar status --watch --interval 0.5",
        "cinnabar status --watch --window 5min --window 24h --json",
        "cinnabar volume list --socket a.sock",
        "cinnabar volume add v --backend file:x --mode write-around --share-min 10% --read-only",
        "cinnabar volume set v --mode pass-through --socket a.sock",
        "cinnabar volume remove v --force --discard-dirty",
        "cinnabar volume set v --share-max 10%",
        "cinnabar reload",
        "cinnabar reload --dry-run --remove-volumes --json --socket a.sock",
        "cinnabar volume invalidate v --socket a.sock",
        "cinnabar volume invalidate v --range 1GiB+64KiB",
        "cinnabar cache replace new.img --size 8GiB --format",
        "cinnabar cache resize 16GiB",
        "cinnabar cache resize 512MiB --no-wait --json --socket a.sock",
        "cinnabar cache abandon",
        "cinnabar cache check cache.img --all --json",
        "cinnabar cache dump cache.img --what superblock,journal --entries --json",
        "cinnabar cache repair cache.img --cold --yes --json",
        "cinnabar cache writeback write.log --volume vm1 --to file:vm1.raw --claim c --json",
        "cinnabar config check c.toml",
        "cinnabar trace record vm1 vm2 --out r.csv.zst --duration 1h --max-size 1GiB --json",
        "cinnabar trace record --all --out r.csv --socket c.sock",
        "cinnabar analyze --json --html - t.csv",
        "cinnabar simulate",
        "cinnabar bench spc1 --help",
        "cinnabar trace info -- --odd",
        "cinnabar version --json",
        "cinnabar completions zsh",
        "cinnabar man d",
        "cinnabar report --output r.tar.gz --device d --config c --json",
    ] {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "cinnabar",
        "cinnabar serve",
        "cinnabar serve --config c.toml --demo",
        "cinnabar serve --config c.toml --dir d",
        "cinnabar serve --demo --io fast",
        "cinnabar status --interval 0",
        "cinnabar status --window 5min",
        "cinnabar status --watch --window 2h",
        "cinnabar volume add v",
        "cinnabar volume set v --mode write-behind",
        "cinnabar volume invalidate",
        "cinnabar volume invalidate v --range 5",
        "cinnabar volume invalidate v --range 0+0",
        "cinnabar volume invalidate v --range 5+-1",
        "cinnabar volume invalidate v --range 1G+1G",
        "cinnabar volume invalidate v --range 9223372036854775807+18446744073709551615",
        "cinnabar cache",
        "cinnabar cache replace",
        "cinnabar cache resize",
        "cinnabar cache check",
        "cinnabar cache dump cache.img --what all",
        "cinnabar cache writeback write.log --volume vm1",
        "cinnabar cache writeback write.log --to vm1.raw",
        "cinnabar trace",
        "cinnabar trace record --out r.csv",
        "cinnabar trace record vm1",
        "cinnabar trace record vm1 --all --out r.csv",
        "cinnabar trace record vm1 --out r.csv --duration 5",
        "cinnabar trace record vm1 --out r.csv --max-size 4G",
        "cinnabar frobnicate",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn a_range_is_read_as_it_is_meant() {
    let line = "cinnabar volume invalidate v --range 1MiB+4KiB";
    let text = format!("{:?}", parse(line).expect("it is a range"));
    assert!(text.contains("offset: Some(1048576), len: Some(4096)"), "{text}");
}

#[test]
fn help_has_examples_and_defaults() {
    // `serve --demo` and `--config` are a choice without a default.
    assert_told(&mut Cli::command(), &["config", "demo"]);
}

pub(super) fn sample(reads: u64) -> DataStatus {
    let input = cinnabar_config::VolumeInput {
        name: "vm1".into(),
        backend: "file:/srv/vm1.raw".into(),
        ..cinnabar_config::VolumeInput::default()
    };
    let mut recorder = LatencyRecorder::new();
    recorder.record(85_000, 512);
    recorder.record_ns(8_100_000);
    let volume = VolumeStatus {
        config: input.check(Path::new("/base")).expect("valid settings"),
        mode_by_operator: false,
        mode_cause: ModeCause::default(),
        state: State::Serving,
        reason: String::new(),
        waiting: None,
        size_bytes: 20 << 30,
        connections: 1,
        guest_waited: 0,
        overdue_now: 2,
        oldest: Some(Duration::from_millis(12_340)),
        backend_size_bytes: 30 << 30,
        warmth: Warmth::Dropped { blocks: 512, reason: DropReason::BackendChanged },
        read_hits_log: 0,
        counters: VolumeCounters {
            reads,
            blocks_read: reads,
            read_hits: reads / 4 * 3,
            misses: reads - reads / 4 * 3,
            backend_overdue: 3,
            backend_errors: 5,
            refused: 12,
            bypassed: Bypassed { sequential: 512, no_space: 256, ..Bypassed::default() },
            ..VolumeCounters::default()
        },
        latencies: Latencies { read: recorder.summary(), ..Latencies::default() },
        write_back: Some(sample_write_back()),
        qos: None,
        parent: Some(sample_parent()),
        migration: None,
        hybrid: None,
    };
    let cache = CacheStatus {
        device: "/ssd/cache.img".into(),
        health: Health::Loading { pages: 250, of: 1000 },
        loaded: Some(sample_loaded()),
        state: State::Degraded,
        reason: "the SSD is gone".into(),
        io: "uring, direct".into(),
        shards: 1,
        threads: 1,
        losses: 1,
        replacements: 2,
        detached_blocks: 256,
        throttled: false,
        size: SizeStatus::default(),
        counters: CacheCounters { capacity_blocks: 1000, ..CacheCounters::default() },
        ram: RamBytes { address_map: 8000, descriptors: 7000, ghost: 4000, ..RamBytes::default() },
        edge_ram_bytes: 0,
        write_log: Some(sample_write_log()),
        io_totals: cinnabar_policy::planning::Totals::default(),
    };
    DataStatus { cache, volumes: vec![volume], qos_groups: Vec::new() }
}

fn sample_loaded() -> Loaded {
    let report = LoadReport {
        start: Start::Crashed,
        blocks: 2560,
        overwritten_blocks: 256,
        ..LoadReport::default()
    };
    Loaded { report, took: Duration::from_millis(420) }
}

fn sample_write_log() -> WriteLogStatus {
    WriteLogStatus {
        device: "/ssd/writes.img".into(),
        reason: String::new(),
        size_bytes: 64 << 20,
        used_bytes: 4 << 20,
        ram_bytes: 1 << 20,
        counters: WriteLogCounters { absorbed: 3, ..WriteLogCounters::default() },
        memory: Some(WriteMemoryStatus {
            path: "/dev/shm/cinnabar/log.memory".into(),
            size_bytes: 64 << 20,
            used_bytes: 1 << 20,
            age: Duration::from_secs(2),
        }),
        halves: vec![
            sample_half("/ssd/writes.img", LogHalfState::Alone, ""),
            sample_half("/other/writes.img", LogHalfState::Missing, "it did not answer in time"),
        ],
    }
}

fn sample_half(device: &str, state: LogHalfState, reason: &str) -> LogHalfStatus {
    LogHalfStatus { device: device.into(), state, reason: reason.to_owned(), read_errors: 2 }
}

fn sample_parent() -> ParentStatus {
    ParentStatus {
        name: "golden".into(),
        reason: String::new(),
        reads: 40,
        blocks: 768,
        repeated: 1,
        objects: 5120,
        own_objects: 7,
    }
}

fn sample_write_back() -> WriteBackStatus {
    WriteBackStatus {
        dirty_bytes: 3 << 20,
        dirty_age: Duration::from_millis(4200),
        epochs: 7,
        destaged_bytes: 9 << 20,
        destaged_writes: 11,
        pace: PaceStatus { at_most: Some(4), reason: PaceReason::Slow, miss_ns: (9, 5) },
        damaged: false,
        leaving: true,
        ack: Ack::Memory,
        claim: "/srv/vm1.raw.cinnabar-claim".into(),
        group: "vm".into(),
        waits_for: Some("vm1-wal".into()),
    }
}

#[test]
fn the_status_is_readable() {
    let report = |reads| StatusReport::new(&sample(reads));
    let text = render(&report(40_000), &[]);
    for part in [
        "/ssd/cache.img",
        "degraded: the SSD is gone",
        "19.0 B a block",
        "write-through",
        "75.0%",
        "40.0k",
        "85us/8.1ms",
        "vm1: dropped 2.0 MiB from the last run: the backend was changed",
        "after a crash, 10.0 MiB known after 0.4 s, 1.0 MiB dropped as overwritten",
        "1.0 MiB of volumes that are not attached",
        "given up 1 times, replaced 2 times",
        "/ssd/writes.img, 4.0 MiB of 64.0 MiB in use",
        "/ssd/writes.img, alone: no other one holds everything, 2 reads failed",
        "/other/writes.img, missing: it did not answer in time, 2 reads failed",
        "vm1: 3.0 MiB in the write log are not at its backend yet, the oldest for 4.2 s, on its way out",
        "they wait for earlier ones of volume \"vm1-wal\", of the same write group",
        "vm1: 3.0 MiB read from the cache of volume \"golden\"; it has 7 of 5120 objects itself",
        "; at most 4 requests at a time, for guests' reads of the backend have become slow",
        "vm1: 5 operations of the backend failed",
        "vm1: 12 requests were refused as invalid",
        "vm1: did not use the cache: 2.0 MiB in long sequential runs, 1.0 MiB for want of a free",
        "vm1: the backend has grown to 30.0 GiB, 20.0 GiB of it are served: `cinnabar volume resize vm1`",
        "vm1: 3 backend operations took too long, 2 of them are still under way",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    assert!(!text.contains("MB/s"), "{text}");
}

#[test]
fn a_volume_that_waits_says_why_and_until_when() {
    let mut status = sample(8);
    let volume = &mut status.volumes[0];
    (volume.state, volume.reason) = (State::Waiting, "backend /srv/vm1.raw: no such file".into());
    volume.waiting = Some(Waiting {
        tries: 3,
        since: Duration::from_millis(9_980),
        next_try: Some(Duration::from_secs(4)),
    });
    let report = StatusReport::new(&status);
    let text = render(&report, &[]);
    let line =
        "vm1: waiting: backend /srv/vm1.raw: no such file; tried 3 times in 10 s, next try in 4 s";
    assert!(text.contains(line), "{text}");
    let object = serde_json::to_value(&report).expect("it is JSON");
    assert_eq!(object["volumes"][0]["state"], "waiting");
    assert_eq!(object["volumes"][0]["waiting"]["next_try_s"], 4.0);
    let text = cinnabar_config::status::metrics::render(status).expect("it can be written");
    assert!(text.contains("cinnabar_volume_waiting{volume=\"vm1\"} 1"), "{text}");
    assert!(text.contains("cinnabar_volume_healthy{volume=\"vm1\"} 0"), "{text}");
}

const CACHE_KEYS: &[&str] = &[
    "capacity_blocks",
    "cached_blocks",
    "flash_written_bytes",
    "fills",
    "admitted",
    "trials",
    "evicted_blocks",
    "reinserted_blocks",
    "checksum_failures",
    "ram_bytes",
    "ram_bytes_per_block",
    "health",
    "loaded",
    "journal_records",
    "journal_writes",
    "journal_rebases",
    "active_regions",
    "doubt_blocks",
    "checkpoints",
    "device_losses",
];

/// The contract of `status --json`: these keys exist, whatever else does.
#[test]
fn the_json_has_the_promised_keys() {
    let report = StatusReport::new(&sample(8));
    let object = serde_json::to_value(&report).expect("it is JSON");
    let keys = |value: &serde_json::Value, keys: &[&str]| {
        for key in keys {
            assert!(!value[key].is_null(), "{key} is missing in {value}");
        }
    };
    keys(&object["cache"], CACHE_KEYS);
    let volume = &object["volumes"][0];
    keys(
        volume,
        &[
            "name",
            "mode",
            "state",
            "reads",
            "writes",
            "flushes",
            "blocks_read",
            "blocks_written",
            "read_bytes",
            "write_bytes",
            "read_hits",
            "misses",
            "partial_hits",
            "bypassed",
            "backend_reads",
            "backend_writes",
            "backend_read_bytes",
            "backend_write_bytes",
            "cached_blocks",
            "backend_overdue",
            "backend_overdue_now",
            "invalidation_waits",
            "region_writes",
            "invalidated_blocks",
        ],
    );
    for operation in ["read", "write", "flush"] {
        keys(&volume["latency_us"][operation], &["mean", "p50", "p99", "count"]);
    }
    assert_eq!(volume["mode"], "write-through");
    assert_eq!(volume["state"], "serving");
    assert_eq!(volume["warmth"]["state"], "dropped");
    assert_eq!(object["cache"]["health"]["state"], "loading");
    assert_eq!(object["cache"]["loaded"]["start"], "crashed");
    let again: StatusReport = serde_json::from_value(object).expect("it is read back");
    assert_eq!(again, report);
}

#[test]
fn metrics_follow_the_conventions() {
    let text = cinnabar_config::status::metrics::render(sample(8)).expect("it can be written");
    for line in [
        "cinnabar_volume_reads_total{volume=\"vm1\"} 8",
        "cinnabar_volume_read_hit_blocks_total{volume=\"vm1\"} 6",
        "cinnabar_volume_read_hit_bytes_total{volume=\"vm1\"} 24576",
        "cinnabar_volume_read_bytes_total{volume=\"vm1\"} 512",
        "cinnabar_volume_bypassed_blocks_total{volume=\"vm1\",reason=\"sequential\"} 512",
        "cinnabar_cache_admitted_blocks_total{reason=\"ghost\"} 0",
        "cinnabar_cache_trial_read_misses_total{way=\"closed\"} 0",
        "cinnabar_cache_capacity_bytes 4096000",
        "cinnabar_cache_healthy 0",
        "cinnabar_cache_device_losses_total 1",
        "cinnabar_cache_device_replacements_total 2",
        "cinnabar_cache_detached_bytes 1048576",
        "cinnabar_volume_backend_oldest_seconds{volume=\"vm1\"} 12",
        "cinnabar_volume_dirty_bytes{volume=\"vm1\"} 3145728",
        "cinnabar_volume_parent_used{volume=\"vm1\",parent=\"golden\"} 1",
        "cinnabar_volume_parent_read_blocks_total{volume=\"vm1\",parent=\"golden\"} 768",
        "cinnabar_volume_parent_own_objects{volume=\"vm1\",parent=\"golden\"} 7",
        "cinnabar_write_log_used_bytes 4194304",
        "cinnabar_write_log_half_state{device=\"/ssd/writes.img\",state=\"alone\"} 1",
        "cinnabar_write_log_half_state{device=\"/other/writes.img\",state=\"missing\"} 1",
        "cinnabar_write_log_half_state{device=\"/other/writes.img\",state=\"both\"} 0",
        "cinnabar_write_log_half_read_errors_total{device=\"/other/writes.img\"} 2",
        "cinnabar_write_memory_used_bytes 1048576",
        "cinnabar_write_memory_absorbed_bytes_total 12288",
        "cinnabar_volume_latency_seconds_count{volume=\"vm1\",operation=\"read\"} 2",
        "cinnabar_volume_latency_seconds_bucket{le=\"0.0001\",volume=\"vm1\",operation=\"read\"} 1",
        "cinnabar_volume_latency_seconds_bucket{le=\"+Inf\",volume=\"vm1\",operation=\"read\"} 2",
        "# TYPE cinnabar_volume_reads counter",
        "# EOF",
    ] {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
}
