//! A simulated backend: where a volume really lives.
//!
//! Called through [`Media`](super::Media), and by drivers that play another writer or cut the power.

use crate::medium::proof::{Proof, WINDOW_NS};
use crate::medium::volatile::Volatile;
use crate::medium::{initial, rules, transfer::Transfer};
use crate::rng::Rng;
use crate::stamp::{BLOCK_SECTORS, Stamp, mix};
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{IoError, IoOp};
use std::ops::Range;

/// How long a clean detach waits for a clock, in ns.
const CLOCK_WAIT_NS_MAX: u64 = 2_500_000_000;
/// A clock's time at the start of a simulation, in ns: room for clocks that are behind.
const CLOCK_START_NS: u64 = 1 << 60;

#[derive(Debug)]
pub struct Backend {
    index: usize,
    /// Alignment of every I/O, in bytes.
    pub align_bytes: u64,
    /// Refuses writes.
    pub read_only: bool,
    /// Does trims and zeroes by itself.
    pub can_zero: bool,
    contents: Vec<Stamp>,
    volatile: Vec<Option<Box<Volatile<Stamp>>>>,
    /// Sectors that are volatile, some of them twice, and some that are no more.
    touched: Vec<usize>,
    /// Raised when the volume is deleted and created again.
    creation: u64,
    clock: u64,
    /// How much further its clock may be set back.
    steps_left: u64,
    change: u64,
    /// The change time that a power cut of the backend's host leaves at least.
    durable_change: u64,
    /// Kept outside of the cache device, raised whenever that may have missed a write.
    pub generation: u64,
    /// The cache device that the volume was attached with last.
    entrusted: Option<u8>,
    /// Which attachment of the volume this is: in every proof taken in it.
    attachment: u64,
}

impl Backend {
    /// A backend of so many sectors, each holding its stamp of version 0.
    pub fn new(index: usize, sectors: u64, align_bytes: u64, read_only: bool) -> Self {
        // Every backend's clock is another one.
        let clock = CLOCK_START_NS + (mix(index as u64) >> 8);
        Self {
            index,
            align_bytes,
            read_only,
            can_zero: true,
            contents: initial(index, sectors),
            volatile: vec![None; sectors as usize],
            touched: Vec::new(),
            creation: 1,
            clock,
            steps_left: WINDOW_NS,
            change: clock,
            durable_change: clock,
            generation: 0,
            entrusted: None,
            attachment: 0,
        }
    }

    /// Its size in sectors.
    pub fn sectors(&self) -> u64 {
        self.contents.len() as u64
    }

    /// It becomes larger: what is new holds stamps of this version.
    pub fn grow(&mut self, sectors: u64, version: u64) {
        let index = self.index;
        let new = self.sectors()..sectors;
        self.contents.extend(new.map(|sector| Stamp::new(index, sector, version)));
        self.volatile.resize_with(sectors as usize, || None);
        self.changed();
        self.durable_change = self.change;
    }

    /// What a sector holds.
    ///
    /// # Panics
    /// If it is beyond the end.
    pub fn sector(&self, sector: u64) -> Stamp {
        self.contents[sector as usize]
    }

