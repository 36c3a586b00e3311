//! Where the engine changes its way: sizes of steps, batches and tables.
//!
//! A driver of guests takes [`Bounds::default`]. The simulator draws tiny ones, so that a small
//! world crosses each of these borders: a fault behind a constant that no run reaches is found by
//! no run. Limits of the on-disk format and of the protocol are not here (see
//! [`limits`](crate::limits)), for no run may change them.

use crate::limits::{EXTRA_PARTS_MAX, REQUESTS_MAX, VOLUMES_MAX};
use crate::metadata::checkpoint::REGIONS_MAX;
use crate::units::BLOCK_BYTES;
use std::cell::Cell;

/// See the [module](self). All are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Requests in flight in one engine, waiting ones included, but for invalidations.
    pub requests: usize,
    /// Parts of one long trim, zeroing or invalidation that are under way at a time.
    pub parts: usize,
    /// Parts of split requests under way, beside the first one of each request.
    pub extra_parts: u32,
    /// The same, of one volume: others have room beside one that trims all it has.
    pub volume_extra_parts: u32,
    /// Bytes of a trim, zeroing or invalidation that an engine gets at a time.
    pub part_bytes: u64,
    /// Requests of one volume that were answered for taking too long while their I/O is still under
    /// way: beyond that its requests fail at once until some of it has ended.
    pub volume_late: u32,
    /// The same, of all volumes of an engine that have such requests.
    pub late: u32,
    /// Incarnations of volumes that the device reserves at a time.
    pub incarnations: u32,
    /// Volumes known at a time, detached ones with cached blocks included.
    pub volumes: usize,
    /// Metadata pages that one I/O of opening reads or blanks.
    pub open_pages: u64,
    /// Checkpoint pages that one read of loading asks for: 32 are some 12,000 descriptors, half a
    /// millisecond of work or somewhat more. A volume that is being attached meanwhile waits for as many
    /// of them as are there.
    pub load_pages: u32,
    /// Such reads under way at a time, and those of opening.
    pub load_reads: u32,
    /// Buckets of the address map, a power of two, that are filled together while an index is being
    /// loaded: 4096 are 256 KiB, which stay in a CPU's cache.
    pub fill_buckets: u64,
    /// Entries that are gathered for so many buckets before they are placed: one for each bucket takes
    /// an eighth of the map's memory, half a byte a block, while the index is being loaded.
    pub fill_entries: usize,
    /// Chunk headers being read at a time while the log is replayed.
    pub replay_reads: usize,
    /// Blocks entered or looked up by one event of a replay, an eighth of the slots passed over, or of
    /// the gathered entries placed in the address map.
    pub replay_blocks: u64,
    /// Blocks of a range that are invalidated by lookups; longer ones by a pass over all slots.
    pub invalidate_lookups: u64,
    /// Ranges written while the index is being loaded that are kept apart.
    pub passed_ranges: usize,
    /// Missing blocks that one backend read asks for (1 MiB): what comes of it is the work of one event.
    pub miss_blocks: u32,
    /// Blocks of a write that one event offers to the cache: some hundred microseconds of copying.
    pub write_blocks: u32,
    /// Blocks of a trim that one event takes out of the cache.
    pub zero_blocks: u64,
    /// Blocks of zeros written at a time where the backend can't zero by itself.
    pub zero_fallback_blocks: u32,
    /// Pages of one journal write.
    pub journal_pages: u64,
    /// Segments opened since the last checkpoint that call for one, at least; more where there are
    /// many.
    pub opened_segments: u32,
    /// Chunks whose headers a replay may have to read although they are more than an eighth of the log:
    /// 16 MiB are read within a tenth of a second.
    pub replayed_chunks: u32,
    /// Records since the last checkpoint that call for one, at least; more where the device is large.
    pub live_records: usize,
    /// Pages of one checkpoint write.
    pub checkpoint_pages: u32,
    /// RAM slots that one event of a clean stop moves to flash.
    pub stop_slots: usize,
    /// Slots that the cleaner scans in one batch, at least and at most.
    pub clean_slots: (u32, u32),
    /// Emptied segments that may wait for reads of them to end.
    pub parked_segments: usize,
    /// Segments of a share for each class of blocks (written, read, reinserted) that has segments of
    /// its own: each class keeps one open.
    pub class_segments: u32,
    /// Blocks written in part whose rest is not known, at most; fewer where the cache is small.
    pub partial_blocks: u32,
    /// Active regions of a shard; 0: none, and every write to a copy on flash waits for a record.
    pub regions: usize,
    /// Cached blocks in active regions, which a crash costs, of all shards at most; 0.5 % of the cache where
    /// that is more.
    pub doubt_blocks: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            requests: REQUESTS_MAX,
            parts: 32,
            extra_parts: EXTRA_PARTS_MAX,
            volume_extra_parts: EXTRA_PARTS_MAX / 8,
            part_bytes: 1 << 30,
            volume_late: 1024,
            late: 16_384,
            incarnations: 256,
            volumes: VOLUMES_MAX as usize,
            open_pages: 64,
            load_pages: 32,
            load_reads: 8,
            fill_buckets: 4096,
            fill_entries: 4096,
            replay_reads: 128,
            replay_blocks: 8192,
            invalidate_lookups: 1 << 16,
            passed_ranges: 1 << 16,
            miss_blocks: 256,
            write_blocks: 256,
            zero_blocks: 4096,
            zero_fallback_blocks: 256,
            journal_pages: 16,
            opened_segments: 2,
            replayed_chunks: 4096,
            live_records: 64,
            checkpoint_pages: 64,
            stop_slots: 256,
            clean_slots: (64, 4096),
            parked_segments: 4,
            class_segments: 48,
            partial_blocks: 1024,
            regions: 240,
            doubt_blocks: 2048,
        }
    }
}

