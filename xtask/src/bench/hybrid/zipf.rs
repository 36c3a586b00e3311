//! Writes of 4 KiB over Zipf's laws, beside the slides' shares of SSD.

use super::load::Load;
use super::side::{Cell, Kind};
use super::{Bench, THETAS};
use crate::table::Table;
use anyhow::Result;
use std::fmt::Write as _;

/// The authors' final shares of SSD, in per cent, for [`THETAS`].
const SLIDES: [f64; 5] = [7.5, 6.5, 3.7, 2.5, 1.8];
const BLOCK: u64 = 4096;
const HYBRID: [Kind; 3] = [Kind::Benefit, Kind::Mobbs, Kind::Equal];
/// The law under which our planner also has as much SSD as the authors' took.
const EQUAL_AT: f64 = 1.5;

impl Bench<'_> {
    /// The table, and the lines of the chart.
    pub(super) fn zipf(&mut self, thetas: &[f64]) -> Result<(String, String)> {
        let mut table = Table::new(&[
            "4 KiB",
            "IOPS",
            "of all-SSD",
            "p99 ms",
            "extents on SSD",
            "slides",
            "moves",
            "given up",
            "settled after, s",
            "extents that take 90 % of writes",
        ]);
        let (mut drift, mut points): (f64, _) = (0.0, String::new());
        for theta in thetas {
            let cells = self.law(*theta)?;
            let (first, last) = (&cells[0].1, &cells[cells.len() - 1].1);
            // Before and after the others.
            let all_ssd = f64::midpoint(first.steady.iops, last.steady.iops);
            drift = drift.max((first.steady.iops - last.steady.iops).abs() / all_ssd);
            for (kind, cell) in &cells[..cells.len() - 1] {
                let (mut iops, mut p99_ms) = (cell.steady.iops, cell.steady.p99_ms);
                if *kind == Kind::AllSsd {
                    (iops, p99_ms) = (all_ssd, f64::midpoint(p99_ms, last.steady.p99_ms));
                }
                let (part, share) = (iops / all_ssd, cell.ssd_percent / 100.0);
                let _ok = writeln!(points, "{theta}\t{}\t{part}\t{share}", kind.name());
                let [moved, given_up] = cell.last.moves_since(&cell.looks[0].1);
                table.row(vec![
                    format!("zipf:{theta}, {}", kind.name()),
                    format!("{iops:.0}"),
                    format!("{:.0} %", part * 100.0),
                    format!("{p99_ms:.1}"),
                    format!("{:.1} %", cell.ssd_percent),
                    slides(*theta),
                    moved.to_string(),
                    given_up.to_string(),
                    settled(*kind, cell),
                    format!("{}", cell.trace.extents_of(0.9, self.size.extent_bytes)),
                ]);
            }
        }
        let text = format!(
            "\n{}\nAll-SSD was measured before and after the other sides of a law; the two differ by at most {:.0} %.\n",
            table.render(),
            drift * 100.0
        );
        Ok((text, points))
    }

    /// All sides under one law, all-SSD first and last.
    fn law(&mut self, theta: f64) -> Result<Vec<(Kind, Cell)>> {
        eprintln!("zipf:{theta}, 4 KiB");
        let load = Load::zipf(theta, BLOCK, self.depth, self.seed);
        let mut cells = vec![(Kind::AllSsd, self.cell(Kind::AllSsd, &load)?)];
        for kind in HYBRID {
            if kind == Kind::Equal {
                if (theta - EQUAL_AT).abs() > 1e-9 {
                    continue;
                }
                let taken = cells[cells.len() - 1].1.fast_bytes;
                self.side(kind).set_budget(taken);
            }
            cells.push((kind, self.cell(kind, &load)?));
        }
        for kind in [Kind::AllHdd, Kind::AllSsd] {
            cells.push((kind, self.cell(kind, &load)?));
        }
        Ok(cells)
    }
}

fn slides(theta: f64) -> String {
    let found = THETAS.iter().position(|of| (of - theta).abs() < 1e-9);
    found.map_or_else(|| "-".into(), |at| format!("{} %", SLIDES[at]))
}

pub(super) fn settled(kind: Kind, cell: &Cell) -> String {
    match cell.settled_s {
        Some(seconds) => format!("{seconds:.0}"),
        None if kind.moves() => "not".into(),
        None => "-".into(),
    }
}
