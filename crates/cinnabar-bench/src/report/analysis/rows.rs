//! The table: a row a volume, those with most accesses first, the rest in one, all in the last.
//!
//! Called for terminals and for pages.

use super::BLOCK_BYTES;
use cinnabar_policy::reuse::Mix;
use cinnabar_policy::sizing::Prices;
use cinnabar_study::analysis::{Analysis, Expected, Found};
use cinnabar_text::Unit;

const SECONDS_A_DAY: f64 = 86_400.0;

/// Names of the columns; the first is text.
pub(crate) const HEADER: &[&str] = &[
    "VOLUME",
    "READS",
    "WRITES",
    "RAR",
    "RAW",
    "WAR",
    "WAW",
    "WORKING SET",
    "USEFUL",
    "CACHE",
    "POLICY",
    "READ HITS",
    "I/O SAVED",
    "SSD/DAY",
];

/// The columns of a page: what is recommended first.
pub(crate) const PAGE: &[&str] = &[
    "VOLUME",
    "CACHE",
    "POLICY",
    "READ HITS",
    "I/O SAVED",
    "SSD/DAY",
    "READS",
    "WRITES",
    "WORKING SET",
    "USEFUL",
    "RAR",
    "RAW",
    "WAR",
    "WAW",
];

/// Columns that a narrow terminal does without, those that matter least first.
pub(crate) const LEAST: &[&str] = &[
    "WAR",
    "RAW",
    "WAW",
    "RAR",
    "USEFUL",
    "WRITES",
    "SSD/DAY",
    "I/O SAVED",
    "READS",
    "WORKING SET",
];

pub(crate) const LEGEND: &str = "READS and WRITES count 4 KiB blocks; RAR to WAW are parts of the \
    reuses: read after read, ...;\nWORKING SET is what was touched, USEFUL the size that reaches nearly \
    all hits of reads; READ HITS are reads\nthat the storage is spared, I/O SAVED reads and writes; ~ is \
    an estimate";

#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) is_estimate: bool,
    pub(crate) mix: Mix,
    pub(crate) working_set: u64,
    pub(crate) useful: u64,
    /// In blocks; `None` in a shared cache.
    pub(crate) share: Option<u64>,
    /// A hyphen where volumes differ.
    pub(crate) policy: String,
    pub(crate) expected: Option<Expected>,
}

/// The volumes with most accesses first; of equals, the first in the trace.
pub(crate) fn ranked(analysis: &Analysis) -> Vec<&Found> {
    let mut volumes: Vec<&Found> = analysis.volumes.iter().collect();
    let accesses = |found: &&Found| found.curves.mix().reads + found.curves.mix().writes;
    volumes.sort_by_key(|found| std::cmp::Reverse(accesses(found)));
    volumes
}

/// The lines: at most `most` volumes, the others together, and all.
pub(crate) fn lines(
    analysis: &Analysis,
    prices: &Prices,
    reach_part: f64,
    most: usize,
) -> Vec<Line> {
    let all: Vec<Line> =
        ranked(analysis).into_iter().map(|found| Line::of(found, prices, reach_part)).collect();
    let (shown, rest) = all.split_at(all.len().min(most));
    let mut lines = shown.to_vec();
    if !rest.is_empty() {
        lines.push(Line::sum(&format!("{} others", rest.len()), rest));
    }
    let mut total = Line::sum("all", &all);
    if let Some(shared) = analysis.shared {
        (total.expected, total.policy) = (Some(shared), "write-back".to_owned());
        total.share = Some(analysis.cache_blocks);
    }
    if all.len() > 1 || analysis.shared.is_some() {
        lines.push(total);
    }
    lines
}

impl Line {
    fn of(found: &Found, prices: &Prices, reach_part: f64) -> Self {
        let curves = &found.curves;
        Self {
            name: found.name.clone(),
            is_estimate: curves.rate() < 1.0,
            mix: curves.mix(),
            working_set: curves.working_set(),
            useful: curves.useful_reach(reach_part),
            share: found.part.map(|part| part.blocks),
            policy: found.part.map_or_else(|| "-".to_owned(), |part| part.policy.to_string()),
            expected: found.expected(prices),
        }
    }