impl Bounds {
    /// Cached blocks of one of `shards` that may be in active regions.
    pub(crate) fn doubt_max(&self, shards: u32, capacity_blocks: u64) -> u64 {
        (self.doubt_blocks / u64::from(shards)).max(capacity_blocks / 200)
    }

    /// The smallest of each: every step is of one, every table has one place.
    pub const TINY: Self = Self {
        requests: 8,
        parts: 1,
        extra_parts: 1,
        volume_extra_parts: 1,
        part_bytes: 4096,
        volume_late: 1,
        late: 1,
        incarnations: 1,
        volumes: 4,
        open_pages: 1,
        load_pages: 1,
        load_reads: 1,
        fill_buckets: 1,
        fill_entries: 1,
        replay_reads: 1,
        replay_blocks: 1,
        invalidate_lookups: 1,
        passed_ranges: 1,
        miss_blocks: 1,
        write_blocks: 1,
        zero_blocks: 1,
        zero_fallback_blocks: 1,
        journal_pages: 1,
        opened_segments: 1,
        replayed_chunks: 1,
        live_records: 1,
        checkpoint_pages: 1,
        stop_slots: 1,
        clean_slots: (1, 1),
        parked_segments: 1,
        class_segments: 4,
        partial_blocks: 1,
        regions: 0,
        doubt_blocks: 1,
    };

    /// Every step gets something done, and no table is larger than its names allow. Bounds are the
    /// driver's choice, never an operator's or a guest's.
    ///
    /// # Panics
    /// If that is not so.
    pub const fn check(&self) {
        let reads = self.open_pages > 0 && self.load_pages > 0 && self.load_reads > 0;
        assert!(reads && self.replay_reads > 0, "steps of opening and loading read something");
        assert!(self.fill_buckets.is_power_of_two() && self.fill_entries > 0, "a part has room");
        assert!(self.replay_blocks > 0 && self.replay_blocks < 1 << 60, "replay goes on");
        assert!(self.miss_blocks > 0 && self.write_blocks > 0, "reads and writes go on");
        assert!(self.zero_blocks > 0 && self.zero_fallback_blocks > 0, "trims go on");
        assert!(self.journal_pages > 0 && self.checkpoint_pages > 0, "metadata are written");
        assert!(self.stop_slots > 0 && self.parked_segments > 0, "a clean stop ends");
        assert!(
            self.clean_slots.0 > 0 && self.clean_slots.0 <= self.clean_slots.1,
            "cleaning ends"
        );
        // Parts of a long request meet at a block's border: each block is one part's alone.
        assert!(self.part_bytes > 0 && self.part_bytes.is_multiple_of(BLOCK_BYTES), "whole blocks");
        assert!(self.parts > 0 && self.class_segments > 0 && self.partial_blocks > 0, "none is 0");
        assert!(self.volumes > 0 && self.volumes <= VOLUMES_MAX as usize, "an index fits");
        assert!(self.requests > 0 && self.requests <= REQUESTS_MAX, "requests are bounded");
        assert!(self.replayed_chunks > 0, "a replay may read some");
        assert!(self.incarnations > 0, "a reservation brings something");
        assert!(self.regions <= REGIONS_MAX, "a checkpoint's head names them");
    }
}

