//! What a sweep found: a table for people, CSV and JSON for programs.
//!
//! Nothing here depends on how fast the machine was, so that equal plans give equal files.

use super::outcome::PointStats;
use super::recommend::Recommended;
use super::{Found, Sweep};
use cinnabar_study::timed_plan::Survey;
use cinnabar_text::Table;
use serde::Serialize;
use std::collections::BTreeMap;

/// The contract of `--json`. Keys are only ever added.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    plan: String,
    title: Option<&'a str>,
    program: &'static str,
    model: &'a str,
    trace: Option<Trace>,
    /// Every setting, before it is varied.
    base: BTreeMap<&'static str, String>,
    varied: Vec<&'static str>,
    points: Vec<Row<'a>>,
    recommended: Option<&'a Recommended>,
}

#[derive(Debug, Serialize)]
struct Trace {
    path: String,
    requests: u64,
    writes: u64,
    blocks: u64,
    different_blocks: u64,
    volumes: u32,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    values: BTreeMap<&'static str, &'a str>,
    outcome: Option<&'a PointStats>,
    error: Option<&'a str>,
}

impl<'a> Report<'a> {
    /// The report of a sweep.
    pub fn new(sweep: &'a Sweep, recommended: Option<&'a Recommended>) -> Self {
        let names: Vec<&'static str> = sweep.plan.varied().iter().map(|key| key.name).collect();
        let row = |found: &'a Found| Row {
            name: &found.point.name,
            values: names
                .iter()
                .copied()
                .zip(found.point.values.iter().map(String::as_str))
                .collect(),
            outcome: found.result.as_ref().ok(),
            error: found.result.as_ref().err().map(|failure| failure.message.as_str()),
        };
        let trace = sweep.plan.trace.as_ref().zip(sweep.survey.as_ref());
        Self {
            plan: sweep.plan.file.display().to_string(),
            title: sweep.plan.title.as_deref(),
            program: env!("CARGO_PKG_VERSION"),
            model: &sweep.model,
            trace: trace
                .map(|(trace, survey)| Trace::new(&trace.path.display().to_string(), survey)),
            base: sweep.plan.keys().map(|key| (key.name, key.show(&sweep.plan.base))).collect(),
            points: sweep.found.iter().map(row).collect(),
            varied: names,
            recommended,
        }
    }
}

impl Trace {
    fn new(path: &str, survey: &Survey) -> Self {
        Self {
            path: path.to_owned(),
            requests: survey.requests,
            writes: survey.writes,
            blocks: survey.ios,
            different_blocks: survey.blocks,
            volumes: survey.volumes,
            seconds: survey.duration_us as f64 / 1e6,
        }
    }
}

/// Names of the columns behind those of the axes.
const HEADER: &[&str] = &[
    "READ US",
    "P99",
    "WRITE US",
    "P99",
    "RAM %",
    "FLASH %",
    "MISS %",
    "FILER READS",
    "FILER WRITES",
];

fn cells(found: &Found) -> Vec<String> {
    let Ok(told) = &found.result else {
        let mut cells = vec!["-".to_owned(); HEADER.len()];
        "failed".clone_into(&mut cells[0]);
        return cells;
    };
    let us = |us: f64| format!("{us:.1}");
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    vec![
        us(told.reads.mean_us),
        us(told.reads.p99_us),
        us(told.writes.mean_us),
        us(told.writes.p99_us),
        percent(told.ram_share),
        percent(told.flash_share),
        percent(told.miss_share),
        told.filer_reads.to_string(),
        told.filer_writes.to_string(),
    ]
}

pub(crate) fn axes_header(sweep: &Sweep) -> Vec<String> {
    let names: Vec<String> =
        sweep.plan.varied().iter().map(|key| key.name.to_uppercase()).collect();
    if names.is_empty() { vec!["POINT".to_owned()] } else { names }
}

