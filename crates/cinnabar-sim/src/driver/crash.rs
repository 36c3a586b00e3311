//! Crashes: what becomes of the I/O that was under way, and of everything no flush covered.
//!
//! The daemon alone dies (its I/O is completed by the kernel, in part and perhaps late), or its host
//! loses power, or a backend's host does, or several of them.

use crate::driver::account::Left;
use crate::driver::agenda::Item;
use crate::driver::guests::{Asked, Pending, State, Volume};
use crate::driver::io::place_on;
use crate::driver::log::sectors_of;
use crate::driver::sessions::Stage;
use crate::driver::world::World;
use crate::kinds::Fault;
use crate::machine::{Factory, Machine};
use crate::medium::Transfer;
use crate::stamp::{BLOCK_SECTORS, Stamped};
use crate::violation::Violation;
use crate::workload::Plea;
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::chunk::CHUNK_BLOCKS;
use cinnabar_engine::{AtRisk, IoOp, Target};

/// What a crash leaves standing: a dead daemon's writes land within this time, in ns.
const LANDING_NS_MAX: u64 = 4_000_000_000;

/// What was cached at a crash, as far as a driver can tell.
#[derive(Clone, Debug)]
pub(super) struct CrashNote {
    /// Of each volume: blocks cached, by the machine's counters, and blocks of which the device
    /// holds a sound copy.
    pub(super) volumes: Vec<(u64, u64)>,
    /// Blocks that were in flight: in RAM only, being written to the log, not flushed there, in
    /// segments that were being emptied or that nothing durable speaks of yet.
    pub(super) at_risk: u64,
    /// Blocks on flash that came in while their backend had writes that no flush covered.
    pub(super) unflushed: u64,
    /// Of each volume: the blocks that must be there again, one by one.
    pub(super) settled: Vec<Vec<u64>>,
    /// Of each volume: whether shards may have recorded it differently. It was becoming larger: one
    /// that had not recorded that yet finds another disk. Or it was attached while the device was
    /// being replaced: one that was still without a device has asked for a new generation since.
    pub(super) uneven: Vec<bool>,
    /// Blocks that guests have asked to change since, before they were read.
    pub(super) changed: u64,
}

