//! What is true of every chart, whatever its data: well-formed, small, the same twice,
//! inside of its frame, readable by scripts, and harmless.

use super::heat::RAMP;
use super::*;
use crate::Unit;
use crate::chart::Scale;
use crate::chart::well_formed::{HOSTILE, assert_well_formed};
use proptest::prelude::*;

/// 2026-11-27T05:32:11Z.
const NOW: f64 = 1_795_757_531_000.0;

fn minutes(count: usize) -> Head {
    let across = Across::Time { from_ms: NOW, to_ms: NOW + 60e3 * count as f64 };
    Head::new("a title", across)
}

fn xs(count: usize) -> Vec<f64> {
    (0..count).map(|minute| NOW + 60e3 * minute as f64).collect()
}

/// Noise that is the same each time.
fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut value = 50.0;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value = (value + (state % 2001) as f64 / 100.0 - 10.0).clamp(0.0, 100.0);
        value
    };
    (0..count).map(next).collect()
}

fn everything(text: &str, xs: &[f64], values: &[f64]) -> Vec<Box<dyn Figure>> {
    let last = xs.last().copied().unwrap_or_default();
    let times = Across::Time { from_ms: NOW, to_ms: last };
    let head = |across| {
        let head = Head::new(text, across).event(last, text).event(NOW, text);
        head.marker(text, last, text).event(last - 1.0, text)
    };
    let values_of = |scale| Axis { scale, ..Axis::linear(text, Unit::Micros) };
    let mut all: Vec<Box<dyn Figure>> = Vec::new();
    for (across, scale) in [
        (times, Scale::Log),
        (Across::Values(values_of(Scale::Linear)), Scale::Linear),
        (Across::Values(values_of(Scale::Log)), Scale::Linear),
    ] {
        let (head, y) = (head(across), values_of(scale));
        let line =
            Line::new(text, values).up_to(text, values.iter().rev().copied().collect::<Vec<_>>());
        let layers = vec![Layer::new(text, values), Layer::new(text, values)];
        let rows = vec![(text.to_owned(), values.to_vec()), (text.to_owned(), Vec::new())];
        let series = vec![Buckets::new(text, values), Buckets::new(text, values)];
        let (xs, edges) = (xs.to_vec(), xs.to_vec());
        for steps in [false, true] {
            let layers = layers.clone();
            all.push(Box::new(Stacked {
                head: head.clone(),
                y: y.clone(),
                xs: xs.clone(),
                layers,
                steps,
            }));
        }
        let mut lines = vec![line.clone(), line.clone().steps(), line.dashed()];
        for style in [Style::Line, Style::Points] {
            let xs = xs.iter().rev().copied().collect();
            lines.push(Line { xs, style, ..Line::new(text, values) });
        }
        let limits = vec![(values.first().copied().unwrap_or(1.0), text.to_owned())];
        all.push(Box::new(Lines { head: head.clone(), y: y.clone(), xs, lines, limits }));
        all.push(Box::new(Heat {
            head: head.clone(),
            value: y.clone(),
            edges: edges.clone(),
            rows,
        }));
        all.push(Box::new(Histogram { head: head.clone(), y, edges, series }));
        let bars = vec![Part::new(text, values), Part::new("", values)];
        let names = vec![text.to_owned(); values.len()];
        let groups = Groups {
            head: head.clone(),
            of: text.to_owned(),
            unit: Unit::Bytes,
            names: names.clone(),
            groups: bars.clone(),
            whole: Some(1.0),
        };
        all.push(Box::new(groups));
        all.push(Box::new(Parts { head, unit: Unit::Bytes, names, bars }));
    }
    all
}

