//! What a sweep found, as a page with charts over its axes.
//!
//! The axis with the most numbers lies from left to right, the other ones tell the lines apart;
//! without numbers there are bars.

use super::outcome::PointStats;
use super::recommend::Recommended;
use super::show::{axes_cells, axes_header};
use super::{Found, Sweep};
use crate::report::page::{Axis, Groups, Lines, Page, Scale, Section, Style};
use cinnabar_study::timed_plan::keys::{Key, Measure};
use cinnabar_text::{Table, Unit};

/// Lines of a chart; more can't be told apart.
const LINES_MAX: usize = 16;
/// Ratio of the largest value to the smallest from which on an axis is logarithmic.
const LOG_FROM: f64 = 50.0;

type Value = fn(&PointStats) -> f64;

const CHARTS: &[(&str, &str, Unit, Value)] = &[
    ("Mean read latency", "a read", Unit::Micros, |told| told.reads.mean_us),
    ("Mean write latency", "a write", Unit::Micros, |told| told.writes.mean_us),
    ("Blocks read from flash or RAM", "of the blocks read", Unit::Ratio, |told| {
        told.ram_share + told.flash_share
    }),
    ("Blocks that the file server reads", "blocks", Unit::Count, |told| told.filer_reads as f64),
    ("Blocks that the file server writes", "blocks", Unit::Count, |told| told.filer_writes as f64),
];

/// The report.
pub fn page(sweep: &Sweep, recommended: Option<&Recommended>) -> Page {
    let title = sweep.plan.title.as_deref().unwrap_or("A timed simulation");
    let mut page = Page::new(title, subtitle(sweep));
    if let Some(recommended) = recommended {
        page = page.section(advice(recommended));
    }
    if sweep.found.len() > 1 {
        page = page.section(charts(sweep));
    }
    page.section(points(sweep)).section(settings(sweep))
}

fn advice(recommended: &Recommended) -> Section {
    let Recommended { point, mean_us, price, best, best_mean_us, best_price, .. } = recommended;
    let (time, number) = (|us: f64| Unit::Micros.show(us), |price: f64| Unit::Count.show(price));
    let slower = Unit::Ratio.show(mean_us / best_mean_us.max(1e-9) - 1.0);
    let mut table = Table::new(1, &["what more money buys", "price", "mean"]);
    for step in &recommended.steps {
        table = table.row([step.point.clone(), number(step.price), time(step.mean_us)]);
    }
    Section::new("Recommended")
        .text(format!("{point}: {} a request at a price of {}.", time(*mean_us), number(*price)))
        .text(format!(
            "The best is {best}: {} at {}. The recommended one is {slower} slower; it is the cheapest \
             within {} % of the best.",
            time(*best_mean_us),
            number(*best_price),
            recommended.within_percent
        ))
        .text(format!(
            "Prices in GiB of flash, RAM at {} times that.",
            recommended.ram_price
        ))
        .table(table)
}

fn subtitle(sweep: &Sweep) -> String {
    let plan = sweep.plan.file.display();
    match &sweep.plan.trace {
        Some(trace) => format!("{plan}, requests of {}", trace.path.display()),
        None => plan.to_string(),
    }
}

fn charts(sweep: &Sweep) -> Section {
    let across = across(sweep);
    let mut section = Section::new("Over the axes");
    let shares = sweep
        .found
        .iter()
        .any(|found| found.result.as_ref().is_ok_and(|told| told.invalidation_share > 0.0));
    let invalidations: (&str, &str, Unit, Value) = (
        "Writes of blocks that another host had cached",
        "of the blocks written",
        Unit::Ratio,
        |told| told.invalidation_share,
    );
    for chart in CHARTS.iter().chain(shares.then_some(&invalidations)) {
        section = match &across {
            Some(across) => section.chart(lines(sweep, across, chart)),
            None => section.bars(bars(sweep, chart)),
        };
    }
    let lines = across.as_ref().map_or(0, |across| series(sweep, across).len());
    if lines > LINES_MAX {
        let text = format!("Of {lines} lines the first {LINES_MAX} are drawn; the table has all.");
        section = section.text(text);
    }
    section
}

/// The key that lies from left to right.
struct Across {
    key: &'static Key,
    /// Its place among the varied ones.
    place: usize,
    measure: Measure,
}

fn across(sweep: &Sweep) -> Option<Across> {
    let varied = sweep.plan.varied();
    let count = |place: usize| {
        let values: std::collections::BTreeSet<&String> =
            sweep.found.iter().filter_map(|found| found.point.values.get(place)).collect();
        values.len()
    };
    let of = |(place, key): (usize, &&'static Key)| {
        let (_, measure) = key.number(&sweep.plan.base)?;
        Some(Across { key, place, measure })
    };
    // Of equals the first.
    let mut found: Option<Across> = None;
    for one in varied.iter().enumerate().filter_map(of).filter(|one| count(one.place) > 1) {
        if found.as_ref().is_none_or(|best| count(one.place) > count(best.place)) {
            found = Some(one);
        }
    }
    found
}

