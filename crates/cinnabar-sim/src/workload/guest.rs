//! A guest: what it asks of its volume.

use crate::rng::Rng;
use crate::workload::Features;
use cinnabar_engine::limits;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES};

const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// The longest reads and writes: 1000 blocks.
const LONG_SECTORS: u64 = 8000;

/// A guest's habits.
#[derive(Clone, Debug)]
pub struct GuestProfile {
    /// Requests it keeps under way.
    pub depth: u64,
    /// Longest pause between a reply and the next request in its slot, in ns.
    pub think_ns_max: u64,
    /// Weights of read, write, flush, trim, zeroes.
    weights: [u64; 5],
    fua: f64,
    partial: f64,
    /// Of what it asks of parts of blocks, three requests of four are for the block of the one before.
    lingers: bool,
    sectors_max: u64,
    hot_blocks: u64,
    hot: f64,
    sequential: f64,
    refusals: f64,
    /// Requests after which it turns from reading only to its usual mixture, and back; 0: never.
    phase: u64,
}

impl GuestProfile {
    /// Habits that suit a cache of that size.
    pub fn draw(rng: &mut Rng, features: &Features, capacity_blocks: u64) -> Self {
        let weight = |rng: &mut Rng, on: bool, weights: &[u64]| {
            if on { rng.pick(weights) } else { 0 }
        };
        let mut profile = Self {
            depth: rng.pick(&[1, 2, 8, 32]),
            think_ns_max: rng.pick(&[0, 10_000, 3_000_000]),
            weights: [
                rng.pick(&[20, 50, 90]),
                rng.pick(&[5, 30, 60]),
                weight(rng, features.flushes, &[1, 5]),
                weight(rng, features.trims, &[1, 8]),
                weight(rng, features.zeroes, &[1, 8]),
            ],
            fua: if features.flushes { 0.1 } else { 0.0 },
            partial: if features.partial { rng.pick(&[0.05, 0.3, 0.9]) } else { 0.0 },
            lingers: false,
            sectors_max: rng.pick(&[8, 64, 256]),
            hot_blocks: rng.within(32..capacity_blocks * 2 / 3),
            hot: rng.pick(&[0.5, 0.8, 0.95]),
            sequential: rng.pick(&[0.0, 0.1, 0.5]),
            refusals: if features.refusals { 0.02 } else { 0.0 },
            phase: rng.pick(&[0, 0, 30, 100]),
        };
        // No generator of its own: a draw more would move every seed.
        profile.lingers = profile.hot_blocks.is_multiple_of(3);
        profile
    }
}

/// What a guest asks, without the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plea {
    Read(ByteSpan),
    /// A write; durable?
    Write(ByteSpan, bool),
    Flush,
    /// A trim; durable?
    Trim(ByteSpan, bool),
    /// Zeroes; durable, and may they be deallocated?
    Zeroes(ByteSpan, bool, bool),
}

/// Something to ask for, wherever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Read,
    Write,
    Flush,
    Trim,
    Zeroes,
}

impl Wanted {
    /// Does it change the volume?
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }

    /// May this run contain it?
    pub fn is_allowed(self, features: &Features) -> bool {
        match self {
            Self::Read | Self::Write => true,
            Self::Flush => features.flushes,
            Self::Trim => features.trims,
            Self::Zeroes => features.zeroes,
        }
    }
}

/// A request that must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The span no volume has.
    pub span: ByteSpan,
    /// A trim instead of a read.
    pub trim: bool,
}

#[derive(Debug)]
pub struct Guest {
    profile: GuestProfile,
    sectors: u64,
    read_only: bool,
    hot_from: u64,
    next_sequential: u64,
    /// The sectors of one block that it lingers at: first and end.
    lingers_at: (u64, u64),
    asked: u64,
}

impl Guest {
    /// A guest of a volume of so many sectors.
    pub fn new(rng: &mut Rng, profile: GuestProfile, sectors: u64, read_only: bool) -> Self {
        let hot_from = rng.below(sectors);
        Self {
            profile,
            sectors,
            read_only,
            hot_from,
            next_sequential: 0,
            lingers_at: (0, 1),
            asked: 0,
        }
    }

    /// Its habits.
    pub fn profile(&self) -> &GuestProfile {
        &self.profile
    }

    /// Its volume has so many sectors from now on.
    pub fn grow(&mut self, sectors: u64) {
        self.sectors = sectors;
    }

    /// Its next request.
    ///
    /// # Panics
    /// Never: a read is always possible.
    pub fn next(&mut self, rng: &mut Rng) -> Plea {
        let mut weights = self.profile.weights;
        self.asked += 1;
        let phase = self.profile.phase;
        let reading = phase > 0 && (self.asked / phase).is_multiple_of(2);
        if self.read_only || reading {
            weights[1] = 0;
            weights[3] = 0;
            weights[4] = 0;
        }
        let mut drawn = rng.below(weights.iter().sum());
        let kind = weights.iter().position(|&weight| {
            let here = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            here
        });
        let wanted = match kind.expect("the number drawn is below the sum") {
            0 => Wanted::Read,
            1 => Wanted::Write,
            2 => Wanted::Flush,
            3 => Wanted::Trim,
            _ => Wanted::Zeroes,
        };
        self.asks(rng, wanted)
    }