pub(crate) fn axes_cells(found: &Found) -> Vec<String> {
    match found.point.values.as_slice() {
        [] => vec![found.point.name.clone()],
        values => values.to_vec(),
    }
}

/// For people.
pub fn render(sweep: &Sweep, recommended: Option<&Recommended>, room: Option<usize>) -> String {
    let header = axes_header(sweep);
    let all: Vec<&str> = header.iter().map(String::as_str).chain(HEADER.iter().copied()).collect();
    let mut table = Table::new(header.len(), &all).least(&[
        "P99",
        "P99",
        "FILER WRITES",
        "FILER READS",
        "RAM %",
    ]);
    for found in &sweep.found {
        table.push([axes_cells(found), cells(found)].concat());
    }
    let shared = sweep.plan.base.hosts > 1
        || sweep.plan.varied().iter().any(|key| key.name == "hosts.count");
    let mut text = table.render(room);
    if shared {
        text += "\nwrites of blocks that another host had cached:\n";
        let mut table = Table::new(header.len(), &[&all[..header.len()], &["%"]].concat());
        for found in &sweep.found {
            let share = found.result.as_ref().map_or(f64::NAN, |told| told.invalidation_share);
            table.push([axes_cells(found), vec![format!("{:.1}", share * 100.0)]].concat());
        }
        text += &table.render(room);
    }
    if let Some(recommended) = recommended {
        text += "\n";
        text += &advice(recommended, room);
    }
    text
}

/// A recommendation in words, with what it was chosen from.
fn advice(recommended: &Recommended, room: Option<usize>) -> String {
    let Recommended { point, mean_us, price, best, best_mean_us, best_price, .. } = recommended;
    let mut table = Table::new(1, &["WHAT MORE MONEY BUYS", "PRICE", "MEAN US"]);
    for step in &recommended.steps {
        let cells = [format!("{:.1}", step.price), format!("{:.1}", step.mean_us)];
        table.push([vec![step.point.clone()], cells.to_vec()].concat());
    }
    let slower = (mean_us / best_mean_us.max(1e-9) - 1.0) * 100.0;
    let parts = [
        format!("recommended: {point}\n"),
        format!("  {mean_us:.1} us a request at a price of {price:.1}\n"),
        format!("best: {best}\n  {best_mean_us:.1} us at {best_price:.1}; "),
        format!("the recommended one is {slower:.1} % slower\n"),
        format!(
            "the cheapest within {} % of the best; prices in GiB of flash, RAM at {} times that\n\n",
            recommended.within_percent, recommended.ram_price
        ),
        table.render(room),
    ];
    parts.concat()
}

/// For spreadsheets: RFC 4180, a line a point.
pub fn csv(sweep: &Sweep) -> String {
    let names: Vec<&str> = sweep.plan.varied().iter().map(|key| key.name).collect();
    let columns = PointStats::default().columns();
    let mut header: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    header.extend(columns.iter().map(|(name, _)| (*name).to_owned()));
    header.push("error".to_owned());
    let mut text = line(&header);
    for found in &sweep.found {
        let mut cells = found.point.values.clone();
        match &found.result {
            Ok(told) => {
                cells.extend(told.columns().into_iter().map(|(_, value)| value));
                cells.push(String::new());
            }
            Err(failure) => {
                cells.extend(columns.iter().map(|_| String::new()));
                cells.push(failure.message.clone());
            }
        }
        text += &line(&cells);
    }
    text
}

fn line(cells: &[String]) -> String {
    let quoted = |cell: &String| {
        let plain = !cell.contains([',', '"', '\n', '\r']);
        if plain { cell.clone() } else { format!("\"{}\"", cell.replace('"', "\"\"")) }
    };
    cells.iter().map(quoted).collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted() {
        let cells = ["a".to_owned(), "b, \"c\"".to_owned(), String::new()];
        assert_eq!(line(&cells), "a,\"b, \"\"c\"\"\",\r\n");
    }
}
