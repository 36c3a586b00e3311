//! Reading ahead: a host that misses a block asks for some of those behind it, too.
//!
//! Called on the way of a read. The request is the same packet; the file server has these blocks read
//! ahead, so they are fast reads. Who asks for one of them before it is there waits for it instead of
//! asking again, and has missed it.

use super::config::Architecture;
use super::host::{FLASH, RAM, Victim};
use super::jobs::{Job, Kind, Stage};
use super::model::{FlashAt, Model};
use super::recency::IN_FLASH;

impl Model<'_> {
    /// Asks for what lies behind a missed block. `arrival` is when the request is at the server.
    #[inline]
    pub(super) fn fetch_ahead(&mut self, arrival: u64, host: usize, block: u32) {
        for ahead in 1..=self.config.prefetch_blocks {
            let Some(key) = self.source.key_ahead(block, ahead) else { break };
            let block = self.source.number(key);
            let here = &mut self.hosts[host];
            here.know(block);
            let cached = here.word(RAM, block) != 0 || here.word(FLASH, block) != 0;
            if cached || here.fetching.contains_key(&block) {
                continue;
            }
            here.fetching.insert(block, Vec::new());
            self.outcome.prefetched += u64::from(self.measuring);
            let job = Job { block, ..Job::new(Kind::Fetch, host, Stage::FilerArrived) };
            let id = self.add_job(job);
            self.ask_filer(arrival, id);
        }
    }

    /// A block read ahead has arrived: it is cached, and requests that wait for it continue.
    pub(super) fn fetched(&mut self, now: u64, id: u32) {
        let Job { host, block, .. } = self.jobs[id];
        let host = usize::from(host);
        self.jobs.free(id);
        let waiting = self.hosts[host].fetching.remove(&block).unwrap_or_default();
        if self.is(Architecture::Unified) {
            if let Some(victim) = self.keep_in_frame(now, host, block) {
                self.go_unseen(now, host, victim);
            }
        } else {
            if self.flash == FlashAt::Client {
                self.fill_flash(now, host, block);
            }
            if self.hosts[host].ram.capacity() > 0
                && let Some(victim) = self.hosts[host].keep_in_ram(block)
                && victim.is_dirty()
            {
                self.go_unseen(now, host, victim);
            }
        }
        for waiting in waiting {
            self.finish(now, waiting);
        }
    }

    /// A dirty block leaves for one that no thread has asked for.
    fn go_unseen(&mut self, now: u64, host: usize, victim: Victim) {
        if victim.flags & IN_FLASH != 0 {
            return self.leave_flash_unseen(now, host, victim);
        }
        self.outcome.dirty_evictions_ram += u64::from(self.measuring);
        let id = self.add_background(host, victim.block);
        self.down(now, id);
    }
}
