//! A backend's server that was away and is back: what it may have lost is not believed any more.

use super::control::PendingCommand;
use super::plane::DataPlane;
use super::requests::GuestRequest;
use super::worker::WorkerEvent;
use cinnabar_driver::lost_ranges::AGAIN_AFTER_NS;
use cinnabar_engine::RequestId;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_writeback::Event;

impl DataPlane {
    /// Drops what is cached of these ranges of a volume, durably. The server may
    /// hold what was written there, or what was before: reads have to ask it.
    pub(super) fn server_restarted(&mut self, now: Instant, key: usize, ranges: &[ByteSpan]) {
        let Some(volume) = self.volumes.get(key) else { return };
        tracing::warn!(
            volume = volume.config.name,
            ranges = ranges.len(),
            bytes = ranges.iter().map(|range| range.len).sum::<u64>(),
            "its server may have restarted; what is cached of writes that were not flushed is dropped"
        );
        let drops = |request: &GuestRequest| request.drops_doubtful(key);
        let under_way = self.requests.iter().filter(|(_, request)| drops(request)).count();
        self.volumes[key].life.lost(ranges, under_way);
        self.drop_lost_ranges(now);
        self.discard_lost(key);
        self.check_lock(now, key);
    }

    /// What was destaged since the last flush may be lost: the log hears of it before it has an answer
    /// of the server's new life, from each thread by itself.
    pub(super) fn restarted_for_log(&mut self, key: usize) {
        if let Some(place) = self.volumes.get(key).and_then(|volume| volume.writes.place()) {
            let command = cinnabar_writeback::Command::Restarted(place);
            self.writes.give(Event::Control(RequestId(u64::MAX), command));
        }
    }

    /// A shard that was run here may have had an answer that another thread's port has brought. What
    /// that port has said before it, of a server that restarted, is in the inbox: the log hears of it
    /// first.
    pub(super) fn hear_restarts(&mut self) {
        if !self.heard.is_filled() {
            return;
        }
        let mut heard = Vec::new();
        self.heard.take(&mut heard);
        for heard in heard {
            let (WorkerEvent::Restarted(key, _) | WorkerEvent::RestartedToo(key)) = &heard else {
                self.heard_early.push(heard);
                continue;
            };
            self.restarted_for_log(*key);
            if let WorkerEvent::Restarted(key, ranges) = heard {
                self.heard_early.push(WorkerEvent::Lost(key, ranges));
            }
        }
    }

    /// These bytes could not be dropped yet. A volume that leaves takes all of its blocks along.
    pub(super) fn put_back_lost(&mut self, now: Instant, key: usize, range: ByteSpan) {
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.life.put_back(range);
            let again = now.plus_ns(AGAIN_AFTER_NS);
            self.look_at = Some(self.look_at.map_or(again, |at| at.min(again)));
            self.discard_lost(key);
        }
    }

    /// Has the engine keep nothing of a volume that leaves, if its server may have lost some of it:
    /// before the last flush ends, which would seem to cover that.
    pub(super) fn discard_lost(&mut self, key: usize) {
        if let Some(command) = self.volumes[key].life.discard() {
            self.command(PendingCommand::Discard, &command);
        }
    }

    /// Drops what volumes that serve may have lost, once more what could not be dropped before.
    pub(super) fn drop_lost_ranges(&mut self, now: Instant) {
        let all = self.volumes.iter_mut().map(|(key, volume)| (key, volume.life.invalidations()));
        let lossy: Vec<_> = all.filter(|(_, ranges)| !ranges.is_empty()).collect();
        for (key, ranges) in lossy {
            for range in ranges {
                self.drop_doubtful(now, key, range);
            }
        }
    }
}
