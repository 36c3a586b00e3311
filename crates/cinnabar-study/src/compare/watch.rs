//! Volumes watched as `analyze` and a live manager watch them, interval by interval.

use super::Options;
use super::input::Step;
use crate::analysis::{Curves, Every, Interval};
use cinnabar_policy::Monitor;
use cinnabar_policy::monitor::Settings;
use cinnabar_trace::{Op, Record};
use std::ops::Range;

/// A monitor, and when it was looked at last.
#[derive(Debug)]
pub struct Watch {
    monitor: Monitor,
    every: Every,
    first_us: Option<u64>,
}

/// An interval that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How long it was, in seconds, without what the trace does not cover.
    pub seconds: f64,
    /// What volumes did, earlier intervals included with what they still weigh.
    pub curves: Vec<Curves>,
    /// What is left of its weight in the next one, from 0 to 1.
    pub left: f64,
}

impl Watch {
    /// One that has seen nothing.
    pub fn new(options: &Options, every: Every) -> Self {
        let monitor = Monitor::new(Settings {
            sampling: options.look.sampling(),
            seed: options.seed,
            decay: options.decay,
            reuses_min: options.reuses_min,
        });
        Self { monitor, every, first_us: None }
    }

    /// The same, which also simulates what the engine would do with parts of a cache of so many blocks.
    pub fn with_engine(options: &Options, every: Every, capacity_blocks: u64) -> Self {
        let mut watch = Self::new(options, every);
        watch.monitor.simulate_engine(capacity_blocks);
        watch
    }

    /// So many volumes are there before they do anything.
    pub fn expect(&mut self, volumes: usize) {
        if let Some(last) = volumes.checked_sub(1) {
            self.monitor.extend(last, []);
        }
    }

    /// A step of a pass; says what was seen if an interval ends with it.
    pub fn step(&mut self, step: &Step<'_>) -> Option<Ended> {
        match step {
            Step::Request(record) => {
                self.first_us.get_or_insert(record.ts_us);
                let (blocks, is_write) = blocks_of(record).unwrap_or_default();
                let volume = record.volume as usize;
                self.monitor.extend(volume, blocks.map(|block| (block, is_write)));
                None
            }
            Step::End { found, next_us } => Some(self.end(found, *next_us)),
        }
    }

    fn end(&mut self, found: &Interval, next_us: Option<u64>) -> Ended {
        let first_us = self.first_us.unwrap_or(0);
        let ended = self.every.end(found, first_us, next_us);
        let of = |curves| Curves::Sampled(Box::new(curves));
        let curves = self.monitor.curves().map(of).collect();
        let left = self.monitor.end_intervals(ended.passed);
        Ended { seconds: ended.seconds, curves, left }
    }
}

/// The blocks that a request refers to, and whether it writes them.
pub(super) fn blocks_of(record: &Record) -> Option<(Range<u64>, bool)> {
    match record.op {
        Op::Read => Some((record.blocks(), false)),
        Op::Write => Some((record.blocks(), true)),
        Op::Flush | Op::Discard => None,
    }
}
