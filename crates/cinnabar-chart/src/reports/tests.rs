//! What is true of every chart, whatever its data: it is drawn, well-formed, and nothing is cut off
//! or lies on something else.

use super::paint::{FONT, WIDTH};
use super::*;
use crate::Scale;
use crate::text::width;
use crate::well_formed::{HOSTILE, assert_well_formed};

/// A text in the drawing that is not turned, and its box; it is one line high.
#[derive(Debug)]
struct Label {
    text: String,
    left: f64,
    right: f64,
    top: f64,
}

fn labels(svg: &str) -> Vec<Label> {
    let attribute = |tag: &str, name: &str| {
        let value = tag.split_once(&format!(" {name}=\"")).expect("it has it").1;
        value.split('"').next().unwrap_or_default().to_owned()
    };
    let mut found = Vec::new();
    for part in svg.split("<text").skip(1).filter(|part| !part.contains("rotate(")) {
        let (tag, rest) = part.split_once('>').expect("tags end");
        let text = rest.split('<').next().unwrap_or_default().trim();
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
        let text = text.replace("&apos;", "'").replace("&amp;", "&");
        let number = |name| attribute(tag, name).parse::<f64>().expect("a number");
        let (x, wide) = (number("x"), width(&text, number("font-size")));
        let left = match attribute(tag, "text-anchor").as_str() {
            "start" => x,
            "middle" => x - wide / 2.0,
            _ => x - wide,
        };
        let above = match attribute(tag, "dy").as_str() {
            "0.76em" => 0.0,
            "0.5ex" => 0.5,
            _ => 1.0,
        };
        let top = number("y") - above * number("font-size");
        found.push(Label { text, left, right: left + wide, top });
    }
    found
}

/// Draws it twice and looks for what must never be.
fn checked(draw: impl Fn() -> String) -> String {
    let svg = draw();
    assert_eq!(svg, draw(), "the same data, the same bytes");
    assert_well_formed(&svg);
    assert!(!svg.contains("NaN") && !svg.contains("inf,"), "{svg}");
    assert!(!svg.contains("#010203"), "a stand-in is left over: {svg}");
    let labels = labels(&svg);
    for (index, one) in labels.iter().enumerate() {
        let inside = one.left >= -1.0 && one.right <= f64::from(WIDTH) + 1.0;
        assert!(inside, "cut off: {one:?}");
        for other in &labels[index + 1..] {
            let apart = one.right <= other.left || other.right <= one.left;
            assert!(apart || (one.top - other.top).abs() >= FONT * 0.9, "{one:?} on {other:?}");
        }
    }
    svg
}

fn count_axis() -> Axis {
    Axis::linear("things", Unit::Count)
}

#[test]
fn any_values_make_a_chart() {
    let odd = [
        vec![],
        vec![(1.0, 1.0)],
        vec![(f64::NAN, 1.0), (1.0, f64::NAN)],
        vec![(f64::INFINITY, f64::NEG_INFINITY)],
        vec![(3.0, 7.0), (3.0, 7.0), (3.0, 7.0)],
        vec![(0.0, 0.0), (0.0, 0.0)],
        vec![(-1.0, -5.0), (-2.0, -7.0)],
        vec![(1e-300, -1e300), (1e300, 1e300)],
        vec![(f64::MIN, f64::MAX), (f64::MAX, f64::MIN)],
        vec![(f64::MIN_POSITIVE, 5e-324), (1.0, f64::EPSILON)],
        vec![(1e15, 1.0), (1e15 + 1.0, 1.0 + 1e-12)],
        vec![(1.0, 1.0), (2.0, f64::NAN), (3.0, 3.0), (4.0, f64::INFINITY), (5.0, 1.0)],
        (0..5000).map(|i| (f64::from(i), f64::from(i * i % 977))).collect(),
    ];
    for points in odd {
        for style in [Style::Line, Style::Steps, Style::Points, Style::Dashed] {
            for scale in [Scale::Linear, Scale::Log] {
                for bounds in [None, Some((0.5, 2.5)), Some((2.0, 1.0)), Some((f64::NAN, 1.0))] {
                    let axis = Axis { scale, bounds, ..count_axis() };
                    let chart = Chart::new("odd", axis.clone(), axis)
                        .series("values", style, points.clone())
                        .limit(f64::NAN, "never")
                        .event(f64::INFINITY, "never");
                    let svg = checked(|| chart.to_svg());
                    assert!(!svg.contains("never"));
                }
            }
        }
    }
}

/// Width of a drawing in pixels on a telephone: 390, less the edges of the page.
const NARROW: f64 = 358.0;

#[test]
fn text_can_be_read_on_a_telephone() {
    let chart = Chart::new("t", count_axis(), count_axis())
        .series("a", Style::Line, [(0.0, 1.0), (1.0, 2.0)])
        .limit(1.5, "limit")
        .limit(99.0, "far limit");
    let bars = Bars::new("t", "time", Unit::Micros, &["a", "b"]).group("g", [1000.0, 4000.0]);
    for svg in [chart.to_svg(), bars.to_svg()] {
        let sizes = svg.split("font-size=\"").skip(1).map(|rest| {
            rest.split('"').next().and_then(|size| size.parse::<f64>().ok()).expect("a number")
        });
        let sizes: Vec<f64> = sizes.map(|size| size * NARROW / f64::from(WIDTH)).collect();
        assert!(sizes.len() > 5 && sizes.iter().all(|size| *size >= 9.0), "{sizes:?}");
    }
    assert!(chart.to_svg().contains("(far limit: outside, above)"), "{}", chart.to_svg());
}