    /// A request of such a kind.
    pub fn asks(&mut self, rng: &mut Rng, wanted: Wanted) -> Plea {
        let fua = rng.chance(self.profile.fua);
        match wanted {
            Wanted::Read => Plea::Read(self.span(rng)),
            Wanted::Write => Plea::Write(self.span(rng), fua),
            Wanted::Flush => Plea::Flush,
            Wanted::Trim => Plea::Trim(self.long_span(rng), fua),
            Wanted::Zeroes => Plea::Zeroes(self.long_span(rng), fua, rng.chance(0.5)),
        }
    }

    /// A request for a block or a few of those that it uses most, which are likely to be cached.
    pub fn asks_little(&mut self, rng: &mut Rng, wanted: Wanted) -> Plea {
        let blocks = (self.sectors / BLOCK_SECTORS).max(1);
        let first = (self.hot_from / BLOCK_SECTORS + rng.below(self.profile.hot_blocks)) % blocks;
        let count = rng.pick(&[1, 1, 1, 4]).min(blocks - first);
        let span = ByteSpan::new(first * BLOCK_BYTES, count * BLOCK_BYTES);
        match wanted {
            Wanted::Read => Plea::Read(span),
            Wanted::Write => Plea::Write(span, false),
            Wanted::Flush => Plea::Flush,
            Wanted::Trim => Plea::Trim(span, false),
            Wanted::Zeroes => Plea::Zeroes(span, false, rng.chance(0.5)),
        }
    }

    /// Once in a while, something no volume can do.
    pub fn refusal(&self, rng: &mut Rng) -> Option<Refusal> {
        if !rng.chance(self.profile.refusals) {
            return None;
        }
        let end = self.sectors * SECTOR_BYTES;
        let last_sector = u64::MAX / SECTOR_BYTES * SECTOR_BYTES;
        let long = ByteSpan::new(0, limits::DATA_BYTES_MAX + SECTOR_BYTES);
        let span = rng.pick(&[
            ByteSpan::new(end, SECTOR_BYTES),
            ByteSpan::new(end - SECTOR_BYTES, 2 * SECTOR_BYTES),
            ByteSpan::new(1, SECTOR_BYTES),
            ByteSpan::new(0, SECTOR_BYTES - 1),
            ByteSpan::new(0, 0),
            ByteSpan::new(last_sector, 2 * SECTOR_BYTES),
            ByteSpan::new(SECTOR_BYTES, last_sector),
            long,
        ]);
        // Too long is what carries data; a volume that has grown may be trimmed that far.
        let trim = rng.chance(0.3) && (span != long || long.end() > end);
        Some(Refusal { span, trim })
    }

    /// Something that a read-only volume must refuse.
    pub fn forbidden(&mut self, rng: &mut Rng) -> Plea {
        let span = self.span(rng);
        rng.pick(&[
            Plea::Write(span, false),
            Plea::Trim(span, false),
            Plea::Zeroes(span, false, true),
        ])
    }

    /// Where a read or write goes.
    fn span(&mut self, rng: &mut Rng) -> ByteSpan {
        let whole = !rng.chance(self.profile.partial);
        // Now and then longer than what the engine does in one step (256 blocks).
        let longest = if rng.chance(0.01) { LONG_SECTORS } else { self.profile.sectors_max };
        let mut count = rng.within(1..longest + 1);
        let mut first = if rng.chance(self.profile.sequential) {
            self.next_sequential
        } else if rng.chance(self.profile.hot) {
            self.hot_from + rng.below(self.profile.hot_blocks * BLOCK_SECTORS)
        } else {
            rng.below(self.sectors)
        };
        if whole {
            count = count.next_multiple_of(BLOCK_SECTORS);
            first -= first % BLOCK_SECTORS;
        }
        first %= self.sectors;
        if !whole && self.profile.lingers {
            (first, count) = self.linger(first, count);
        }
        if whole {
            first -= first % BLOCK_SECTORS;
        }
        count = count.min(self.sectors - first);
        self.next_sequential = (first + count) % self.sectors;
        ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES)
    }

    /// Moves what was drawn to the part of a block that was asked for before, to the rest of that
    /// block, or to anywhere in it; every fourth time it goes elsewhere.
    fn linger(&mut self, first: u64, count: u64) -> (u64, u64) {
        let inside = first % BLOCK_SECTORS;
        let count = (count % BLOCK_SECTORS + 1).min(BLOCK_SECTORS - inside);
        let (from, behind) = self.lingers_at;
        let block = from / BLOCK_SECTORS * BLOCK_SECTORS;
        let (first, count) = match self.asked % 4 {
            1 => (from, behind - from),
            2 if behind < block + BLOCK_SECTORS => (behind, block + BLOCK_SECTORS - behind),
            2 => (block, (from - block).max(1)),
            3 => (block + inside, count),
            _ => {
                self.lingers_at = (first, first + count);
                (first, count)
            }
        };
        (if first < self.sectors { first } else { block }, count)
    }

    /// Where a trim goes: mostly like a write, now and then over much of the volume.
    fn long_span(&mut self, rng: &mut Rng) -> ByteSpan {
        if rng.chance(0.95) {
            return self.span(rng);
        }
        let first = rng.below(self.sectors);
        let count = rng.within(1..self.sectors - first + 1);
        ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES)
    }
}
