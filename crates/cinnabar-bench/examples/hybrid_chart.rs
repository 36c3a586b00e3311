//! Draws the first table of `cargo xtask bench hybrid`: throughput and share of SSD over Zipf's laws.
//!
//! Arguments: a file with the points, and the files of the two charts. A line of the first one: law, side,
//! throughput and extents on SSD, both in parts of one, with tabulators between them.

use cinnabar_bench::report::page::{Axis, Lines, Part, Style};
use cinnabar_text::Unit;
use std::error::Error;

/// What the authors' slides say of the share of SSD.
const SLIDES: [(f64, f64); 5] =
    [(1.25, 0.075), (1.5, 0.065), (1.75, 0.037), (2.0, 0.025), (2.25, 0.018)];

/// Law, throughput, share.
type Point = (f64, f64, f64);

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let [points, throughput, share] = &files[..] else {
        return Err("three files are asked for".into());
    };
    let text = std::fs::read_to_string(points)?;
    let sides = sides(&text).ok_or("a line is no law, side, throughput and share")?;
    let law = || Axis::linear("theta", Unit::Count);
    let mut of_all = Lines::new(
        "Writes of 4 KiB a second, of all-SSD's",
        law(),
        Axis::linear("of all-SSD", Unit::Ratio).between(0.0, 1.5),
    );
    let mut on_ssd = Lines::new("Extents on SSD", law(), Axis::log("of the volume", Unit::Ratio));
    for (name, points) in &sides {
        let line = |of: fn(&Point) -> (f64, f64)| points.iter().map(of).collect::<Vec<_>>();
        of_all = of_all.series(name, Style::Line, line(|of| (of.0, of.1)));
        on_ssd = on_ssd.series(name, Style::Line, line(|of| (of.0, of.2)));
    }
    on_ssd = on_ssd.series("the slides", Style::Dashed, SLIDES);
    for (file, chart) in [(throughput, of_all), (share, on_ssd)] {
        std::fs::write(file, Part::Lines(chart).svg(None).unwrap_or_default())?;
    }
    Ok(())
}

/// The points of each side, in the order in which sides come first.
fn sides(text: &str) -> Option<Vec<(String, Vec<Point>)>> {
    let mut sides: Vec<(String, Vec<Point>)> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [law, side, throughput, share] = fields[..] else { return None };
        let point = (law.parse().ok()?, throughput.parse().ok()?, share.parse().ok()?);
        match sides.iter_mut().find(|(name, _)| name == side) {
            Some((_, points)) => points.push(point),
            None => sides.push((side.to_owned(), vec![point])),
        }
    }
    Some(sides)
}
