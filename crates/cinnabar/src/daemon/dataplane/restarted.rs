//! A backend's server that was away and is back: what it may have lost is not believed any more.

use super::control::Awaited;
use super::plane::Plane;
use super::requests::GuestRequest;
use super::volume::{Phase, Volume};
use cinnabar_driver::lost_ranges::AGAIN_AFTER_NS;
use cinnabar_engine::Command;
use cinnabar_engine::units::{ByteSpan, Instant};

impl Plane {
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
        self.volumes[key].lost.add(ranges, under_way);
        self.drop_lost_ranges(now);
        self.discard_lost(key);
    }

    /// These bytes could not be dropped yet. A volume that leaves takes all of its blocks along.
    pub(super) fn put_back_lost(&mut self, now: Instant, key: usize, range: ByteSpan) {
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.lost.put_back(range);
            let again = now.plus_ns(AGAIN_AFTER_NS);
            self.look_at = Some(self.look_at.map_or(again, |at| at.min(again)));
            self.discard_lost(key);
        }
    }

    /// Has the engine keep nothing of a volume that leaves, if its server may have lost some of it:
    /// before the last flush ends, which would seem to cover that.
    pub(super) fn discard_lost(&mut self, key: usize) {
        let volume = &mut self.volumes[key];
        if let Some(id) = volume.id
            && matches!(volume.phase, Phase::Leaving(_))
            && volume.lost.discards()
        {
            self.command(Awaited::Discard, &Command::Discard(id));
        }
    }

    /// Drops what volumes that serve may have lost, once more what could not be dropped before.
    pub(super) fn drop_lost_ranges(&mut self, now: Instant) {
        let serving = |volume: &Volume| matches!(volume.phase, Phase::Serving);
        let lossy: Vec<usize> = self
            .volumes
            .iter()
            .filter(|(_, volume)| !volume.lost.is_empty() && serving(volume))
            .map(|(key, _)| key)
            .collect();
        for key in lossy {
            for range in self.volumes[key].lost.take() {
                self.drop_doubtful(now, key, range);
            }
        }
    }
}