/// Draws it twice and looks for what must never be.
fn checked(figure: &dyn Figure, look: &Look) -> String {
    let svg = figure.svg(look);
    assert_eq!(svg, figure.svg(look), "the same data, the same bytes");
    assert_well_formed(&svg);
    for forbidden in ["style=", "<script", "\" onload", "href", "url(", "NaN", "\"inf"] {
        assert!(!svg.contains(forbidden), "{forbidden} in {svg}");
    }
    assert!(svg.contains("role=\"img\"") && svg.contains("<title>") && svg.contains("<desc>"));
    let size = svg.split_once("viewBox=\"0 0 ").expect("it has a size").1;
    let size: Vec<i32> = size.split('"').next().unwrap_or_default().split(' ').map(int).collect();
    // The signs of markers are relative to where they stand.
    for path in svg
        .split(" d=\"")
        .skip(1)
        .filter(|path| !path.starts_with("m0 ") && !path.starts_with("m-9"))
    {
        for (x, y) in places(path.split('"').next().unwrap_or_default()) {
            let inside = (-20..=size[0] + 20).contains(&x) && (-20..=size[1] + 20).contains(&y);
            assert!(inside, "({x}, {y}) is not in {size:?}: {path}");
        }
    }
    svg
}

fn int(text: &str) -> i32 {
    text.parse().expect("a whole number")
}

fn places(path: &str) -> Vec<(i32, i32)> {
    let mut found = Vec::new();
    let (mut at, mut began) = ((0, 0), (0, 0));
    let spaced = path.replace('-', " -");
    let mut rest = spaced.as_str();
    while let Some(command) = rest.chars().next() {
        let end = rest[1..].find(|letter: char| letter.is_ascii_alphabetic());
        let end = end.map_or(rest.len(), |end| end + 1);
        let numbers: Vec<i32> = rest[1..end].split_whitespace().map(int).collect();
        match command {
            'h' => numbers.iter().for_each(|x| at.0 += x),
            'v' => numbers.iter().for_each(|y| at.1 += y),
            'z' => at = began,
            'm' | 'l' => {
                for (number, pair) in numbers.chunks(2).enumerate() {
                    at = (at.0 + pair[0], at.1 + pair[1]);
                    if command == 'm' && number == 0 {
                        began = at;
                    }
                    found.push(at);
                }
            }
            other => panic!("the command {other}"),
        }
        found.push(at);
        rest = &rest[end..];
    }
    found
}

fn data(svg: &str, name: &str) -> f64 {
    let value = svg.split_once(&format!(" data-{name}=\"")).expect("it is there").1;
    value.split('"').next().unwrap_or_default().parse().expect("a number")
}

/// The path of a series.
fn series(svg: &str, place: usize) -> Vec<(i32, i32)> {
    let tag = svg.split_once(&format!("<path data-series=\"{place}\"")).expect("it is drawn").1;
    let path = tag.split_once(" d=\"").expect("with a path").1;
    places(path.split('"').next().unwrap_or_default())
}

#[test]
fn hostile_text_is_shown_not_obeyed() {
    let long = "a rather long name that goes on and on ".repeat(30);
    for text in [HOSTILE, &long, &"x".repeat(9000), &"漢字".repeat(900), "", "=cmd|'/C calc'!A0"]
    {
        for figure in everything(text, &xs(12), &noise(1, 12)) {
            for titled in [true, false] {
                let svg = checked(&*figure, &Look { titled, ..Look::default() });
                assert!(!svg.contains('\u{202E}') && !svg.contains('\0'));
                assert!(svg.len() < 60_000, "{}", svg.len());
            }
            let table = figure.table(40);
            assert_well_formed(&format!("<div>{table}</div>"));
            assert!(!table.contains("style=") && !table.contains("<script"));
            for cell in figure.csv().split("\r\n").flat_map(|row| row.split(',')) {
                let formula =
                    cell.trim_start_matches('"').trim_start().starts_with(['=', '@', '+']);
                assert!(!formula, "{cell}");
            }
        }
    }
}

