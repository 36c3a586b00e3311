//! Counters against what happened, and what of it goes into the report.

use crate::driver::crash::CrashNote;
use crate::driver::guests::State;
use crate::driver::world::World;
use crate::kinds::Path;
use crate::machine::{Factory, Machine};
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_engine::Bound;
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::{Health, PassThroughReason};
use cinnabar_engine::units::BLOCK_BYTES;

/// Of so many blocks that were due after a crash, one may be missing: 0.5 %.
const LOST_ONE_OF: u64 = 200;

/// Ranges written while loading, above which no run has more.
const RANGES_MIN: usize = 1000;

/// What the media had counted when a session began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    written_blocks: u64,
    rotten_reads: u64,
    cache_errors: u64,
}

impl<F: Factory<Stamped>> World<'_, F> {
    pub(super) fn before(&self) -> Before {
        let (data, meta) = self.media.cache.written_blocks();
        Before {
            written_blocks: data + meta,
            rotten_reads: self.media.cache.rotten_reads(),
            cache_errors: self.count.cache_errors,
        }
    }

    /// Adds the machine's counters to the report, at the end of its session.
    pub(super) fn tally(&mut self) {
        let Some(machine) = &self.machine else { return };
        let cache = machine.cache_counters();
        let count = &mut self.count;
        count.partials_read += cache.partials_read;
        count.partials_completed += cache.partials_completed;
        count.ghost_hits += cache.admitted.ghost;
        count.evicted_blocks += cache.evicted_blocks;
        count.reinserted_blocks += cache.reinserted_blocks;
        count.checksum_failures += cache.checksum_failures;
        count.paths.add_many(Path::Checkpoints, cache.checkpoints);
        count.paths.add_many(Path::Rebases, cache.journal_rebases);
        if let Health::PassThrough(PassThroughReason::Failed(_)) = machine.health() {
            count.paths.add(Path::PassThroughFailed);
        }
        let crossings = machine.crossings();
        for &bound in Bound::ALL {
            count.bounds.add_many(bound, u64::from(crossings.of(bound)));
        }
        count.paths.add_many(Path::SplitRequests, machine.split_requests());
        for volume in &self.volumes {
            let counters = machine.counters_of(&volume.names).unwrap_or_default();
            count.read_hits += counters.read_hits;
            count.misses += counters.misses;
            count.partial_hits += counters.partial_hits;
            count.paths.add_many(Path::InvalidationWaits, counters.invalidation_waits);
            count.paths.add_many(Path::RegionWrites, counters.region_writes);
        }
    }

    /// A volume's counters against what its guest was served.
    pub(super) fn check_counters(&self) -> Result<(), Violation> {
        let machine = self.machine.as_ref().expect("a machine is alive");
        for (index, volume) in self.volumes.iter().enumerate() {
            let counters = volume.id().and_then(|id| machine.volume_counters(id));
            let served = volume.served;
            let (Some(counters), true) = (counters, volume.state() == State::Attached) else {
                continue;
            };
            if served.attaches != 1 || served.failures != 0 {
                continue;
            }
            let VolumeCounters { reads, writes, flushes, trims, zeroes, .. } = counters;
            let mut counted = [reads, writes, flushes, trims, zeroes];
            let told = [served.reads, served.writes, served.flushes, served.trims, served.zeroes];
            // Parts of a request count one by one, flushes do not; long trims and zeroes come in parts
            // to one shard, too.
            let in_parts: &[usize] = if machine.shards() > 1 { &[0, 1, 3, 4] } else { &[3, 4] };
            for &kind in in_parts {
                counted[kind] = told[kind].min(counted[kind]);
            }
            let blocks = counters.blocks_read == served.blocks_read
                && counters.blocks_written == served.blocks_written
                && counters.read_hits + counters.misses == counters.blocks_read;
            if counted != told || !blocks {
                let what = format!("volume {index} was served {served:?}, counts {counters:?}");
                return Err(Violation::new(Kind::Counters, what));
            }
        }
        Ok(())
    }

    /// The cache's counters against what its device saw.
    pub(super) fn check_cache_counters(&self, before: &Before) -> Result<(), Violation> {
        let machine = self.machine.as_ref().expect("a machine is alive");
        if self.replaced || !self.present {
            return Ok(());
        }
        let CacheCounters { flash_written_bytes, checksum_failures, device_errors, .. } =
            machine.cache_counters();
        let now = self.before();
        let written = now.written_blocks - before.written_blocks;
        let rotten = now.rotten_reads - before.rotten_reads;
        let sound = now.cache_errors == before.cache_errors && !self.media.cache.damaged;
        let wrong = if sound && checksum_failures > rotten {
            "more checksum failures than rotten blocks read"
        } else if sound && device_errors != 0 {
            "device errors without any"
        } else if sound && flash_written_bytes != written * BLOCK_BYTES {
            "not the bytes that were written"
        } else {
            return Ok(());
        };
        let what = format!(
            "{wrong}: flash_written_bytes {flash_written_bytes} ({written} blocks written), \
             checksum_failures {checksum_failures} ({rotten}), device_errors {device_errors}"
        );
        Err(Violation::new(Kind::Counters, what))
    }

    /// How many blocks must be there again, of volumes that are believed, and how many of them are
    /// not.
    fn missing(&self, note: &CrashNote) -> (u64, u64) {
        let machine = self.machine.as_ref().expect("a machine is alive");
        let (mut settled, mut missing) = (0, 0);
        for (volume, blocks) in self.volumes.iter().zip(&note.settled) {
            if volume.believed {
                settled += blocks.len() as u64;
                let gone = |block: &&u64| !machine.holds(&volume.names, **block);
                missing += blocks.iter().filter(gone).count() as u64;
            }
        }
        (settled, missing)
    }

    /// Blocks that shards have dropped of volumes that the others had recorded differently at the
    /// crash: those which had the size or the generation of now count as warm. A growth that was
    /// answered is recorded everywhere, and excuses nothing.
    fn dropped_as_uneven(&self, note: &CrashNote) -> u64 {
        let machine = self.machine.as_ref().expect("a machine is alive");
        let volumes = self.volumes.iter().zip(&note.uneven);
        let uneven = volumes.filter(|(volume, uneven)| **uneven && volume.believed);
        let counters = uneven.filter_map(|(volume, _)| machine.counters_of(&volume.names));
        counters.map(|counters| counters.dropped_blocks).sum()
    }

    /// After a crash: is what was durably cached back? All volumes are attached; if the index is
    /// not loaded yet, this time nothing looks.
    pub(super) fn check_crash_warm(&mut self) -> Result<(), Violation> {
        let (Some(note), Some(report)) = (self.crash_note.take(), self.loaded) else {
            return Ok(());
        };
        let damaged = self.media.cache.damaged || self.options.cold_after_crash;
        if damaged || self.has_few_indices() {
            return Ok(());
        }
        // What is written while the index is being loaded is remembered in few ranges, which grow
        // together where there are more.
        if note.changed > 0 && self.profile.setup.config.bounds.passed_ranges < RANGES_MIN {
            return Ok(());
        }
        let machine = self.machine.as_ref().expect("a machine is alive");
        let (mut due, mut back) = (0, 0);
        for (volume, (cached, on_device)) in self.volumes.iter().zip(&note.volumes) {
            if volume.believed {
                // The device holds copies that are invalid, and may have lost what the machine counts:
                // what is due is not more than either.
                due += cached.min(on_device);
                let counters = machine.counters_of(&volume.names);
                back += counters.map_or(0, |counters| counters.cached_blocks);
            }
        }
        // Not all that was unflushed is met when the index is loaded: segments may be invalid by then.
        let unflushed = report.unflushed_blocks.max(note.unflushed);
        due = u64::saturating_sub(due, note.at_risk + note.changed + unflushed);
        self.count.crash_blocks_before += due;
        self.count.crash_blocks_back += back.min(due);

        // Rot comes to light when it is read, and costs no more than itself.
        let CacheCounters { evicted_blocks, checksum_failures, .. } = machine.cache_counters();
        let evicted = evicted_blocks + checksum_failures;
        let (settled, missing) = self.missing(&note);
        self.count.crash_blocks_settled += settled;
        self.count.crash_blocks_missing += missing;
        self.count.crashes_warm += u64::from(due.max(settled) > 0);
        let gone = u64::saturating_sub(due, back).max(missing.saturating_sub(note.changed));
        let dropped = self.dropped_as_uneven(&note);
        let lost = gone.saturating_sub(evicted + dropped);
        if lost * LOST_ONE_OF > due.max(settled) {
            let CrashNote { volumes, at_risk, changed, unflushed, .. } = &note;
            let what = format!(
                "{lost} blocks are lost: of {due} that were due {back} are there, of {settled} one by \
                 one {missing} are missing; {volumes:?}, {at_risk} at risk, {unflushed} not \
                 flushed and {changed} changed at the crash; loaded: {report:?}, {evicted} evicted or rotten, \
                 {dropped} dropped where shards disagree"
            );
            return Err(Violation::new(Kind::Cold, what));
        }
        Ok(())
    }
}
