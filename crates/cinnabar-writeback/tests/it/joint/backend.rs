//! A back end as engines see it: a server with a volatile cache, that carries out what is under way in
//! any order, restarts, fails requests and flushes, and proves who wrote it.

use crate::memory::Mem;
use crate::rng::Rng;
use cinnabar_driver::ChangeProof;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::volume::{Belief, ProofToken, Recorded};
use cinnabar_engine::{IoDone, IoError, IoId, IoOp};
use rand::RngExt;
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug)]
pub(super) struct Backend {
    /// By sector.
    pub(super) durable: Vec<u64>,
    /// Carried out, not durable: sector and value, in order.
    volatile: Vec<(usize, u64)>,
    under_way: Vec<Io>,
    /// When it was last changed.
    change: u64,
    /// Kept outside of the cache device.
    pub(super) generation: u64,
    /// The cache device that the volume was attached with last.
    entrusted: Option<u8>,
    /// A flush has failed: so does each later one, until the volume is attached again.
    pub(super) sticks: bool,
    pub(super) writes: u64,
    pub(super) flushes: u64,
}

#[derive(Debug)]
struct Io {
    id: IoId,
    op: IoOp<Mem>,
    /// A flush: how much of what is volatile it covers.
    covers: usize,
}

impl Backend {
    pub(super) fn new(sectors: usize) -> Self {
        Self {
            durable: vec![0; sectors],
            volatile: Vec::new(),
            under_way: Vec::new(),
            change: 1,
            generation: 0,
            entrusted: None,
            sticks: false,
            writes: 0,
            flushes: 0,
        }
    }

    /// The generation under which it is attached with this cache device.
    pub(super) fn generation_with(&mut self, device: Option<u8>) -> u64 {
        if device.is_some() && self.entrusted != device {
            self.generation += u64::from(self.entrusted.is_some());
            self.entrusted = device;
        }
        self.generation
    }

