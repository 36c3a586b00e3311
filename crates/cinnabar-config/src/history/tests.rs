//! Histories made of statuses, and what becomes of them as bytes.

use crate::VolumeInput;
use crate::history::*;
use crate::settings::{VolumeConfig, VolumeMode};
use crate::status::latency::{Latencies, LatencyRecorder};
use crate::status::raw::{CacheStatus, DataStatus, ModeCause, SizeStatus, State, VolumeStatus};
use cinnabar_engine::seam::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::seam::health::Health;
use cinnabar_engine::seam::volume::Warmth;
use cinnabar_policy::planning::Totals;
use proptest::prelude::*;
use std::path::Path;

/// Some time, a multiple of every step.
const T0: u64 = 1_800_000_000_000;

fn config(name: &str) -> VolumeConfig {
    let nbd = Some("unix:vm.sock".to_owned());
    let input = VolumeInput {
        name: name.into(),
        backend: "file:vm.raw".into(),
        nbd,
        ..VolumeInput::default()
    };
    input.check(Path::new("/")).expect("it is fine")
}

fn volume(name: &str, reads: u64) -> VolumeStatus {
    read_on(&mut LatencyRecorder::new(), name, reads)
}

/// It reads on, up to this number.
fn read_on(recorder: &mut LatencyRecorder, name: &str, reads: u64) -> VolumeStatus {
    (recorder.summary().count..reads).for_each(|_| recorder.record_ns(75_000));
    let latencies = Latencies { read: recorder.summary(), ..Latencies::default() };
    let counters = VolumeCounters {
        reads,
        blocks_read: 2 * reads,
        read_hits: reads,
        misses: reads,
        cached_blocks: 5,
        share_blocks: 7,
        own_shares: 1,
        ..VolumeCounters::default()
    };
    VolumeStatus {
        config: config(name),
        state: State::Serving,
        reason: String::new(),
        waiting: None,
        size_bytes: 1 << 30,
        connections: 1,
        guest_waited: 0,
        overdue_now: 0,
        oldest: None,
        backend_size_bytes: 0,
        warmth: Warmth::New,
        counters,
        read_hits_log: 0,
        latencies,
        write_back: None,
        mode_by_operator: false,
        mode_cause: ModeCause::default(),
        qos: None,
        parent: None,
        migration: None,
        hybrid: None,
    }
}

fn status(volumes: Vec<VolumeStatus>, flash_written_bytes: u64) -> DataStatus {
    let cache = CacheStatus {
        device: "/cache.img".into(),
        state: State::Serving,
        reason: String::new(),
        throttled: false,
        size: SizeStatus::default(),
        health: Health::Serving,
        loaded: None,
        io: "threads".into(),
        shards: 1,
        threads: 1,
        counters: CacheCounters {
            capacity_blocks: 100,
            cached_blocks: 50,
            flash_written_bytes,
            ..CacheCounters::default()
        },
        losses: 0,
        replacements: 0,
        detached_blocks: 0,
        ram: RamBytes::default(),
        edge_ram_bytes: 0,
        write_log: None,
        io_totals: Totals::default(),
    };
    DataStatus { cache, volumes, qos_groups: Vec::new() }
}

fn points(history: &History, volume: Option<&str>, step: Step) -> Vec<Point> {
    history.points(volume, step, 0).map(|points| points.copied().collect()).unwrap_or_default()
}

/// A day, a look each 10 s, at a volume that reads once a second.
fn day(history: &mut History, from: u64) {
    let mut recorder = LatencyRecorder::new();
    for at in (from..=from + 86_400).step_by(10) {
        let volume = read_on(&mut recorder, "vm1", at);
        history.look(T0 + at * 1000, &status(vec![volume], at * 4096));
    }
}

#[test]
fn each_resolution_keeps_its_number_of_points_and_every_count() {
    let mut history = History::default();
    day(&mut history, 0);
    for step in Step::ALL {
        for name in [None, Some("vm1")] {
            let points = points(&history, name, step);
            assert_eq!(points.len(), step.points_max(), "{step:?} {name:?}");
            let seconds = step.seconds();
            for (point, next) in points.iter().zip(&points[1..]) {
                assert_eq!(next.at_s - point.at_s, seconds);
                assert_eq!((point.span_ms, point.reads), (seconds * 1000, seconds));
                assert_eq!((point.read_blocks, point.hit_blocks), (2 * seconds, seconds));
                assert_eq!(point.read_mean_us, 75);
                assert!((50..=100).contains(&point.read_p99_us), "{point:?}");
            }
            let written = if name.is_none() { seconds } else { 0 };
            assert_eq!(points[3].ssd_written_blocks, written);
            let level = if name.is_none() { (50, 100) } else { (5, 7) };
            assert_eq!((points[3].held_blocks, points[3].share_blocks), level);
        }
    }
    let since = T0 + (86_400 - 60) * 1000;
    let last = history.points(Some("vm1"), Step::Fine, since).expect("it is known");
    assert_eq!(last.count(), 6, "those that ended after it");
    assert!(history.points(Some("vm2"), Step::Fine, 0).is_none());
}

