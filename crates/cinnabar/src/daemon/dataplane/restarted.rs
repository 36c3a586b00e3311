//! A backend's server that was away and is back: what it may have lost is not believed any more.
//!
//! Called by the loop, before it hears of anything that the server did since.

use super::plane::Plane;
use super::volume::Phase;
use cinnabar_engine::units::{ByteSpan, Instant};
use tokio::sync::oneshot;

impl Plane {
    /// Drops what is cached of these ranges of a volume, durably. The server may
    /// hold what was written there, or what was before: reads have to ask it.
    pub(super) fn server_restarted(&mut self, now: Instant, key: usize, ranges: &[ByteSpan]) {
        let Some(volume) = self.volumes.get(key) else { return };
        if volume.id.is_none() || !matches!(volume.phase, Phase::Serving) {
            return;
        }
        tracing::warn!(
            volume = volume.config.name,
            ranges = ranges.len(),
            bytes = ranges.iter().map(|range| range.len).sum::<u64>(),
            "its server may have restarted; what is cached of writes that were not flushed is dropped"
        );
        for range in ranges {
            // Nobody waits for the answer.
            let (answer, _) = oneshot::channel();
            self.invalidate_span(now, key, *range, answer);
        }
    }
}
