//! A volume leaves the write log while its guest goes on: drained until little is left, and held for that only.
//!
//! Guests are slowed down meanwhile, so each drain is shorter than the one before. They are held once a drain
//! took [`DRAIN_LITTLE_NS`], or [`LITTLE_BYTES`] are left. A back end that takes nothing for so long that guests would
//! notice, because it fails or is silent, ends the try: the volume stays in write-back mode, and the status says so.

use crate::dataplane::clock::after;
use crate::dataplane::plane::DataPlane;
use crate::dataplane::volume::Change;
use cinnabar_engine::RequestId;
use cinnabar_engine::units::Instant;
use cinnabar_writeback::{Command, Event};
use std::time::Duration;

/// A drain that took no longer left less than half of that, in ns.
const DRAIN_LITTLE_NS: u64 = 100_000_000;
/// So little is left that another drain would leave as much.
const LITTLE_BYTES: u64 = 256 << 10;
/// Longest that writes are held for the rest, in ns.
const HOLD_MAX_NS: u64 = 2_000_000_000;
/// Longest that the back end may take nothing meanwhile, in ns: writers wait for it, and would not if the volume
/// stayed.
const STUCK_MAX_NS: u64 = 5_000_000_000;

/// So often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How far a volume is.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct Leaving {
    /// When the drain under way began.
    drains: Instant,
    /// Since when writes are held.
    held: Option<Instant>,
    /// Blocks that were on their way to the back end when something was last seen to move, and when that was.
    moved: (u64, Instant),
}

impl DataPlane {
    /// A volume begins to leave. `slow`: its guests go on.
    pub(super) fn begins_to_leave(&mut self, now: Instant, key: usize, slow: bool) {
        self.volumes[key].leaving = Leaving { drains: now, held: None, moved: (0, now) };
        if slow {
            self.slow_down(key, true);
            if let Some(running) = self.writes.running() {
                running.leaving.push(key);
            }
        }
    }

    /// Has the log slow a volume's writers down, or not any more.
    pub(super) fn slow_down(&mut self, key: usize, slow: bool) {
        let place = self.volumes[key].writes.place();
        if let (Some(place), Some(running)) = (place, self.writes.running()) {
            let command = Command::Slow { place, slow };
            // It is not answered.
            running.events.push(Event::Control(RequestId(u64::MAX), command));
        }
    }

    /// A drain has ended: whether what was written meanwhile takes a moment only.
    pub(super) fn little_is_left(&mut self, now: Instant, key: usize) -> bool {
        let volume = &mut self.volumes[key];
        let took = now.since_ns(std::mem::replace(&mut volume.leaving.drains, now));
        let group = volume.writes.place().and_then(|place| self.writes.log()?.group(place));
        let left = group.map_or(0, |group| group.dirty_bytes);
        took <= DRAIN_LITTLE_NS || left <= LITTLE_BYTES
    }

    /// Writes of a volume that leaves are held from now on.
    pub(super) fn holds_to_leave(&mut self, now: Instant, key: usize) {
        self.volumes[key].leaving.held = Some(now);
    }

    /// Has volumes stay whose back ends do not take what is left.
    pub(super) fn look_at_leaving(&mut self, now: Instant) {
        let Some(running) = self.writes.running() else { return };
        if running.leaving.is_empty() {
            return;
        }
        let next = after(now, LOOK_EVERY);
        self.look_at = Some(self.look_at.map_or(next, |at| at.min(next)));
        if now.since_ns(running.looked_at_leaving) < LOOK_EVERY.as_nanos() as u64 {
            return;
        }
        running.looked_at_leaving = now;
        let mut keys = std::mem::take(&mut running.leaving);
        keys.retain(|key| {
            self.volumes.get(*key).is_some_and(|volume| matches!(volume.change, Change::Leave))
        });
        if let Some(running) = self.writes.running() {
            running.leaving.clone_from(&keys);
        }
        for key in keys {
            if !self.leaves_too_slowly(now, key) {
                continue;
            }
            let Some(step) = self.volumes[key].writes.stay() else { continue };
            let subject = self.subject(key);
            if let Some(running) = self.writes.running() {
                running.forget_steps(subject);
            }
            self.write_step(now, key, step);
        }
    }

    fn leaves_too_slowly(&mut self, now: Instant, key: usize) -> bool {
        let volume = &mut self.volumes[key];
        let group = volume.writes.place().and_then(|place| self.writes.log()?.group(place));
        let leaving = &mut volume.leaving;
        // One that fails is asked for the same again and again.
        if let Some(group) = group.filter(|group| !group.failing)
            && group.destaged_blocks != leaving.moved.0
        {
            leaving.moved = (group.destaged_blocks, now);
        }
        let longer = |since: Instant, most| now.since_ns(since) > most;
        longer(leaving.moved.1, STUCK_MAX_NS)
            || leaving.held.is_some_and(|held| longer(held, HOLD_MAX_NS))
    }
}