    fn sum(name: &str, lines: &[Self]) -> Self {
        let none = Self { name: name.to_owned(), ..Self::default() };
        let mut sum = lines.iter().fold(none, |sum, line| Self {
            name: sum.name,
            is_estimate: sum.is_estimate || line.is_estimate,
            mix: sum.mix + line.mix,
            working_set: sum.working_set + line.working_set,
            useful: sum.useful + line.useful,
            share: line.share.map(|share| sum.share.unwrap_or(0) + share),
            policy: String::new(),
            expected: line.expected.map(|one| sum.expected.unwrap_or_default().plus(one)),
        });
        let first = lines.first().map_or("-", |line| &line.policy);
        let same = lines.iter().all(|line| line.policy == first);
        (if same { first } else { "-" }).clone_into(&mut sum.policy);
        sum
    }

    /// As cells below [`HEADER`]; `seconds` is how long the trace is.
    pub(crate) fn cells(&self, seconds: Option<f64>) -> Vec<String> {
        let Mix { reads, writes, rar, raw, war, waw } = self.mix;
        let size = |blocks: u64| Unit::Bytes.show(blocks.saturating_mul(BLOCK_BYTES) as f64);
        let none = || "-".to_owned();
        let percent = |part: f64, of: f64| {
            if of > 0.0 { Unit::Ratio.show(part / of) } else { none() }
        };
        let reuses = self.mix.reuses() as f64;
        let estimate = if self.is_estimate { "~" } else { "" };
        let mut cells = vec![format!("{estimate}{}", self.name)];
        cells.extend([reads, writes].map(|count| Unit::Count.show(count as f64)));
        cells.extend([rar, raw, war, waw].map(|count| percent(count as f64, reuses)));
        cells.extend([self.working_set, self.useful].map(size));
        cells.push(self.share.map_or_else(none, size));
        cells.push(self.policy.clone());
        let Some(expected) = self.expected else {
            cells.extend((0..3).map(|_| none()));
            return cells;
        };
        cells.push(percent(expected.read_hits, reads as f64));
        let all = (reads + writes) as f64;
        cells.push(percent(all - expected.backend_reads - expected.backend_writes, all));
        let a_day = seconds.map(|seconds| bytes_a_day(expected.ssd_writes, seconds));
        cells.push(a_day.map_or_else(none, |bytes| Unit::Bytes.show(bytes)));
        cells
    }
}

/// Cells in the order of a page's columns.
pub(crate) fn for_page(cells: &[String]) -> Vec<String> {
    let cell = |name: &&str| {
        let at = HEADER.iter().position(|one| one == name);
        at.and_then(|at| cells.get(at)).cloned().unwrap_or_default()
    };
    PAGE.iter().map(cell).collect()
}

/// Blocks over a trace of so many seconds, as bytes in a day.
pub(crate) fn bytes_a_day(blocks: f64, seconds: f64) -> f64 {
    blocks * BLOCK_BYTES as f64 / seconds * SECONDS_A_DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_same_columns_with_the_answer_first() {
        let cells: Vec<String> = HEADER.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(for_page(&cells), PAGE);
        let sorted = |names: &[&'static str]| {
            let mut names = names.to_vec();
            names.sort_unstable();
            names
        };
        assert_eq!(sorted(HEADER), sorted(PAGE));
        assert_eq!(PAGE[..4], ["VOLUME", "CACHE", "POLICY", "READ HITS"]);
    }

    #[test]
    fn cells_have_three_digits_at_most() {
        let mix = Mix { reads: 1_481_234, writes: 4719, rar: 1001, raw: 3, war: 0, waw: 9999 };
        let expected = Expected { read_hits: 1_481_234.0, ssd_writes: 77.0, ..Expected::default() };
        let line = Line {
            name: "vm".to_owned(),
            mix,
            working_set: 262_000,
            useful: 32_768,
            share: Some(183_475),
            policy: "-".to_owned(),
            expected: Some(expected),
            ..Line::default()
        };
        for cell in line.cells(Some(190.0)) {
            let digits = cell.trim_start_matches(['0', '.']).chars().filter(char::is_ascii_digit);
            assert!(digits.count() <= 3, "{cell}");
        }
    }
}
