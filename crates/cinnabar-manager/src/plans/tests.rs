//! Questions change nothing.

use super::*;
use crate::{act::Actuation, history::History, modes::Modes, watch::Watch};
use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::samplers::samplers;
use cinnabar_config::messages::{CacheStatus, SizeStatus, Waker, channel};
use cinnabar_engine::seam::Op;
use cinnabar_engine::seam::counters::{CacheCounters, RamBytes};
use cinnabar_engine::seam::health::Health;
use cinnabar_engine::seam::units::{ByteSpan, Instant as SeamInstant};
use cinnabar_policy::planning::{MeasuredPrices, Totals};
use std::sync::Arc;

/// Blocks of the cache: curves reach twice as far.
const CAPACITY: u64 = 1 << 20;

#[derive(Debug)]
struct Quiet;

impl Waker for Quiet {
    fn wake(&self) {}
}

impl crate::thread::PlanListener for Quiet {
    fn planned(&self, _: &PlanReport) {}
}

fn status() -> DataStatus {
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
        counters: CacheCounters { capacity_blocks: CAPACITY, ..CacheCounters::default() },
        losses: 0,
        replacements: 0,
        detached_blocks: 0,
        ram: RamBytes::default(),
        edge_ram_bytes: 0,
        write_log: None,
        io_totals: Totals::default(),
    };
    DataStatus { cache, volumes: Vec::new(), qos_groups: Vec::new() }
}

/// A manager whose volume reads 400 MiB twice: sizes above 256 MiB tell something.
fn manager() -> Manager {
    let config = ManagerConfig::default();
    let streams = samplers(1, config.every_us(), config.monitor.seed, Instant::now());
    let volume = streams.samplers.watch("vm1");
    let mut watch = Watch::new(streams, &config, CAPACITY);
    for number in 0..200_u64 {
        let span = ByteSpan::new(number % 100 * 1024 * BLOCK_BYTES, 1024 * BLOCK_BYTES);
        let at_us = 1_000_000 + number * 1000;
        volume.note(0, SeamInstant(at_us * 1000), &Op::Read { span, data: () });
        assert!(!watch.look(at_us + 200_000), "no interval ends");
    }
    let (commands, asked) = channel(Arc::new(Quiet));
    std::thread::spawn(move || {
        for message in &asked {
            let Message::Status(answer) = message else { panic!("not expected: {message:?}") };
            drop(answer.send(Ok(status())));
        }
    });
    Manager {
        budget: None,
        watch,
        config,
        commands,
        actuation: Actuation::default(),
        modes: Modes::default(),
        history: History::default(),
        prices: MeasuredPrices::default(),
        hits: BTreeMap::new(),
        adopted: BTreeMap::new(),
        over: false,
        listener: Arc::new(Quiet),
    }
}

#[test]
fn what_a_tiny_cache_would_do_cuts_no_curves() {
    let mut manager = manager();
    let seen = |manager: &mut Manager| {
        let (report, _, seen) = manager.preview(None).expect("there is an answer");
        assert_eq!(report.capacity_bytes, CAPACITY * BLOCK_BYTES);
        let curves = &seen["vm1"].curves;
        assert!(curves.read_hits.reaches(0.99) > 1 << 16, "{}", curves.read_hits.reaches(0.99));
        format!("{curves:?}")
    };
    let before = seen(&mut manager);
    let tiny = manager.what_if(None, Some(1)).expect("there is an answer");
    assert_eq!(tiny.capacity_bytes, BLOCK_BYTES);
    assert_eq!(seen(&mut manager), before);
}
