//! An engine with its device: what is asked of it, what it has under way, and what flash holds.
//!
//! Nothing here takes time.

use super::super::config::Config;
use super::report::Recovery;
use super::setup;
use crate::instant::Length;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::limits::{REQUESTS_MAX, VOLUME_BLOCKS_MAX};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::shards::Sharded;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use cinnabar_engine::{Action, Event, IoId, Op, Request, RequestId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Requests in an engine's hands at most; more wait in front of it, as they do in the daemon. Half of
/// what it takes: one request may be several for its shards.
const DEPTH_MAX: usize = REQUESTS_MAX / 2;
/// Set in the names of requests that no job waits for.
pub(super) const NOBODYS: u64 = 1 << 62;
/// Set in the name of the command under way.
pub(super) const COMMAND: u64 = 1 << 63;

/// A volume of a trace, and which part of it: the engine's volumes end earlier than a trace's may.
pub(super) type Place = (u32, u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) place: Place,
    pub(super) write: bool,
    pub(super) span: ByteSpan,
    /// No thread waits for it: a syncer's write, or one in the background.
    pub(super) unseen: bool,
    pub(super) since_ns: u64,
    /// In the engine's hands.
    pub(super) submitted: bool,
}

#[derive(Debug)]
pub(super) struct Flight {
    /// Number of the engine's session that waits for it.
    pub(super) life: u32,
    pub(super) id: IoId,
    pub(super) pages: Vec<MetaPage>,
    /// First block of the device that the pages are written to once it is done.
    pub(super) write_at: Option<u64>,
    pub(super) generation: Option<u64>,
    /// What the file server does, and how much data goes there or back.
    pub(super) write: bool,
    pub(super) blocks: u64,
    pub(super) up_bytes: u64,
    pub(super) down_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Detach(Place),
    Seal(Place),
    Close,
    /// The next session, from what is on the device.
    Renew,
    /// The next session, on a new device.
    Replace,
    Open,
    Attach(Place),
    AwaitLoad,
}

pub(super) struct Node {
    pub(super) config: cinnabar_engine::Config,
    pub(super) engine: Sharded<Length>,
    pub(super) life: u32,
    /// What is on the device of metadata, by block.
    pub(super) pages: BTreeMap<u64, MetaPage>,
    /// Blocks of a shard's region.
    pub(super) region_blocks: u64,
    pub(super) shards: u64,
    /// The engine's name of a volume, once it is attached.
    pub(super) volumes: BTreeMap<Place, Option<VolumeId>>,
    /// Requests by job.
    pub(super) asked: BTreeMap<u32, Asked>,
    pub(super) submitted: usize,
    /// Jobs whose requests can't go to the engine yet.
    pub(super) waiting: VecDeque<u32>,
    /// Writes of other hosts that are still to be invalidated here.
    pub(super) invalidations: VecDeque<(VolumeId, ByteSpan)>,
    /// A clean stop is under way: volumes take nothing any more.
    pub(super) stopping: bool,
    pub(super) flights: BTreeMap<u32, Flight>,
    /// Volume and first byte of writes to the backend that no thread waits for.
    pub(super) unseen: BTreeSet<(VolumeId, u64)>,
    pub(super) steps: VecDeque<Step>,
    pub(super) step: Option<Step>,
    pub(super) wake_ns: Option<u64>,
    /// Counted before measuring began.
    pub(super) base: VolumeCounters,
    pub(super) metadata_writes: u64,
    pub(super) recovery: Option<Recovery>,
    /// When its present step began.
    pub(super) recovery_since_ns: u64,
    pub(super) events: Vec<Event<Length>>,
    pub(super) actions: Vec<Action<Length>>,
}

impl Node {
    /// An engine in front of an empty device; its first steps are to be taken.
    pub(super) fn new(config: &Config) -> Self {
        // As with the syncers' periods: a cache that is filled in a part of the time ages in that part.
        let scaled = |period_ns: u64| (period_ns / u64::from(config.scale)).max(1);
        let usual = cinnabar_engine::Config::default();
        let own = cinnabar_engine::Config {
            chunk_age_ns_max: scaled(usual.chunk_age_ns_max),
            heartbeat_ns: scaled(usual.heartbeat_ns),
            ..usual
        };
        let superblocks = setup::format(config);
        let geometry = superblocks[0].geometry;
        let mut node = Self {
            config: own,
            engine: Sharded::new(own, superblocks.clone()),
            life: 0,
            pages: BTreeMap::new(),
            region_blocks: geometry.device_blocks,
            shards: u64::from(geometry.shards),
            volumes: BTreeMap::new(),
            asked: BTreeMap::new(),
            submitted: 0,
            waiting: VecDeque::new(),
            invalidations: VecDeque::new(),
            stopping: false,
            flights: BTreeMap::new(),
            unseen: BTreeSet::new(),
            steps: [Step::Open, Step::AwaitLoad].into(),
            step: None,
            wake_ns: None,
            base: VolumeCounters::default(),
            metadata_writes: 0,
            recovery: None,
            recovery_since_ns: 0,
            events: Vec::new(),
            actions: Vec::new(),
        };
        node.lay_down(&superblocks);
        node
    }