#[test]
fn a_volume_that_comes_again_counts_from_nothing() {
    let mut history = History::default();
    for (at, reads) in [(0, 1000), (10, 1010), (20, 4), (30, 6)] {
        history.look(T0 + at * 1000, &status(vec![volume("vm1", reads)], 0));
    }
    let reads: Vec<u32> =
        points(&history, Some("vm1"), Step::Fine).iter().map(|p| p.reads).collect();
    assert_eq!(reads, [10, 4, 2]);
    // It leaves, and its points stay for as long as any others.
    history.look(T0 + 40_000, &status(vec![], 0));
    history.look(T0 + 50_000, &status(vec![volume("vm1", 900)], 0));
    history.look(T0 + 60_000, &status(vec![volume("vm1", 901)], 0));
    let reads: Vec<u32> =
        points(&history, Some("vm1"), Step::Fine).iter().map(|p| p.reads).collect();
    assert_eq!(reads, [10, 4, 2, 1]);
    let last = T0 / 1000 + 60;
    assert_eq!(history.points(Some("vm1"), Step::Coarse, 0).expect("it is known").count(), 1);
    // There was no look for two days, which were not its.
    history.look(T0 + 86_400_000, &status(vec![], 0));
    let points: Vec<u32> =
        points(&history, Some("vm1"), Step::Coarse).iter().map(|p| p.at_s).collect();
    assert_eq!(points.last().copied().map(u64::from), Some(last));
    history.look(T0 + 2 * 86_400_000, &status(vec![], 0));
    assert_eq!(history.volumes().count(), 0, "its last point is too old");
}

#[test]
fn what_is_done_in_the_last_moment_is_counted() {
    let mut history = History::default();
    for (at_ms, reads) in [(0, 0), (10_000, 5), (10_400, 12)] {
        history.look(T0 + at_ms, &status(vec![volume("vm1", reads)], 0));
    }
    history.close(T0 + 10_500);
    for step in Step::ALL {
        let points = points(&history, Some("vm1"), step);
        assert_eq!(points.len(), 1);
        assert_eq!((points[0].reads, points[0].span_ms, points[0].read_mean_us), (12, 10_400, 75));
    }
}

#[test]
fn a_clock_that_is_set_costs_points_but_nothing_else() {
    let mut history = History::default();
    for at in [0, 10, 20, 30] {
        history.look(T0 + at * 1000, &status(vec![volume("vm1", at)], 0));
    }
    for at in [15, 25, 35] {
        history.look(T0 + at * 1000, &status(vec![volume("vm1", 30 + at)], 0));
    }
    let times: Vec<u32> = points(&history, None, Step::Fine).iter().map(|p| p.at_s).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert_eq!(u64::from(times[times.len() - 1]), T0 / 1000 + 35);
    history.look(T0 * 2, &status(vec![volume("vm1", 70)], 0));
    history.look(T0 * 2 + 10_000, &status(vec![volume("vm1", 71)], 0));
    assert_eq!(points(&history, None, Step::Fine).len(), 2);
}

#[test]
fn volumes_are_bounded_and_those_that_left_go_first() {
    let many = |from: usize, to: usize| {
        status((from..to).map(|number| volume(&format!("v{number}"), 0)).collect(), 0)
    };
    let mut history = History::default();
    history.look(T0, &many(0, SERIES_MAX));
    history.look(T0 + 10_000, &many(0, SERIES_MAX));
    assert_eq!((history.volumes().count(), history.left_out()), (SERIES_MAX, 0));
    history.look(T0 + 20_000, &many(0, SERIES_MAX + 3));
    assert_eq!((history.volumes().count(), history.left_out()), (SERIES_MAX, 3));
    history.look(T0 + 30_000, &many(2, SERIES_MAX + 3));
    assert_eq!((history.volumes().count(), history.left_out()), (SERIES_MAX, 1));
    assert!(history.points(Some("v0"), Step::Fine, 0).is_none(), "it has left");
    assert!(history.points(Some("v2"), Step::Fine, 0).is_some());
}

#[test]
fn the_bytes_of_a_full_history_are_bounded_and_come_back_the_same() {
    let mut history = History::default();
    day(&mut history, 7);
    history.close(T0 + 86_409_000);
    let bytes = encode(&history);
    assert!(bytes.len() < BYTES_MAX);
    let back = decode(&bytes).expect("it was just written");
    for step in Step::ALL {
        for name in [None, Some("vm1")] {
            assert_eq!(points(&back, name, step), points(&history, name, step));
        }
    }
    assert_eq!(encode(&back), bytes);
    // The next run goes on behind it.
    let mut back = back;
    let before = points(&back, Some("vm1"), Step::Fine).len();
    back.look(T0 + 86_420_000, &status(vec![volume("vm1", 3)], 0));
    back.look(T0 + 86_430_000, &status(vec![volume("vm1", 5)], 0));
    let points = points(&back, Some("vm1"), Step::Fine);
    assert_eq!(points[points.len() - 1].reads, 2);
    assert!(points.len() <= before + 1);
}

