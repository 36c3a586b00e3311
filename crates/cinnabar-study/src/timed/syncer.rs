//! A syncer: every so often it writes on what is dirty by then, oldest first, a few at a time.
//!
//! A block counts as clean from the moment its write sets out; a write to it meanwhile makes it
//! dirty again.

use super::config;
use super::config::{Config, WritePolicy};
use super::host::{FLASH, RAM};
use super::jobs::{Job, Kind, Stage};
use super::model::Model;
use super::recency::{DIRTY, IN_FLASH};
use std::collections::VecDeque;

/// Blocks that became dirty and what to do about it.
#[derive(Debug)]
pub(super) struct Syncer {
    pub(super) period_ns: u64,
    depth: u32,
    /// In the order in which they became dirty. Some are clean again, or gone.
    dirty: VecDeque<u32>,
    /// Entries of this pass to come.
    pass: usize,
    under_way: u32,
}

impl Syncer {
    /// For a tier with this policy, if it is one of a syncer.
    pub(super) fn new(config: &Config, policy: WritePolicy) -> Option<Self> {
        let WritePolicy::Periodic(seconds) = policy else { return None };
        let period_ns = (u64::from(seconds) * 1_000_000_000 / u64::from(config.scale)).max(1);
        let depth = config.syncer_depth;
        Some(Self { period_ns, depth, dirty: VecDeque::new(), pass: 0, under_way: 0 })
    }

    #[inline]
    pub(super) fn add(&mut self, block: u32) {
        self.dirty.push_back(block);
    }
}

impl Model<'_> {
    /// A period is over: a pass begins, or one that is late takes in what is dirty by now.
    pub(super) fn tick(&mut self, now: u64, id: u32) {
        let Job { host, kind, .. } = self.jobs[id];
        let Kind::Tick(tier) = kind else { return };
        let (host, tier) = (usize::from(host), usize::from(tier));
        let Some(syncer) = &mut self.hosts[host].syncers[tier] else { return };
        syncer.pass = syncer.dirty.len();
        let next = now + syncer.period_ns;
        self.at(next, id, Stage::Take);
        self.sync_on(now, host, tier);
    }

    /// One of a syncer's writes is done.
    pub(super) fn synced(&mut self, now: u64, host: usize, tier: usize) {
        if let Some(syncer) = &mut self.hosts[host].syncers[tier] {
            syncer.under_way -= 1;
        }
        self.sync_on(now, host, tier);
    }

    fn sync_on(&mut self, now: u64, host: usize, tier: usize) {
        while let Some(block) = self.next_dirty(host, tier) {
            let job =
                Job { moving: block, ..Job::new(Kind::Syncer(tier as u8), host, Stage::Down) };
            let id = self.add_job(job);
            if tier == RAM {
                self.down(now, id);
            } else {
                self.leave_flash(now, id, Stage::DownDone);
            }
        }
    }

    /// Takes the next block of the pass that is still dirty and marks it clean.
    fn next_dirty(&mut self, number: usize, tier: usize) -> Option<u32> {
        let unified = self.config.architecture == config::Architecture::Unified;
        let host = &mut self.hosts[number];
        loop {
            let syncer = host.syncers[tier].as_mut()?;
            if syncer.pass == 0 || syncer.under_way == syncer.depth {
                return None;
            }
            syncer.pass -= 1;
            let block = syncer.dirty.pop_front()?;
            let word_of = if unified { RAM } else { tier };
            let word = host.words[block as usize][word_of];
            let here = !unified || (word & IN_FLASH != 0) == (tier == FLASH);
            if word & DIRTY != 0 && here {
                syncer.under_way += 1;
                host.mark_clean(word_of, block);
                return Some(block);
            }
        }
    }
}
