//! What the drivers drive: the engine, or a double of it in the tests of the drivers themselves.
//!
//! Called by every driver of this crate.

use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{Action, Config, Engine, Event, Payload};

/// A state machine behind the seam.
pub trait Machine<P> {
    /// See [`Engine::apply`].
    fn apply(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>);
    /// See [`Engine::cache_counters`].
    fn cache_counters(&self) -> CacheCounters;
    /// See [`Engine::volume_counters`].
    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters>;
    /// See [`Engine::recorded`].
    fn recorded(&self, _name: &str) -> Option<Recorded> {
        None
    }
    /// See [`Engine::health`].
    fn health(&self) -> Health {
        Health::Serving
    }
    /// Panics if the machine contradicts itself. Expensive.
    fn check_invariants(&self) {}
}

/// How a cache is made.
#[derive(Clone, Copy, Debug)]
pub struct CacheSetup {
    /// Data blocks of the log.
    pub capacity_blocks: u64,
    /// Chunks of 256 blocks in a segment.
    pub segment_chunks: u32,
    /// Settings of each engine.
    pub config: Config,
}

/// A freshly formatted cache device.
#[derive(Clone, Debug)]
pub struct Format {
    /// Its size.
    pub device_blocks: u64,
    /// First block of its checkpoints.
    pub checkpoints: u64,
    /// First block of its log, the rest of the device.
    pub log: u64,
    /// What its first two blocks hold.
    pub superblocks: [MetaPage; 2],
}

/// Makes machines: one for each life of a cache device.
pub trait Factory<P> {
    /// What it makes.
    type Machine: Machine<P>;
    /// A new device, unlike those with other serial numbers.
    fn format(&mut self, setup: &CacheSetup, serial: u8) -> Format;
    /// A machine over a device that begins with these two blocks; `Err` says why they are not a
    /// superblock.
    ///
    /// # Errors
    /// A text for the report of a failed run.
    fn start(
        &mut self,
        setup: &CacheSetup,
        superblocks: &[MetaPage; 2],
    ) -> Result<Self::Machine, String>;
    /// A machine without a device: everything passes through. `None` if there is no such machine.
    fn start_without_device(&mut self, _setup: &CacheSetup) -> Option<Self::Machine> {
        None
    }
}

impl<P: Payload> Machine<P> for Engine<P> {
    fn apply(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>) {
        Engine::apply(self, now, events, actions);
    }

    fn cache_counters(&self) -> CacheCounters {
        Engine::cache_counters(self)
    }

    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        Engine::volume_counters(self, volume)
    }

    fn recorded(&self, name: &str) -> Option<Recorded> {
        Engine::recorded(self, name)
    }

    fn health(&self) -> Health {
        Engine::health(self)
    }

    fn check_invariants(&self) {
        Engine::check_invariants(self);
    }
}

/// Makes real engines.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineFactory;

impl<P: Payload> Factory<P> for EngineFactory {
    type Machine = Engine<P>;

    fn format(&mut self, setup: &CacheSetup, serial: u8) -> Format {
        let capacity = u32::try_from(setup.capacity_blocks).expect("a shard's size");
        let geometry = Geometry::for_capacity(capacity, setup.segment_chunks);
        let (offset, page) = Superblock::format([0xC1 ^ serial; 16], geometry).encode();
        let mut superblocks = [MetaPage::zeroed(), MetaPage::zeroed()];
        superblocks[(offset / 4096) as usize] = page;
        Format {
            device_blocks: geometry.device_blocks,
            checkpoints: geometry.checkpoints.0[0],
            log: geometry.log,
            superblocks,
        }
    }

    fn start(
        &mut self,
        setup: &CacheSetup,
        superblocks: &[MetaPage; 2],
    ) -> Result<Engine<P>, String> {
        let superblock = Superblock::decode(superblocks).map_err(|error| error.to_string())?;
        Ok(Engine::new(setup.config, superblock))
    }

    fn start_without_device(&mut self, setup: &CacheSetup) -> Option<Engine<P>> {
        Some(Engine::without_device(setup.config))
    }
}
