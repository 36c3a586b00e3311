//! Writes that a backend loses when one of its flushes fails, with one report of it.
//!
//! Linux reports what it could not write back once, to the first flush that asks, and the next one
//! succeeds. The engine that hears of it has to remember. Where several shards flush one backend, the
//! driver remembers, as the daemon's disks do: the others hear of it at their own next flush.

use crate::driver::io::{Flight, is_sync};
use crate::driver::world::World;
use crate::kinds::Fault;
use crate::machine::{Factory, Machine};
use crate::stamp::{Stamp, Stamped};
use cinnabar_engine::IoError;
use std::collections::BTreeMap;

impl<F: Factory<Stamped>> World<'_, F> {
    /// If this I/O is a flush of a backend that fails, writes are lost; if one has failed before,
    /// that is said again.
    pub(super) fn lose_with(&mut self, flight: &mut Flight) {
        let Some(backend) = flight.transfer.backend() else { return };
        if !is_sync(&flight.request().op) {
            return;
        }
        if self.volumes[backend].sticks {
            flight.result = Err(IoError::Io);
            return;
        }
        // Where edges of blocks are read, changed and written back, what was lost can come back.
        let merges = self.profile.volumes[backend].align_bytes > 512;
        if !flight.has_lost() || merges || !self.features().lost_syncs {
            return;
        }
        let several = self.machine.as_ref().is_some_and(|machine| machine.shards() > 1);
        self.volumes[backend].sticks = several;
        let contents = &self.media.backends[backend];
        let before: BTreeMap<u64, Stamp> =
            contents.volatile_sectors().into_iter().map(|at| (at, contents.sector(at))).collect();
        let lost = self.media.backends[backend].lose(&mut self.trouble);
        if lost.is_empty() {
            return;
        }
        self.count.faults.add(Fault::LostSync);
        self.count.faults.add_many(Fault::RevertedSector, lost.len() as u64);
        if several {
            // A shard that has not heard of it may serve what it has read before: also to a guest that
            // was served what is there now.
            for &sector in &lost {
                self.oracle.excuse(backend, sector, &[before[&sector]]);
            }
        }
        let tickets = self.note_losses(backend, lost);
        self.losses.extend(tickets.into_iter().map(|ticket| (backend, ticket)));
    }

    /// A machine of one shard knows of all failures that it was told: from now on it serves what the
    /// backend holds.
    pub(super) fn losses_heard(&mut self) {
        if self.losses.is_empty() || self.machine.as_ref().is_some_and(|m| m.shards() > 1) {
            return;
        }
        for (_, ticket) in std::mem::take(&mut self.losses) {
            self.oracle.loss_known(&ticket);
        }
    }

    /// A volume is gone: no shard serves any more what it lost.
    pub(super) fn losses_over(&mut self, volume: usize) {
        let (over, others) = self.losses.drain(..).partition(|(of, _)| *of == volume);
        self.losses = others;
        let over: Vec<_> = over;
        for (_, ticket) in over {
            self.oracle.loss_known(&ticket);
            self.oracle.end_excuses(volume, ticket.sectors(), u64::MAX);
        }
    }
}
