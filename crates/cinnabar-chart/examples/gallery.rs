//! All charts of a live page with made-up data, as one HTML page on standard output.
//!
//! `cargo run -p cinnabar-chart --example gallery > gallery.html`; with `dark` or `light` as an
//! argument in that theme, whatever the browser prefers.

use cinnabar_chart::live::{
    Across, Buckets, CSS, Figure, Groups, Head, Heat, Histogram, Layer, Line, Lines, Look, Part,
    Parts, Stacked,
};
use cinnabar_chart::{Axis, Colours};
use cinnabar_text::Unit;

/// 2026-11-27T05:32:11Z.
const NOW: f64 = 1_795_757_531_000.0;
/// A point a minute.
const POINTS: usize = 360;
/// The rules of a page.
const PAPER: &str = ":root { --paper: #ffffff; --ink: #1c1e21; }
body { margin: 1rem auto; max-width: 60rem; padding: 0 1rem; font-family: system-ui, sans-serif; background: var(--paper); color: var(--ink); }
figure { margin: 1rem 0; container-type: inline-size; }
table { border-collapse: collapse; font-size: .8rem; } td, th { padding: .1rem .5rem; } .number { text-align: right; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=\"light\"]) { --paper: #16181b; --ink: #e6e8ea; } }
:root[data-theme=\"dark\"] { --paper: #16181b; --ink: #e6e8ea; }
";

fn main() {
    let theme = std::env::args().nth(1).unwrap_or_default();
    let theme = if ["dark", "light"].contains(&theme.as_str()) { theme } else { String::new() };
    let colours = (1..=8).fold(Colours::default(), |all, vm| all.with_name(&format!("vm{vm}")));
    let look = Look { titled: true, colours: Some(&colours), ..Look::default() };
    let root = format!("<html lang=\"en\" data-theme=\"{theme}\">");
    let meta = "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">";
    println!("<!DOCTYPE html>\n{root}<head>{meta}<title>Charts</title>");
    println!("<style>{PAPER}{CSS}</style></head><body><main><h1>Charts</h1>");
    let figures: [&dyn Figure; 8] =
        [&shares(), &latency(), &curve(), &heat(), &histogram(), &ram(), &many(), &groups()];
    for figure in figures {
        let svg = figure.svg(&look);
        println!("<!-- {} bytes -->\n<figure>{svg}</figure>", svg.len());
    }
    println!("{}</main></body></html>", shares().table(12));
}

fn minutes() -> Across {
    Across::Time { from_ms: NOW, to_ms: NOW + 60e3 * POINTS as f64 }
}

fn xs() -> Vec<f64> {
    (0..POINTS).map(|minute| NOW + 60e3 * minute as f64).collect()
}

/// A curve with some noise that is the same each time.
fn wave(seed: usize, level: f64, noise: f64) -> Vec<f64> {
    let mut state = seed as u64 * 7919 + 1;
    let value = |minute: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = (state >> 40) as f64 / f64::from(1 << 24) - 0.5;
        let slow = (minute as f64 / (30.0 + 7.0 * seed as f64) + seed as f64).sin();
        level * (1.0 + 0.4 * slow + noise * random)
    };
    (0..POINTS).map(value).collect()
}

fn shares() -> Stacked {
    let head = Head::new("Shares of the cache", minutes())
        .event(NOW + 3600e3, "vm3 grows by 4 GiB: 9 % more hits")
        .event(NOW + 3700e3, "vm1 shrinks by 4 GiB")
        .event(NOW + 15_000e3, "a second SSD");
    let layers = (1..=8).map(|vm| Layer::new(format!("vm{vm}"), wave(vm, 2e9, 0.05)));
    let y = Axis::linear("share", Unit::Bytes);
    Stacked { head, y, xs: xs(), layers: layers.collect(), steps: true }
}

fn latency() -> Lines {
    let lines = (1..=3).map(|vm| {
        let mean = wave(vm, 400.0 * vm as f64, 0.3);
        let high: Vec<f64> = mean.iter().map(|value| value * 1.8).collect();
        let line = Line::new(format!("vm{vm}"), mean).up_to("p99", high);
        if vm == 3 { line.dashed() } else { line }
    });
    let head = Head::new("Latency of reads", minutes()).event(NOW + 9000e3, "the back end stalls");
    let y = Axis::linear("mean latency", Unit::Micros);
    let limits = vec![(1500.0, "1.5 ms".to_owned()), (30_000.0, "30 ms".to_owned())];
    Lines { head, y, xs: xs(), lines: lines.collect(), limits }
}

fn curve() -> Lines {
    let xs: Vec<f64> = (0..40).map(|gib| f64::from(gib) * 1_073_741_824.0).collect();
    let ratio =
        |scale: f64| -> Vec<f64> { xs.iter().map(|size| (-size / scale / 1e10).exp()).collect() };
    let across = Across::Values(Axis::linear("size", Unit::Bytes));
    let head = Head::new("Misses by size", across).marker("share", 1.3e10, "share: 12 GiB");
    let lines = vec![Line::new("vm1", ratio(1.0)), Line::new("vm2", ratio(2.0))];
    let y = Axis::linear("miss ratio", Unit::Ratio).between(0.0, 1.0);
    Lines { head, y, xs, lines, limits: Vec::new() }
}

fn heat() -> Heat {
    let rows = (1..=12).map(|vm| {
        let mut values = wave(vm, 0.5, 0.2);
        values[100..120].fill(f64::NAN);
        (format!("vm{vm}"), values)
    });
    let edges = (0..=POINTS).map(|minute| NOW + 60e3 * minute as f64).collect();
    let head = Head::new("Hit ratio", minutes()).event(NOW + 15_000e3, "a second SSD");
    let value = Axis::linear("hit ratio", Unit::Ratio).between(0.0, 1.0);
    Heat { head, value, edges, rows: rows.collect() }
}

fn histogram() -> Histogram {
    let edges: Vec<f64> = (0..=48).map(|step| 20.0 * 10f64.powf(f64::from(step) / 12.0)).collect();
    let bell = |middle: f64, width: f64| -> Vec<f64> {
        (0..48).map(|step| 1e4 * (-((f64::from(step) - middle) / width).powi(2)).exp()).collect()
    };
    let with = bell(8.0, 4.0).into_iter().zip(bell(30.0, 3.0)).map(|(hit, miss)| hit + miss / 6.0);
    let series = vec![
        Buckets::new("with cache", with.collect::<Vec<_>>()),
        Buckets::new("without", bell(30.0, 5.0)),
    ];
    let across = Across::Values(Axis::log("latency", Unit::Micros));
    let head = Head::new("Latency of reads", across).event(110.0, "p50").event(9000.0, "p99");
    Histogram { head, y: Axis::linear("reads", Unit::Count), edges, series }
}

fn ram() -> Parts {
    let names = ["index", "buffers", "descriptors", "ghosts"].map(str::to_owned).to_vec();
    let bars = vec![Part::new("", [3.1e8, 1.2e8, 4.5e7, 9e6])];
    Parts { head: Head::new("RAM", Across::default()), unit: Unit::Bytes, names, bars }
}

fn many() -> Parts {
    let names = ["data", "reinserted", "checkpoints", "journal"].map(str::to_owned).to_vec();
    let bar = |hour: u32| {
        let hour = f64::from(hour);
        Part::new(format!("{hour}:00"), [1e9 + 2e8 * hour, 3e8, 5e7 * hour, 1e7])
    };
    let bars = (5..9).map(bar).collect();
    Parts {
        head: Head::new("Writes to the SSD", Across::default()),
        unit: Unit::Bytes,
        names,
        bars,
    }
}

fn groups() -> Groups {
    let hits = [[0.31, 0.62], [0.75, 0.75], [0.0, 0.08]];
    let group = |(vm, hits): (usize, [f64; 2])| Part::new(format!("vm{}", vm + 1), hits);
    Groups {
        head: Head::new("Reads that would hit", Across::default()),
        of: "volume".to_owned(),
        unit: Unit::Ratio,
        names: ["now", "then"].map(str::to_owned).to_vec(),
        groups: hits.into_iter().enumerate().map(group).collect(),
        whole: Some(1.0),
    }
}