impl<F: Factory<Stamped>> World<'_, F> {
    pub(super) fn crash(&mut self, stage: Stage) -> Result<(), Violation> {
        let host = self.features().power_cuts && self.rng.chance(0.5);
        let host = self.steering.crash.take().unwrap_or(host);
        self.meet_crash(host);
        let backends = self.features().backend_power_cuts && self.rng.chance(0.5);
        self.log.milestone(self.now, || {
            format!("CRASH while {stage:?}; host loses power: {host}, backends: {backends}")
        });
        self.count.crashes += 1;
        self.count_resize_cut_short();
        self.tear_record();
        self.count_crash(stage, host);
        self.note_cached(host);
        self.tally();
        self.despair();
        self.land(host);
        let tick = self.oracle.tick();
        self.media.crash(tick);
        if host {
            let losses = self.media.cache.power_cut(&mut self.rng);
            self.log.milestone(self.now, || format!("the cache device's losses: {losses:?}"));
            self.count.faults.add_many(Fault::LostBlock, losses.lost);
            self.count.faults.add_many(Fault::TornPage, losses.torn_pages);
            self.count.faults.add_many(Fault::TornData, losses.torn_data);
        }
        for backend in 0..self.media.backends.len() {
            self.crash_backend(backend, backends)?;
        }
        if let Some(note) = &mut self.crash_note {
            let backends = &self.media.backends;
            let current = |volume: usize, block| Some(backends.get(volume)?.block(block));
            // A double's imaginary device has no log to look into.
            if self.media.cache.has_log() {
                let copies = self.media.cache.sound_copies(current);
                for (volume, (_, on_device)) in note.volumes.iter_mut().enumerate() {
                    *on_device = copies.get(&volume).copied().unwrap_or(0);
                }
            }
        }
        // What was sealed while there was no device, or before another one took its place, is not on it.
        let health = self.machine.as_ref().map(Machine::health);
        let in_use = matches!(health, Some(Health::Serving | Health::Loading { .. }))
            && self.present
            && !self.replaced;
        let known = self.accounts.iter_mut().zip(&self.media.backends).zip(&self.volumes);
        for ((account, backend), volume) in known {
            account.sealed_before_crash = in_use
                && volume.state() == State::Away
                && matches!(account.left, Left::Sealed { proven: true, .. });
            // Before the device is marked as in use, and once it may be marked as clean, what was
            // sealed may be believed, but need not.
            account.left = match account.left {
                Left::Sealed { proven, .. } if stage != Stage::Running => {
                    Left::Sealed { proven, blocks: None }
                }
                Left::Never => Left::Never,
                _ => Left::Lost,
            };
            if stage == Stage::Running {
                account.generation = backend.generation;
            }
        }
        self.forget_engine();
        Ok(())
    }

    fn count_crash(&mut self, stage: Stage, host: bool) {
        let health = self.machine.as_ref().map(Machine::health);
        let loading = matches!(health, Some(Health::Loading { .. }));
        self.count.faults.add(if host { Fault::PowerCut } else { Fault::Kill });
        match stage {
            Stage::Opening => self.count.faults.add(Fault::CrashInStart),
            Stage::Closing => self.count.faults.add(Fault::CrashInStop),
            Stage::Running if loading => self.count.faults.add(Fault::CrashInLoading),
            Stage::Running => {}
        }
    }

    /// How much of the cache must be there again.
    fn note_cached(&mut self, host: bool) {
        let Some(machine) = &self.machine else { return };
        let counters = machine.cache_counters();
        let volatile = if host { self.media.cache.volatile_log_blocks() } else { 0 };
        let serving = machine.health() == Health::Serving && self.present;
        let AtRisk { leaving, unannounced, unflushed, behind, doubt } = machine.at_risk();
        let cached = |volume: &Volume| {
            let counters = machine.counters_of(&volume.names);
            (counters.map_or(0, |counters| counters.cached_blocks), u64::MAX)
        };
        // A block is lost with the header of its chunk, which is not far before it.
        let chunk = u64::from(CHUNK_BLOCKS);
        let kept = |offset: u64| !host || !self.media.cache.is_volatile(offset, chunk);
        let settled = |(index, volume): (usize, &Volume)| {
            // One that is leaving is judged by numbers only: its shards are not equally far.
            if volume.state() != State::Attached {
                return Vec::new();
            }
            let changing = self.changing(index);
            let stays = |block: &u64| !changing.iter().any(|blocks| blocks.contains(block));
            let blocks = machine.settled_blocks(&volume.names).into_iter();
            let kept = blocks.filter(|(_, offset)| kept(*offset)).map(|(block, _)| block);
            kept.filter(stays).collect()
        };
        self.crash_note = serving.then(|| CrashNote {
            volumes: self.volumes.iter().map(cached).collect(),
            settled: self.volumes.iter().enumerate().map(settled).collect(),
            uneven: (0..self.volumes.len())
                .map(|volume| self.is_growing(volume) || self.accounts[volume].mixed)
                .collect(),
            changed: 0,
            unflushed,
            at_risk: counters.ram_blocks
                + counters.staged_blocks
                + volatile
                + self.media.blocks_in_flight()
                + leaving
                + unannounced
                + behind
                + doubt,
        });
    }

    /// What is changed between a crash and the look at what is left may be missing then.
    pub(super) fn note_change(&mut self, plea: Plea) {
        let span = match plea {
            Plea::Write(span, _) | Plea::Trim(span, _) | Plea::Zeroes(span, ..) => span,
            Plea::Read(_) | Plea::Flush => return,
        };
        if let Some(note) = &mut self.crash_note {
            note.changed += span.blocks();
        }
    }

    /// Blocks of a volume that requests under way are changing: they may be invalid already.
    fn changing(&self, volume: usize) -> Vec<std::ops::Range<u64>> {
        let of = |pending: &Pending| match &pending.asked {
            Asked::Write { ticket, .. } | Asked::Zeroes { ticket, .. } | Asked::Trim { ticket } => {
                Some(ticket.sectors())
            }
            Asked::Invalidate { span, .. } => Some(sectors_of(*span)),
            Asked::Read { .. } | Asked::Flush { .. } | Asked::Nonsense | Asked::Unasked => None,
        };
        let pending = self.pending.values().filter(|pending| pending.volume == volume);
        let doubtful = self.doubtful.iter().filter(|doubt| doubt.volume == volume);
        let doubtful = doubtful.map(|doubt| doubt.ticket.sectors());
        let sectors = pending.filter_map(of).chain(doubtful);
        let block = BLOCK_SECTORS as u64;
        sectors.map(|range| range.start / block..range.end.div_ceil(block)).collect()
    }

    /// The machine is gone: what it had under way happens or does not, part by part, now or late.
    fn land(&mut self, host: bool) {
        let late = !host && self.rng.chance(0.5);
        for mut flight in std::mem::take(&mut self.flights).into_values() {
            if flight.left {
                continue;
            }
            if let (IoOp::BumpGeneration { held }, Some(backend)) =
                (&flight.request().op, flight.transfer.backend())
                && self.rng.chance(0.5)
            {
                self.media.backends[backend].bump_generation(*held);
            }
            // Never handed to the kernel, or completed in the end.
            let issued = self.rng.chance(0.7);
            for part in std::mem::take(&mut flight.ahead) {
                if !issued || self.rng.chance(0.2) || self.is_dead(flight.request().target) {
                    self.media.miss(&flight.transfer, part);
                } else if late && flight.transfer.writes() {
                    self.land_late(&flight.transfer, part);
                } else {
                    self.media.effect(&mut flight.transfer, part);
                }
            }
        }
        if self.options.wait_for_lock {
            self.wait_for_lock();
        }
    }

    fn land_late(&mut self, transfer: &Transfer, part: std::ops::Range<usize>) {
        let to_cache = transfer.request.target == Target::Cache;
        let kind = if to_cache { Fault::LateCacheWrite } else { Fault::LateBackendWrite };
        self.count.faults.add(kind);
        let number = self.number();
        let longest = self.rng.pick(&[1_000_000, 500_000_000, LANDING_NS_MAX]);
        let at = self.now.plus_ns(self.rng.below(longest));
        self.late.insert(number, (at, transfer.clone(), part));
    }

    /// The lock that the dead daemon held is released after the last of its writes.
    fn wait_for_lock(&mut self) {
        let mut landing: Vec<_> = std::mem::take(&mut self.late).into_values().collect();
        landing.sort_by_key(|(at, _, _)| *at);
        for (at, mut transfer, part) in landing {
            self.advance(at);
            self.media.effect(&mut transfer, part);
        }
    }

    /// Without the lock, what is late lands while the next engine is at work.
    pub(super) fn schedule_late(&mut self) {
        for (number, (at, _, part)) in &self.late {
            self.agenda.enter((*at).max(self.now), Item::Late(*number, part.start, part.end));
        }
    }

    /// A dead daemon's write lands.
    pub(super) fn landed(&mut self, number: u64) {
        let Some((_, mut transfer, part)) = self.late.remove(&number) else { return };
        let request = &transfer.request;
        let place = place_on(transfer.backend(), request);
        self.log
            .note(self.now, place, || format!("LATE: a dead daemon's write lands: {request:?}"));
        self.media.effect(&mut transfer, part);
    }

    fn crash_backend(&mut self, backend: usize, power_cut: bool) -> Result<(), Violation> {
        let mut reverted = Vec::new();
        if power_cut && self.rng.chance(0.7) {
            self.count.faults.add(Fault::BackendPowerCut);
            reverted = self.media.backends[backend].power_cut(&mut self.rng);
            self.count.faults.add_many(Fault::RevertedSector, reverted.len() as u64);
            for &sector in &reverted {
                let value = self.media.backends[backend].sector(sector);
                let place = Some((backend, sector..sector + 1));
                self.log.note(self.now, place, || format!("POWER CUT: it went back to {value:?}"));
            }
        }
        let medium = &self.media.backends[backend];
        self.oracle.settled(backend, medium.sectors_of(0..medium.sectors()), &reverted)
    }
}
