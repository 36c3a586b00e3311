//! What was found, as lines of JSON and as tables.

use super::Simulated;
use cinnabar_policy::{Counts, Writes};
use cinnabar_study::hits::{Outcome, Reasons};
use cinnabar_text::{Failure, Table, show_size};
use serde::Serialize;
use std::fmt::Write;

/// A trace, a policy and a size: the contract of `--json`. Keys are only ever added.
#[derive(Debug, Serialize)]
struct Line<'a> {
    trace: &'a str,
    policy: &'static str,
    size_blocks: u32,
    references: u64,
    misses: u64,
    read_references: u64,
    read_misses: u64,
    /// Blocks of 4 KiB, metadata of the engine included.
    flash_writes: u64,
    writes: &'static str,
    /// Requests were given to the engine by sectors.
    exact: bool,
    capacity_blocks: u64,
    backend_writes: u64,
    dirty_blocks: u64,
    footprint_blocks: u32,
    volumes: u32,
    /// What became of the blocks, by reason; of the engine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasons: Option<Reasons>,
}

impl<'a> Line<'a> {
    fn new(simulated: &'a Simulated, outcome: &Outcome) -> Self {
        let (counts, survey) = (outcome.counts, simulated.found.survey);
        Self {
            trace: &simulated.trace,
            policy: outcome.run.contender.name(),
            size_blocks: outcome.run.size_blocks.get(),
            references: counts.references,
            misses: counts.misses,
            read_references: counts.read_references,
            read_misses: counts.read_misses,
            flash_writes: counts.flash_writes,
            writes: simulated.writes.name(),
            exact: simulated.exact,
            capacity_blocks: outcome.capacity_blocks,
            backend_writes: counts.backend_writes,
            dirty_blocks: counts.dirty,
            footprint_blocks: survey.blocks,
            volumes: survey.volumes,
            reasons: outcome.reasons,
        }
    }
}

/// An object a line.
///
/// # Errors
/// When JSON cannot hold it; no value of a report is such.
pub fn lines(simulated: &Simulated) -> Result<String, Failure> {
    let mut text = String::new();
    for outcome in &simulated.found.outcomes {
        let line = serde_json::to_string(&Line::new(simulated, outcome))
            .map_err(|error| Failure::at_run_time(error.to_string(), ""))?;
        text = text + &line + "\n";
    }
    Ok(text)
}

/// Misses as a part of what is waited for: all references if writes are as reads, else the reads.
pub(crate) fn miss_ratio(counts: &Counts) -> Option<f64> {
    let of = counts.read_references;
    (of > 0).then(|| counts.read_misses as f64 / of as f64)
}

pub(crate) const fn ratio_name(writes: Writes) -> &'static str {
    match writes {
        Writes::AsReads => "miss ratio",
        Writes::Through | Writes::Around | Writes::Back => "read miss ratio",
    }
}

fn about(simulated: &Simulated) -> String {
    let survey = simulated.found.survey;
    format!(
        "{} references to 4 KiB blocks, {} % reads; {} different blocks ({}); {} volume{}; writes {}{}",
        survey.references,
        survey.read_references * 100 / survey.references.max(1),
        survey.blocks,
        show_size(u64::from(survey.blocks) * 4096),
        survey.volumes,
        if survey.volumes == 1 { "" } else { "s" },
        simulated.writes,
        if simulated.exact { ", by sectors" } else { "" },
    )
}

/// Tables for people: a row a size, a column a policy.
pub fn render(simulated: &Simulated, room: Option<usize>) -> String {
    let mut text = format!("{}\n{}\n\n", simulated.trace, about(simulated));
    let ratio = |outcome: &Outcome| {
        miss_ratio(&outcome.counts).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}"))
    };
    let flash = |outcome: &Outcome| outcome.counts.flash_writes.to_string();
    let backend = |outcome: &Outcome| outcome.counts.backend_writes.to_string();
    let mut part = |title: &str, cell: &dyn Fn(&Outcome) -> String| {
        writeln!(text, "{title}\n{}", matrix(simulated, cell).render(room))
            .expect("a string takes everything");
    };
    part(ratio_name(simulated.writes), &ratio);
    part("flash writes, in 4 KiB blocks", &flash);
    if simulated.writes == Writes::Back {
        part("writes to the back end, in 4 KiB blocks", &backend);
    }
    if let Some(table) = reasons(simulated) {
        writeln!(text, "engine, blocks by reason\n{}", table.render(room))
            .expect("a string takes everything");
    }
    text
}

/// What the engine kept and refused, a row a size.
fn reasons(simulated: &Simulated) -> Option<Table> {
    let header = [
        "SIZE",
        "ROOM",
        "USED",
        "RETURNED",
        "REINSERTED",
        "UNUSED",
        "USELESS WRITE",
        "PARTIAL",
        "EVICTED",
        "MISSED AGAIN",
    ];
    let mut table = Table::new(1, &header);
    let mut rows = 0;
    for outcome in &simulated.found.outcomes {
        let Some(found) = outcome.reasons else { continue };
        let size = show_size(u64::from(outcome.run.size_blocks.get()) * 4096);
        let counts = [
            found.kept_room,
            found.kept_used,
            found.kept_returned,
            found.reinserted,
            found.refused_unused,
            found.refused_written,
            found.refused_partial,
            found.evicted,
            found.missed_again,
        ];
        table.push(std::iter::once(size).chain(counts.map(|count| count.to_string())).collect());
        rows += 1;
    }
    (rows > 0).then_some(table)
}

fn matrix(simulated: &Simulated, cell: &dyn Fn(&Outcome) -> String) -> Table {
    let contenders = simulated.contenders();
    let mut header = vec!["SIZE".to_owned(), "BLOCKS".to_owned()];
    header.extend(contenders.iter().map(|one| one.name().to_uppercase()));
    let mut table = Table::new(1, &header);
    for (size, outcomes) in simulated.by_size(&contenders) {
        let mut row = vec![show_size(u64::from(size) * 4096), size.to_string()];
        row.extend(outcomes.into_iter().map(|one| one.map_or_else(|| "-".to_owned(), cell)));
        table.push(row);
    }
    table
}
