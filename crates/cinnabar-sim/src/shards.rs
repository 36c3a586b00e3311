//! Several engines behind one seam, as the fault simulation drives them.

use crate::machine::{CacheSetup, Factory, Format, Kept, Machine, kept_of};
use crate::threaded::Threaded;
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::shards::{ShardMap, Sharded};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{Action, AtRisk, Crossings, Event, Payload, Phases};
use std::fmt::Debug;
use std::ops::Add;

impl<P: Payload> Machine<P> for Sharded<P> {
    fn apply(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>) {
        Sharded::apply(self, now, events, actions);
    }

    fn cache_counters(&self) -> CacheCounters {
        Sharded::cache_counters(self)
    }

    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        Sharded::volume_counters(self, volume)
    }

    fn recorded(&self, name: &str) -> Vec<Recorded> {
        Sharded::recorded(self, name)
    }

    fn health(&self) -> Health {
        Sharded::health(self)
    }

    fn crossings(&self) -> Crossings {
        let all = self.router().crossings().clone();
        self.engines().for_each(|engine| all.add(&engine.crossings()));
        all
    }

    fn phases(&self) -> Option<Phases> {
        self.engines().map(cinnabar_engine::Engine::phases).reduce(Phases::or)
    }

    fn at_risk(&self) -> AtRisk {
        self.engines().map(cinnabar_engine::Engine::at_risk).fold(AtRisk::default(), Add::add)
    }

    fn settled_blocks(&self, names: &[VolumeId]) -> Vec<(u64, u64)> {
        let all = self.engines().zip(names);
        all.flat_map(|(engine, name)| engine.settled_blocks(*name)).collect()
    }

    fn holds(&self, names: &[VolumeId], block: u64) -> bool {
        self.engines().zip(names).any(|(engine, name)| engine.holds(*name, block))
    }

    fn kept(&self, name: &str) -> Vec<Kept<P>> {
        self.engines().flat_map(|engine| kept_of(engine, name)).collect()
    }

    fn check_invariants(&self) {
        self.engines().for_each(cinnabar_engine::Engine::check_invariants);
    }

    fn shards(&self) -> u32 {
        self.router().map().shards()
    }

    fn names(&self, volume: VolumeId) -> Vec<VolumeId> {
        let shards = 0..Machine::<P>::shards(self);
        shards.filter_map(|shard| self.router().inner(volume, shard)).collect()
    }

    fn counters_of(&self, names: &[VolumeId]) -> Option<VolumeCounters> {
        let each = self.engines().zip(names).map(|(engine, name)| engine.volume_counters(*name));
        each.collect::<Option<Vec<_>>>().map(VolumeCounters::of_shards)
    }

    fn split_requests(&self) -> u64 {
        self.router().split_requests()
    }
}

/// A cache with several shards or one.
pub enum Shards<P> {
    /// On one thread.
    Together(Sharded<P>),
    /// On several.
    Apart(Threaded<P>),
}

/// Passes a call on to whichever it is.
macro_rules! either {
    ($shards:expr, $machine:ident => $call:expr) => {
        match $shards {
            Shards::Together($machine) => $call,
            Shards::Apart($machine) => $call,
        }
    };
}

impl<P: Payload> Machine<P> for Shards<P> {
    fn apply(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>) {
        either!(self, machine => Machine::apply(machine, now, events, actions));
    }

    fn cache_counters(&self) -> CacheCounters {
        either!(self, machine => Machine::cache_counters(machine))
    }

    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        either!(self, machine => Machine::volume_counters(machine, volume))
    }

    fn recorded(&self, name: &str) -> Vec<Recorded> {
        either!(self, machine => Machine::recorded(machine, name))
    }

    fn health(&self) -> Health {
        either!(self, machine => Machine::health(machine))
    }

    fn crossings(&self) -> Crossings {
        either!(self, machine => Machine::crossings(machine))
    }

    fn phases(&self) -> Option<Phases> {
        either!(self, machine => Machine::phases(machine))
    }

    fn at_risk(&self) -> AtRisk {
        either!(self, machine => machine.at_risk())
    }

    fn settled_blocks(&self, names: &[VolumeId]) -> Vec<(u64, u64)> {
        either!(self, machine => machine.settled_blocks(names))
    }

    fn holds(&self, names: &[VolumeId], block: u64) -> bool {
        either!(self, machine => machine.holds(names, block))
    }

    fn kept(&self, name: &str) -> Vec<Kept<P>> {
        either!(self, machine => machine.kept(name))
    }

    fn check_invariants(&self) {
        either!(self, machine => machine.check_invariants());
    }

    fn shards(&self) -> u32 {
        either!(self, machine => machine.shards())
    }

    fn route(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>) {
        either!(self, machine => Machine::route(machine, now, events, actions));
    }

    fn has_events(&self, shard: u32) -> bool {
        either!(self, machine => Machine::has_events(machine, shard))
    }

    fn turn(&mut self, shard: u32, now: Instant, actions: &mut Vec<Action<P>>) {
        either!(self, machine => Machine::turn(machine, shard, now, actions));
    }

    fn has_said(&self, shard: u32) -> bool {
        either!(self, machine => machine.has_said(shard))
    }

    fn hear(&mut self, shard: u32, actions: &mut Vec<Action<P>>) {
        either!(self, machine => machine.hear(shard, actions));
    }

    fn names(&self, volume: VolumeId) -> Vec<VolumeId> {
        either!(self, machine => machine.names(volume))
    }

    fn counters_of(&self, names: &[VolumeId]) -> Option<VolumeCounters> {
        either!(self, machine => machine.counters_of(names))
    }

    fn split_requests(&self) -> u64 {
        either!(self, machine => machine.split_requests())
    }
}

/// Makes engines with as many shards as the device has regions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardedFactory;

impl<P: Payload> Factory<P> for ShardedFactory {
    type Machine = Shards<P>;

    fn format(&mut self, setup: &CacheSetup, serial: u8) -> Format {
        let region = setup.capacity_blocks.div_ceil(u64::from(setup.shards));
        let geometry = setup.geometry(region).divided(setup.shards, setup.span_log2);
        Format::of(&Superblock::format_all([0xC1 ^ serial; 16], geometry))
    }

    fn start(
        &mut self,
        setup: &CacheSetup,
        superblocks: &[[MetaPage; 2]],
    ) -> Result<Shards<P>, String> {
        let mut regions: Vec<Superblock> = Vec::with_capacity(superblocks.len());
        for (shard, pages) in (0..).zip(superblocks) {
            let region = Superblock::decode(pages).map_err(|error| error.to_string())?;
            let first = regions.first().unwrap_or(&region);
            if !region.belongs_to(first, shard) {
                return Err(format!("region {shard} is of another device"));
            }
            regions.push(region);
        }
        Ok(if setup.threads.min(regions.len() as u32) > 1 {
            Shards::Apart(Threaded::new(setup.config, regions))
        } else {
            Shards::Together(Sharded::new(setup.config, regions))
        })
    }

    fn start_without_device(&mut self, setup: &CacheSetup) -> Option<Shards<P>> {
        Some(Shards::Together(Sharded::without_device(setup.config, ShardMap::single())))
    }
}
