//! A digest of a world: what was seen before need not be looked at again.
//!
//! Names of requests and of I/Os are part of it, so two states that differ in nothing but these count
//! as two; that costs time and misses nothing.

use super::requests::{Asked, Pending};
use super::world::World;
use cinnabar_sim::digest::{Mixer, Sink};
use std::hash::Hasher;

impl World {
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = Mixer::default();
        if let Some(machine) = &self.machine {
            machine.digest(&mut hasher);
        }
        let device = (self.life.phase(), self.life.new_device().is_some(), self.waits);
        let text = format!("{:?} {:?} {:?} {device:?}", self.wake, self.now, self.controls);
        hasher.write(text.as_bytes());
        let mut sink = Sink::default();
        sink.word(hasher.finish());
        sink.word(u64::from(self.hold) | u64::from(self.batching) << 16);
        self.media.cache.digest(&mut sink);
        for shelved in [&self.shelf, &self.parked] {
            sink.word(u64::from(shelved.is_some()));
            if let Some(shelved) = shelved {
                shelved.digest(&mut sink);
            }
        }
        self.media.backends.iter().for_each(|backend| backend.digest(&mut sink));
        self.oracle.digest(&mut sink);
        let mut held: Vec<_> = self.held.iter().collect();
        held.sort_by_key(|held| held.transfer.request.id);
        for held in held {
            held.transfer.digest(&mut sink);
            sink.word(u64::from(held.overdue));
        }
        for volume in &self.volumes {
            sink.word(u64::from(volume.sync_failed));
            let mut hasher = Mixer::default();
            hasher.write(
                format!("{:?} {:?} {}", volume.state, volume.left, volume.overdue).as_bytes(),
            );
            sink.word(hasher.finish());
        }
        for (id, pending) in &self.pending {
            sink.word(id.0);
            digest_pending(pending, &mut sink);
            let backend = &self.volumes[pending.volume];
            sink.word(u64::from(backend.errors > pending.errors_before));
            sink.word(u64::from(pending.sync_failed));
        }
        sink.digest()
    }
}

fn digest_pending(pending: &Pending, sink: &mut Sink) {
    sink.word(pending.volume as u64);
    match &pending.asked {
        Asked::Read { ticket, data, .. } => {
            sink.tick(ticket.submitted());
            sink.stamps(&data.get(0, data.sectors()));
        }
        Asked::Write { ticket, data, fua, .. } => {
            sink.tick(ticket.submitted());
            sink.word(u64::from(*fua));
            sink.stamps(&data.get(0, data.sectors()));
        }
        Asked::Zeroes { ticket } | Asked::Trim { ticket } => sink.tick(ticket.submitted()),
        Asked::Flush { tick } => sink.tick(*tick),
        Asked::Invalidate => sink.word(1),
    }
}
