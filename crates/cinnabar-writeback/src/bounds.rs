//! Where the write log changes its way: sizes of steps, windows and tables.
//!
//! A driver takes [`Bounds::default`]. The simulation draws tiny ones, so that a small world crosses
//! each of these borders: a fault behind a constant that no run reaches is found by no run. Limits of
//! the format are not here; a bound may be below one.

use crate::format::chunk::ENTRIES_MAX;
use crate::format::directory::GAPS_MAX;
use crate::format::{SEGMENT_PAGES, VOLUMES_MAX};
use cinnabar_engine::limits::REQUESTS_MAX;
use std::cell::Cell;

/// See the [module](self). All are at least 1, but for the first number and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Volumes at a time.
    pub volumes: u16,
    /// Sessions that may begin before the first of them is retired; beyond that a volume is drained
    /// before it is written again.
    pub gaps: usize,
    /// Zeroed ranges of a volume that reads have to know of, and ranges that wait for the destage.
    pub ranges: usize,
    /// Blocks of one range entry: a longer trim or zeroing is several of them.
    pub range_blocks: u64,
    /// Blocks of a write that are appended at a time, each time when there is room for them.
    pub append_blocks: u64,
    /// Entries of a chunk.
    pub entries: usize,
    /// Chunks of a volume being written at a time.
    pub chunks: usize,
    /// Pages of the log that a destage reads at a time.
    pub window_pages: usize,
    /// Blocks of a destage's request to the engine.
    pub destage_blocks: usize,
    /// Requests that engines have of all volumes at a time; beyond that each destage has a few only: an engine takes
    /// [`REQUESTS_MAX`], and refuses guests' own requests then.
    pub asked: usize,
    /// Slots that one event retires.
    pub retire_pages: u32,
    /// A new volume's chunks are numbered behind this one, and its epochs behind the other: RAM keeps
    /// the low 32 bits of a number, and 40 of an epoch.
    pub first_number: u64,
    /// See `first_number`.
    pub first_epoch: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            volumes: VOLUMES_MAX,
            gaps: GAPS_MAX,
            ranges: 4096,
            range_blocks: 1 << 31,
            append_blocks: 128,
            entries: ENTRIES_MAX,
            chunks: 4,
            window_pages: 1024,
            destage_blocks: 256,
            asked: REQUESTS_MAX / 2,
            retire_pages: 4096,
            first_number: 0,
            first_epoch: 0,
        }
    }
}

impl Bounds {
    /// The smallest of each, and numbers about to leave their bits in RAM.
    pub const TINY: Self = Self {
        volumes: 4,
        gaps: 1,
        ranges: 1,
        range_blocks: 1,
        append_blocks: 1,
        entries: 1,
        chunks: 1,
        window_pages: 1,
        destage_blocks: 1,
        asked: 1,
        retire_pages: 1,
        first_number: (1 << 32) - 8,
        first_epoch: (1 << 40) - 4,
    };

    /// Every step gets something done, and what is written fits the format.
    ///
    /// # Panics
    /// If that is not so.
    pub(crate) const fn check(&self) {
        assert!(self.volumes > 0 && self.volumes <= VOLUMES_MAX, "the directory's places");
        assert!(self.gaps > 0 && self.gaps <= GAPS_MAX, "a record has room for them");
        assert!(self.ranges > 0, "a range can be logged");
        assert!(self.range_blocks > 0 && self.range_blocks <= 1 << 31, "an entry's field");
        assert!(self.append_blocks > 0 && self.append_blocks <= SEGMENT_PAGES as u64 / 2, "a step");
        assert!(self.entries > 0 && self.entries <= ENTRIES_MAX, "a header has room for them");
        assert!(self.chunks > 0 && self.window_pages > 0, "something goes on");
        assert!(self.destage_blocks > 0 && self.retire_pages > 0, "something goes on");
        assert!(self.first_number < 1 << 60 && self.first_epoch < 1 << 60, "room for more");
    }
}

const _: () = Bounds::TINY.check();

macro_rules! bounds {
    ($($(#[$doc:meta])* $bound:ident,)*) => {
        /// A bound that something ran into.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bound { $($(#[$doc])* $bound,)* }

        impl Bound {
            /// Every bound that is counted, in order.
            pub const ALL: &'static [Self] = &[$(Self::$bound,)*];
        }
    };
}

bounds! {
    /// [`Bounds::volumes`]
    Volumes,
    /// [`Bounds::gaps`]
    Gaps,
    /// [`Bounds::ranges`]
    Ranges,
    /// [`Bounds::range_blocks`]
    RangeBlocks,
    /// [`Bounds::append_blocks`]
    AppendBlocks,
    /// [`Bounds::entries`]
    Entries,
    /// [`Bounds::chunks`]
    Chunks,
    /// [`Bounds::window_pages`]
    WindowPages,
    /// [`Bounds::destage_blocks`]
    DestageBlocks,
    /// [`Bounds::retire_pages`]
    RetirePages,
    /// The low 32 bits of numbers, [`Bounds::first_number`]
    Numbers,
    /// The low 40 bits of epochs, [`Bounds::first_epoch`]
    Epochs,
    /// A write waited for room.
    Room,
    /// A write waited for room in the write memory.
    Memory,
}

/// How often each bound was run into: a search must have crossed them all.
#[derive(Clone, Debug, Default)]
pub struct Crossings([Cell<u32>; Bound::ALL.len()]);

impl Crossings {
    /// Notes a bound if it was run into.
    pub(crate) fn note_if(&self, crossed: bool, bound: Bound) {
        if crossed {
            let count = &self.0[bound as usize];
            count.set(count.get().saturating_add(1));
        }
    }

    /// How often a bound was run into.
    pub fn of(&self, bound: Bound) -> u32 {
        self.0[bound as usize].get()
    }

    /// Adds those of another run.
    pub fn add(&self, other: &Self) {
        for (count, more) in self.0.iter().zip(&other.0) {
            count.set(count.get().saturating_add(more.get()));
        }
    }
}