#[test]
fn what_is_not_a_history_is_refused() {
    let mut history = History::default();
    history.look(T0, &status(vec![volume("vm1", 3)], 0));
    history.look(T0 + 10_000, &status(vec![volume("vm1", 4)], 0));
    let good = encode(&history);
    assert_eq!(decode(&[]).map(drop), Err(FileError::Foreign));
    assert_eq!(decode(b"{\"volumes\":[1,2,3,4,5,6]}").map(drop), Err(FileError::Foreign));
    let mut other = good.clone();
    other[8] = 2;
    assert_eq!(decode(&other).map(drop), Err(FileError::Version(2)));
    assert_eq!(decode(&good[..good.len() - 1]).map(drop), Err(FileError::Length));
    for at in 0..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 0x10;
        decode(&damaged).map(drop).expect_err("a bit has flipped");
    }
}

/// A head that is right for these bytes: what they say is looked at, not their checksum.
fn with_head(rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"CINNHIST\x01\0\0\0".to_vec();
    bytes.extend_from_slice(&(rest.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(rest).to_le_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

proptest! {
    #[test]
    fn no_bytes_panic_and_what_is_accepted_is_written_the_same(
        rest in proptest::collection::vec(any::<u8>(), 0..200),
        at in 0_usize..80,
    ) {
        let mut history = History::default();
        for seconds in [0, 10, 20] {
            history.look(T0 + seconds * 1000, &status(vec![volume("vm1", seconds)], 0));
        }
        let whole = encode(&history)[24..].to_vec();
        let at = at.min(whole.len());
        let spliced = [&whole[..at], &rest].concat();
        for rest in [&rest, &spliced] {
            if let Ok(history) = decode(&with_head(rest)) {
                let again = decode(&encode(&history)).expect("it was just written");
                prop_assert_eq!(encode(&again), encode(&history));
            }
        }
    }
}

fn kinds(watcher: &mut Watcher, status: &DataStatus) -> Vec<(EventKind, Option<String>)> {
    watcher.look(T0, status).into_iter().map(|event| (event.kind, event.volume)).collect()
}

#[test]
fn events_are_what_differs_between_two_statuses() {
    use EventKind::*;
    let vm = |name: &str| Some(name.to_owned());
    let mut watcher = Watcher::default();
    let mut now = status(vec![volume("vm1", 0), volume("vm2", 0)], 0);
    assert_eq!(kinds(&mut watcher, &now), [], "nothing is known of before");
    assert_eq!(kinds(&mut watcher, &now), []);
    now.volumes[0].config.mode = VolumeMode::WriteAround;
    now.volumes[0].mode_cause = ModeCause::Plan;
    now.volumes[1].state = State::Failed;
    now.volumes[1].reason = "x".repeat(1000);
    let events = watcher.look(T0, &now);
    assert_eq!(events[0].kind, ModeChanged);
    assert_eq!(
        (events[0].before.as_deref(), events[0].after.as_deref()),
        (Some("write-through"), Some("write-around"))
    );
    assert_eq!(events[0].reason.as_deref(), Some("planned"));
    assert_eq!((events[1].kind, &events[1].volume), (VolumeFailed, &vm("vm2")));
    assert_eq!(events[1].reason.as_ref().map(String::len), Some(512));
    now.volumes[0].config.mode = VolumeMode::PassThrough;
    now.volumes[0].mode_cause = ModeCause::Opened;
    assert_eq!(watcher.look(T0, &now)[0].reason, None);
    now.volumes[1] = volume("vm2", 0);
    now.volumes[0].state = State::Degraded;
    let events = kinds(&mut watcher, &now);
    assert_eq!(events, [(VolumeChanged, vm("vm1")), (VolumeAttached, vm("vm2"))]);
    now.volumes.remove(0);
    now.volumes.push(volume("vm3", 0));
    let events = kinds(&mut watcher, &now);
    assert_eq!(events, [(VolumeDetached, vm("vm1")), (VolumeAttached, vm("vm3"))]);
    // Lost and replaced between two looks.
    now.cache.losses = 1;
    now.cache.replacements = 1;
    now.cache.device = "/new.img".into();
    let events = watcher.look(T0, &now);
    assert_eq!((events[0].kind, events[0].before.as_deref()), (DeviceLost, Some("/cache.img")));
    assert_eq!((events[1].kind, events[1].after.as_deref()), (DeviceReplaced, Some("/new.img")));
    now.cache.state = State::Failed;
    assert_eq!(kinds(&mut watcher, &now), [(CacheChanged, None)]);
}
