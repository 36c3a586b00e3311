//! Servers that restart: the log and the cache hear of it by way of each thread's port.

use super::machine::{Arrived, Restarted, ThreadEvent};
use super::settings::Bug;
use super::volume::{Lost, Restart, Volume};
use super::world::{Asker, World};
use crate::disk::{sectors, span_of};
use crate::world::Checked;
use cinnabar_driver::Phase;
use cinnabar_driver::VolumeLife;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Op, RequestId};
use cinnabar_writeback::Event;
use rand::RngExt;
use std::collections::BTreeSet;

impl World {
    /// The server of a volume restarts.
    pub(super) fn restart(&mut self, key: usize) -> Checked {
        let threads = self.machine.threads();
        let volume = &mut self.volumes[key];
        volume.restarted += 1;
        // What is lost of guests' writes past the log is lost as on any disk: the oracle has to know of
        // it, and it does not of a sector that is being written.
        let past = !volume.joined;
        let mut keeps = BTreeSet::new();
        if past && volume.phase() == Phase::Serving {
            keeps.extend(volume.asked.values().filter_map(|a| span_of(&a.op)).flat_map(sectors));
            // Of a request that was answered as late, too.
            keeps.extend(volume.backend.being_written().flat_map(sectors));
        } else if past {
            keeps.extend(0..volume.sectors as usize);
        }
        let all = 0..volume.sectors as usize;
        let before: Vec<u64> = all.clone().map(|sector| volume.backend.value(sector)).collect();
        let ranges = volume.backend.restart(&keeps, &mut self.rng);
        self.counts.note(if past { "restarts past the log" } else { "restarts" });
        for sector in all.filter(|sector| past && !keeps.contains(sector)) {
            let value = volume.backend.value(sector);
            if value != before[sector] {
                self.counts.note("sectors lost past the log");
                volume.oracle.lost(sector, value);
                let restart = volume.restarted;
                volume.lost.push(Lost { restart, sector, dropped_by: None });
            }
        }
        volume.check_backend()?;
        let waits = vec![true; threads];
        let number = volume.restarted;
        volume.restarts.push(Restart { ranges, waits, told: false, number });
        if self.rng.random_bool(0.5) {
            let thread = self.rng.random_range(0..threads);
            self.tell_restarts(key, thread);
        }
        Ok(())
    }

    /// All ports tell of what they have not told yet.
    pub(super) fn tell_all_restarts(&mut self) {
        for key in 0..self.volumes.len() {
            for thread in 0..self.machine.threads() {
                self.tell_restarts(key, thread);
            }
        }
    }

    /// A thread's port has not told of all restarts of a server: it does now.
    pub(super) fn tell_restarts(&mut self, key: usize, thread: usize) {
        for restart in &mut self.volumes[key].restarts {
            if std::mem::take(&mut restart.waits[thread]) {
                let first = !std::mem::replace(&mut restart.told, true);
                let (ranges, number) = (restart.ranges.clone(), restart.number);
                let restarted = Restarted { key, ranges, first, number, told: false };
                self.machine.arrive(thread, Arrived::Restarted(restarted));
            }
        }
        self.volumes[key].restarts.retain(|restart| restart.waits.contains(&true));
    }

    /// The first thread may have had an answer that another thread's port has brought. What that port has
    /// said before it is in the inbox: the log hears of it first.
    pub(super) fn hear_restarts(&mut self) {
        if self.has(Bug::RestartPassedOnOnce) {
            return;
        }
        let mut heard = Vec::new();
        for one in &mut self.machine.inbox {
            if let ThreadEvent::Restarted(restarted) = one
                && !std::mem::replace(&mut restarted.told, true)
            {
                heard.push((restarted.key, restarted.first));
            }
        }
        for (key, first) in heard {
            self.tell_log(key, first);
        }
    }

    pub(super) fn tell_log(&mut self, key: usize, first: bool) {
        let silent =
            self.has(Bug::RestartNotPassedOn) || self.has(Bug::RestartPassedOnOnce) && !first;
        if let Some(place) = self.volumes[key].mode.place().filter(|_| !silent) {
            let command = cinnabar_writeback::Command::Restarted(place);
            self.log_events.push_back(Event::Control(RequestId(u64::MAX), command));
        }
    }

    pub(super) fn restarted(&mut self, restarted: &Restarted) -> Checked {
        let Restarted { key, first, number, told, .. } = *restarted;
        if !told {
            self.tell_log(key, first);
        }
        if !first {
            return Ok(());
        }
        let next = RequestId(self.next_id + 1);
        for lost in self.volumes[key].lost.iter_mut().filter(|lost| lost.restart == number) {
            lost.dropped_by = Some(next);
        }
        if self.has(Bug::LostRangesKept) {
            self.dropped(key, self.volumes[key].whole(), next);
            return Ok(());
        }
        if let Some(life) = &mut self.volumes[key].life {
            let doubts = |asker: &&Asker| matches!(asker, Asker::Doubt(of, _) if *of == key);
            let under_way = self.askers.values().filter(doubts).count();
            life.lost(&restarted.ranges, under_way);
            self.drop_lost(key)?;
            self.discard_lost(key)?;
        }
        Ok(())
    }

    /// The copies of these bytes are gone, by this request.
    pub(super) fn dropped(&mut self, key: usize, span: ByteSpan, id: RequestId) {
        let Volume { lost, oracle, .. } = &mut self.volumes[key];
        lost.retain(|lost| {
            let at = lost.sector as u64 * 512;
            let known = lost.dropped_by.is_some_and(|by| by <= id)
                && (span.offset..span.end()).contains(&at);
            if known {
                oracle.lost_known(lost.sector);
            }
            !known
        });
    }

    /// Drops what a volume that serves may have lost.
    pub(super) fn drop_lost(&mut self, key: usize) -> Checked {
        let life = self.volumes[key].life.as_mut().expect("it serves");
        for span in life.invalidations() {
            let id = self.new_id();
            self.ask_engines(Asker::Doubt(key, span), key, id, Op::Invalidate { span })?;
        }
        Ok(())
    }

    pub(super) fn discard_lost(&mut self, key: usize) -> Checked {
        match self.volumes[key].life.as_mut().and_then(VolumeLife::discard) {
            Some(command) => self.command(Asker::Discard, command),
            None => Ok(()),
        }
    }
}
