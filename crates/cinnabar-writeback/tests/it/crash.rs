//! The end of a daemon: it closes the log, is killed, or the host loses power; and the next one opens it.

use super::world::{Checked, SEGMENTS, World};
use cinnabar_writeback::{Command, Done, Event};
use rand::RngExt;

impl World {
    /// The log is closed: everything that was answered is durable.
    pub(crate) fn close(&mut self) -> Checked {
        self.counts.closes += 1;
        (self.closing, self.answer) = (true, None);
        let id = self.new_id();
        self.apply(Event::Control(id, Command::Close))?;
        // The back ends need not do anything for that.
        while self.answer.is_none() && !self.lost && !self.host.is_killed() {
            if !self.end_ssd()? {
                let at = self.wake.take().ok_or("the log is never closed")?;
                self.now = self.now.max(at);
                self.apply(Event::Wake)?;
            }
        }
        let closed = self.answer.take() == Some(Ok(Done::Nothing));
        if self.host.is_killed() && !closed {
            return self.crash(false, false);
        }
        if !closed && !self.lost {
            return Err("the log was not closed".to_owned());
        }
        if closed && self.rng.random_bool(0.5) {
            self.release_memory();
        }
        let power = closed && self.rng.random_bool(0.5);
        self.crash(power, closed)
    }

    /// The daemon is killed or the host loses power; then the log is opened again. `closed`: it had
    /// been closed before.
    pub(crate) fn crash(&mut self, power: bool, closed: bool) -> Checked {
        if power {
            self.counts.power_cuts += 1;
        } else {
            self.counts.kills += 1;
        }
        self.trace("crash", &power);
        self.counts.crossings.add(self.log.crossings());
        self.counts.absorbed += self.log.counters().absorbed;
        self.host.revive();
        for guest in &mut self.guests {
            drop(guest.disk.abandon(&mut self.rng));
            guest.asked.clear();
            // A volume may have grown, or not: it is attached as what it was to be.
            (guest.sectors, guest.place, guest.command) = (guest.wanted, None, None);
        }
        self.check_backends()?;
        if power {
            self.ssd.power_cut(&mut self.rng);
        } else {
            self.ssd.kill(&mut self.rng);
        }
        self.crash_second(power);
        (self.wake, self.closing, self.lost) = (None, false, false);
        self.events.clear();
        self.orphans.clear();
        let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
        let config = self.settings.config();
        let forgets = self.host.crash(&self.settings, power, &mut self.counts);
        if forgets && self.host.refuses(&self.ssd, bytes, config)? {
            self.counts.memory_refused += 1;
        }
        let lost = self.host.restore(&self.settings);
        if self.mirrored.is_some() {
            self.open_pair(lost)?;
            return if self.over { Ok(()) } else { self.opened((power || lost) && !closed) };
        }
        // The daemon may be killed again while it opens the log.
        let most = if self.settings.memory.is_some() { 12 } else { 5 };
        let kill_at = self.rng.random_bool(0.3).then(|| self.rng.random_range(0..most));
        self.ssd.kill_at(kill_at);
        let mut opened = self.host.open(&self.ssd, bytes, config, lost);
        self.ssd.kill_at(None);
        if opened.is_err() && kill_at.is_some() {
            self.counts.killed_opening += 1;
            opened = self.host.open(&self.ssd, bytes, config, lost);
        }
        self.log = opened.map_err(|error| error.to_string())?;
        self.opened((power || lost) && !closed)
    }

    /// The log has been opened: guests look at what is there.
    fn opened(&mut self, may_lose: bool) -> Checked {
        self.attach_all()?;
        let was = std::mem::replace(&mut self.calm, true);
        for index in 0..self.guests.len() {
            self.look_at_all(index, may_lose)?;
        }
        self.calm = was;
        self.check_backends()
    }
}