const _: () = Bounds::TINY.check();

macro_rules! bounds {
    ($($(#[$doc:meta])* $bound:ident = $name:literal,)*) => {
        /// A bound that something ran into.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bound { $($(#[$doc])* $bound,)* }

        impl Bound {
            /// Every bound that is counted, in order.
            pub const ALL: &'static [Self] = &[$(Self::$bound,)*];

            /// The name of the field of [`Bounds`] that it is.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bound => $name,)* }
            }
        }
    };
}

bounds! {
    /// [`Bounds::requests`]
    Requests = "requests",
    /// [`Bounds::extra_parts`]
    ExtraParts = "extra_parts",
    /// [`Bounds::volume_extra_parts`]
    VolumeExtraParts = "volume_extra_parts",
    /// [`Bounds::part_bytes`]
    PartBytes = "part_bytes",
    /// [`Bounds::volume_late`]
    VolumeLate = "volume_late",
    /// [`Bounds::late`]
    Late = "late",
    /// [`Bounds::incarnations`]
    Incarnations = "incarnations",
    /// [`Bounds::volumes`]
    Volumes = "volumes",
    /// [`Bounds::passed_ranges`]
    PassedRanges = "passed_ranges",
    /// [`Bounds::parts`]
    Parts = "parts",
    /// [`Bounds::open_pages`]
    OpenPages = "open_pages",
    /// [`Bounds::load_pages`]
    LoadPages = "load_pages",
    /// [`Bounds::load_reads`]
    LoadReads = "load_reads",
    /// [`Bounds::fill_buckets`]
    FillBuckets = "fill_buckets",
    /// [`Bounds::fill_entries`]
    FillEntries = "fill_entries",
    /// [`Bounds::replay_reads`]
    ReplayReads = "replay_reads",
    /// [`Bounds::replay_blocks`]
    ReplayBlocks = "replay_blocks",
    /// [`Bounds::invalidate_lookups`]
    InvalidateLookups = "invalidate_lookups",
    /// [`Bounds::miss_blocks`]
    MissBlocks = "miss_blocks",
    /// [`Bounds::write_blocks`]
    WriteBlocks = "write_blocks",
    /// [`Bounds::zero_blocks`]
    ZeroBlocks = "zero_blocks",
    /// [`Bounds::zero_fallback_blocks`]
    ZeroFallbackBlocks = "zero_fallback_blocks",
    /// [`Bounds::journal_pages`]
    JournalPages = "journal_pages",
    /// [`Bounds::checkpoint_pages`]
    CheckpointPages = "checkpoint_pages",
    /// [`Bounds::stop_slots`]
    StopSlots = "stop_slots",
    /// [`Bounds::clean_slots`]
    CleanSlots = "clean_slots",
    /// [`Bounds::parked_segments`]
    ParkedSegments = "parked_segments",
    /// [`Bounds::partial_blocks`]
    PartialBlocks = "partial_blocks",
    /// [`Bounds::regions`]
    Regions = "regions",
    /// [`Bounds::doubt_blocks`]
    DoubtBlocks = "doubt_blocks",
}

/// How often each bound was run into: a search must have crossed them all.
#[derive(Clone, Debug, Default)]
pub struct Crossings([Cell<u32>; Bound::ALL.len()]);

impl Crossings {
    /// Counts one more.
    pub fn note(&self, bound: Bound) {
        let count = &self.0[bound as usize];
        count.set(count.get().saturating_add(1));
    }

    /// Notes a bound if it was run into.
    pub(crate) fn note_if(&self, crossed: bool, bound: Bound) {
        if crossed {
            self.note(bound);
        }
    }

    /// How often a bound was run into.
    pub fn of(&self, bound: Bound) -> u32 {
        self.0[bound as usize].get()
    }

    /// Adds those of another part of the cache.
    pub fn add(&self, other: &Self) {
        for (count, more) in self.0.iter().zip(&other.0) {
            count.set(count.get().saturating_add(more.get()));
        }
    }
}