#[test]
fn any_values_make_a_chart() {
    let odd = [
        vec![],
        vec![1.0],
        vec![f64::NAN, 1.0, f64::NAN],
        vec![f64::INFINITY, f64::NEG_INFINITY],
        vec![0.0; 5],
        vec![-1.0, -5.0, -7.0],
        vec![1e300, -1e300, 5e-324, f64::MAX, f64::MIN],
        vec![1e308; 40],
    ];
    for values in &odd {
        for xs in odd.iter().chain([&xs(5)]) {
            for figure in everything("odd", xs, values) {
                checked(&*figure, &Look::default());
                figure.table(3);
                figure.csv();
            }
        }
    }
    for (width, height) in [(0, 0), (1, 1), (u16::MAX, u16::MAX)] {
        for figure in everything("size", &xs(9), &noise(3, 9)) {
            checked(&*figure, &Look { width, height, ..Look::default() });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_data_make_a_chart(
        text in ".{0,40}",
        values in proptest::collection::vec(proptest::num::f64::ANY, 0..60),
        steps in proptest::collection::vec(0.0..1e9, 0..60),
    ) {
        let mut x = NOW;
        let xs: Vec<f64> = steps.iter().map(|step| { x += step; x }).collect();
        for figure in everything(&text, &xs, &values) {
            checked(&*figure, &Look::default());
            assert_well_formed(&format!("<div>{}</div>", figure.table(20)));
            let csv = figure.csv();
            prop_assert!(csv.ends_with("\r\n"));
        }
    }
}

#[test]
fn six_hours_of_eight_volumes_are_small() {
    let layers = (0..8).map(|volume| Layer::new(format!("vm{volume}"), noise(volume, 360)));
    let y = Axis::linear("share", Unit::Bytes);
    let stacked =
        Stacked { head: minutes(360), y, xs: xs(360), layers: layers.collect(), steps: false };
    let svg = checked(&stacked, &Look::default());
    assert!(svg.len() < 15_000, "{} bytes", svg.len());
    let lines = (0..8).map(|volume| Line::new(format!("vm{volume}"), noise(volume, 360)));
    let y = Axis::linear("latency", Unit::Micros);
    let lines =
        Lines { head: minutes(360), y, xs: xs(360), lines: lines.collect(), limits: vec![] };
    let svg = checked(&lines, &Look::default());
    assert!(svg.len() < 15_000, "{} bytes", svg.len());
    // Twenty-four hours at a second are not more.
    let lines = (0..8).map(|volume| Line::new(format!("vm{volume}"), noise(volume, 86_400)));
    let xs: Vec<f64> = (0..86_400).map(|second| NOW + 1e3 * f64::from(second)).collect();
    let y = Axis::linear("latency", Unit::Micros);
    let lines = Lines { head: minutes(1440), y, xs, lines: lines.collect(), limits: vec![] };
    assert!(checked(&lines, &Look::default()).len() < 20_000);
}

#[test]
fn a_spike_of_one_second_in_a_day_is_seen() {
    let mut values = vec![10.0; 86_400];
    values[54_321] = 90.0;
    let xs: Vec<f64> = (0..86_400).map(|second| NOW + 1e3 * f64::from(second)).collect();
    let y = Axis::linear("latency", Unit::Micros).between(0.0, 100.0);
    let line = Line::new("a", values.clone());
    let lines = Lines {
        head: minutes(1440),
        y: y.clone(),
        xs: xs.clone(),
        lines: vec![line],
        limits: vec![],
    };
    let layer = Layer::new("a", values);
    let stacked = Stacked { head: minutes(1440), y, xs, layers: vec![layer], steps: false };
    for svg in [checked(&lines, &Look::default()), checked(&stacked, &Look::default())] {
        let (top, bottom) = (data(&svg, "top"), data(&svg, "bottom"));
        let part = (90.0 - data(&svg, "y0")) / (data(&svg, "y1") - data(&svg, "y0"));
        let spike = (bottom - part * (bottom - top)).round() as i32;
        let highest = series(&svg, 0).into_iter().min_by_key(|place| place.1).expect("it is drawn");
        assert_eq!(highest.1, spike, "{:?}", series(&svg, 0));
        let x =
            data(&svg, "left") + 54_321.0 / 86_400.0 * (data(&svg, "right") - data(&svg, "left"));
        assert!((f64::from(highest.0) - x).abs() <= 1.0, "{highest:?} {x}");
    }
}

#[test]
fn a_script_can_turn_places_into_values() {
    let xs = vec![1.0, 10.0, 100.0];
    let y = Axis::linear("miss ratio", Unit::Ratio).between(0.0, 1.0);
    let across = Across::Values(Axis::log("size", Unit::Count));
    let head = Head::new("curve", across).marker("share", 10.0, "10 blocks");
    let line = Line::new("a", [1.0, 0.5, 0.25]);
    let svg = checked(&Lines { head, y, xs, lines: vec![line], limits: vec![] }, &Look::default());
    assert!(svg.contains(" data-scale-x=\"log\" data-unit-x=\"count\""), "{svg}");
    assert!(svg.contains(" data-scale-y=\"linear\" data-unit-y=\"ratio\""), "{svg}");
    let [left, right, top, bottom] =
        ["left", "right", "top", "bottom"].map(|edge| data(&svg, edge));
    let [x0, x1, y0, y1] = ["x0", "x1", "y0", "y1"].map(|end| data(&svg, end));
    let expected = [(1.0, 1.0), (10.0, 0.5), (100.0, 0.25)];
    let drawn = series(&svg, 0);
    for (x, y) in expected {
        let part = (f64::ln(x) - x0.ln()) / (x1.ln() - x0.ln());
        let place = (left + part * (right - left), bottom - (y - y0) / (y1 - y0) * (bottom - top));
        let near = |one: &(i32, i32)| {
            (f64::from(one.0) - place.0).abs() <= 1.0 && (f64::from(one.1) - place.1).abs() <= 1.0
        };
        assert!(drawn.iter().any(near), "{place:?} in {drawn:?}");
    }
    let middle = f64::midpoint(left, right).round();
    let moved = svg.split_once("<g class=\"marker\" data-marker=\"share\" data-at=\"10\" ");
    let at = moved.expect("the marker is there").1;
    let at = at.strip_prefix("transform=\"translate(").expect("it is put somewhere");
    let at: f64 = at.split(' ').next().unwrap_or_default().parse().expect("a number");
    assert!((at - middle).abs() <= 1.0, "{at} {middle}");
}

#[test]
fn points_of_their_own_are_where_they_belong() {
    let axis = || Axis::linear("things", Unit::Count).between(0.0, 10.0);
    let lines = Lines::new("t", axis(), axis())
        .series("measured", Style::Line, [(0.0, 0.0), (5.0, 5.0), (10.0, 10.0)])
        .series("one", Style::Points, [(2.0, 8.0)])
        .series("none", Style::Points, [(3.0, f64::NAN)])
        .limit(5.0, "limit")
        .limit(99.0, "far limit");
    let svg = checked(&lines, &Look { titled: true, ..Look::default() });
    let [left, right, top, bottom] =
        ["left", "right", "top", "bottom"].map(|edge| data(&svg, edge) as i32);
    let drawn = series(&svg, 0);
    assert_eq!((drawn.first(), drawn.last()), (Some(&(left, bottom)), Some(&(right, top))));
    let xs = || series(&svg, 1).into_iter().map(|place| place.0);
    let middle = i32::midpoint(xs().min().unwrap_or(0), xs().max().unwrap_or(0));
    assert!((middle - (left + (right - left) / 5)).abs() <= 1, "{middle}");
    let shapes = svg.split("<path fill=\"#0072b2\" d=\"").skip(1);
    let shapes = shapes.map(|tag| tag.split('"').next().unwrap_or_default().matches('z').count());
    assert_eq!(shapes.collect::<Vec<_>>(), [1, 3], "in the legend, and on each point");
    assert!(svg.contains(">limit</text>") && svg.contains(">(far limit: outside, above)</text>"));
    let csv = "things,measured,one,none\r\n0,0,,\r\n5,5,,\r\n10,10,,\r\n2,,8,\r\n3,,,\r\n";
    assert_eq!(lines.csv(), csv);
}

/// A zero has no place on a logarithmic axis.
#[test]
fn a_point_that_is_not_drawn_does_not_stretch_the_other_axis() {
    let draw = |first: f64| {
        let points = [(0.0, first), (1.0, 2.0), (10.0, 3.0)];
        let (x, y) = (Axis::log("", Unit::Count), Axis::linear("", Unit::Count));
        checked(&Lines::new("t", x, y).series("s", Style::Line, points), &Look::default())
    };
    let frame = |svg: &str| ["x0", "x1", "y0", "y1"].map(|end| data(svg, end).to_bits());
    assert_eq!(frame(&draw(130.0)), frame(&draw(3.0)));
}

#[test]
fn layers_lie_on_each_other_and_the_smallest_are_one() {
    let y = Axis::linear("share", Unit::Count).between(0.0, 100.0);
    let layers = vec![Layer::new("a", [20.0, 20.0]), Layer::new("b", [30.0, 30.0])];
    let stacked = Stacked { head: minutes(1), y: y.clone(), xs: xs(2), layers, steps: true };
    let svg = checked(&stacked, &Look::default());
    let height = |place: usize| {
        let top = series(&svg, place).into_iter().map(|place| place.1).min().expect("a path");
        let (high, low) = (data(&svg, "top"), data(&svg, "bottom"));
        (low - f64::from(top)) / (low - high) * data(&svg, "y1")
    };
    assert!((height(0) - 20.0).abs() < 0.5 && (height(1) - 50.0).abs() < 0.5);
    assert!(svg.find("data-series=\"1\"") < svg.find("data-series=\"0\""), "the lower one is last");
    let layer = |volume: u32| Layer::new(format!("vm{volume}"), [f64::from(volume), 1.0]);
    let layers = (0..200).map(layer).collect();
    let many = Stacked { head: minutes(1), y, xs: xs(2), layers, steps: false };
    let svg = checked(&many, &Look::default());
    assert_eq!(svg.matches("data-series=").count(), SERIES_MAX);
    assert!(svg.contains(">189 others</text>") && svg.contains(">vm199</text>"));
    assert_eq!(many.csv().lines().next().map(|line| line.split(',').count()), Some(201));
}

#[test]
fn labels_of_the_ends_are_whole() {
    let head = Head::new("a title", Across::Time { from_ms: NOW + 49e3, to_ms: NOW + 109e3 });
    let y = Axis::linear("", Unit::Count).between(0.0, 5.0);
    let lines = vec![Line::new("a", [1.0, 5.0])];
    let lines = Lines { head, y, xs: vec![NOW + 49e3, NOW + 109e3], lines, limits: vec![] };
    let svg = checked(&lines, &Look::default());
    let text = svg.split_once(">05:33:00</text>").expect("the first tick is at the left edge").0;
    let x = text.rsplit_once("<text x=\"").expect("a text").1.split('"').next().map(int);
    let half = crate::chart::text::width("05:33:00", 32.0) / 2.0;
    assert!(x.is_some_and(|x| f64::from(x) >= half), "{x:?} {half}");
    assert!(data(&svg, "left") < half, "{svg}");
}

#[test]
fn what_is_no_number_leaves_a_gap() {
    let values = [1.0, 2.0, f64::NAN, 3.0, 2.0];
    let y = Axis::linear("", Unit::Count);
    let line = Line::new("a", values);
    let lines =
        Lines { head: minutes(5), y: y.clone(), xs: xs(5), lines: vec![line], limits: vec![] };
    let layer = Layer::new("a", values);
    let stacked = Stacked { head: minutes(5), y, xs: xs(5), layers: vec![layer], steps: false };
    for svg in [lines.svg(&Look::default()), stacked.svg(&Look::default())] {
        let tag = svg.split_once("data-series=\"0\"").expect("it is drawn").1;
        let path = tag.split_once(" d=\"").expect("a path").1.split('"').next().unwrap_or_default();
        assert_eq!(path.matches('m').count(), 2, "{path}");
    }
}

#[test]
fn gaps_between_all_values_are_few() {
    let values: Vec<f64> =
        (0..100_000).map(|at| if at % 2 == 0 { f64::from(at % 7) } else { f64::NAN }).collect();
    let xs: Vec<f64> = (0..100_000).map(|at| NOW + f64::from(at)).collect();
    let head = Head::new("gaps", Across::Time { from_ms: NOW, to_ms: NOW + 1e5 });
    let y = Axis::linear("", Unit::Count);
    let line = Line::new("a", values.clone()).up_to("b", values.clone());
    let lines = vec![line.clone().steps(), line];
    let lines = Lines { head: head.clone(), y: y.clone(), xs: xs.clone(), lines, limits: vec![] };
    let layers = vec![Layer::new("a", values)];
    let stacked = Stacked { head, y, xs, layers, steps: true };
    for svg in [checked(&lines, &Look::default()), checked(&stacked, &Look::default())] {
        assert!(svg.len() < 40_000, "{}", svg.len());
    }
}

#[test]
fn events_near_each_other_are_one_with_all_texts() {
    let head = minutes(60).event(NOW + 30e3, "vm1 grows").event(NOW + 31e3, "vm2 < vm3");
    let head = head.event(NOW + 1800e3, "a device left").event(NOW - 1.0, "before all");
    let y = Axis::linear("", Unit::Count);
    let lines =
        Lines { head, y, xs: xs(60), lines: vec![Line::new("a", noise(1, 60))], limits: vec![] };
    let svg = checked(&lines, &Look::default());
    assert!(svg.contains("<title>vm1 grows\nvm2 &lt; vm3</title>"), "{svg}");
    assert!(svg.contains(">2 events</text>") && svg.contains(">a device left</text>"), "{svg}");
    assert!(!svg.contains("before all"));
    let all = lines.head.events();
    let csv = "time (UTC),event\r\n2026-11-27T05:32:10.999Z,before all\r\n";
    assert!(all.csv().starts_with(csv), "{}", all.csv());
    assert!(all.table(10).contains("<td>vm2 &lt; vm3</td>"), "{}", all.table(10));
}

#[test]
fn a_page_keeps_the_colours_of_names() {
    let colours = Colours::default().with_name("vm1").with_name("vm2").with_name("vm3");
    let look = Look { colours: Some(&colours), ..Look::default() };
    let draw = |names: &[&str]| {
        let layers = names.iter().map(|name| Layer::new(*name, [1.0, 2.0])).collect();
        let y = Axis::linear("", Unit::Count);
        Stacked { head: minutes(2), y, xs: xs(2), layers, steps: false }.svg(&look)
    };
    let fill = |svg: &str, place: usize| {
        let tag = svg.split_once(&format!("data-series=\"{place}\" fill=\"")).expect("drawn").1;
        tag[..7].to_owned()
    };
    let (all, one) = (draw(&["vm1", "vm2", "vm3"]), draw(&["vm3"]));
    assert_eq!(fill(&all, 2), fill(&one, 0));
    assert_ne!(fill(&all, 0), fill(&all, 1));
}

#[test]
fn heat_maps_stay_small_and_show_the_largest() {
    let mut rows: Vec<(String, Vec<f64>)> =
        (0..300).map(|row| (format!("vm{row}"), noise(row, 2000))).collect();
    rows[7].1 = vec![0.0; 2000];
    rows[7].1[1234] = 100.0;
    let edges = (0..=2000).map(|minute| NOW + 60e3 * f64::from(minute)).collect();
    let value = Axis::linear("hit ratio", Unit::Count).between(0.0, 100.0);
    let heat = Heat { head: minutes(2000), value, edges, rows };
    let svg = checked(&heat, &Look::default());
    assert!(svg.len() < 60_000, "{}", svg.len());
    assert!(svg.contains("200 of 300 rows") && svg.contains("data-unit-y=\"row\""));
    let (top, bottom) = (data(&svg, "top"), data(&svg, "bottom"));
    let row = top + 7.5 * (bottom - top) / 200.0;
    let cells = svg.split_once("<g fill=\"none\" shape-rendering").expect("cells are drawn").1;
    let path = cells.split_once("class=\"heat h8\"").and_then(|rest| rest.1.split_once(" d=\""));
    let path = path.expect("a path").1.split('"').next().unwrap_or_default();
    assert!(places(path).iter().any(|place| (f64::from(place.1) - row).abs() <= 1.5), "{row}");
}

#[test]
fn bars_of_a_histogram_begin_where_values_are() {
    let across = Across::Values(Axis::log("latency", Unit::Micros));
    let edges: Vec<f64> = (0..=20).map(|power| 2f64.powi(power)).collect();
    let mut counts = vec![0.0; 20];
    (counts[6], counts[8]) = (10.0, 40.0);
    let series = vec![Buckets::new("with", counts.clone()), Buckets::new("without", counts)];
    let y = Axis::linear("reads", Unit::Count);
    let head = Head::new("latency", across).event(128.0, "p50");
    let svg = checked(&Histogram { head, y, edges, series }, &Look::default());
    assert!(data(&svg, "x0") > 50.0 && data(&svg, "x1") < 600.0, "empty ends are left out");
    let bars = series_of(&svg);
    assert_eq!(bars, 2, "an empty bucket has no bar");
    assert!(svg.contains(">p50</text>") && svg.contains(" data-scale-x=\"log\""));
}

fn series_of(svg: &str) -> usize {
    let tag = svg.split_once("<path data-series=\"0\"").expect("it is drawn").1;
    tag.split_once("/>").expect("it ends").0.matches('z').count()
}

#[test]
fn parts_are_as_long_as_their_values() {
    let names = vec!["index".to_owned(), "buffers".to_owned()];
    let bars = vec![Part::new("", [3.0 * 1024.0 * 1024.0, 1024.0 * 1024.0])];
    let parts = Parts { head: Head::new("RAM", Across::default()), unit: Unit::Bytes, names, bars };
    let svg = checked(&parts, &Look::default());
    let wide = |place: usize| {
        let places = series(&svg, place);
        let xs = || places.iter().map(|place| place.0);
        xs().max().unwrap_or(0) - xs().min().unwrap_or(0)
    };
    assert!((f64::from(wide(0)) / f64::from(wide(1)) - 3.0).abs() < 0.02);
    assert!(svg.contains(">index 3 MiB</text>") && svg.contains("<title>buffers: 1 MiB (25.0 %)"));
    assert_eq!(parts.csv(), "part,size (bytes)\r\nindex,3145728\r\nbuffers,1048576\r\n");
}

#[test]
fn bars_of_groups_are_as_long_as_their_values() {
    let mut groups = Groups {
        head: Head::new("Hits", Across::default()),
        of: "volume".to_owned(),
        unit: Unit::Ratio,
        names: vec!["now".to_owned(), "then".to_owned()],
        groups: vec![Part::new("=vm1", [0.25, 0.5]), Part::new("vm2", [f64::NAN, 1.0])],
        whole: Some(1.0),
    };
    let svg = checked(&groups, &Look::default());
    let wide = |svg: &str, place: usize| {
        let places = series(svg, place);
        let xs = || places.iter().map(|place| place.0);
        f64::from(xs().max().unwrap_or(0) - xs().min().unwrap_or(0))
    };
    let whole = data(&svg, "right") - data(&svg, "left");
    assert!(
        (wide(&svg, 0) / whole - 0.25).abs() < 0.01 && (wide(&svg, 1) / whole - 0.5).abs() < 0.01
    );
    assert!(svg.contains(">now</text>") && svg.contains(">50 %</text>"), "{svg}");
    assert_eq!(svg.matches(">Hits<").count(), 1, "the page has the title: {svg}");
    assert_eq!(groups.csv(), "volume,now (ratio),then (ratio)\r\n'=vm1,0.25,0.5\r\nvm2,,1\r\n");
    groups.whole = None;
    groups.groups.pop();
    let svg = checked(&groups, &Look::default());
    let whole = data(&svg, "right") - data(&svg, "left");
    assert!((wide(&svg, 1) - whole).abs() < 1.0, "the largest is as long as the drawing");
}

/// Relative luminance as WCAG defines it.
fn luminance(hex: &str) -> f64 {
    let part = |at: usize| {
        let part = u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour");
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
}

fn contrast(one: f64, other: f64) -> f64 {
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn more_is_further_from_the_paper_step_by_step() {
    let ramps = CSS.split("--heat0: ").skip(1).map(|rest| {
        let ends = rest.split_once('}').expect("rules end").0;
        let colours = ends.split(';').filter_map(|rule| rule.trim().rsplit(' ').next());
        colours.filter(|colour| colour.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    });
    let [light, dark, chosen] = ramps.collect::<Vec<_>>().try_into().expect("three of them");
    assert_eq!(light, RAMP);
    assert_eq!(dark, chosen);
    for (ramp, paper) in [(light, "#ffffff"), (dark, "#16181b")] {
        let paper = luminance(paper);
        let all: Vec<f64> = ramp.iter().map(|colour| contrast(luminance(colour), paper)).collect();
        for pair in all.windows(2) {
            assert!(pair[1] / pair[0] >= 1.15, "{all:?}");
        }
        assert!(all[0] >= 1.15 && all[RAMP.len() - 1] >= 7.0, "{all:?}");
    }
}
