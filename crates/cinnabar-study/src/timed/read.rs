//! The way of a read: RAM, flash, file server, and back up.
//!
//! A block that is read also goes into flash, which no thread waits for. It goes into RAM, and the
//! reader waits until a dirty block that has to leave for it is written.

use super::config::Architecture;
use super::host::{FLASH, RAM, Victim};
use super::jobs::{Job, Kind, Stage};
use super::model::{FlashAt, Model};
use super::recency::IN_FLASH;
use super::station::Way;

impl Model<'_> {
    #[inline]
    pub(super) fn read_block(&mut self, now: u64, id: u32) {
        let Job { host: number, block, measured, .. } = self.jobs[id];
        let number = usize::from(number);
        let host = &mut self.hosts[number];
        let word = host.word(RAM, block);
        if word != 0 {
            host.ram.touch(block, &mut host.words);
            if word & IN_FLASH != 0 {
                return self.read_flash(now, id, number, Stage::Finish);
            }
            self.outcome.ram_hits += u64::from(measured);
            self.at(now + self.config.timings.ram_read_ns, id, Stage::Finish);
            return;
        }
        if self.engines.is_some() {
            return self.ask_for_block(now, id, block, false);
        }
        if host.word(FLASH, block) != 0 {
            host.flash.touch(block, &mut host.words);
            return self.read_flash(now, id, number, Stage::FlashRead);
        }
        if let Some(waiting) = self.hosts[number].fetching.get_mut(&block) {
            waiting.push(id);
            self.outcome.misses += u64::from(measured);
            return;
        }
        self.request_block(now, id);
    }

    /// Sends the request for a block that the host does not have.
    fn request_block(&mut self, now: u64, id: u32) {
        let Job { host, block, measured, .. } = self.jobs[id];
        let host = usize::from(host);
        let Some(at_server) = self.send(now, id, Way::Up, false, Stage::ServerRead) else {
            return;
        };
        if self.flash == FlashAt::Server {
            self.at(at_server, id, Stage::ServerRead);
            return;
        }
        self.outcome.misses += u64::from(measured);
        self.ask_filer(at_server, id);
        self.fetch_ahead(at_server, host, block);
    }

    /// Reads flash for a hit.
    fn read_flash(&mut self, now: u64, id: u32, of: usize, then: Stage) {
        self.outcome.flash_hits += u64::from(self.jobs[id].measured);
        self.outcome.flash_reads += u64::from(self.measuring);
        let read = self.hosts[of].device.serve(now, self.config.timings.flash_read_ns);
        self.at(read, id, then);
    }

    /// A request is at the file server's flash.
    pub(super) fn server_read(&mut self, now: u64, id: u32) {
        let Job { block, host: number, measured, .. } = self.jobs[id];
        let server = self.hosts.len() - 1;
        let host = &mut self.hosts[server];
        host.know(block);
        if host.word(FLASH, block) != 0 {
            host.flash.touch(block, &mut host.words);
            return self.read_flash(now, id, server, Stage::ServerData);
        }
        self.outcome.misses += u64::from(measured);
        self.ask_filer(now, id);
        self.fetch_ahead(now, usize::from(number), block);
    }

    /// The file server reads a block once the request is there.
    pub(super) fn ask_filer(&mut self, arrival: u64, id: u32) {
        // A delay centre can be asked ahead of time, because its requests don't delay each other; a
        // queue takes requests in the order of arrival.
        if self.filer.queues() {
            self.at(arrival, id, Stage::FilerArrived);
            return;
        }
        self.serve_read(arrival, id);
    }

    pub(super) fn filer_arrived(&mut self, now: u64, id: u32) {
        self.serve_read(now, id);
    }

    fn serve_read(&mut self, now: u64, id: u32) {
        let ahead = self.jobs[id].kind == Kind::Fetch;
        let ns = self.filer_read_ns(ahead);
        let read = self.filer.serve(now, ns);
        self.at(read, id, Stage::FilerRead);
    }

    /// The file server has read a block, which goes into its flash, if there is any, and back.
    pub(super) fn filer_read(&mut self, now: u64, id: u32) {
        if self.flash == FlashAt::Server {
            let server = self.hosts.len() - 1;
            self.fill_flash(now, server, self.jobs[id].block);
        }
        self.send_data(now, id);
    }

    pub(super) fn send_data(&mut self, now: u64, id: u32) {
        if let Some(arrival) = self.send(now, id, Way::Down, true, Stage::DataArrived) {
            self.at(arrival, id, Stage::DataArrived);
        }
    }

    /// A block is here.
    pub(super) fn data_arrived(&mut self, now: u64, id: u32) {
        let Job { host, block, kind, .. } = self.jobs[id];
        let host = usize::from(host);
        if kind == Kind::Fetch {
            return self.fetched(now, id);
        }
        if self.is(Architecture::Unified) {
            return self.fill_frame(now, id);
        }
        if self.flash == FlashAt::Client {
            self.fill_flash(now, host, block);
        }
        self.fill_ram(now, id);
    }

    /// Puts a block into flash; no thread waits for that, nor for a dirty block that has to leave.
    pub(super) fn fill_flash(&mut self, now: u64, of: usize, block: u32) {
        let host = &mut self.hosts[of];
        host.know(block);
        let victim = host.keep_in_flash(block);
        self.write_to_device(now, of);
        if let Some(victim) = victim.filter(|victim| victim.is_dirty()) {
            self.leave_flash_unseen(now, of, victim);
        }
    }

    /// Puts a block into RAM; who asked for it waits for a dirty block that has to leave.
    pub(super) fn fill_ram(&mut self, now: u64, id: u32) {
        let Job { host, block, .. } = self.jobs[id];
        let host = &mut self.hosts[usize::from(host)];
        if host.ram.capacity() == 0 {
            return self.finish(now, id);
        }
        match host.keep_in_ram(block).filter(|victim| victim.is_dirty()) {
            Some(victim) => self.evict_from_ram(now, id, victim, Stage::Finish),
            None => self.finish(now, id),
        }
    }

    /// Puts a block into a frame of the unified architecture. A frame of flash is filled, and
    /// emptied, behind the reader's back.
    fn fill_frame(&mut self, now: u64, id: u32) {
        let Job { host: number, block, .. } = self.jobs[id];
        let number = usize::from(number);
        let Some(victim) = self.keep_in_frame(now, number, block) else {
            return self.finish(now, id);
        };
        if victim.flags & IN_FLASH != 0 {
            self.leave_flash_unseen(now, number, victim);
            return self.finish(now, id);
        }
        self.evict_from_ram(now, id, victim, Stage::Finish);
    }

    /// Puts a block that was read into a frame, and gives the dirty block that has to leave.
    pub(super) fn keep_in_frame(&mut self, now: u64, of: usize, block: u32) -> Option<Victim> {
        let host = &mut self.hosts[of];
        if host.ram.capacity() == 0 {
            return None;
        }
        let victim = host.keep_in_frame(block);
        if host.word(RAM, block) & IN_FLASH != 0 {
            self.write_to_device(now, of);
        }
        victim.filter(|victim| victim.is_dirty())
    }
}
