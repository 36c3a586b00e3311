//! What the drivers drive: the engine, or a double of it in the tests of the drivers themselves.

use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{
    Action, AtRisk, Config, Crossings, Engine, Event, KeptBlock, KeptCursor, Payload, Phases,
};

/// A state machine behind the seam.
pub trait Machine<P> {
    /// See [`Engine::apply`].
    fn apply(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>);
    /// See [`Engine::cache_counters`].
    fn cache_counters(&self) -> CacheCounters;
    /// See [`Engine::volume_counters`].
    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters>;
    /// See [`Engine::recorded`]: what each shard that knows the volume says.
    fn recorded(&self, _name: &str) -> Vec<Recorded> {
        Vec::new()
    }
    /// See [`Engine::health`].
    fn health(&self) -> Health {
        Health::Serving
    }
    /// How often each bound was run into; see [`Engine::crossings`].
    fn crossings(&self) -> Crossings {
        Crossings::default()
    }
    /// What it is doing; see [`Engine::phases`]. `None`: it can't tell.
    fn phases(&self) -> Option<Phases> {
        None
    }
    /// See [`Engine::at_risk`].
    fn at_risk(&self) -> AtRisk {
        AtRisk::default()
    }
    /// See [`Engine::settled_blocks`], of a volume that the shards call so.
    fn settled_blocks(&self, _names: &[VolumeId]) -> Vec<(u64, u64)> {
        Vec::new()
    }
    /// See [`Engine::holds`].
    fn holds(&self, _names: &[VolumeId], _block: u64) -> bool {
        true
    }
    /// What is kept of a volume that is not attached; see [`Engine::kept_blocks`].
    fn kept(&self, _name: &str) -> Vec<Kept<P>> {
        Vec::new()
    }
    /// Panics if the machine contradicts itself. Expensive.
    fn check_invariants(&self) {}
    /// Parts that can take turns of their own.
    fn shards(&self) -> u32 {
        1
    }
    /// As [`Machine::apply`], but shards only get their own events, to take it at their next turn.
    fn route(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>) {
        self.apply(now, events, actions);
    }
    /// Whether a shard has something to take.
    fn has_events(&self, _shard: u32) -> bool {
        false
    }
    /// A shard takes what it has been given.
    fn turn(&mut self, _shard: u32, _now: Instant, _actions: &mut Vec<Action<P>>) {}
    /// Whether a shard has answered what has not been taken yet.
    fn has_said(&self, _shard: u32) -> bool {
        false
    }
    /// What a shard has answered is heard.
    fn hear(&mut self, _shard: u32, _actions: &mut Vec<Action<P>>) {}
    /// What the shards call a volume: these names outlive its detachment.
    fn names(&self, volume: VolumeId) -> Vec<VolumeId> {
        vec![volume]
    }
    /// Counters of a volume with these names, attached or not.
    fn counters_of(&self, names: &[VolumeId]) -> Option<VolumeCounters> {
        self.volume_counters(*names.first()?)
    }
    /// Requests that more than one shard had a part in, flushes left out.
    fn split_requests(&self) -> u64 {
        0
    }
}

/// A block that is kept of a volume which is not attached.
#[derive(Clone, Debug)]
pub struct Kept<P> {
    /// Its number.
    pub block: u64,
    /// Where it is.
    pub place: KeptBlock,
    /// It, if it was copied.
    pub data: P,
}

/// All that an engine keeps of a volume that is not attached, in pages of a few.
pub(crate) fn kept_of<P: Payload>(engine: &Engine<P>, name: &str) -> Vec<Kept<P>> {
    let mut kept = Vec::new();
    for class in 0..KeptCursor::CLASSES {
        let mut from = Some(KeptCursor { class, slot: 0 });
        while let Some(page) = from.and_then(|from| engine.kept_blocks(name, from, 7, 1000)) {
            for block in page.blocks {
                let data = P::alloc(1);
                if let Some(place) = engine.kept_block(name, block, (&data, 0)) {
                    kept.push(Kept { block, place, data });
                }
            }
            from = page.next;
        }
    }
    kept
}

