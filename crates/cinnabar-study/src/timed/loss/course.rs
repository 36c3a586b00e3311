//! Where a loss meets the model: the instant at which it comes, what is counted for it, and how the host
//! that lost its cache behaves until it is warm again.

use super::super::RunError;
use super::super::jobs::{Job, Kind, Stage};
use super::super::model::Model;
use super::state::Found;

impl Model<'_> {
    /// Measuring has begun: the loss comes so long from now, if there is to be one.
    pub(in super::super) fn await_loss(&mut self, now: u64) {
        if let Some(loss) = &mut self.loss {
            let (at_ns, host) = (loss.measure(now), loss.host());
            let id = self.add_job(Job::new(Kind::Loss, host, Stage::Take));
            self.at(at_ns, id, Stage::Take);
        }
    }

    /// A host's cache is gone. What was dirty there is lost; what is under way goes on, and is cached
    /// when it arrives.
    pub(in super::super) fn lose(&mut self, now: u64, id: u32) {
        self.jobs.free(id);
        let found = self.found_by_all();
        let loss = self.loss.as_mut().expect("it was to come");
        loss.lose(now, &found);
        let (host, ram_too) = (loss.host(), loss.ram_too());
        self.hosts[host].empty(ram_too);
        if self.engines.is_some() {
            self.lose_device(now, host);
        }
    }

    /// A block was read: the host had it, or not. Blocks that its engine reads are counted there.
    #[inline]
    pub(in super::super) fn count_found(&mut self, host: usize, hit: bool, measured: bool) {
        if measured && let Some(loss) = &mut self.loss {
            let found = &mut loss.found[host];
            *if hit { &mut found.hits } else { &mut found.misses } += 1;
        }
    }

    /// The host that lost its cache has read enough to ask whether it is warm again.
    #[cold]
    pub(in super::super) fn judge_warmth(&mut self, now: u64) {
        let found = self.found_by_all();
        let loss = self.loss.as_mut().expect("it has come");
        let own = found[loss.host()];
        if loss.is_warm(own) {
            loss.end(now, &found);
        }
    }

    /// When an I/O of a host to the file server may set out, if it has to wait for its turn.
    #[inline]
    pub(in super::super) fn turn(&mut self, now: u64, host: usize) -> Option<u64> {
        self.loss.as_mut()?.turn(now, host)
    }

    /// A thread is done with an operation: it takes the next one, at once or after a pause.
    #[inline]
    pub(in super::super) fn rest(&mut self, now: u64, id: u32) {
        let host = usize::from(self.jobs[id].host);
        match self.pause_ns(host) {
            0 => self.take_next(now, id),
            pause_ns => self.at(now + pause_ns, id, Stage::Take),
        }
    }

    /// The next pause of a thread of a host.
    #[inline]
    pub(in super::super) fn pause_ns(&mut self, host: usize) -> u64 {
        let mean_ns = self.config.pause_ns;
        if mean_ns == 0 || self.loss.as_ref().is_some_and(|loss| loss.hurries(host)) {
            return 0;
        }
        self.pauses.below(2 * mean_ns + 1)
    }

    /// The run is over.
    pub(in super::super) fn close_loss(&mut self) -> Result<(), RunError> {
        let found = self.found_by_all();
        let Some(loss) = self.loss.take() else { return Ok(()) };
        let (now, host) = (self.last_ns, self.config.loss.host);
        let measured_ns = now - self.measured_from_ns.min(now);
        let ms = |ns: u64| ns / 1_000_000;
        let report = loss
            .report(now, &found)
            .map_err(|wanted_ns| RunError::LossTooLate(ms(measured_ns), ms(wanted_ns), host))?;
        let before = &report.hosts[host as usize][0];
        if before.hits + before.misses == 0 {
            return Err(RunError::LossTooEarly(host));
        }
        self.outcome.loss = Some(report);
        Ok(())
    }

    /// What each host has found so far, in its tiers and by its engine.
    fn found_by_all(&mut self) -> Vec<Found> {
        let Some(loss) = &self.loss else { return Vec::new() };
        let mut found = loss.found.clone();
        if let Some(engines) = &mut self.engines {
            for (host, found) in found.iter_mut().enumerate() {
                let (hits, misses) = engines.found(host);
                found.hits += hits;
                found.misses += misses;
            }
        }
        found
    }
}
