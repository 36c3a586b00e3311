//! Larger writes by Zipf's law, and sequential ones.

use super::Bench;
use super::load::Load;
use super::side::{Cell, Kind};
use super::zipf::settled;
use crate::table::Table;
use anyhow::Result;

/// Sizes of random writes, in KiB.
pub(super) const KIB: [u64; 4] = [16, 64, 256, 512];
const THETA: f64 = 1.5;
/// Of sequential writes, in KiB. Small ones don't come to the volume's end within a cell; where larger ones begin
/// again, the first extent has a write that is not sequential.
const SEQUENTIAL_KIB: [u64; 2] = [4, 256];
const KINDS: [Kind; 4] = [Kind::AllSsd, Kind::Benefit, Kind::Mobbs, Kind::AllHdd];

impl Bench<'_> {
    pub(super) fn sizes(&mut self, sizes_kib: &[u64]) -> Result<String> {
        let mut table = Table::new(&[
            "writes",
            "IOPS",
            "MiB/s",
            "of all-SSD",
            "p99 ms",
            "extents on SSD",
            "moves",
            "given up",
            "settled after, s",
        ]);
        let random = sizes_kib.iter().map(|kib| {
            let load = Load::zipf(THETA, kib * 1024, self.depth, self.seed);
            (format!("{kib} KiB, zipf:{THETA}"), *kib, load)
        });
        let sequential = SEQUENTIAL_KIB.into_iter().map(|kib| {
            let load =
                Load { law: None, block_bytes: kib * 1024, depth: self.depth, seed: self.seed };
            (format!("{kib} KiB, sequential"), kib, load)
        });
        let loads: Vec<_> = random.chain(sequential).collect();
        for (name, kib, load) in &loads {
            eprintln!("{name}");
            let mut cells: Vec<(Kind, Cell)> = Vec::new();
            for kind in KINDS {
                cells.push((kind, self.cell(kind, load)?));
            }
            let all_ssd = cells[0].1.steady.iops;
            for (kind, cell) in &cells {
                let iops = cell.steady.iops;
                let [moved, given_up] = cell.last.moves_since(&cell.looks[0].1);
                table.row(vec![
                    format!("{name}, {}", kind.name()),
                    format!("{iops:.0}"),
                    format!("{:.1}", iops * *kib as f64 / 1024.0),
                    format!("{:.0} %", iops / all_ssd * 100.0),
                    format!("{:.1}", cell.steady.p99_ms),
                    format!("{:.1} %", cell.ssd_percent),
                    moved.to_string(),
                    given_up.to_string(),
                    settled(*kind, cell),
                ]);
            }
        }
        Ok(format!("\n{}", table.render()))
    }
}
