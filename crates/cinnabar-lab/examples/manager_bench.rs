//! What the manager costs: of a hit on a data thread, and of a plan of many volumes on its own.
//!
//! `cargo xtask bench manager`.

use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::samplers::{SampledVolume, samplers};
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{Config, Op};
use cinnabar_manager::watch::Watch;
use cinnabar_policy::reuse::Filter;
use cinnabar_study::instant::plain_volume;
use cinnabar_study::{CacheSetup, InstantCache};
use std::sync::Arc;
use std::time::Duration;

/// Blocks of the cache whose hits are timed.
const CAPACITY: u64 = 1 << 18;
/// Hits in one go, and goes of each kind, in turns.
const HITS: u64 = 200_000;
const GOES: usize = 15;
/// Volumes of which plans are made, and what each does.
const VOLUMES: [usize; 4] = [16, 100, 300, 1000];
const INTERVALS: u64 = 3;
const READS: u64 = 20_000;
const SET_BLOCKS: u64 = 100_000;
const PLAN_CAPACITY: u64 = 1 << 28;

fn main() {
    hits();
    plans();
}

/// The same hits without a manager, with one whose sample has few of the blocks, and with one that takes
/// all of them.
fn hits() {
    let mut cache = InstantCache::new(CacheSetup::single(CAPACITY, Config::default()));
    let volume = cache.attach(plain_volume("vm", CAPACITY / 2));
    let blocks = CAPACITY / 4;
    for _ in 0..3 {
        (0..blocks).for_each(|block| cache.read(volume, block, 1));
    }
    let streams = samplers(1, 60_000_000, 1, std::time::Instant::now());
    let few = streams.samplers.watch("few");
    few.publish(Filter::new(1, u64::MAX / 64));
    let all = streams.samplers.watch("all");
    let ways: [Option<&Arc<SampledVolume>>; 3] = [None, Some(&few), Some(&all)];
    let mut times: [Vec<f64>; 3] = Default::default();
    let mut seed = 1_u64;
    for _ in 0..GOES {
        for (way, times) in ways.iter().zip(&mut times) {
            let begun = std::time::Instant::now();
            for n in 0..HITS {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let block = (seed >> 33) % blocks;
                if let Some(watched) = way {
                    let span = ByteSpan::new(block * 4096, 4096);
                    watched.note(0, Instant(n), &Op::Read { span, data: () });
                }
                cache.read(volume, block, 1);
            }
            times.push(begun.elapsed().as_nanos() as f64 / HITS as f64);
            // The manager's part, on another thread in a daemon.
            streams.queues[0].try_iter().for_each(drop);
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let [off, few, all] = times.each_mut().map(median);
    println!("a hit of one block, in the engine alone: {off:.1} ns");
    println!(
        "  with a manager, 1/64 of the blocks sampled: {:+.1} % ({few:.1} ns)",
        more(few, off)
    );
    println!("  with a manager, all blocks sampled: {:+.1} % ({all:.1} ns)", more(all, off));
}

fn more(with: f64, without: f64) -> f64 {
    (with / without - 1.0) * 100.0
}

/// Plans of many volumes: how long one takes, and how much RAM there is.
fn plans() {
    for volumes in VOLUMES {
        let config = ManagerConfig { every: Duration::from_secs(1), ..ManagerConfig::default() };
        let streams =
            samplers(1, config.every_us(), config.monitor.seed, std::time::Instant::now());
        let watched: Vec<_> =
            (0..volumes).map(|volume| streams.samplers.watch(&format!("vm{volume}"))).collect();
        let mut watch = Watch::new(streams, &config, PLAN_CAPACITY);
        let (mut seed, mut longest, mut taken) = (1_u64, Duration::ZERO, 0);
        for interval in 0..=INTERVALS {
            for (at, volume) in watched.iter().enumerate() {
                for n in 0..READS / 100 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at as u64 | 1);
                    let first = (seed >> 33) % SET_BLOCKS;
                    let span = ByteSpan::new(first * 4096, 100 * 4096);
                    let at_us = interval * 1_000_000 + 200_000 + n;
                    volume.note(0, Instant(at_us * 1000), &Op::Read { span, data: () });
                }
                // As often as a manager looks.
                watch.look(interval * 1_000_000 + 900_000);
            }
            while watch.look((interval + 1) * 1_000_000 + 150_000) {
                let begun = std::time::Instant::now();
                let Some(ended) = watch.end() else { break };
                longest = longest.max(begun.elapsed());
                taken += 1;
                assert_eq!(ended.lost, 0, "nothing is dropped");
            }
        }
        println!(
            "{volumes} volumes: a plan takes {:.1} ms at most ({taken} plans), {:.1} MiB of RAM",
            longest.as_secs_f64() * 1e3,
            watch.ram_bytes() as f64 / f64::from(1 << 20),
        );
    }
}
