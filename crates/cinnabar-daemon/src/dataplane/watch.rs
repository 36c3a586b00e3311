//! A look at all disks now and then: what has grown, shrunk or been cut short shows there before a
//! request meets it.
//!
//! Sizes are asked by a background thread, for a file system that hangs must not hold the loop;
//! while it does, no other look is begun.

use super::background::Task;
use super::clock::after;
use super::plane::DataPlane;
use cinnabar_backend::Disk;
use cinnabar_engine::units::Instant;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Between two looks. An idle daemon wakes up so often.
const LOOK_EVERY: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(10) };

/// See the module.
#[derive(Default)]
pub(super) struct Watch {
    next: Option<Instant>,
    looking: bool,
}

/// What a look found.
pub(super) struct Sizes {
    /// Of the cache device, and which that was: another may have taken its place meanwhile.
    pub(super) cache: Option<(Weak<Disk>, u64)>,
    /// Of volumes, by key and attachment.
    pub(super) volumes: Vec<(usize, u64, u64)>,
}

impl DataPlane {
    /// Looks, if it is time to.
    pub(super) fn look_around(&mut self, now: Instant) {
        if self.stop.is_some() {
            return;
        }
        if self.watch.next.is_none_or(|next| next <= now) {
            self.watch.next = Some(after(now, LOOK_EVERY));
            self.look_at_disks(now);
        }
        let next = self.watch.next;
        self.look_at = self.look_at.into_iter().chain(next).min();
    }

    fn look_at_disks(&mut self, now: Instant) {
        // What shards have said last will do: a thread that has one may not turn.
        let ids: Vec<_> = self.order.iter().map(|key| self.volumes[*key].life.id()).collect();
        let until = std::time::Instant::now();
        let counters = self.shard_set.latest(&self.data_thread, &ids, until).cache;
        if self.cache.faults.note(now, &counters)
            && let Some(reason) = self.cache.faults.of_late(now, &counters)
        {
            tracing::warn!(path = %self.cache.path.display(), reason, "the cache device makes errors");
        }
        if std::mem::replace(&mut self.watch.looking, true) {
            return;
        }
        let serving = self
            .volumes
            .iter()
            .filter(|(_, volume)| volume.life.serving().is_some() && volume.io.disk.tells_size());
        let volumes = serving
            .map(|(key, volume)| (key, volume.io.attachment, Arc::downgrade(&volume.io.disk)))
            .collect();
        let cache = self.cache.shared().map(Arc::downgrade);
        self.background.start(Task::Measure { cache, volumes });
    }

    /// A look has ended.
    pub(super) fn looked(&mut self, sizes: &Sizes) {
        self.watch.looking = false;
        if let Some((disk, size)) = &sizes.cache
            && self.cache.is(disk)
        {
            self.give_up_short_device(*size);
        }
        for (key, attachment, size) in &sizes.volumes {
            if let Some(volume) = self.volumes.get_mut(*key)
                && volume.io.attachment == *attachment
            {
                volume.note_size(*size);
            }
        }
    }
}