    /// A device with nothing but these superblocks.
    pub(super) fn lay_down(&mut self, superblocks: &[Superblock]) {
        self.pages.clear();
        for superblock in superblocks {
            let (offset, page) = superblock.encode();
            self.pages.insert((superblock.region_start() + offset) / BLOCK_BYTES, page);
        }
    }

    /// The superblocks on the device.
    ///
    /// # Panics
    /// If there are none: the engine never leaves its device without.
    pub(super) fn superblocks(&self) -> Vec<Superblock> {
        let page = |block| self.pages.get(&block).cloned().unwrap_or(MetaPage::zeroed());
        let first = (0..self.shards).map(|shard| shard * self.region_blocks);
        let pages = first.map(|first| [page(first), page(first + 1)]);
        pages.map(|pages| Superblock::decode(&pages).expect("a superblock stays one")).collect()
    }

    /// Hands a job's request to the engine, if it can take it now.
    pub(super) fn submit(&mut self, job: u32) -> bool {
        let asked = self.asked.get_mut(&job).expect("it was asked");
        let volume = self.volumes.get(&asked.place).copied().flatten();
        let Some(volume) = volume.filter(|_| self.submitted < DEPTH_MAX && !self.stopping) else {
            return false;
        };
        asked.submitted = true;
        self.submitted += 1;
        let span = asked.span;
        let op = if asked.write {
            if asked.unseen {
                self.unseen.insert((volume, span.offset));
            }
            Op::Write { span, data: Length, fua: false }
        } else {
            Op::Read { span, data: Length }
        };
        self.events.push(Event::Submit(Request { id: RequestId(job.into()), volume, op }));
        true
    }

    /// Hands over what waits and can go now.
    pub(super) fn submit_waiting(&mut self) {
        while self.submitted < DEPTH_MAX
            && !self.stopping
            && let Some((volume, span)) = self.invalidations.pop_front()
        {
            self.submitted += 1;
            let (id, op) = (RequestId(NOBODYS), Op::Invalidate { span });
            self.events.push(Event::Submit(Request { id, volume, op }));
        }
        for _ in 0..self.waiting.len() {
            let Some(job) = self.waiting.pop_front() else { break };
            if self.submitted == DEPTH_MAX {
                self.waiting.push_front(job);
                break;
            }
            if !self.submit(job) {
                self.waiting.push_back(job);
            }
        }
    }

    /// All volumes' counters since they were attached.
    pub(super) fn totals(&self) -> VolumeCounters {
        let attached = self.volumes.values().flatten();
        attached.filter_map(|volume| self.engine.volume_counters(*volume)).sum()
    }

    /// What was counted since measuring began.
    pub(super) fn counted(&self) -> Counted {
        let (all, base) = (self.totals(), self.base);
        Counted {
            read_hits: all.read_hits - base.read_hits,
            read_hits_ram: all.read_hits_ram - base.read_hits_ram,
            misses: all.misses - base.misses,
            write_hits: all.write_hits - base.write_hits,
            invalidation_waits: all.invalidation_waits - base.invalidation_waits,
        }
    }
}

/// What is reported of the volumes' counters, in the measured part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) read_hits: u64,
    pub(super) read_hits_ram: u64,
    pub(super) misses: u64,
    pub(super) write_hits: u64,
    pub(super) invalidation_waits: u64,
}

/// Which volume of the engine's a block of a trace's volume lies in, and at which byte.
pub(super) fn place_of(key: u64) -> (Place, u64) {
    let (volume, block) = ((key >> 40) as u32, key & ((1 << 40) - 1));
    ((volume, block / VOLUME_BLOCKS_MAX), block % VOLUME_BLOCKS_MAX * BLOCK_BYTES)
}
