//! What takes too long, and rot of the cache device: requests are answered that are still under way, and
//! guests use their memory for something else.

use super::settings::Bug;
use super::world::{Asker, World};
use crate::world::Checked;
use cinnabar_engine::{Answer, Failure, IoError, RequestId};
use cinnabar_writeback::Event;
use rand::RngExt;

const TIMED_OUT: Failure = Failure::Io(IoError::TimedOut);

impl World {
    /// The time of something that is under way for a volume is over: of a guest's request, of one of the
    /// log's, or of an I/O of the back end.
    pub(super) fn time_is_over(&mut self, key: usize) -> Checked {
        match self.rng.random_range(0..4) {
            // Rare.
            _ if !self.volumes[key].early.is_empty() => self.log_late(key)?,
            0 => self.io_overdue(key),
            1 => self.log_late(key)?,
            _ => self.guest_late(key)?,
        }
        Ok(())
    }

    fn io_overdue(&mut self, key: usize) {
        let under_way = self.volumes[key].backend.under_way();
        if under_way > 0 {
            let which = self.rng.random_range(0..under_way);
            self.counts.note("overdue I/Os");
            self.machine.overdue(self.volumes[key].backend.name_of(which));
        }
    }

    fn guest_late(&mut self, key: usize) -> Checked {
        let asked = &self.volumes[key].asked;
        if asked.is_empty() {
            return Ok(());
        }
        let which = self.rng.random_range(0..asked.len());
        let id = RequestId(*asked.keys().nth(which).expect("just counted"));
        let held = &mut self.volumes[key].held;
        if let Some(at) = held.iter().position(|(of, _)| *of == id) {
            self.counts.note("late while they wait");
            held.remove(at);
            self.replied(key, id, Err(TIMED_OUT))?;
            return self.settle_mode(key);
        }
        if self.askers.contains_key(&id.0) {
            self.counts.note("late in the engines");
            return self.engines_late(id);
        }
        self.counts.note("late in the log");
        if self.has(Bug::LateNotTold) {
            self.given_up.insert(id.0);
            return self.replied(key, id, Err(TIMED_OUT));
        }
        self.log_events.push_back(Event::Late(id));
        Ok(())
    }

    /// Of what the log has asked the engines for.
    fn log_late(&mut self, key: usize) -> Checked {
        let early = &mut self.volumes[key].early;
        if !early.is_empty() {
            let which = self.rng.random_range(0..early.len());
            let (id, _) = early.remove(which).expect("just counted");
            self.counts.note("late while it is attached");
            self.log_events.push_back(Event::EngineDone(id, Err(TIMED_OUT)));
            return Ok(());
        }
        let asked = self.askers.iter().filter_map(|(id, asker)| match asker {
            Asker::Log(of, engine) if *of == key => Some((RequestId(*id), Some(*engine))),
            Asker::Mode(of) if *of == key => Some((RequestId(*id), None)),
            _ => None,
        });
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() {
            return Ok(());
        }
        let (id, engine) = asked[self.rng.random_range(0..asked.len())];
        self.counts.note("late for the log");
        if let (true, Some(engine)) = (self.has(Bug::LateCountsAsDone), engine) {
            self.askers.insert(id.0, Asker::Discard);
            self.log_request_done(key, engine, Ok(Answer::Done));
            return Ok(());
        }
        self.engines_late(id)
    }

    fn engines_late(&mut self, id: RequestId) -> Checked {
        match self.machine.late(id) {
            Some(reply) => self.reply(reply),
            None => Ok(()),
        }
    }

    /// A page of the cache device changes by itself: of its log, headers of chunks too.
    pub(super) fn rot_cache(&mut self) -> Checked {
        if self.cache_dead {
            return Ok(());
        }
        let superblocks = self.superblocks()?;
        let of = &superblocks[self.rng.random_range(0..superblocks.len())];
        let first = of.region_start() / 4096;
        let pages = first + of.geometry.log..first + of.geometry.device_blocks;
        if self.cache.rot_in(pages, &mut self.rng) {
            self.counts.note("rotten pages of the cache");
        }
        Ok(())
    }
}