/// The lines: what tells them apart, and their points. What has a name (a policy, an architecture) is
/// one and the same all along a line.
fn series<'a>(sweep: &'a Sweep, across: &Across) -> Vec<(String, Vec<&'a Found>)> {
    let step = in_step(sweep, across);
    let few = lines_without(sweep, across, &step);
    let place = |found: &Found| across.key.number(&found.point.config).map(|(at, _)| at.to_bits());
    let is_one_each = few.iter().all(|(_, points)| {
        let places: std::collections::BTreeSet<_> = points.iter().map(|one| place(one)).collect();
        places.len() == points.len()
    });
    // Numbers that change with the one across need no line each, unless one place had two points.
    if is_one_each { few } else { lines_without(sweep, across, &[]) }
}

fn lines_without<'a>(
    sweep: &'a Sweep,
    across: &Across,
    without: &[&str],
) -> Vec<(String, Vec<&'a Found>)> {
    let varied = sweep.plan.varied();
    let name = |found: &Found| {
        let others = varied
            .iter()
            .zip(&found.point.values)
            .filter(|(key, _)| key.name != across.key.name && !without.contains(&key.name));
        others.map(|(key, value)| format!("{} {value}", key.name)).collect::<Vec<_>>().join(", ")
    };
    let mut series: Vec<(String, Vec<&Found>)> = Vec::new();
    for found in &sweep.found {
        let name = name(found);
        match series.iter_mut().find(|(other, _)| *other == name) {
            Some((_, points)) => points.push(found),
            None => series.push((name, vec![found])),
        }
    }
    series
}

/// Numbers that change with the one across.
fn in_step(sweep: &Sweep, across: &Across) -> Vec<&'static str> {
    let with = |axis: &&cinnabar_study::timed_plan::Axis| {
        axis.keys.iter().any(|key| key.name == across.key.name)
    };
    let keys = sweep.plan.axes.iter().find(with).map_or(&[][..], |axis| &axis.keys);
    let numbers = keys.iter().filter(|key| key.number(&sweep.plan.base).is_some());
    numbers.map(|key| key.name).collect()
}

fn lines(sweep: &Sweep, across: &Across, chart: &(&str, &str, Unit, Value)) -> Lines {
    let (title, label, unit, value) = *chart;
    let number = |found: &Found| across.key.number(&found.point.config).map(|(number, _)| number);
    let numbers = || sweep.found.iter().filter_map(number);
    let largest = numbers().fold(f64::MIN, f64::max);
    let smallest = numbers().fold(f64::MAX, f64::min);
    let scale =
        if smallest > 0.0 && largest / smallest >= LOG_FROM { Scale::Log } else { Scale::Linear };
    let x_unit = match across.measure {
        Measure::Bytes => Unit::Bytes,
        Measure::Micros => Unit::Micros,
        Measure::Share => Unit::Ratio,
        Measure::Number => Unit::Count,
    };
    let x = Axis { scale, ..Axis::linear(across.key.name, x_unit) };
    let empty = Lines::new(title, x, Axis::linear(label, unit));
    series(sweep, across).into_iter().take(LINES_MAX).fold(empty, |chart, (name, points)| {
        let place = |found: &&Found| Some((number(found)?, value(found.result.as_ref().ok()?)));
        let mut points: Vec<(f64, f64)> = points.iter().filter_map(place).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        chart.series(name, Style::Line, points)
    })
}

fn bars(sweep: &Sweep, chart: &(&str, &str, Unit, Value)) -> Groups {
    let (title, label, unit, value) = *chart;
    let empty = Groups::new(format!("{title} ({label})"), "point", unit, &[label]);
    sweep.found.iter().fold(empty, |bars, found| {
        let height = found.result.as_ref().map_or(f64::NAN, value);
        bars.group(&found.point.name, vec![height])
    })
}

/// Names of the columns behind those of the axes.
const HEADER: &[&str] = &[
    "read",
    "read p99",
    "write",
    "write p99",
    "RAM",
    "flash",
    "missed",
    "filer reads",
    "filer writes",
];

fn points(sweep: &Sweep) -> Section {
    let header: Vec<String> = axes_header(sweep).iter().map(|name| name.to_lowercase()).collect();
    let all: Vec<&str> = header.iter().map(String::as_str).chain(HEADER.iter().copied()).collect();
    let table = sweep.found.iter().fold(Table::new(header.len(), &all), |table, found| {
        table.row([axes_cells(found), cells(found)].concat())
    });
    Section::new("Points").table(table).text(
        "Latencies are those of whole requests, in virtual time. Shares are of the blocks read; \
         what the file server reads and writes is counted in blocks of 4 KiB. \
         The warm-up is left out.",
    )
}

