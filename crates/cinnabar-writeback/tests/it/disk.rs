//! What the write log sees of the engine: a disk with a volatile cache. Requests that overlap are
//! carried out in the order in which they came.

use super::memory::Mem;
use super::rng::Rng;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Answer, Op};
use cinnabar_writeback::EngineId;
use rand::RngExt;

/// See the module.
#[derive(Debug)]
pub(crate) struct Disk {
    /// By sector.
    pub(crate) durable: Vec<u64>,
    /// Carried out, not durable: sector and value, in order.
    pub(crate) volatile: Vec<(usize, u64)>,
    under_way: Vec<Request>,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
}

#[derive(Debug)]
struct Request {
    id: EngineId,
    op: Op<Mem>,
    /// A flush: how much of what is volatile it covers.
    covers: usize,
}

impl Disk {
    pub(crate) fn new(sectors: usize) -> Self {
        let (durable, volatile) = (vec![0; sectors], Vec::new());
        Self { durable, volatile, under_way: Vec::new(), writes: 0, flushes: 0 }
    }

    pub(crate) fn submit(&mut self, id: EngineId, op: Op<Mem>) {
        match op {
            Op::Flush => self.flushes += 1,
            Op::Read { .. } => {}
            _ => self.writes += 1,
        }
        if let Op::Write { span, data, .. } = &op {
            // What lies around the span is the engine's to use.
            let (head, end) = (span.offset % 4096, span.blocks() * 4096);
            let mut bytes = data.0.borrow_mut();
            bytes[..head as usize].fill(0x5C);
            bytes[(head + span.len) as usize..end as usize].fill(0x5C);
        }
        self.under_way.push(Request { id, op, covers: self.volatile.len() });
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Whether a request needs room that a thin disk may not have.
    pub(crate) fn is_write(&self, which: usize) -> bool {
        matches!(self.under_way[which].op, Op::Write { .. })
    }

    /// Nothing waits for what is under way any more; it does not happen.
    pub(crate) fn forget(&mut self) {
        self.under_way.clear();
    }

    /// A request fails, and nothing of it happens.
    pub(crate) fn fail(&mut self, which: usize) -> EngineId {
        self.under_way.remove(which).id
    }

    fn value(&self, sector: usize) -> u64 {
        let newest = self.volatile.iter().rev().find(|(at, _)| *at == sector);
        newest.map_or(self.durable[sector], |(_, value)| *value)
    }

    /// Every value that a sector may have after a loss.
    pub(crate) fn candidates(&self, sector: usize) -> impl Iterator<Item = u64> {
        let volatile = self.volatile.iter().filter(move |(at, _)| *at == sector);
        std::iter::once(self.durable[sector]).chain(volatile.map(|(_, value)| *value))
    }

    fn carry_out(&mut self, op: &Op<Mem>, covers: usize) {
        let (span, values, fua) = match op {
            Op::Read { span, data } => {
                let values: Vec<u64> = sectors(*span).map(|sector| self.value(sector)).collect();
                let head = (span.offset % 4096) as usize / 512;
                let read = Mem::of(head, &values);
                let len = span.len;
                data.0.borrow_mut()[head * 512..head * 512 + len as usize]
                    .copy_from_slice(&read.bytes(head as u64 * 512, len));
                return;
            }
            Op::Flush => {
                for (sector, value) in self.volatile.drain(..covers) {
                    self.durable[sector] = value;
                }
                for other in &mut self.under_way {
                    other.covers = other.covers.saturating_sub(covers);
                }
                return;
            }
            Op::Write { span, data, fua } => {
                let head = (span.offset % 4096) as usize / 512;
                let value = |n: usize| data.value(head + n).expect("a sector is never torn");
                (*span, (0..(span.len / 512) as usize).map(value).collect(), *fua)
            }
            Op::Trim { span, fua } | Op::WriteZeroes { span, fua, .. } => {
                (*span, vec![0; (span.len / 512) as usize], *fua)
            }
            Op::Invalidate { .. } => panic!("the write log does not ask for this"),
        };
        for (sector, value) in sectors(span).zip(values) {
            if fua {
                self.volatile.retain(|(at, _)| *at != sector);
                self.durable[sector] = value;
            } else {
                self.volatile.push((sector, value));
            }
        }
        if fua {
            // Flushes under way count what is volatile.
            for other in &mut self.under_way {
                other.covers = other.covers.min(self.volatile.len());
            }
        }
    }

    /// Ends a request under way, if none before it overlaps.
    pub(crate) fn end(&mut self, which: usize) -> Option<(EngineId, Answer<Mem>)> {
        let op = &self.under_way[which].op;
        if self.under_way[..which].iter().any(|before| overlap(&before.op, op)) {
            return None;
        }
        let Request { id, op, covers } = self.under_way.remove(which);
        self.carry_out(&op, covers);
        let answer = match op {
            Op::Read { data, .. } | Op::Write { data, .. } => Answer::Data(data),
            _ => Answer::Done,
        };
        Some((id, answer))
    }

    /// Fails a request under way, if none before it overlaps: it has happened, or not, and after a
    /// flush that failed what was volatile may be lost.
    pub(crate) fn fail_some(&mut self, which: usize, rng: &mut Rng) -> Option<EngineId> {
        let op = &self.under_way[which].op;
        if self.under_way[..which].iter().any(|before| overlap(&before.op, op)) {
            return None;
        }
        let Request { id, op, covers } = self.under_way.remove(which);
        match op {
            Op::Flush if rng.random_bool(0.5) => self.restart(rng),
            Op::Flush => {}
            op if rng.random_bool(0.5) => self.carry_out(&op, covers),
            _ => {}
        }
        Some(id)
    }

    /// The host is gone, or the volume: what was under way has happened, or not. Gives their names.
    pub(crate) fn abandon(&mut self, rng: &mut Rng) -> Vec<EngineId> {
        let all = std::mem::take(&mut self.under_way);
        let ids = all.iter().map(|request| request.id).collect();
        let mut left: Vec<Op<Mem>> = Vec::new();
        for Request { op, .. } in all {
            let blocked = left.iter().any(|before| overlap(before, &op));
            if matches!(op, Op::Flush) || blocked || rng.random_bool(0.5) {
                left.push(op);
            } else {
                self.carry_out(&op, 0);
            }
        }
        ids
    }

    /// The server restarts: any of what was not flushed is lost.
    pub(crate) fn restart(&mut self, rng: &mut Rng) {
        for (sector, value) in std::mem::take(&mut self.volatile) {
            if rng.random_bool(0.5) {
                self.durable[sector] = value;
            }
        }
        for request in &mut self.under_way {
            request.covers = 0;
        }
    }
}

pub(crate) fn sectors(span: ByteSpan) -> std::ops::Range<usize> {
    (span.offset / 512) as usize..(span.end() / 512) as usize
}

pub(crate) fn span_of(op: &Op<Mem>) -> Option<ByteSpan> {
    match op {
        Op::Read { span, .. }
        | Op::Write { span, .. }
        | Op::Trim { span, .. }
        | Op::WriteZeroes { span, .. }
        | Op::Invalidate { span } => Some(*span),
        Op::Flush => None,
    }
}

/// By blocks, as the engine has it.
fn overlap(a: &Op<Mem>, b: &Op<Mem>) -> bool {
    let both_read = matches!((a, b), (Op::Read { .. }, Op::Read { .. }));
    match (span_of(a), span_of(b)) {
        (Some(a), Some(b)) => {
            !both_read && a.first_block() < b.end_block() && b.first_block() < a.end_block()
        }
        _ => false,
    }
}
