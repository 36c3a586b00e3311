//! A backend's server restarts under the daemon: what no flush covered may be lost, what was under
//! way is asked for again, and the driver reports which ranges may have gone back.
//!
//! It knows what was written since the last flush, not what of it was lost, and tells the engine
//! before anything of the new connection.

use crate::driver::agenda::Item;
use crate::driver::guests::State;
use crate::driver::world::World;
use crate::kinds::Fault;
use crate::machine::{Factory, Machine};
use crate::oracle::WriteTicket;
use crate::stamp::{Stamp, Stamped};
use cinnabar_engine::IoOp;
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES};

/// Written sectors that are no further apart are reported as one range.
const GAP_SECTORS: u64 = 64;
/// Longest time until the server answers again, in ns.
const AWAY_NS_MAX: u64 = 50_000_000;

impl<F: Factory<Stamped>> World<'_, F> {
    /// The server of a volume restarts, if it has one.
    pub(super) fn restart_server(&mut self, volume: usize) {
        let attached = self.volumes[volume].state() == State::Attached;
        if !attached || !self.profile.volumes[volume].server {
            return;
        }
        let several = self.machine.as_ref().is_some_and(|machine| machine.shards() > 1);
        self.count.faults.add(Fault::ServerRestart);
        self.count.faults.add_many(Fault::ServerRestartShards, u64::from(several));
        self.log.milestone(self.now, || format!("THE SERVER of backend {volume} restarts"));
        let written = self.media.backends[volume].volatile_sectors();
        let mut lost = self.media.backends[volume].power_cut(&mut self.rng);
        lost.sort_unstable();
        self.count.faults.add_many(Fault::RevertedSector, lost.len() as u64);
        self.ask_again(volume);
        for (first, end) in ranges(&written) {
            let lost = lost.iter().copied().filter(|sector| (first..end).contains(sector));
            let losses = self.note_losses(volume, lost.collect());
            let span = ByteSpan::new(first * SECTOR_BYTES, (end - first) * SECTOR_BYTES);
            self.submit_loss(volume, span, losses);
        }
    }

    /// What the oracle hears of sectors that went back: each is as if it had been written once more,
    /// between now and the answer to the invalidation.
    pub(super) fn note_losses(&mut self, volume: usize, lost: Vec<u64>) -> Vec<WriteTicket> {
        let mut tickets = Vec::new();
        for sector in lost {
            let value: Stamp = self.media.backends[volume].sector(sector);
            let place = Some((volume, sector..sector + 1));
            self.log.note(self.now, place, || format!("LOST by its server: now {value:?}"));
            match self.oracle.lost(volume, sector, value) {
                Ok(ticket) => tickets.push(ticket),
                Err(violation) => {
                    self.disorder.get_or_insert(violation);
                }
            }
        }
        tickets
    }

    /// Everything that was under way on a backend is asked for again, whole.
    fn ask_again(&mut self, volume: usize) {
        let there = |flight: &crate::driver::io::Flight| {
            let asks = !matches!(flight.request().op, IoOp::BumpGeneration { .. });
            asks && flight.transfer.backend() == Some(volume)
        };
        for id in self.flights_that(there) {
            let number = self.number();
            let tick = self.oracle.tick();
            let lasts_ns = self.rng.within(1..AWAY_NS_MAX);
            let flight = self.flights.get_mut(&id).expect("just found");
            flight.begin_again(number, tick);
            for part in flight.ahead.clone() {
                let at = self.now.plus_ns(self.rng.below(lasts_ns));
                self.agenda.enter(at, Item::effect(id, number, &part));
            }
            self.agenda.enter(self.now.plus_ns(lasts_ns), Item::Finish(id, number));
        }
    }
}

/// The ranges that these sectors, in order, lie in.
fn ranges(sectors: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &sector in sectors {
        match ranges.last_mut() {
            Some((_, end)) if sector < *end + GAP_SECTORS => *end = sector + 1,
            _ => ranges.push((sector, sector + 1)),
        }
    }
    ranges
}
