//! A guest with its volume, what it has asked for, and its back end.

use super::disk::{Disk, sectors, span_of};
use super::memory::Mem;
use super::oracle::Oracle;
use super::rng::Rng;
use super::settings::Settings;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Op, RequestId};
use cinnabar_writeback::{LogVolumeId, Misses};
use rand::RngExt;
use std::collections::BTreeMap;

/// Sectors by which a volume may grow in a run.
pub(crate) const GROWS_MAX: u64 = 64;

/// A request under way.
pub(crate) struct Asked {
    pub(crate) op: Op<Mem>,
    pub(crate) submitted: u64,
}

/// A command under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Attach,
    /// Submitted at this time of the oracle's.
    Drain(u64),
    Remove {
        discard: bool,
    },
}

/// See the module.
pub(crate) struct Guest {
    pub(crate) name: String,
    pub(crate) place: Option<LogVolumeId>,
    /// Size of the volume, and the size that was asked for.
    pub(crate) sectors: u64,
    pub(crate) wanted: u64,
    pub(crate) disk: Disk,
    pub(crate) oracle: Oracle,
    pub(crate) asked: BTreeMap<u64, Asked>,
    pub(crate) command: Option<(RequestId, Pending)>,
    /// Steps for which the back end does nothing.
    pub(crate) away: u32,
}

impl Guest {
    pub(crate) fn new(index: usize, settings: &Settings) -> Self {
        let size = settings.blocks * 8 + settings.tail;
        let most = (size + GROWS_MAX) as usize;
        Self {
            name: format!("volume{index}"),
            place: None,
            sectors: size,
            wanted: size,
            disk: Disk::new(most),
            oracle: Oracle::new(most),
            asked: BTreeMap::new(),
            command: None,
            away: 0,
        }
    }

    /// All of a run. Those of a group are one guest's, whose barriers count for all of its disks.
    pub(crate) fn all(settings: &Settings) -> Vec<Self> {
        let mut all: Vec<Self> =
            (0..settings.volumes).map(|index| Self::new(index, settings)).collect();
        for index in 1..settings.group {
            all[index].oracle = all[0].oracle.beside(&all[0].disk.durable);
        }
        all
    }

    pub(crate) fn whole(&self) -> ByteSpan {
        ByteSpan::new(0, self.sectors * 512)
    }

    /// The next request, if what was drawn meets no write under way; with the time of its submission.
    pub(crate) fn draw(
        &mut self,
        settings: &Settings,
        next_value: &mut u64,
        rng: &mut Rng,
    ) -> Option<(Op<Mem>, u64)> {
        draw(settings, self.sectors, (&self.asked, &mut self.oracle), next_value, rng)
    }

    /// What was answered before `submitted`, and not written since, is durable at the back end.
    pub(crate) fn check_drained(&self, submitted: u64) -> Result<(), String> {
        for sector in 0..self.disk.durable.len() {
            let Some(newest) = self.oracle.newest_before(sector, submitted) else { continue };
            if let Some(is) = self.disk.candidates(sector).find(|value| *value != newest) {
                let name = &self.name;
                return Err(format!(
                    "{name}: drained, but sector {sector} holds {is} for {newest}"
                ));
            }
        }
        Ok(())
    }
}

/// A span of a volume of so many sectors to read or write.
fn span(settings: &Settings, total: u64, rng: &mut Rng) -> ByteSpan {
    let blocks = total / 8;
    let most = if rng.random_bool(settings.large) { blocks } else { 3 };
    if rng.random_bool(settings.partial) {
        let first = rng.random_range(0..total);
        let len = rng.random_range(1..=20.min(total - first));
        return ByteSpan::new(first * 512, len * 512);
    }
    let first = rng.random_range(0..blocks);
    let len = rng.random_range(1..=most.min(blocks - first));
    let end = if first + len == blocks { total * 512 } else { (first + len) * 4096 };
    ByteSpan::new(first * 4096, end - first * 4096)
}

/// The next request to a volume of so many sectors, if what was drawn meets no write under way; with the
/// time of its submission.
pub(crate) fn draw(
    settings: &Settings,
    total: u64,
    (asked, oracle): (&BTreeMap<u64, Asked>, &mut Oracle),
    next_value: &mut u64,
    rng: &mut Rng,
) -> Option<(Op<Mem>, u64)> {
    if rng.random_bool(settings.flush) {
        return Some((Op::Flush, oracle.now()));
    }
    let span = span(settings, total, rng);
    let head = (span.offset % 4096) as usize / 512;
    if rng.random_bool(0.4) {
        // A buffer that ends where the volume does.
        let data = Mem::sectors(head + (span.len / 512) as usize);
        return Some((Op::Read { span, data }, oracle.now()));
    }
    let busy = asked.values().any(|asked| {
        let writes = !matches!(asked.op, Op::Read { .. } | Op::Flush);
        let other = span_of(&asked.op);
        writes && other.is_some_and(|other| other.offset < span.end() && span.offset < other.end())
    });
    if busy {
        return None;
    }
    let fua = rng.random_bool(settings.fua);
    let op = if rng.random_bool(settings.range) {
        match rng.random_range(0..3) {
            0 => Op::WriteZeroes { span, fua, may_punch: false },
            1 => Op::WriteZeroes { span, fua, may_punch: true },
            // Of a trim only whole blocks count.
            _ if span.offset.is_multiple_of(4096) && span.end().is_multiple_of(4096) => {
                Op::Trim { span, fua }
            }
            _ => Op::WriteZeroes { span, fua, may_punch: true },
        }
    } else {
        *next_value += 1;
        let values = vec![*next_value; (span.len / 512) as usize];
        Op::Write { span, data: Mem::of(head, &values), fua }
    };
    let value = if matches!(op, Op::Write { .. }) { *next_value } else { 0 };
    oracle.write(sectors(span), value);
    Some((op, 0))
}

/// What the driver says of guests' misses, now and then: some, of any length.
pub(crate) fn draw_misses(rng: &mut Rng) -> Option<Misses> {
    if !rng.random_bool(0.1) {
        return None;
    }
    let reads = rng.random_range(0..12);
    let each_ns = [1_000, 10_000, 100_000][rng.random_range(0..3)];
    Some(Misses { reads, total_ns: reads * each_ns })
}
