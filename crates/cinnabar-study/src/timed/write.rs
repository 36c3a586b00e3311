//! The way of a write: into RAM, and down to flash and the file server as the policies say.
//!
//! Blocks change places at once, and waiting comes afterwards: the thread that needs the room of a
//! dirty block waits until that block is written.

use super::config::{Architecture, Config, WritePolicy};
use super::host::{FLASH, RAM, Victim};
use super::jobs::{Job, Kind, Stage};
use super::model::{FlashAt, Model};
use super::recency::IN_FLASH;
use super::station::Way;

impl Model<'_> {
    #[inline]
    pub(super) fn write_block(&mut self, now: u64, id: u32) {
        let Job { host: number, block, measured, .. } = self.jobs[id];
        let number = usize::from(number);
        self.outcome.block_writes += u64::from(measured);
        if self.config.hosts > 1 {
            self.invalidate_elsewhere(now, number, block, measured);
        }
        if self.hosts[number].ram.capacity() == 0 {
            let job = &mut self.jobs[id];
            (job.moving, job.then) = (block, Stage::Finish);
            return self.down(now, id);
        }
        let unified = self.is(Architecture::Unified);
        let host = &mut self.hosts[number];
        let victim = if unified { host.keep_in_frame(block) } else { host.keep_in_ram(block) };
        let in_flash = host.word(RAM, block) & IN_FLASH != 0;
        self.jobs[id].in_flash = in_flash;
        if Config::keeps_dirty(self.policy_of(in_flash)) {
            self.hosts[number].mark_dirty(RAM, block);
        }
        match victim.filter(|victim| victim.is_dirty()) {
            Some(victim) if victim.flags & IN_FLASH != 0 => {
                self.jobs[id].moving = victim.block;
                self.outcome.dirty_evictions_flash += u64::from(self.measuring);
                self.leave_flash(now, id, Stage::Store);
            }
            Some(victim) => self.evict_from_ram(now, id, victim, Stage::Store),
            None => self.store(now, id),
        }
    }

    /// The policy of the frame that a block is written to.
    fn policy_of(&self, in_flash: bool) -> WritePolicy {
        if in_flash { self.flash_policy } else { self.ram_policy }
    }

    /// A write makes other hosts' copies void, at once and free.
    fn invalidate_elsewhere(&mut self, now: u64, writer: usize, block: u32, measured: bool) {
        let mut copies = false;
        for number in (0..self.config.hosts as usize).filter(|number| *number != writer) {
            copies |= self.hosts[number].forget(block);
        }
        if self.engines.is_some() {
            copies |= self.invalidate_block(now, writer, block);
        }
        self.outcome.invalidating_writes += u64::from(copies && measured);
    }

    /// A dirty block has to leave RAM; then the requester goes on.
    pub(super) fn evict_from_ram(&mut self, now: u64, id: u32, victim: Victim, then: Stage) {
        self.outcome.dirty_evictions_ram += u64::from(self.measuring);
        let job = &mut self.jobs[id];
        (job.moving, job.then) = (victim.block, then);
        self.down(now, id);
    }

    /// There is room for the block of a write.
    pub(super) fn store(&mut self, now: u64, id: u32) {
        let Job { host, in_flash, .. } = self.jobs[id];
        let stored = if in_flash {
            self.write_to_device(now, usize::from(host))
        } else {
            now + self.config.timings.ram_write_ns
        };
        self.at(stored, id, Stage::Stored);
    }

    /// It is there; the policy says what follows.
    pub(super) fn stored(&mut self, now: u64, id: u32) {
        let Job { host, block, in_flash, .. } = self.jobs[id];
        let host = usize::from(host);
        let policy = self.policy_of(in_flash);
        let job = &mut self.jobs[id];
        (job.moving, job.then) = (block, Stage::Finish);
        match policy {
            WritePolicy::Async if self.may_go_unseen(host) => {
                let behind = self.add_background(host, block);
                self.down(now, behind);
                self.finish(now, id);
            }
            WritePolicy::Sync | WritePolicy::Async => self.down(now, id),
            WritePolicy::Periodic(_) | WritePolicy::Never => self.finish(now, id),
        }
    }

    fn may_go_unseen(&self, host: usize) -> bool {
        self.hosts[host].background < self.config.async_depth
    }

    pub(super) fn add_background(&mut self, host: usize, block: u32) -> u32 {
        self.hosts[host].background += 1;
        let job = Job::new(Kind::Background, host, Stage::Down);
        self.add_job(Job { moving: block, ..job })
    }

    /// A block sets out from RAM for the level below.
    pub(super) fn down(&mut self, now: u64, id: u32) {
        let Job { host, moving, at_server, .. } = self.jobs[id];
        if self.engines.is_some() {
            return self.ask_for_block(now, id, moving, true);
        }
        let host = usize::from(host);
        let through_flash = self.is(Architecture::Naive);
        let Some(of) = self.flash_of(host).filter(|_| through_flash) else {
            self.jobs[id].back = Stage::DownDone;
            return self.send_to_filer(now, id);
        };
        if self.flash == FlashAt::Server && !at_server {
            self.jobs[id].at_server = true;
            if let Some(arrival) = self.send(now, id, Way::Up, true, Stage::Down) {
                self.at(arrival, id, Stage::Down);
            }
            return;
        }
        self.hosts[of].know(moving);
        let victim = self.hosts[of].keep_in_flash(moving);
        if Config::keeps_dirty(self.flash_policy) {
            self.hosts[of].mark_dirty(FLASH, moving);
        }
        if victim.is_some_and(Victim::is_dirty) {
            self.outcome.dirty_evictions_flash += u64::from(self.measuring);
            return self.leave_flash(now, id, Stage::FlashWrite);
        }
        self.flash_write(now, id);
    }

    pub(super) fn flash_write(&mut self, now: u64, id: u32) {
        let host = usize::from(self.jobs[id].host);
        let of = self.flash_of(host).expect("there is flash to write to");
        let written = self.write_to_device(now, of);
        self.at(written, id, Stage::FlashWritten);
    }

    /// Writes a block to a flash device; gives when that is done.
    pub(super) fn write_to_device(&mut self, now: u64, of: usize) -> u64 {
        self.outcome.flash_writes += u64::from(self.measuring);
        self.hosts[of].device.serve(now, self.flash_write_ns)
    }

    pub(super) fn flash_written(&mut self, now: u64, id: u32) {
        let Job { host, moving, .. } = self.jobs[id];
        let of = self.flash_of(usize::from(host)).expect("it was written to");
        match self.flash_policy {
            WritePolicy::Async if self.may_go_unseen(of) => {
                let behind = self.add_background(of, moving);
                self.jobs[behind].back = Stage::DownDone;
                self.send_to_filer(now, behind);
                self.down_done(now, id);
            }
            WritePolicy::Sync | WritePolicy::Async => {
                self.jobs[id].back = Stage::DownDone;
                self.send_to_filer(now, id);
            }
            WritePolicy::Periodic(_) | WritePolicy::Never => self.down_done(now, id),
        }
    }

    /// A dirty block leaves flash, and a thread waits for it.
    pub(super) fn leave_flash(&mut self, now: u64, id: u32, back: Stage) {
        self.jobs[id].back = back;
        if !self.config.eviction_reads_flash {
            return self.send_to_filer(now, id);
        }
        let host = usize::from(self.jobs[id].host);
        let of = self.flash_of(host).expect("it leaves flash");
        self.outcome.flash_reads += u64::from(self.measuring);
        let read = self.hosts[of].device.serve(now, self.config.timings.flash_read_ns);
        self.at(read, id, Stage::ToFiler);
    }

    /// A dirty block leaves flash, and no thread waits for it.
    pub(super) fn leave_flash_unseen(&mut self, now: u64, of: usize, victim: Victim) {
        self.outcome.dirty_evictions_flash += u64::from(self.measuring);
        let id = self.add_background(of, victim.block);
        self.leave_flash(now, id, Stage::DownDone);
    }

    /// A block sets out for the file server.
    pub(super) fn send_to_filer(&mut self, now: u64, id: u32) {
        let Job { host, at_server, .. } = self.jobs[id];
        let host = usize::from(host);
        let here = at_server || host == self.config.hosts as usize;
        if here {
            return self.filer_write(now, id);
        }
        let Some(arrival) = self.send(now, id, Way::Up, true, Stage::FilerWriteArrived) else {
            return;
        };
        if self.filer.queues() {
            self.at(arrival, id, Stage::FilerWriteArrived);
            return;
        }
        self.filer_write(arrival, id);
    }

    pub(super) fn filer_write(&mut self, now: u64, id: u32) {
        self.outcome.filer_writes += u64::from(self.measuring);
        let written = self.filer.serve(now, self.config.timings.filer_write_ns);
        self.at(written, id, Stage::FilerWritten);
    }

    /// It is written; the acknowledgement goes to the host.
    pub(super) fn filer_written(&mut self, now: u64, id: u32) {
        let Job { host, at_server, back, kind, .. } = self.jobs[id];
        let host = usize::from(host);
        let mut heard = now;
        if !at_server && host < self.config.hosts as usize {
            match self.send(now, id, Way::Down, false, back) {
                Some(arrival) => heard = arrival,
                None => return,
            }
        }
        if kind == Kind::Background && !self.is(Architecture::Lookaside) && back == Stage::DownDone
        {
            // No thread waits for the acknowledgement.
            return self.down_done(now, id);
        }
        self.at(heard, id, back);
    }

    /// A block that left RAM is where its policy wants it.
    pub(super) fn down_done(&mut self, now: u64, id: u32) {
        let Job { host, at_server, kind, moving, then, .. } = self.jobs[id];
        let host = usize::from(host);
        if at_server {
            self.jobs[id].at_server = false;
            if let Some(heard) = self.send(now, id, Way::Down, false, Stage::DownDone) {
                self.at(heard, id, Stage::DownDone);
            }
            return;
        }
        if self.is(Architecture::Lookaside) && self.flash == FlashAt::Client {
            self.fill_flash(now, host, moving);
        }
        match kind {
            Kind::Background => {
                self.hosts[host].background -= 1;
                self.jobs.free(id);
            }
            Kind::Syncer(tier) => {
                self.jobs.free(id);
                self.synced(now, host, usize::from(tier));
            }
            _ if then == Stage::Store => self.store(now, id),
            _ => self.finish(now, id),
        }
    }
}
