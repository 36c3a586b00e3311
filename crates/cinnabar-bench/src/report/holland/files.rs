//! The files of the figures: drawings, numbers, the page.

use super::PAGE;
use super::found::{Found, FoundFigure};
use super::page::{drawing, of};
use crate::report::page::{Page, PageError, save};
use cinnabar_study::holland::{Experiment, Figure};
use cinnabar_text::Failure;
use std::fs;
use std::path::Path;

/// Name of the file with the other model's values.
const TARGETS: &str = "targets.csv";

/// Makes the folder, and finds out now whether files can be made in it: the runs take minutes.
///
/// # Errors
/// Names the path that cannot be written.
pub fn prepare(out: &Path) -> Result<(), Failure> {
    let wrong = |error: &std::io::Error| {
        let message = format!("--out {}: {error}", out.display());
        Failure::of_usage(message, "name a folder that you may write to, or one to be made")
    };
    fs::create_dir_all(out).map_err(|error| wrong(&error))?;
    tempfile::tempfile_in(out).map(drop).map_err(|error| wrong(&error))
}

/// Writes everything: a figure each, the targets, the page.
///
/// # Errors
/// Names the path that cannot be written.
pub fn write(chosen: &[Experiment], found: &Found, out: &Path) -> Result<(), Failure> {
    for (experiment, found) in chosen.iter().zip(&found.experiments) {
        for (drawn, found) in experiment.figures.iter().zip(&found.figures) {
            figure(out, drawn, found)?;
        }
    }
    targets(out, found)?;
    page(out, &of(chosen, found))
}

fn figure(out: &Path, figure: &Figure, found: &FoundFigure) -> Result<(), Failure> {
    let file = |extension| out.join(format!("{}.{extension}", figure.slug));
    written(save(&file("svg"), &drawing(figure, found).svg(None).unwrap_or_default()))?;
    written(save(&file("csv"), &numbers(found)))
}

/// Writes what the other model found, and we.
fn targets(out: &Path, found: &Found) -> Result<(), Failure> {
    let mut text =
        row(&["experiment", "what", "quantity", "low", "high", "measured", "difference", "within"]);
    for (experiment, target) in found.targets() {
        text += &row(&[
            experiment.name,
            &target.what,
            target.quantity,
            &target.low.to_string(),
            &target.high.to_string(),
            &target.measured.to_string(),
            &target.difference.to_string(),
            &target.within.to_string(),
        ]);
    }
    written(save(&out.join(TARGETS), &text))
}

fn page(out: &Path, page: &Page) -> Result<(), Failure> {
    written(page.save(&out.join(PAGE)))
}

fn written(result: Result<(), PageError>) -> Result<(), Failure> {
    result.map_err(|error| Failure::at_run_time(format!("{error}: {}", error.source), error.hint()))
}

fn numbers(found: &FoundFigure) -> String {
    let mut text = row(&[
        "line",
        found.across,
        "read_latency_us",
        "read_p99_us",
        "write_latency_us",
        "write_p99_us",
        "ram_share",
        "flash_share",
        "miss_share",
        "invalidation_share",
        "ios_per_second",
        "filer_writes_per_write",
    ]);
    for line in &found.lines {
        for point in &line.points {
            let numbers = [
                point.read_latency_us,
                point.read_p99_us,
                point.write_latency_us,
                point.write_p99_us,
                point.ram_share,
                point.flash_share,
                point.miss_share,
                point.invalidation_share,
                point.ios_per_second,
                point.filer_writes_per_write,
            ];
            let numbers = numbers.map(|number| number.to_string());
            let mut cells = vec![line.name.as_str(), &point.at];
            cells.extend(numbers.iter().map(String::as_str));
            text += &row(&cells);
        }
    }
    text
}

/// A line of CSV (RFC 4180, but with the line ends of this system).
fn row(cells: &[&str]) -> String {
    let cell = |cell: &&str| {
        if cell.contains([',', '"', '\n']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            (*cell).to_owned()
        }
    };
    cells.iter().map(cell).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted() {
        assert_eq!(
            row(&["back (p1, n)", "a \"b\"", "60 GB"]),
            "\"back (p1, n)\",\"a \"\"b\"\"\",60 GB\n"
        );
    }
}
