//! The experiments as one page with charts.

use super::found::{Found, FoundExperiment, FoundFigure};
use super::show::{WHY, holds, result};
use crate::report::page::{Axis, Groups, Lines, Page, Part, Section, Style};
use cinnabar_study::holland::{Across, Experiment, Figure, Quantity};
use cinnabar_text::{Table, Unit};

pub(crate) fn of(chosen: &[Experiment], found: &Found) -> Page {
    let subtitle = format!(
        "Holland, Angelino, Wald, Seltzer (USENIX ATC 2013), simulated again: sizes divided by {}, \
         seed {}; {} runs, {:.0} M block I/Os; digest {}",
        found.scale,
        found.seed,
        found.configurations,
        found.block_ios as f64 / 1e6,
        found.digest
    );
    let page = Page::new("Flash caching on the storage client", subtitle).section(summary(found));
    let both = chosen.iter().zip(&found.experiments);
    both.fold(page, |page, (experiment, found)| page.section(section(experiment, found)))
}

fn summary(found: &Found) -> Section {
    let mut table = Table::new(3, &["result", "", "holds", "values of an independent model met"]);
    for experiment in &found.experiments {
        let met = experiment.targets.iter().filter(|target| target.within).count();
        let held = match experiment.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        table = table.row([
            result(experiment),
            experiment.title.to_owned(),
            held.to_owned(),
            match experiment.targets.len() {
                0 => "-".to_owned(),
                all => format!("{met} of {all}"),
            },
        ]);
    }
    Section::new("What holds").table(table)
}

fn section(experiment: &Experiment, found: &FoundExperiment) -> Section {
    let number = found.claim.map_or(String::new(), |claim| format!("Result {claim}: "));
    let mut section = Section::new(format!("{number}{}", found.title))
        .text(format!("Published: {}", found.published));
    if !found.checks.is_empty() {
        section = section.table(checks(found));
    }
    for (figure, found) in experiment.figures.iter().zip(&found.figures) {
        section = section.part(drawing(figure, found));
    }
    if found.targets.is_empty() {
        return section;
    }
    section = section.table(targets(found));
    if found.targets.iter().all(|target| target.within) { section } else { section.text(WHY) }
}

fn checks(found: &FoundExperiment) -> Table {
    let mut table = Table::new(1, &["check", "measured", "claimed", ""]);
    for check in &found.checks {
        table = table.row([
            check.what.clone(),
            check.shown(),
            check.bound_shown(),
            holds(check).to_owned(),
        ]);
    }
    table
}

fn targets(found: &FoundExperiment) -> Table {
    let met = found.targets.iter().filter(|target| target.within).count();
    let caption =
        format!("Beside an independent model: {met} of {} values met", found.targets.len());
    let header = ["value", "", "of", "derived", "measured", "beyond"];
    let mut table = Table::new(3, &header).caption(caption);
    for target in &found.targets {
        let [derived, measured, difference] = target.shown();
        let mark = if target.within { "" } else { "DIFFERS" };
        let quantity = target.quantity.trim_end_matches("_us").replace('_', " ");
        table = table.row([
            target.what.clone(),
            mark.to_owned(),
            quantity,
            derived,
            measured,
            difference,
        ]);
    }
    table
}

pub(crate) fn drawing(figure: &Figure, found: &FoundFigure) -> Part {
    let upwards = unit(figure.quantity);
    if matches!(figure.across, Across::Names(_)) {
        return Part::Bars(bars(figure, found, upwards));
    }
    let y = Axis::linear(figure.quantity.label(), upwards);
    let mut chart = Lines::new(figure.title.clone(), across(figure.across), y);
    for (line, found) in figure.lines.iter().zip(&found.lines) {
        let values = found.points.iter().map(|point| point.value);
        let places = line.points.iter().map(|point| place(figure.across, point.x));
        let points: Vec<_> = places.zip(values).collect();
        chart = chart.series(line.name.clone(), Style::Line, points);
    }
    Part::Lines(chart)
}

fn bars(figure: &Figure, found: &FoundFigure, unit: Unit) -> Groups {
    let names: Vec<_> = found.lines.iter().map(|line| line.name.as_str()).collect();
    let mut bars = Groups::new(figure.title.clone(), figure.across.label(), unit, &names);
    let labels = found.lines.first().map_or(&[][..], |line| &line.points);
    for (place, label) in labels.iter().enumerate() {
        let values: Vec<_> = found.lines.iter().map(|line| line.points[place].value).collect();
        bars = bars.group(label.at.clone(), values);
    }
    bars
}

fn unit(quantity: Quantity) -> Unit {
    match quantity {
        Quantity::ReadLatency | Quantity::WriteLatency => Unit::Micros,
        Quantity::Rate | Quantity::FilerWrites => Unit::Count,
        Quantity::Invalidations | Quantity::RamHits | Quantity::FlashHits | Quantity::Misses => {
            Unit::Ratio
        }
    }
}

fn across(across: Across) -> Axis {
    let label = across.label();
    match across {
        Across::Bytes(_) => Axis::log(label, Unit::Bytes),
        Across::Share(_) => Axis::linear(label, Unit::Ratio).between(0.0, 1.0),
        Across::Nanos(_) => Axis::linear(label, Unit::Micros),
        Across::Count(_) | Across::Names(_) => Axis::linear(label, Unit::Count),
    }
}

fn place(across: Across, x: f64) -> f64 {
    if matches!(across, Across::Nanos(_)) { x / 1e3 } else { x }
}