    pub(super) fn submit(&mut self, id: IoId, op: IoOp<Mem>) {
        if let Some(span) = written(&op) {
            self.writes += 1;
            for other in &self.under_way {
                let overlaps = written(&other.op)
                    .is_some_and(|o| o.offset < span.end() && span.offset < o.end());
                assert!(!overlaps, "two writes of a sector under way: {span:?}");
            }
        }
        self.flushes += u64::from(matches!(op, IoOp::Flush));
        self.under_way.push(Io { id, op, covers: self.volatile.len() });
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// What writes under way are of.
    pub(super) fn being_written(&self) -> impl Iterator<Item = ByteSpan> {
        self.under_way.iter().filter_map(|io| written(&io.op))
    }

    /// What the engines call one of the I/Os under way.
    pub(super) fn name_of(&self, which: usize) -> IoId {
        self.under_way[which].id
    }

    pub(super) fn value(&self, sector: usize) -> u64 {
        let newest = self.volatile.iter().rev().find(|(at, _)| *at == sector);
        newest.map_or(self.durable.get(sector).copied().unwrap_or(0), |(_, value)| *value)
    }

    /// Every value that a sector may have after a loss.
    pub(super) fn candidates(&self, sector: usize) -> impl Iterator<Item = u64> {
        let volatile = self.volatile.iter().filter(move |(at, _)| *at == sector);
        std::iter::once(self.durable[sector]).chain(volatile.map(|(_, value)| *value))
    }

    /// The sectors and values that a write brings.
    fn values(op: &IoOp<Mem>) -> Vec<(usize, u64)> {
        match op {
            IoOp::Write { offset, data, .. } => {
                let sectors = data.iter().flat_map(|slice| {
                    let first = slice.at / 512;
                    (first..first + slice.len / 512)
                        .map(|n| slice.data.value(n as usize).expect("a sector is never torn"))
                });
                ((offset / 512) as usize..).zip(sectors).collect()
            }
            IoOp::Trim { span } | IoOp::WriteZeroes { span, .. } => {
                crate::disk::sectors(*span).map(|sector| (sector, 0)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn changed(&mut self, now: u64) {
        self.change = (self.change + 1).max(now);
    }

    fn flush(&mut self, covers: usize) {
        for (sector, value) in self.volatile.drain(..covers) {
            self.durable[sector] = value;
        }
        for other in &mut self.under_way {
            other.covers = other.covers.saturating_sub(covers);
        }
    }

    /// Ends an I/O under way.
    pub(super) fn end(&mut self, which: usize, now: u64, key: usize) -> IoDone {
        let Io { id, op, covers } = self.under_way.remove(which);
        let mut done = IoDone::new(id, Ok(()));
        match &op {
            IoOp::Read { offset, data } => {
                let mut sector = (offset / 512) as usize;
                for slice in data {
                    for at in slice.at / 512..(slice.at + slice.len) / 512 {
                        slice.data.put(at as usize, self.value(sector));
                        sector += 1;
                    }
                }
            }
            IoOp::Flush => self.flush(covers),
            IoOp::Prove => {
                self.flush(covers);
                done.proof = Some(self.proof(now, key));
            }
            IoOp::MakeRoom { .. } => unreachable!("back ends have their room"),
            IoOp::BumpGeneration { held } => {
                self.generation = self.generation.max(held + 1);
                done.generation = Some(self.generation);
            }
            IoOp::ReadMeta { .. } | IoOp::WriteMeta { .. } => panic!("no back end's: {op:?}"),
            IoOp::Write { .. } | IoOp::Trim { .. } | IoOp::WriteZeroes { .. } => {
                self.changed(now);
                let durable = matches!(op, IoOp::Write { fua: true, .. });
                for (sector, value) in Self::values(&op) {
                    self.put(sector, value, durable);
                }
            }
        }
        done
    }

    fn put(&mut self, sector: usize, value: u64, durable: bool) {
        if !durable {
            return self.volatile.push((sector, value));
        }
        self.durable[sector] = value;
        // Flushes under way count what is volatile.
        while let Some(at) = self.volatile.iter().position(|(of, _)| *of == sector) {
            self.volatile.remove(at);
            for other in &mut self.under_way {
                other.covers -= usize::from(other.covers > at);
            }
        }
    }

    /// The same by a way that engines do not know of.
    pub(super) fn put_behind(&mut self, sector: usize, value: u64) {
        self.put(sector, value, false);
    }

    /// Fails an I/O under way: of a write any sector may have been written, after a flush what was
    /// volatile is lost, or not.
    pub(super) fn fail(&mut self, which: usize, loses: bool, rng: &mut Rng) -> IoDone {
        let Io { id, op, .. } = self.under_way.remove(which);
        self.happen_perhaps(&op, rng);
        if is_flush(&op) {
            self.sticks = true;
            if loses {
                self.lose(&BTreeSet::new(), rng);
            }
        }
        IoDone::new(id, Err(IoError::Io))
    }

    /// Whether one of the I/Os under way is a flush, and must fail.
    pub(super) fn must_fail(&self, which: usize) -> bool {
        self.sticks && is_flush(&self.under_way[which].op)
    }

    /// Whether one of the I/Os under way is a flush.
    pub(super) fn is_flush(&self, which: usize) -> bool {
        is_flush(&self.under_way[which].op)
    }

    /// Whether one of the I/Os under way may fail without a loss that no one is told of.
    pub(super) fn may_fail(&self, which: usize) -> bool {
        !matches!(self.under_way[which].op, IoOp::BumpGeneration { .. })
    }

    fn happen_perhaps(&mut self, op: &IoOp<Mem>, rng: &mut Rng) {
        let share = [0.0, 0.5, 1.0][rng.random_range(0..3)];
        for (sector, value) in Self::values(op) {
            if rng.random_bool(share) {
                self.change += 1;
                self.volatile.push((sector, value));
            }
        }
    }

    /// But for these sectors, any of what is volatile.
    fn lose(&mut self, keeps: &BTreeSet<usize>, rng: &mut Rng) {
        let kept = [0.0, 0.5, 1.0][rng.random_range(0..3)];
        for (sector, value) in std::mem::take(&mut self.volatile) {
            if rng.random_bool(kept) || keeps.contains(&sector) {
                self.durable[sector] = value;
            }
        }
        for io in &mut self.under_way {
            io.covers = 0;
        }
    }

    /// The host is gone: what was under way has happened, or not.
    pub(super) fn abandon(&mut self, rng: &mut Rng) {
        for Io { op, .. } in std::mem::take(&mut self.under_way) {
            self.happen_perhaps(&op, rng);
        }
    }

    /// The server restarts; what was under way is asked for again. Gives what may have been lost.
    /// `keeps`: of these sectors nothing is lost.
    pub(super) fn restart(&mut self, keeps: &BTreeSet<usize>, rng: &mut Rng) -> Vec<ByteSpan> {
        for at in 0..self.under_way.len() {
            let op = self.under_way[at].op.clone();
            if rng.random_bool(0.3) {
                self.happen_perhaps(&op, rng);
            }
        }
        let mut sectors: Vec<usize> = self.volatile.iter().map(|(sector, _)| *sector).collect();
        sectors.sort_unstable();
        sectors.dedup();
        self.lose(keeps, rng);
        let mut spans: Vec<ByteSpan> = Vec::new();
        for sector in sectors {
            let at = sector as u64 * 512;
            match spans.last_mut() {
                Some(last) if last.end() == at => last.len += 512,
                _ => spans.push(ByteSpan::new(at, 512)),
            }
        }
        spans
    }

    /// Its proof as it stands. A clock that has moved past the change time.
    pub(super) fn proof(&self, now: u64, key: usize) -> ProofToken {
        let mut bytes = [0; 64];
        let fields = [key as u64, self.durable.len() as u64, self.change, now.max(self.change + 1)];
        for (field, at) in fields.into_iter().zip((0..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        ProofToken(bytes)
    }
}

/// What a back end makes of what a shard has recorded.
pub(super) fn judge(recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
    let unpacked = |proof: &ProofToken| {
        let field = |at: usize| {
            u64::from_le_bytes(proof.0[8 * at..8 * at + 8].try_into().expect("eight bytes"))
        };
        ChangeProof {
            identity: (field(0), field(1)),
            change_ns: field(2).cast_signed(),
            now_ns: field(3).cast_signed(),
        }
    };
    let (Some(then), Some(now)) = (&recorded.proof, now) else { return Belief::Unknown };
    unpacked(then).judge(recorded.written, &unpacked(now), Mutants::default())
}

fn is_flush(op: &IoOp<Mem>) -> bool {
    matches!(op, IoOp::Flush | IoOp::Prove)
}

fn written(op: &IoOp<Mem>) -> Option<ByteSpan> {
    match op {
        IoOp::Write { offset, data, .. } => {
            Some(ByteSpan::new(*offset, data.iter().map(|slice| slice.len).sum()))
        }
        IoOp::Trim { span } | IoOp::WriteZeroes { span, .. } => Some(*span),
        _ => None,
    }
}