/// How a cache is made.
#[derive(Clone, Copy, Debug)]
pub struct CacheSetup {
    /// Data blocks of the log, all shards together.
    pub capacity_blocks: u64,
    /// Chunks of 256 blocks in a segment.
    pub segment_chunks: u32,
    /// Shards, each with a region of the device.
    pub shards: u32,
    /// log2 of the blocks that stay together in one of them.
    pub span_log2: u32,
    /// Threads that share the shards.
    pub threads: u32,
    /// Pages of each shard's journal; `None`: as many as a device of that size has.
    pub journal_pages: Option<u64>,
    /// Settings of each engine.
    pub config: Config,
}

impl CacheSetup {
    /// The geometry of each of its regions, of so many data blocks.
    ///
    /// # Panics
    /// If a shard can't be that large.
    pub fn geometry(&self, region_blocks: u64) -> Geometry {
        let region = u32::try_from(region_blocks).expect("a shard's size");
        let geometry = Geometry::for_capacity(region, self.segment_chunks);
        self.journal_pages.map_or(geometry, |pages| geometry.with_journal(pages))
    }

    /// A cache of one shard, with segments of one chunk.
    pub const fn single(capacity_blocks: u64, config: Config) -> Self {
        Self {
            capacity_blocks,
            segment_chunks: 1,
            shards: 1,
            span_log2: 10,
            threads: 1,
            journal_pages: None,
            config,
        }
    }
}

/// A freshly formatted cache device.
#[derive(Clone, Debug)]
pub struct Format {
    /// Size of each of its regions.
    pub region_blocks: u64,
    /// First block of a region's checkpoints.
    pub checkpoints: u64,
    /// First block of a region's log, the rest of the region.
    pub log: u64,
    /// What the first two blocks of each region hold.
    pub superblocks: Vec<[MetaPage; 2]>,
}

impl Format {
    /// The device that these superblocks, one a region, describe.
    ///
    /// # Panics
    /// If there is none.
    pub fn of(superblocks: &[Superblock]) -> Self {
        let geometry = superblocks[0].geometry;
        let pages = superblocks.iter().map(|superblock| {
            let (offset, page) = superblock.encode();
            let mut pages = [MetaPage::zeroed(), MetaPage::zeroed()];
            pages[(offset / 4096) as usize] = page;
            pages
        });
        Self {
            region_blocks: geometry.device_blocks,
            checkpoints: geometry.checkpoints.0[0],
            log: geometry.log,
            superblocks: pages.collect(),
        }
    }
}

/// Makes machines: one for each session of a cache device.
pub trait Factory<P> {
    /// What it makes.
    type Machine: Machine<P>;
    /// A new device, unlike those with other serial numbers.
    fn format(&mut self, setup: &CacheSetup, serial: u8) -> Format;
    /// A machine over a device whose regions begin with these two blocks each; `Err` says why they
    /// are no superblocks.
    ///
    /// # Errors
    /// A text for the report of a failed run.
    fn start(
        &mut self,
        setup: &CacheSetup,
        superblocks: &[[MetaPage; 2]],
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

    fn recorded(&self, name: &str) -> Vec<Recorded> {
        Engine::recorded(self, name).into_iter().collect()
    }

    fn health(&self) -> Health {
        Engine::health(self)
    }

    fn crossings(&self) -> Crossings {
        Engine::crossings(self)
    }

    fn phases(&self) -> Option<Phases> {
        Some(Engine::phases(self))
    }

    fn at_risk(&self) -> AtRisk {
        Engine::at_risk(self)
    }

    fn settled_blocks(&self, names: &[VolumeId]) -> Vec<(u64, u64)> {
        names.iter().flat_map(|name| Engine::settled_blocks(self, *name)).collect()
    }

    fn holds(&self, names: &[VolumeId], block: u64) -> bool {
        names.iter().any(|name| Engine::holds(self, *name, block))
    }

    fn kept(&self, name: &str) -> Vec<Kept<P>> {
        kept_of(self, name)
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
        let geometry = setup.geometry(setup.capacity_blocks);
        Format::of(&[Superblock::format([0xC1 ^ serial; 16], geometry)])
    }

    fn start(
        &mut self,
        setup: &CacheSetup,
        superblocks: &[[MetaPage; 2]],
    ) -> Result<Engine<P>, String> {
        let superblock = Superblock::decode(&superblocks[0]).map_err(|error| error.to_string())?;
        Ok(Engine::new(setup.config, superblock))
    }

    fn start_without_device(&mut self, setup: &CacheSetup) -> Option<Engine<P>> {
        Some(Engine::without_device(setup.config))
    }
}
