//! The production engine under an allocator's plans.
//!
//! Shares are maxima: together they are the cache, so no volume takes another's room; a minimum of
//! one block makes each volume's group its own, even if it has everything. A volume without room is
//! passed through.
//!
//! The engine is run without a write log, so a volume to be written back runs in write-through, which
//! caches the same blocks. What its writes would have been follows from the counters: a write that was
//! kept would have been acknowledged by the SSD, one that found its block cached would have saved a
//! destage. A hit on a block that was clean counts as saved, too, so destages are a lower bound; room
//! that was short counts against writes.

use super::CompareError;
use super::outcome::{Counts, Outcome};
use super::plans::Division;
use super::survey::SEGMENT_BLOCKS;
use crate::analysis::Part;
use crate::instant::{CacheSetup, InstantCache, plain_volume};
use cinnabar_engine::Config;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::limits::{DATA_BYTES_MAX, VOLUME_BLOCKS_MAX};
use cinnabar_engine::plan::{Mode, Plan, VolumePlan};
use cinnabar_engine::units::{BLOCK_BYTES, VolumeId};
use cinnabar_policy::sizing::WritePolicy;
use std::ops::Range;

/// Blocks of a request to the engine at most.
const BLOCKS_MAX: u64 = DATA_BYTES_MAX / BLOCK_BYTES;

/// The cache, and what was counted in the intervals before.
pub struct Replayed {
    cache: InstantCache,
    volumes: Vec<VolumeId>,
    policies: Vec<WritePolicy>,
    before: Vec<VolumeCounters>,
    outcome: Outcome,
}

impl Replayed {
    /// An empty cache; its clock moves by `request_ns` with each request.
    ///
    /// # Panics
    /// If the engine takes no such cache or so many volumes.
    pub fn new(capacity_blocks: u64, volumes: usize, request_ns: u64) -> Self {
        let mut cache = InstantCache::new(CacheSetup::single(capacity_blocks, Config::default()));
        cache.set_request_ns(request_ns);
        let name = |volume: usize| format!("volume{volume}");
        let attach = |volume| cache.attach(plain_volume(&name(volume), VOLUME_BLOCKS_MAX));
        Self {
            volumes: (0..volumes).map(attach).collect(),
            policies: vec![WritePolicy::Back; volumes],
            before: vec![VolumeCounters::default(); volumes],
            outcome: Outcome { volumes: vec![Counts::default(); volumes], ..Outcome::default() },
            cache,
        }
    }

    /// Ends what was counted under the last plan and goes over to another one.
    pub fn adopt(&mut self, plan: &Division) {
        self.count();
        let Division::Divided(shares) = plan else { return };
        let change = |((volume, part), segments): ((&VolumeId, &Part), u64)| VolumePlan {
            volume: *volume,
            mode: Some(match part.policy {
                _ if segments == 0 => Mode::PassThrough,
                WritePolicy::Bypass => Mode::PassThrough,
                WritePolicy::ReadOnly => Mode::WriteAround,
                WritePolicy::Through | WritePolicy::Back => Mode::WriteThrough,
            }),
            share_min_blocks: Some(segments.min(1)),
            share_max_blocks: Some(segments * SEGMENT_BLOCKS),
            share_target_blocks: None,
            fill_limit_bytes: None,
        };
        let segments = in_segments(shares);
        let volumes = self.volumes.iter().zip(shares).zip(segments).map(change).collect();
        self.cache.adopt(Plan { volumes, ..Plan::default() });
        self.policies = (0..shares.len()).map(|volume| plan.policy(volume)).collect();
    }

    /// Carries out a read or write of a volume's blocks.
    pub fn request(&mut self, volume: usize, blocks: Range<u64>, is_write: bool) {
        let volume = self.volumes[volume];
        let mut first = blocks.start;
        while first < blocks.end {
            let count = (blocks.end - first).min(BLOCKS_MAX);
            if is_write {
                self.cache.write(volume, first, count);
            } else {
                self.cache.read(volume, first, count);
            }
            first += count;
        }
    }

    /// Blocks held by each volume, in RAM and on flash.
    pub fn cached_blocks(&mut self) -> Vec<u64> {
        let held = |volume: &VolumeId| self.cache.volume_counters(*volume).cached_blocks;
        self.volumes.iter().map(held).collect()
    }

    /// Of the blocks held, those in RAM only.
    pub fn ram_blocks(&mut self) -> u64 {
        let counters = self.cache.cache_counters();
        counters.ram_blocks + counters.staged_blocks
    }

    /// What was counted.
    ///
    /// # Errors
    /// If the engine refused requests.
    pub fn finish(mut self) -> Result<Outcome, CompareError> {
        self.count();
        let counters = self.cache.cache_counters();
        self.outcome.ssd_writes = counters.flash_written_bytes.div_ceil(BLOCK_BYTES);
        self.outcome.ssd_writes_back = self.outcome.ssd_writes + self.outcome.total().writes_back;
        match self.cache.failures() {
            0 => Ok(self.outcome),
            refused => Err(CompareError::Refused(refused)),
        }
    }

    fn count(&mut self) {
        for (at, volume) in self.volumes.iter().enumerate() {
            let now = self.cache.volume_counters(*volume);
            let before = std::mem::replace(&mut self.before[at], now);
            let counts = &mut self.outcome.volumes[at];
            let writes = now.blocks_written - before.blocks_written;
            counts.reads += now.blocks_read - before.blocks_read;
            counts.read_hits += now.read_hits - before.read_hits;
            counts.writes += writes;
            let (now_by, by) = (now.bypassed, before.bypassed);
            let unkept = (now_by.write_not_reused - by.write_not_reused)
                + (now_by.pass_through - by.pass_through)
                + (now_by.no_space - by.no_space);
            let is_back = self.policies[at] == WritePolicy::Back;
            let kept = if is_back { writes.saturating_sub(unkept) } else { 0 };
            counts.writes_back += kept;
            counts.backend_writes += writes - kept.min(now.write_hits - before.write_hits);
        }
    }
}

/// Shares in whole segments, no more in all than they are together: the volumes that lost most by
/// rounding down get the segments that are left.
fn in_segments(parts: &[Part]) -> Vec<u64> {
    let mut segments: Vec<u64> = parts.iter().map(|part| part.blocks / SEGMENT_BLOCKS).collect();
    let all = parts.iter().map(|part| part.blocks).sum::<u64>() / SEGMENT_BLOCKS;
    let left = all - segments.iter().sum::<u64>();
    let mut by_loss: Vec<usize> = (0..parts.len()).collect();
    by_loss.sort_by_key(|at| std::cmp::Reverse(parts[*at].blocks % SEGMENT_BLOCKS));
    by_loss.into_iter().take(left as usize).for_each(|at| segments[at] += 1);
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_whole_and_none_is_lost() {
        let parts = |blocks: &[u64]| -> Vec<Part> {
            blocks.iter().map(|&blocks| Part { blocks, policy: WritePolicy::Back }).collect()
        };
        assert_eq!(in_segments(&parts(&[255 * 3, 0, 255])), [3, 0, 1]);
        assert_eq!(in_segments(&parts(&[100, 200, 255 + 10])), [0, 1, 1]);
        assert_eq!(in_segments(&parts(&[254])), [0]);
    }
}
