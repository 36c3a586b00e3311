//! The lives of a cache: start, guests at work, clean stop or crash, and what happens in between.
//!
//! Called by [`run`](super::run).

use crate::driver::commands::Control;
use crate::driver::guests::{Left, State};
use crate::driver::world::{Halt, World};
use crate::machine::{Factory, Machine};
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use crate::workload::Ending;
use cinnabar_engine::Command;
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES};

/// Length of the reads that look at everything, in sectors.
const SWEEP_SECTORS: u64 = 512;

/// How far a life has come, as far as its crash matters to what may be believed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Running,
    Closing,
}

/// What the media had counted when a life began.
#[derive(Clone, Copy, Debug)]
struct Before {
    written_blocks: u64,
    rotten_reads: u64,
    cache_errors: u64,
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// The whole run.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        let lives = self.profile.lives.clone();
        let quota = self.options.requests / lives.len() as u64;
        for (number, &ending) in lives.iter().enumerate() {
            let last = number + 1 == lives.len();
            let mut stage = Stage::Opening;
            match self.live(ending, quota, last, &mut stage) {
                Ok(()) => self.count.stops += 1,
                Err(Halt::Broken(violation)) => return Err(violation),
                Err(Halt::Crash) => self.crash(stage),
            }
            self.between_lives();
        }
        Ok(())
    }

    fn live(
        &mut self,
        ending: Ending,
        quota: u64,
        sweep: bool,
        stage: &mut Stage,
    ) -> Result<(), Halt> {
        self.fuse = (ending == Ending::CrashInStart).then(|| self.dice.below(20));
        let before = self.before();
        self.start(quota, stage)?;
        self.faults_on = true;
        if ending == Ending::Crash {
            let left = self.dice.below(quota + 1);
            self.pump(|world| world.quota <= left)?;
            self.fuse = Some(self.dice.below(100));
        }
        let calm = self.dice.chance(0.7);
        self.pump(|world| world.quota == 0 && (!calm || world.pending.is_empty()))?;
        if matches!(ending, Ending::Crash | Ending::CrashInStart) {
            return Err(Halt::Crash);
        }
        self.faults_on = false;
        self.pump(|world| {
            let settled = |state| matches!(state, State::Attached | State::Away);
            world.volumes.iter().all(|volume| settled(volume.state))
        })?;
        if sweep || self.dice.chance(0.5) {
            self.sweep()?;
        }
        if ending == Ending::CrashInStop {
            self.fuse = Some(self.dice.below(30));
        }
        self.stop(&before, stage)?;
        if ending == Ending::CrashInStop { Err(Halt::Crash) } else { Ok(()) }
    }

    fn before(&self) -> Before {
        let (data, meta) = self.media.cache.written_blocks();
        Before {
            written_blocks: data + meta,
            rotten_reads: self.media.cache.rotten_reads(),
            cache_errors: self.count.cache_errors,
        }
    }

    fn start(&mut self, quota: u64, stage: &mut Stage) -> Result<(), Halt> {
        let superblocks = [self.media.cache.page(0), self.media.cache.page(1)];
        let machine = self.factory.start(&self.profile.setup, &superblocks).map_err(|error| {
            Violation::new(Kind::Warmth, format!("the superblock is not one any more: {error}"))
        })?;
        self.machine = Some(machine);
        self.command(Control::Open, Command::Open);
        self.pump(|world| world.controls.is_empty())?;
        *stage = Stage::Running;
        self.quota = quota;
        for volume in 0..self.volumes.len() {
            self.volumes[volume].served.attaches = 0;
            self.attach(volume);
        }
        self.pump(|world| world.controls.is_empty())
    }

    /// Reads every sector of every volume that is attached, for the oracle to judge.
    fn sweep(&mut self) -> Result<(), Halt> {
        self.pump(|world| world.pending.is_empty())?;
        for volume in 0..self.volumes.len() {
            if self.volumes[volume].state != State::Attached {
                continue;
            }
            let sectors = self.profile.volumes[volume].sectors;
            for first in (0..sectors).step_by(SWEEP_SECTORS as usize) {
                let count = SWEEP_SECTORS.min(sectors - first);
                let span = ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES);
                self.look(volume, span);
            }
            self.pump(|world| world.pending.is_empty())?;
        }
        Ok(())
    }

    fn stop(&mut self, before: &Before, stage: &mut Stage) -> Result<(), Halt> {
        if self.pending.is_empty() {
            self.check_counters()?;
        }
        for volume in 0..self.volumes.len() {
            if self.volumes[volume].state == State::Attached {
                self.detach(volume);
            }
        }
        self.pump(|world| world.volumes.iter().all(|volume| volume.state == State::Away))?;
        if !self.pending.is_empty() {
            let what = "a detach was answered before the volume's requests";
            return Err(Violation::new(Kind::NoReply, what).into());
        }
        *stage = Stage::Closing;
        self.command(Control::Close, Command::Close);
        self.pump(|world| world.controls.is_empty())?;
        self.fuse = None;
        if !self.flights.is_empty() {
            let what = format!("I/O is under way after the close: {:?}", self.flights);
            return Err(Violation::new(Kind::BadIo, what).into());
        }
        self.check_cache_counters(before)?;
        self.machine.as_ref().expect("a machine is alive").check_invariants();
        self.remember_blocks();
        self.tally();
        self.forget_engine();
        Ok(())
    }

    fn crash(&mut self, stage: Stage) {
        self.count.crashes += 1;
        self.log.note(self.now, None, || format!("crash while {stage:?}"));
        self.tally();
        self.land_or_vanish();
        self.despair();
        for volume in &mut self.volumes {
            // Before the device is marked as in use, and once it may be marked as clean, what was
            // sealed may be believed, but need not.
            volume.left = match std::mem::replace(&mut volume.left, Left::Lost) {
                Left::Sealed { proof, .. } if stage != Stage::Running => {
                    Left::Sealed { proof, blocks: None }
                }
                Left::Never if stage == Stage::Opening => Left::Never,
                _ => Left::Lost,
            };
        }
        self.forget_engine();
    }

    fn forget_engine(&mut self) {
        self.machine = None;
        self.agenda.clear();
        self.controls.clear();
        self.sent.clear();
        self.batch.clear();
        self.wake = None;
        self.fuse = None;
        self.quota = 0;
        self.faults_on = false;
        self.volumes.iter_mut().for_each(super::guests::Volume::reset);
    }

    fn between_lives(&mut self) {
        for volume in 0..self.volumes.len() {
            if self.dice.chance(0.3) {
                self.write_behind(volume);
            }
        }
        if self.features().rot {
            for _ in 0..self.dice.below(10) {
                self.count.rotted += u64::from(self.media.cache.rot(&mut self.dice));
            }
        }
    }

    /// Adds the machine's counters to the report, at the end of its life.
    fn tally(&mut self) {
        let Some(machine) = &self.machine else { return };
        let cache = machine.cache_counters();
        self.count.ghost_hits += cache.admitted.ghost;
        self.count.evicted_blocks += cache.evicted_blocks;
        self.count.carried_blocks += cache.carried_blocks;
        self.count.checksum_failures += cache.checksum_failures;
        for volume in self.volumes.iter().filter_map(|volume| volume.id) {
            let counters = machine.volume_counters(volume).unwrap_or_default();
            self.count.read_hits += counters.read_hits;
            self.count.misses += counters.misses;
            self.count.partial_hits += counters.partial_hits;
        }
    }

    /// A volume's counters against what its guest was served.
    fn check_counters(&self) -> Result<(), Violation> {
        let machine = self.machine.as_ref().expect("a machine is alive");
        for (index, volume) in self.volumes.iter().enumerate() {
            let counters = volume.id.and_then(|id| machine.volume_counters(id));
            let served = volume.served;
            let (Some(counters), true) = (counters, volume.state == State::Attached) else {
                continue;
            };
            if served.attaches != 1 || served.failures != 0 {
                continue;
            }
            let VolumeCounters { reads, writes, flushes, trims, zeroes, .. } = counters;
            let counted = [reads, writes, flushes, trims, zeroes];
            let told = [served.reads, served.writes, served.flushes, served.trims, served.zeroes];
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
    fn check_cache_counters(&self, before: &Before) -> Result<(), Violation> {
        let machine = self.machine.as_ref().expect("a machine is alive");
        let CacheCounters { flash_written_bytes, checksum_failures, device_errors, .. } =
            machine.cache_counters();
        let now = self.before();
        let written = now.written_blocks - before.written_blocks;
        let rotten = now.rotten_reads - before.rotten_reads;
        let sound = now.cache_errors == before.cache_errors;
        let wrong = if checksum_failures > rotten {
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
}
