//! A backend's server that was away and is back: what it may have lost is not believed any more.

use super::clock::after;
use super::control::Awaited;
use super::plane::Plane;
use super::requests::GuestRequest;
use super::volume::Phase;
use cinnabar_backend::port::doubts;
use cinnabar_engine::Command;
use cinnabar_engine::units::{ByteSpan, Instant};
use std::time::Duration;

/// Until a drop is tried again that has failed: the engine has no device, and the volume's
/// generation could not be raised. For want of room the engine refuses none.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

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
        for range in doubts(ranges, under_way) {
            if matches!(self.volumes[key].phase, Phase::Serving) {
                self.drop_doubtful(now, key, *range);
            } else {
                self.doubt(now, key, *range);
            }
        }
    }

    /// These bytes could not be dropped yet. A volume that leaves takes all of its blocks along.
    pub(super) fn doubt(&mut self, now: Instant, key: usize, range: ByteSpan) {
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.doubts.push(range);
            if matches!(volume.phase, Phase::Leaving(_)) {
                self.discard_doubtful(key);
            } else {
                self.look_at = Some(after(now, AGAIN_AFTER));
            }
        }
    }

    /// Has the engine keep nothing of a volume that leaves, if its server may have lost some of it:
    /// before the last flush ends, which would seem to cover that.
    pub(super) fn discard_doubtful(&mut self, key: usize) {
        let volume = &mut self.volumes[key];
        if let Some(id) = volume.id
            && !volume.doubts.is_empty()
            && !std::mem::replace(&mut volume.discarded, true)
        {
            self.command(Awaited::Discard, &Command::Discard(id));
        }
    }

    /// Tries again, with volumes that serve.
    pub(super) fn drop_doubts(&mut self, now: Instant) {
        let doubtful: Vec<usize> = self
            .volumes
            .iter()
            .filter(|(_, v)| !v.doubts.is_empty() && matches!(v.phase, Phase::Serving))
            .map(|(key, _)| key)
            .collect();
        for key in doubtful {
            for range in std::mem::take(&mut self.volumes[key].doubts) {
                self.drop_doubtful(now, key, range);
            }
        }
    }
}
