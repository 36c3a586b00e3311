//! The eight streams: the table of the paper, as the public generators have it.

use crate::generate::Chance;

/// Walking streams.
pub(super) const WALKS: usize = 3;
/// Sequential streams.
pub(super) const RUNS: usize = 3;
/// The intensities of all streams together.
pub(super) const INTENSITIES_SUM: f64 = 1.0;

/// Whose shares of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// pblio's: 55 % of all I/Os are reads.
    #[default]
    Pblio,
    /// SPC-1's: 40 %.
    Spc1,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Address {
    /// Anywhere, at a multiple of so many blocks.
    Uniform { align: u32 },
    /// The hierarchical reuse walk of a unit in one of the regions.
    Walk { walk: usize },
    /// Runs of `length` per cent of the ASU that start at `from` per cent or up to `reach` behind.
    Sequential { run: usize, from: u32, reach: u32, length: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamRow {
    /// Its name in the paper.
    pub name: &'static str,
    pub asu: usize,
    /// Share of all I/Os.
    pub intensity: f64,
    pblio_reads: f64,
    spc1_reads: f64,
    pub(super) address: Address,
    /// Where its region begins, in per cent of the ASU; 0 if it has none.
    region_at: u32,
}

impl StreamRow {
    /// Share of reads among its I/Os.
    pub fn read_share(&self, mix: Mix) -> f64 {
        match mix {
            Mix::Pblio => self.pblio_reads,
            Mix::Spc1 => self.spc1_reads,
        }
    }

    /// Whether its I/Os follow one another, several blocks at a time.
    pub fn sequential(&self) -> bool {
        matches!(self.address, Address::Sequential { .. })
    }

    const fn new(
        name: &'static str,
        asu: usize,
        intensity: f64,
        reads: (f64, f64),
        address: Address,
    ) -> Self {
        let (pblio_reads, spc1_reads) = reads;
        Self { name, asu, intensity, pblio_reads, spc1_reads, address, region_at: 0 }
    }

    const fn walking(self, region_at: u32) -> Self {
        Self { region_at, ..self }
    }
}

/// All streams of a unit.
pub const STREAMS: [StreamRow; 8] = [
    StreamRow::new("ASU1_1", 0, 0.035, (0.75, 0.5), Address::Uniform { align: 1 }),
    StreamRow::new("ASU1_2", 0, 0.281, (0.75, 0.5), Address::Walk { walk: 0 }).walking(15),
    StreamRow::new("ASU1_3", 0, 0.070, (1.0, 1.0), data_run(0)),
    StreamRow::new("ASU1_4", 0, 0.210, (0.75, 0.5), Address::Walk { walk: 1 }).walking(70),
    StreamRow::new("ASU2_1", 1, 0.018, (0.6, 0.3), Address::Uniform { align: 2 }),
    StreamRow::new("ASU2_2", 1, 0.070, (0.6, 0.3), Address::Walk { walk: 2 }).walking(47),
    StreamRow::new("ASU2_3", 1, 0.035, (1.0, 1.0), data_run(1)),
    StreamRow::new(
        "ASU3_1",
        2,
        0.281,
        (0.0, 0.0),
        Address::Sequential { run: 2, from: 0, reach: 70, length: 30 },
    ),
];

const fn data_run(run: usize) -> Address {
    Address::Sequential { run, from: 20, reach: 40, length: 10 }
}

/// ASU and first per cent of each region.
pub(super) fn walks() -> [(usize, u32); WALKS] {
    std::array::from_fn(|walk| {
        let row = STREAMS.iter().find(|row| row.address == Address::Walk { walk });
        let row = row.expect("every walk has its stream");
        (row.asu, row.region_at)
    })
}

pub(super) fn pick(chance: &mut Chance) -> usize {
    let mut left = chance.unit() * INTENSITIES_SUM;
    for (index, row) in STREAMS.iter().enumerate() {
        left -= row.intensity;
        if left < 0.0 {
            return index;
        }
    }
    // What rounding leaves over.
    STREAMS.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_one_and_reads_to_the_published_mixes() {
        let sum = |value: fn(&StreamRow) -> f64| STREAMS.iter().map(value).sum::<f64>();
        assert!((sum(|row| row.intensity) - INTENSITIES_SUM).abs() < 1e-12);
        assert!((sum(|row| row.intensity * row.read_share(Mix::Pblio)) - 0.5523).abs() < 1e-3);
        assert!((sum(|row| row.intensity * row.read_share(Mix::Spc1)) - 0.3944).abs() < 1e-3);
        assert_eq!(walks(), [(0, 15), (0, 70), (1, 47)]);
    }
}