fn cells(found: &Found) -> Vec<String> {
    let Ok(told) = &found.result else {
        let mut cells = vec!["-".to_owned(); HEADER.len()];
        "failed".clone_into(&mut cells[0]);
        return cells;
    };
    let times = [told.reads.mean_us, told.reads.p99_us, told.writes.mean_us, told.writes.p99_us];
    let shares = [told.ram_share, told.flash_share, told.miss_share];
    let counts = [told.filer_reads, told.filer_writes];
    let cells = times.into_iter().map(|us| Unit::Micros.show(us));
    let cells = cells.chain(shares.into_iter().map(|share| Unit::Ratio.show(share)));
    cells.chain(counts.into_iter().map(|count| Unit::Count.show(count as f64))).collect()
}

fn settings(sweep: &Sweep) -> Section {
    let varied: Vec<&str> = sweep.plan.varied().iter().map(|key| key.name).collect();
    let fixed = sweep.plan.keys().filter(|key| !varied.contains(&key.name));
    let table = fixed.fold(Table::new(2, &["key", "value"]), |table, key| {
        table.row([key.name.to_owned(), key.show(&sweep.plan.base)])
    });
    Section::new("Settings").table(table.caption("What all points have in common"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_study::timed_plan;

    fn sweep(axes: &str) -> Sweep {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, axes).expect("there is room");
        let plan = timed_plan::load(&path, &[]).expect("it is a plan");
        let told = |point| Found { point, result: Ok(PointStats::default()) };
        let found = plan.points().into_iter().map(told).collect();
        Sweep { plan, survey: None, model: String::new(), found }
    }

    const POLICIES: &str = "
        [[axis]]
        key = \"ram.size\"
        values = [\"4GiB\", \"8GiB\"]
        [[axis]]
        keys = [\"flash.size\", \"ram.policy\", \"flash.policy\"]
        values = [
            [\"0\", \"s\", \"-\"], [\"32GiB\", \"s\", \"s\"], [\"32GiB\", \"s\", \"a\"],
            [\"64GiB\", \"s\", \"s\"], [\"64GiB\", \"s\", \"a\"], [\"64GiB\", \"p1\", \"a\"],
        ]";

    #[test]
    fn a_line_never_joins_points_of_different_policies() {
        let sweep = sweep(POLICIES);
        let across = across(&sweep).expect("there are numbers");
        assert_eq!(across.key.name, "flash.size");
        let lines = series(&sweep, &across);
        let values = |found: &Found| found.point.values.clone();
        for (name, points) in &lines {
            // RAM size and both policies: all but the flash size.
            let told: Vec<String> = values(points[0]);
            let same = |found: &&&Found| [0, 2, 3].iter().all(|at| values(found)[*at] == told[*at]);
            assert_eq!(points.iter().filter(same).count(), points.len(), "{name}");
        }
        assert_eq!(lines.len(), 2 * 4, "s -, s s, s a, p1 a with each RAM size");
        let html = page(&sweep, None).to_html();
        let longest = html.split("data-series=").skip(1).count();
        assert!(longest > 0, "lines are drawn");
    }

    #[test]
    fn results_have_three_digits_at_most() {
        let mut sweep = sweep(POLICIES);
        for (found, place) in sweep.found.iter_mut().zip(1_u32..) {
            let told = found.result.as_mut().unwrap_or_else(|_| panic!("it was told"));
            let by = f64::from(place) * 1.234_567;
            (told.reads.mean_us, told.reads.p99_us) = (999.4 * by, 123_456.7 * by);
            (told.writes.mean_us, told.writes.p99_us) = (0.123_456 * by, 1e7 * by);
            (told.ram_share, told.flash_share) = (by / 20.0, 0.000_012_3 * by);
            (told.filer_reads, told.filer_writes) = (123_456_789 * u64::from(place), 1023);
        }
        let html = page(&sweep, None).to_html();
        let cells = html.split("<td class=\"number\"").skip(1);
        let drawn = html.split("<text").skip(1);
        let mut count = 0;
        for piece in cells.chain(drawn) {
            let text = piece.split_once('>').and_then(|(_, rest)| rest.split('<').next());
            let text = text.expect("tags end").trim();
            // Labels have names in them, too: only what is a number as a whole.
            let number =
                text.split(' ').next().unwrap_or_default().trim_end_matches(['k', 'M', 'G']);
            if number.parse::<f64>().is_ok() {
                let digits = number.trim_start_matches(['-', '0', '.']).replace('.', "");
                assert!(digits.len() <= 3, "{text}");
                count += 1;
            }
        }
        assert!(count > 100, "{count} numbers");
    }

    #[test]
    fn numbers_in_step_make_one_line() {
        let axis = |values: &str| {
            sweep(&format!("[[axis]]\nkeys = [\"flash.size\", \"ram.size\"]\nvalues = [{values}]"))
        };
        let plain = axis("[\"32GiB\", \"4GiB\"], [\"64GiB\", \"8GiB\"]");
        let across_plain = across(&plain).expect("there are numbers");
        assert_eq!(series(&plain, &across_plain).len(), 1);
        let twice = axis("[\"32GiB\", \"4GiB\"], [\"64GiB\", \"4GiB\"], [\"64GiB\", \"8GiB\"]");
        let across_twice = across(&twice).expect("there are numbers");
        assert_eq!(series(&twice, &across_twice).len(), 2, "64 GiB is on two lines");
    }
}