    /// What these sectors hold.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn sectors_of(&self, range: Range<u64>) -> &[Stamp] {
        &self.contents[range.start as usize..range.end as usize]
    }

    /// What a block holds; zeros beyond the end.
    pub fn block(&self, block: u64) -> [Stamp; BLOCK_SECTORS] {
        let first = block as usize * BLOCK_SECTORS;
        std::array::from_fn(|index| *self.contents.get(first + index).unwrap_or(&Stamp::ZERO))
    }

    /// What a sector holds, if a power cut could still take it back.
    pub fn not_durable(&self, sector: u64) -> Option<Stamp> {
        let (volatile, value) =
            (self.volatile[sector as usize].as_ref()?, self.contents[sector as usize]);
        (0..volatile.candidates()).any(|at| *volatile.candidate(at) != value).then_some(value)
    }

    /// A sector that a power cut could still take back, if there is one.
    pub fn first_not_durable(&self) -> Option<u64> {
        self.volatile.iter().position(Option::is_some).map(|sector| sector as u64)
    }

    /// The change proof: identity, size, change time, the clock's time.
    pub fn proof(&self) -> ProofToken {
        let identity = (self.index as u64) << 32 | self.creation;
        let (sectors, change, now) = (self.sectors(), self.change, self.clock);
        Proof { identity, sectors, change, now, attachment: self.attachment }.encode()
    }

    /// The proof for a clean detach: waits until the clock has passed the change time, so that any
    /// later write changes the proof. `None`: that takes too long, for the clock was set back.
    pub fn take_proof(&mut self) -> Option<ProofToken> {
        if self.change >= self.clock + CLOCK_WAIT_NS_MAX {
            return None;
        }
        self.clock = self.clock.max(self.change + 1);
        Some(self.proof())
    }

    /// Lets its clock go on.
    pub fn pass_ns(&mut self, ns: u64) {
        self.clock += ns;
    }

    /// Its clock is set back, as much as it may be in all.
    pub fn step_back(&mut self, ns: u64) {
        let ns = ns.min(self.steps_left);
        self.steps_left -= ns;
        self.clock -= ns;
    }

    /// Its clock's time, in ns.
    pub fn clock_ns(&self) -> u64 {
        self.clock
    }

    /// The generation under which the volume is attached with this cache device: a new one if it was
    /// attached with another since. Without a device nothing is recorded, and nothing to disprove.
    pub fn generation_with(&mut self, device: Option<u8>) -> u64 {
        if device.is_some() && self.entrusted != device {
            self.generation += u64::from(self.entrusted.is_some());
            self.entrusted = device;
        }
        self.generation
    }

    /// The volume is about to be attached once more. Gives the number of that attachment.
    pub fn begin_attachment(&mut self) -> u64 {
        self.attachment += 1;
        self.attachment
    }

    /// Makes sure that the volume's generation is newer than `held`.
    pub fn bump_generation(&mut self, held: u64) {
        self.generation = self.generation.max(held + 1);
    }

    /// It is recorded on this cache device from now on, an empty one.
    pub fn entrust(&mut self, device: u8) {
        self.entrusted = Some(device);
    }

    /// Another writer writes here, durably.
    ///
    /// # Panics
    /// If it reaches beyond the end.
    pub fn write_behind(&mut self, first: u64, values: &[Stamp]) {
        let range = first as usize..first as usize + values.len();
        self.contents[range.clone()].copy_from_slice(values);
        self.volatile[range].fill(None);
        self.changed();
        self.durable_change = self.change;
    }

    /// The volume is deleted, and another one created under its name.
    pub fn recreate(&mut self, version: u64) {
        self.creation += 1;
        let index = self.index;
        for (sector, value) in (0..).zip(&mut self.contents) {
            *value = Stamp::new(index, sector, version);
        }
        self.volatile.fill(None);
        self.touched.clear();
        self.changed();
        self.durable_change = self.change;
    }

    /// A change has another time than the one before, however coarse the clock: a later one, unless
    /// the clock was set back.
    fn changed(&mut self) {
        self.change = if self.clock == self.change { self.change + 1 } else { self.clock };
    }

    pub(super) fn effect(&mut self, transfer: &mut Transfer, units: Range<usize>) {
        let first = (rules::offset_bytes(&transfer.request.op) / SECTOR_BYTES) as usize;
        let by = transfer.started;
        if transfer.writes() {
            self.changed();
        }
        for unit in units {
            let sector = first + unit;
            match &transfer.request.op {
                // What lies behind the end of an odd-sized volume reads as zeros.
                IoOp::Read { .. } => {
                    transfer.data[unit] = *self.contents.get(sector).unwrap_or(&Stamp::ZERO);
                }
                IoOp::Write { .. } => self.put(sector, transfer.data[unit], by),
                IoOp::WriteZeroes { .. } => self.put(sector, Stamp::ZERO, by),
                // Which parts a trim zeroes is the device's business, in units of its own.
                IoOp::Trim { .. } if mix(by ^ (sector as u64 / 8) << 32) & 1 == 0 => {
                    self.put(sector, Stamp::ZERO, by);
                }
                IoOp::Trim { .. }
                | IoOp::MakeRoom { .. }
                | IoOp::Flush
                | IoOp::Prove
                | IoOp::BumpGeneration { .. } => {}
                IoOp::ReadMeta { .. } | IoOp::WriteMeta { .. } => {
                    unreachable!("refused when it was started")
                }
            }
        }
    }

    fn put(&mut self, sector: usize, value: Stamp, by: u64) {
        let old = std::mem::replace(&mut self.contents[sector], value);
        let entry = &mut self.volatile[sector];
        if entry.is_none() {
            // Writing what is there already can't make it less durable, but it may make it so.
            if old == value {
                return;
            }
            self.touched.push(sector);
        }
        entry.get_or_insert_with(|| Box::new(Volatile::new(old))).put(value, by);
    }

    pub(super) fn finish(&mut self, transfer: &Transfer, result: Result<(), IoError>, tick: u64) {
        let op = &transfer.request.op;
        match op {
            IoOp::Flush | IoOp::Prove if result.is_ok() => self.flush(transfer.started),
            IoOp::BumpGeneration { held } if result.is_ok() => self.bump_generation(*held),
            IoOp::Write { .. } | IoOp::WriteZeroes { .. } | IoOp::Trim { .. } => {
                let durable = matches!(op, IoOp::Write { fua: true, .. }) && result.is_ok();
                let first = (rules::offset_bytes(op) / SECTOR_BYTES) as usize;
                for entry in &mut self.volatile[first..first + transfer.units()] {
                    let Some(volatile) = entry else { continue };
                    if volatile.complete(transfer.started, tick, durable) {
                        *entry = None;
                    }
                }
            }
            _ => {}
        }
    }

    fn flush(&mut self, began: u64) {
        let volatile = &mut self.volatile;
        self.touched.retain(|&sector| {
            let entry = &mut volatile[sector];
            if entry.as_mut().is_some_and(|volatile| volatile.flush(began)) {
                *entry = None;
            }
            entry.is_some()
        });
        self.durable_change = self.change;
    }

    /// A flush failed, as Linux reports what it could not write back: some of what no flush covers is
    /// lost, and what is there instead is durable. Returns the sectors that went back.
    pub fn lose(&mut self, rng: &mut Rng) -> Vec<u64> {
        let lost = rng.pick(&[0.0, 0.3, 1.0]);
        let mut reverted = Vec::new();
        for sector in self.volatile_sectors() {
            if !rng.chance(lost) {
                continue;
            }
            let Some(volatile) = self.volatile[sector as usize].take() else { continue };
            let index = rng.below(volatile.candidates() as u64) as usize;
            let value = *volatile.candidate(index);
            if std::mem::replace(&mut self.contents[sector as usize], value) != value {
                reverted.push(sector);
            }
        }
        reverted
    }

    /// Sectors that a power cut could take back, in order.
    pub fn volatile_sectors(&self) -> Vec<u64> {
        let sectors = self.volatile.iter().enumerate().filter(|(_, entry)| entry.is_some());
        sectors.map(|(sector, _)| sector as u64).collect()
    }

    /// How far its clock was set back in all, in ns.
    pub fn stepped_back_ns(&self) -> u64 {
        WINDOW_NS - self.steps_left
    }

    /// The engine died: what its writes left counts as complete.
    pub fn abandon(&mut self, tick: u64) {
        self.volatile.iter_mut().flatten().for_each(|volatile| volatile.abandon(tick));
    }

    /// Its host loses power: every sector keeps its last contents or goes back to older ones.
    /// Returns the sectors that went back.
    pub fn power_cut(&mut self, rng: &mut Rng) -> Vec<u64> {
        // All kept, all lost, or sector by sector.
        let kept = rng.pick(&[0.0, 0.3, 0.7, 1.0]);
        let mut reverted = Vec::new();
        for sector in std::mem::take(&mut self.touched) {
            let Some(volatile) = self.volatile[sector].take() else { continue };
            if rng.chance(kept) {
                continue;
            }
            let index = rng.below(volatile.candidates() as u64) as usize;
            let value = *volatile.candidate(if kept == 0.0 { 0 } else { index });
            if std::mem::replace(&mut self.contents[sector], value) != value {
                reverted.push(sector as u64);
            }
        }
        if rng.chance(0.5) {
            self.change = self.durable_change;
        }
        self.durable_change = self.change;
        reverted
    }
}
