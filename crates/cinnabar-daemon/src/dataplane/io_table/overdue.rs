//! Operations that take too long: on a backend, guests are answered, and the operation is waited for
//! on; on the cache device, that is given up, for every write that needs a mark would hang with it.

use super::{Io, IoEvent, IoTable, Owner};
use cinnabar_driver::TrackedIo;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{IoDone, IoError};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl IoTable {
    /// This I/O takes too long.
    pub(super) fn overdue(&mut self, now: Instant, io: usize) {
        let under_way = &mut self.ios.get_mut(io).of;
        let (owner, what, seat) = (under_way.owner, under_way.what, under_way.seat);
        if let Some(seat) = seat {
            self.qos_queues.free(seat);
        }
        let under_way = &mut self.ios.get_mut(io).of;
        let Some(key) = under_way.volume else {
            // Each engine gives up its own; the plane says so, and has the others follow, unless the
            // device was left before.
            let file = under_way.file;
            if let Owner::Log(half, id) = owner {
                // What it does after all is of no concern: the log gives the device up. A read that is
                // overdue has memory of its own, if there is another device.
                under_way.owner = Owner::Nobody;
                let late = IoDone::new(id, Err(IoError::TimedOut));
                self.told.push(IoEvent::Log(half, late));
            }
            if let Owner::Engine(shard, id) = owner {
                self.told.push(IoEvent::Overdue(shard, id));
                if let Some((_, disk)) = self.cache.as_ref().filter(|cache| cache.0 == file) {
                    self.told.push(IoEvent::Hangs(Arc::downgrade(disk), what));
                }
            }
            return;
        };
        match owner {
            Owner::Engine(shard, id) => self.told.push(IoEvent::Overdue(shard, id)),
            Owner::BlockStatus(caller) => {
                under_way.owner = Owner::Nobody;
                self.told.push(IoEvent::Extents(caller, None));
            }
            Owner::Log(..) => unreachable!("the log does its I/O on its own device"),
            Owner::Nobody => {}
        }
        let volume = &self.volume(key).1;
        volume.overdue_now.fetch_add(1, Relaxed);
        let (name, bound_s) = (volume.name.clone(), volume.timeout.as_secs_f64());
        if self.warnings.allow(now) {
            tracing::warn!(
                volume = name,
                operation = what.name,
                offset = what.offset,
                len = what.len,
                bound_s,
                "the backend takes too long; the guest gets an error"
            );
        }
    }

    /// An operation that was overdue has ended after all.
    pub(super) fn no_longer_overdue(&mut self, now: Instant, io: &TrackedIo<Io>) {
        let took_s = now.since_ns(io.started) as f64 / 1e9;
        let Some(key) = io.of.volume else { return };
        let volume = &self.volume(key).1;
        if volume.overdue_now.fetch_sub(1, Relaxed) == 1 {
            tracing::info!(volume = volume.name, took_s, "the backend answers again");
        }
    }
}
