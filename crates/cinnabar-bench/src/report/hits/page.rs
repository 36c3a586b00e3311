//! What was found, as a page with curves.

use super::Simulated;
use super::show::{miss_ratio, ratio_name};
use crate::report::page::{Axis, Lines, Page, Section, Style};
use cinnabar_policy::Policy;
use cinnabar_study::hits::{Contender, Outcome};
use cinnabar_text::{Table, Unit};

const BLOCK_BYTES: f64 = 4096.0;

/// A section for each trace.
pub fn page(all: &[Simulated]) -> Page {
    let traces: Vec<&str> = all.iter().map(|one| one.trace.as_str()).collect();
    let page = Page::new("Caches of many sizes", traces.join(", "));
    all.iter().fold(page, |page, one| page.section(section(one)))
}

fn section(simulated: &Simulated) -> Section {
    let ratio = |outcome: &Outcome| miss_ratio(&outcome.counts).unwrap_or(f64::NAN);
    let flash = |outcome: &Outcome| outcome.counts.flash_writes as f64 * BLOCK_BYTES;
    let name = ratio_name(simulated.writes);
    let misses = Axis::linear(name, Unit::Ratio).between(0.0, 1.0);
    let written = Axis::linear("written to flash", Unit::Bytes);
    Section::new(&simulated.trace)
        .text(about(simulated))
        .chart(chart(simulated, "What misses, by size of the cache", misses, &ratio))
        .chart(chart(simulated, "What is written to flash", written, &flash))
        .text(
            "A curve that falls steeply says how large a cache has to be; where it is flat, more \
             cache brings nothing. Belady is the bound for caches that take in every miss.",
        )
        .table(table(simulated, "What misses", &|one| Unit::Ratio.show(ratio(one))))
        .table(table(simulated, "What is written to flash", &|one| Unit::Bytes.show(flash(one))))
}

fn about(simulated: &Simulated) -> String {
    let survey = simulated.found.survey;
    let reads = survey.read_references as f64 / survey.references.max(1) as f64;
    format!(
        "{} references to 4 KiB blocks, {} reads; {} different blocks ({}); volumes: {}; writes {}{}",
        Unit::Count.show(survey.references as f64),
        Unit::Ratio.show(reads),
        Unit::Count.show(f64::from(survey.blocks)),
        Unit::Bytes.show(f64::from(survey.blocks) * BLOCK_BYTES),
        survey.volumes,
        simulated.writes,
        if simulated.exact { ", by sectors" } else { "" },
    )
}

fn chart(simulated: &Simulated, title: &str, y: Axis, value: &dyn Fn(&Outcome) -> f64) -> Lines {
    let x = Axis::log("size of the cache", Unit::Bytes);
    simulated.contenders().into_iter().fold(Lines::new(title, x, y), |chart, contender| {
        let of = simulated.found.outcomes.iter().filter(|one| one.run.contender == contender);
        let mut points: Vec<(f64, f64)> = of
            .map(|one| (f64::from(one.run.size_blocks.get()) * BLOCK_BYTES, value(one)))
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let bound = contender == Contender::Policy(Policy::Belady);
        let style = if bound { Style::Dashed } else { Style::Line };
        chart.series(contender.name(), style, points)
    })
}

/// A row a size, a column a policy.
fn table(simulated: &Simulated, title: &str, cell: &dyn Fn(&Outcome) -> String) -> Table {
    let contenders = simulated.contenders();
    let names = contenders.iter().map(|one| one.name());
    let header: Vec<&str> = std::iter::once("size").chain(names).collect();
    let rows = simulated.by_size(&contenders).into_iter();
    rows.fold(Table::new(1, &header).caption(title), |table, (size, outcomes)| {
        let name = Unit::Bytes.show(f64::from(size) * BLOCK_BYTES);
        let cells = outcomes.into_iter().map(|one| one.map_or_else(|| "-".to_owned(), cell));
        table.row(std::iter::once(name).chain(cells))
    })
}
