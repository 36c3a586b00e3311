//! Servers that restart: the log and the cache hear of it by way of each thread's port.

use super::machine::Arrived;
use super::settings::Bug;
use super::volume::Restart;
use super::world::{Asker, World};
use crate::world::Checked;
use cinnabar_driver::VolumeLife;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Op, RequestId};
use cinnabar_writeback::Event;
use rand::RngExt;

impl World {
    /// The server of a volume restarts.
    pub(super) fn restart(&mut self, key: usize) -> Checked {
        let threads = self.machine.threads();
        let volume = &mut self.volumes[key];
        // What guests have written past the log is lost as on any disk, which is not looked at here.
        let loses = volume.joined;
        let ranges = volume.backend.restart(loses, &mut self.rng);
        self.counts.note(if loses { "restarts" } else { "clean restarts" });
        volume.check_backend()?;
        volume.restarts.push(Restart { ranges, waits: vec![true; threads], told: false });
        if self.rng.random_bool(0.5) {
            let thread = self.rng.random_range(0..threads);
            self.tell_restarts(key, thread);
        }
        Ok(())
    }

    /// A thread's port has not told of all restarts of a server: it does now.
    pub(super) fn tell_restarts(&mut self, key: usize, thread: usize) {
        for restart in &mut self.volumes[key].restarts {
            if std::mem::take(&mut restart.waits[thread]) {
                let first = !std::mem::replace(&mut restart.told, true);
                let arrived = Arrived::Restarted(key, restart.ranges.clone(), first);
                self.machine.arrive(thread, arrived);
            }
        }
        self.volumes[key].restarts.retain(|restart| restart.waits.contains(&true));
    }

    pub(super) fn restarted(&mut self, key: usize, ranges: &[ByteSpan], first: bool) -> Checked {
        let silent =
            self.has(Bug::RestartNotPassedOn) || self.has(Bug::RestartPassedOnOnce) && !first;
        if let Some(place) = self.volumes[key].mode.place().filter(|_| !silent) {
            let command = cinnabar_writeback::Command::Restarted(place);
            self.log_events.push_back(Event::Control(RequestId(u64::MAX), command));
        }
        if first && let Some(life) = &mut self.volumes[key].life {
            let doubts = |asker: &&Asker| matches!(asker, Asker::Doubt(of, _) if *of == key);
            let under_way = self.askers.values().filter(doubts).count();
            life.lost(ranges, under_way);
            self.drop_lost(key)?;
            self.discard_lost(key)?;
        }
        Ok(())
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
