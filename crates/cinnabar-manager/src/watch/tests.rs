//! What the watch makes of accesses is what a planner makes of the requests themselves.

use super::*;
use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::samplers::samplers;
use cinnabar_engine::seam::Op;
use cinnabar_engine::seam::units::{ByteSpan, Instant};
use cinnabar_policy::monitor::Sampling;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

const SECOND_US: u64 = 1_000_000;
const CAPACITY: u64 = 20_000;

fn config() -> ManagerConfig {
    let mut config = ManagerConfig { every: Duration::from_secs(1), ..ManagerConfig::default() };
    // Few, so that thresholds fall.
    config.monitor.sampling = Sampling::Blocks(NonZeroU32::new(64).expect("it is not 0"));
    config
}

/// Requests of three volumes over some seconds, one of them quiet: time, volume, blocks, writes.
fn requests() -> Vec<(u64, usize, Range<u64>, bool)> {
    let mut seed = 7_u64;
    let mut draw = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut at_us = 300_000;
    let one = |_| {
        at_us += 1 + draw(2000) + if draw(500) == 0 { 2 * SECOND_US } else { 0 };
        let volume = [2, 2, 2, 0, 0, 1][draw(6) as usize];
        let first = draw([4000, 1, 9000][volume]);
        (at_us, volume, first..first + draw(90), draw(3) == 0)
    };
    (0..6000).map(one).collect()
}

/// The digests of plans made of the requests themselves.
fn offline(config: &ManagerConfig) -> Vec<(u64, u64)> {
    let mut planning = Planning::new(config.cut(), config.monitor, config.rules, CAPACITY);
    let mut numbers = Vec::new();
    let mut closed = Vec::new();
    for (at_us, volume, blocks, is_write) in requests() {
        let known = numbers.iter().position(|known| *known == volume);
        let number = known.unwrap_or_else(|| {
            numbers.push(volume);
            numbers.len() - 1
        });
        closed.extend(planning.request(at_us, number, blocks, is_write));
    }
    closed.iter().map(|closed| (closed.interval.number, closed.digest())).collect()
}

fn note(volume: &SampledVolume, thread: usize, at_us: u64, blocks: &Range<u64>, is_write: bool) {
    let span = ByteSpan::new(blocks.start * 4096, (blocks.end - blocks.start) * 4096);
    let op = match is_write {
        _ if span.len == 0 => Op::Flush,
        true => Op::Write { span, data: (), fua: false },
        false => Op::Read { span, data: () },
    };
    volume.note(thread, Instant(at_us * 1000), &op);
}

/// The digests of plans of a running manager that looks every `tick` requests; volumes are served by
/// `threads`.
fn live(config: &ManagerConfig, threads: usize, tick: usize) -> (Vec<(u64, u64)>, u64) {
    let streams =
        samplers(threads, config.every_us(), config.monitor.seed, std::time::Instant::now());
    let volumes = ["a", "b", "c"].map(|name| streams.samplers.watch(name));
    let mut watch = Watch::new(streams, config, CAPACITY);
    let (mut found, mut lost) = (Vec::new(), 0);
    let all = requests();
    for (n, (at_us, volume, blocks, is_write)) in all.iter().enumerate() {
        // Some are passed to the first thread.
        let thread = if n % 7 == 0 { 0 } else { volume % threads };
        note(&volumes[*volume], thread, *at_us, blocks, *is_write);
        if n % tick == 0 {
            look(&mut watch, *at_us, &mut found, &mut lost);
        }
    }
    look(&mut watch, u64::MAX, &mut found, &mut lost);
    (found, lost)
}

fn look(watch: &mut Watch, now_us: u64, found: &mut Vec<(u64, u64)>, lost: &mut u64) {
    while watch.look(now_us) {
        let ended = watch.end().expect("it can be ended");
        *lost += ended.lost;
        found.push((ended.closed.interval.number, ended.closed.digest()));
    }
}

#[test]
fn plans_are_those_of_the_requests_themselves() {
    let config = config();
    let expected = offline(&config);
    assert!(expected.len() > 10, "{} intervals", expected.len());
    for (threads, tick) in [(1, 1), (1, 20), (3, 7), (2, 60)] {
        let (found, lost) = live(&config, threads, tick);
        assert_eq!((found, lost), (expected.clone(), 0), "{threads} threads, every {tick}");
    }
}

#[test]
fn a_volume_that_leaves_gives_its_number_back() {
    let config = config();
    let streams = samplers(1, config.every_us(), 1, std::time::Instant::now());
    let samplers = Arc::clone(&streams.samplers);
    let mut watch = Watch::new(streams, &config, CAPACITY);
    let (mut found, mut lost) = (Vec::new(), 0);
    let mut at_us = 0;
    for round in 0..5 {
        let names = [format!("short-{round}"), "long".to_owned()];
        let volumes = names.map(|name| samplers.watch(&name));
        for _ in 0..100 {
            at_us += SECOND_US / 40;
            for volume in &volumes {
                note(volume, 0, at_us, &(0..50), false);
            }
            look(&mut watch, at_us, &mut found, &mut lost);
        }
        for volume in &volumes {
            volume.leave();
        }
    }
    assert_eq!(watch.names().len(), 3, "{:?}", watch.names());
    assert!(samplers.volumes().len() <= 4, "those that left are let go of");
    assert_eq!(lost, 0);
}

#[test]
fn volumes_that_come_and_go_without_a_request_are_let_go_of() {
    let config = config();
    let streams = samplers(1, config.every_us(), 1, std::time::Instant::now());
    let samplers = Arc::clone(&streams.samplers);
    let mut watch = Watch::new(streams, &config, CAPACITY);
    // Nothing is open at first, and then one interval stays so.
    for n in 0..40 {
        let quiet = samplers.watch(&format!("quiet-{n}"));
        quiet.leave();
        if n == 20 {
            note(&samplers.watch("busy"), 0, SECOND_US, &(0..5), false);
        }
        assert!(!watch.look(2 * SECOND_US), "no interval ends");
    }
    let left: Vec<String> = samplers.volumes().iter().map(|one| one.name.clone()).collect();
    assert_eq!(left, ["busy"]);
}