#[test]
fn any_values_make_bars() {
    let odd = [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, 1e300, f64::MAX, f64::MIN, 5e-324, 1e-9];
    for one in odd {
        for other in odd {
            let bars = Bars::new("odd", "things", Unit::Micros, &["a", "b"])
                .group("both", [one, other])
                .group("one", [one])
                .group("none", []);
            checked(|| bars.to_svg());
        }
    }
    checked(|| Bars::default().to_svg());
    let many = Group { label: "g".to_owned(), values: vec![1.0; 60] };
    let many = Bars { groups: vec![many; 1100], ..Bars::default() };
    assert_eq!(many.to_svg().matches("<rect").count(), 1000 * 50);
    checked(|| Bars::new("", "", Unit::Count, &["name"]).group("", [1.0, 2.0, 3.0]).to_svg());
}

#[test]
fn long_and_hostile_text_stays_inside() {
    let long = "a rather long name that goes on and on ".repeat(9);
    for text in [HOSTILE, &long, &"x".repeat(500), &"漢字".repeat(200)] {
        let mut chart =
            Chart::new(text, Axis::linear(text, Unit::Bytes), Axis::log(text, Unit::Micros));
        for _ in 0..9 {
            chart = chart.series(text, Style::Line, [(1.0, 1.0), (2.0, 9.0)]);
        }
        checked(|| chart.to_svg());
        checked(|| chart.clone().limit(5.0, text).to_svg());
        checked(|| {
            Bars::new(text, text, Unit::Count, &[text, text]).group(text, [1.0, -2.0]).to_svg()
        });
    }
}

#[test]
fn what_was_measured_is_where_it_belongs() {
    let axis = || count_axis().between(0.0, 10.0);
    let points = [(0.0, 0.0), (10.0, 10.0)];
    let svg = checked(|| Chart::new("t", axis(), axis()).series("s", Style::Line, points).to_svg());
    let polyline = svg.split("<polyline").filter(|part| part.contains("#0072B2")).last();
    let places = polyline.and_then(|part| part.split_once("points=\"")).expect("a line is drawn").1;
    let places: Vec<(i32, i32)> = places
        .split('"')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(|place| place.split_once(',').expect("two numbers"))
        .map(|(x, y)| (x.parse().expect("a number"), y.parse().expect("a number")))
        .collect();
    let ticks = labels(&svg);
    let tick =
        |text: &str| -> Vec<&Label> { ticks.iter().filter(|tick| tick.text == text).collect() };
    // Below the ticks 0 and 10 of the x axis, and level with those of the y axis.
    let middle = |label: &Label| f64::midpoint(label.left, label.right);
    let near = |a: f64, b: i32| (a - f64::from(b)).abs() <= 1.5;
    assert_eq!(places.len(), 2, "{places:?}");
    assert!(tick("0").iter().any(|tick| near(middle(tick), places[0].0)), "{ticks:?} {places:?}");
    assert!(
        tick("0").iter().any(|tick| near(tick.top + FONT / 2.0, places[0].1)),
        "{ticks:?} {places:?}"
    );
    assert!(tick("10").iter().any(|tick| near(middle(tick), places[1].0)), "{ticks:?} {places:?}");
    assert!(
        tick("10").iter().any(|tick| near(tick.top + FONT / 2.0, places[1].1)),
        "{ticks:?} {places:?}"
    );
}

/// A zero has no place on a logarithmic axis.
#[test]
fn a_point_that_is_not_drawn_does_not_stretch_the_other_axis() {
    let draw = |first: f64| {
        let points = [(0.0, first), (1.0, 2.0), (10.0, 3.0)];
        let axes = (Axis::log("", Unit::Count), count_axis());
        checked(|| {
            Chart::new("t", axes.0.clone(), axes.1.clone())
                .series("s", Style::Line, points)
                .to_svg()
        })
    };
    assert_eq!(draw(130.0), draw(3.0));
}

#[test]
fn styles_and_marks_can_be_told_apart() {
    let points = [(0.0, 1.0), (1.0, 2.0)];
    let chart = Chart::new("t", count_axis(), count_axis())
        .series("a", Style::Dashed, points)
        .limit(1.5, "limit of 30 ms");
    let svg = checked(|| chart.to_svg());
    assert!(svg.contains("stroke-dasharray=\"20 12\"") && svg.contains("stroke-dasharray=\"7 9\""));
    assert!(svg.contains("currentColor") && svg.contains("limit of 30 ms"));
    assert!(svg.starts_with("<svg class=\"chart\"") && svg.contains("viewBox=\"0 0 1440 "));
    assert!(!svg.contains(" width=\"1440\""), "it is as wide as its place");
}

#[test]
fn bars_are_as_long_as_their_values() {
    let bars = Bars::new("t", "time", Unit::Micros, &["a", "b"]).group("g", [1000.0, 4000.0]);
    let svg = checked(|| bars.to_svg());
    let wide = |colour: &str| -> f64 {
        let last = svg.split("<rect").filter(|part| part.contains(colour)).last();
        let tag = last.expect("a bar is drawn");
        let value = tag.split_once("width=\"").expect("it has a width").1;
        value.split('"').next().unwrap_or_default().parse().expect("a number")
    };
    let ratio = wide("#D55E00") / wide("#0072B2");
    assert!((ratio - 4.0).abs() < 0.02, "{ratio}");
    assert!(svg.contains("1 ms") && svg.contains("4 ms") && svg.contains("time (ms)"));
}
