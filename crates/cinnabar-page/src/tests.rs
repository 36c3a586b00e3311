//! Views of statuses that are made up: names of others, sizes, and that numbers are those given.

use crate::*;
use cinnabar_config::VolumeInput;
use cinnabar_config::history::{EventKind, EventReport, Point};
use cinnabar_config::status::latency::{Latencies, LatencyRecorder};
use cinnabar_config::status::raw::{
    CacheStatus, DataStatus, ModeCause, SizeStatus, State, VolumeStatus,
};
use cinnabar_engine::seam::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::seam::health::Health;
use cinnabar_engine::seam::volume::Warmth;
use cinnabar_manager::report::{
    CurvePoint, ExplainReport, HistoryReport, MixReport, NeighbourReport, PlanReport, ReasonReport,
    ShareReport,
};
use cinnabar_policy::planning::Totals;
use std::path::Path;
use std::sync::Arc;

/// 2027-01-15 08:00 UTC.
const NOW: u64 = 1_800_000_000_000;
/// What a page may take the first time, in bytes.
const FIRST_BYTES_MAX: usize = 300 << 10;
const HOSTILE: &str = "\"><script>alert(1)</script><b style=\"x\" onload='y'>\u{202E}\u{200F}gpj";

fn volume(name: &str, reads: u64) -> VolumeStatus {
    let input = VolumeInput {
        name: "vm".into(),
        backend: "file:vm.raw".into(),
        nbd: Some("unix:vm.sock".into()),
        ..VolumeInput::default()
    };
    let mut config = input.check(Path::new("/")).expect("it is fine");
    config.name = name.into();
    let mut recorder = LatencyRecorder::new();
    (0..reads.min(100)).for_each(|at| recorder.record_ns(75_000 + at * 10_000));
    let latencies = Latencies { read: recorder.summary(), ..Latencies::default() };
    let counters = VolumeCounters {
        reads,
        writes: reads / 3,
        blocks_read: 2 * reads,
        read_hits: reads,
        misses: reads,
        backend_reads: reads / 2,
        cached_blocks: 5 * reads,
        share_blocks: 7 * reads,
        own_shares: 1,
        ..VolumeCounters::default()
    };
    VolumeStatus {
        config,
        state: State::Serving,
        reason: String::new(),
        waiting: None,
        size_bytes: 1 << 30,
        connections: 1,
        guest_waited: 0,
        overdue_now: 0,
        oldest: None,
        backend_size_bytes: 0,
        warmth: Warmth::New,
        counters,
        read_hits_log: 0,
        latencies,
        write_back: None,
        mode_by_operator: false,
        mode_cause: ModeCause::default(),
        qos: None,
        parent: None,
        migration: None,
        hybrid: None,
    }
}

fn status(volumes: Vec<VolumeStatus>) -> DataStatus {
    let cache = CacheStatus {
        device: "/cache.img".into(),
        state: State::Serving,
        reason: String::new(),
        throttled: false,
        size: SizeStatus::default(),
        health: Health::Serving,
        loaded: None,
        io: "threads".into(),
        shards: 1,
        threads: 1,
        counters: CacheCounters {
            capacity_blocks: 1 << 20,
            cached_blocks: 5000,
            flash_written_bytes: 123_456_789,
            ..CacheCounters::default()
        },
        losses: 0,
        replacements: 0,
        detached_blocks: 0,
        ram: RamBytes { address_map: 1 << 20, ..RamBytes::default() },
        edge_ram_bytes: 4096,
        write_log: None,
        io_totals: Totals::default(),
    };
    DataStatus { cache, volumes, qos_groups: Vec::new() }
}

/// A day of samples, one each five minutes.
fn samples(level: u32) -> Vec<Point> {
    let from = (NOW / 1000) as u32 - 86_400;
    let point = |number: u32| Point {
        at_s: from + number * 300,
        span_ms: 300_000,
        reads: level * (100 + number % 37),
        writes: level * 10,
        read_blocks: level * (200 + number % 91),
        hit_blocks: level * 150,
        backend_reads: level * (20 + number % 13),
        held_blocks: level * (1000 + number % 57),
        share_blocks: level * (900 + number % 7 * 100),
        read_mean_us: 200 + number % 41,
        read_p99_us: 2000 + number % 333,
        ..Point::default()
    };
    (1..=288).map(point).collect()
}

fn share(name: &str, number: u64) -> ShareReport {
    ShareReport {
        volume: name.into(),
        mix: MixReport { reads: 1000, rar: 500, ..MixReport::default() },
        planned_bytes: Some(1 << 30),
        target_bytes: Some(1 << 30),
        before_bytes: Some(if number == 0 { 1 << 29 } else { 1 << 30 }),
        why: "planned".into(),
        held_bytes: 1 << 29,
        max_bytes: 4 << 30,
        expected_hits: 0.5,
        planned_hits: 0.75,
        actual_hits: Some(0.45),
        next_gib_hits: 0.01 * number as f64,
        curve: vec![CurvePoint { size_bytes: 4 << 30, hits: 0.9 }],
        ..ShareReport::default()
    }
}

fn of(status: DataStatus, range: Range) -> Data {
    let report = Arc::new(cinnabar_config::status::report::StatusReport::new(&status));
    Data::new(NOW, Arc::new(status), report, range)
}

/// Everything that views look at, of volumes of these names.
pub(crate) fn data(names: &[&str]) -> Data {
    let volumes: Vec<_> =
        names.iter().enumerate().map(|(at, name)| volume(name, 1000 + at as u64)).collect();
    let range = Range::read(Some("24h"), None, None, NOW).expect("a range");
    let mut data = of(status(volumes), range);
    data.samples = samples(5);
    data.may_act = true;
    data.socket = "/run/cinnabar/control.sock".into();
    data.volume = names[0].into();
    data.volume_samples = samples(1);
    for name in names {
        data.windows.insert((*name).to_owned(), Window::of(&samples(1000)));
        data.shares.push(((*name).to_owned(), samples(1)));
    }
    let shares = (0..).zip(names).map(|(number, name)| share(name, number)).collect();
    let plan = PlanReport {
        made_ms: NOW - 3_600_000,
        allocator: "urd".into(),
        capacity_bytes: 4 << 30,
        applied: true,
        volumes: shares,
        ..PlanReport::default()
    };
    let own = PlanReport { volumes: vec![share(names[0], 1)], ..plan.clone() };
    data.explain = Some(Ok(ExplainReport {
        plan: own,
        neighbours: vec![NeighbourReport { volume: names[0].into(), ..NeighbourReport::default() }],
        not_cached: vec![ReasonReport { reason: names[0].into(), blocks: 7, of_cache: false }],
        words: vec![format!("A sentence of {}.", names[0])],
        ..ExplainReport::default()
    }));
    let then = PlanReport { capacity_bytes: 8 << 30, ..plan.clone() };
    data.what_if = Some(WhatIf {
        size_bytes: Some(8 << 30),
        allocator: Some(names[0].into()),
        wrong: None,
        now: Ok(plan.clone()),
        then: Ok(then),
    });
    data.plans = Ok(HistoryReport { plans: vec![plan], pins: Vec::new() });
    let mut event = EventReport::new(EventKind::VolumeFailed, NOW);
    event.volume = Some(names[0].into());
    event.reason = Some(format!("because of {}", names[0]));
    data.events = vec![event];
    data
}

fn views(name: &str) -> [View; 8] {
    [
        View::Overview,
        View::Shares,
        View::Volume(name.into()),
        View::Backends,
        View::Ssd,
        View::Recovery,
        View::Events,
        View::WhatIf,
    ]
}

#[test]
fn names_of_others_are_shown_and_never_obeyed() {
    let mut data = data(&[HOSTILE, "vm2"]);
    let mut raw = (*data.status).clone();
    raw.cache.state = State::Degraded;
    raw.cache.reason = HOSTILE.into();
    raw.volumes[0].state = State::Failed;
    raw.volumes[0].reason = HOSTILE.into();
    raw.volumes[0].config.backend = HOSTILE.into();
    let shown = of(raw, data.range);
    (data.status, data.report) = (shown.status, shown.report);
    data.filter = "because".into();
    for view in views(HOSTILE) {
        let html = render(&view, &data).expect("there is one");
        assert!(html.contains("&lt;script&gt;alert(1)") || view == View::Ssd, "{view:?}: {html}");
        assert_eq!(html.matches("<script").count(), 1, "{view:?}: its own alone");
        assert!(!html.contains("<style"), "{view:?}");
        for mark in ['\u{202E}', '\u{200F}'] {
            assert!(!html.contains(mark), "{view:?}");
        }
        for tag in html.split('<').skip(1).filter_map(|rest| rest.split_once('>')) {
            let attributes = tag.0.split('"').step_by(2).collect::<String>();
            let runs = attributes.contains(" on") || attributes.contains(" style");
            assert!(!runs, "{view:?}: {}", tag.0);
        }
    }
    let id = "volume-curve";
    let figure = figure(id, &data).expect("there is one");
    cinnabar_text::chart::well_formed::assert_well_formed(&figure.svg());
    assert!(
        problem("No", &Trouble { message: HOSTILE.into(), hint: HOSTILE.into() }, "1", false)
            .contains("&lt;script&gt;")
    );
}

#[test]
fn a_first_look_at_200_volumes_and_a_day_is_small() {
    let names: Vec<String> = (0..200).map(|at| format!("virtual-machine-{at:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut data = data(&names);
    data.rates = Some(Rates::of_windows(&Window::of(&samples(5)), &data.windows));
    let fixed = SCRIPT.len() + STYLE.len();
    for view in views(names[0]) {
        let html = render(&view, &data).expect("there is one");
        let bytes = html.len() + fixed;
        assert!(bytes <= FIRST_BYTES_MAX, "{view:?}: {bytes} bytes");
    }
    let first = render(&View::Overview, &data).expect("it is there");
    assert_eq!(first.matches("<tr data-volume").count(), ROWS_FIRST);
    assert!(first.contains("show all 200"));
    data.all_rows = true;
    let all = render(&View::Overview, &data).expect("it is there");
    assert_eq!(all.matches("<tr data-volume").count(), 200);
    let shares = figure("shares", &data).expect("a chart").csv();
    assert!(shares.starts_with("time (UTC),") && shares.contains(",192 others"), "{shares:.300}");
}

#[test]
fn numbers_are_those_of_the_status() {
    let data = data(&["vm1", "a b"]);
    let overview = render(&View::Overview, &data).expect("it is there");
    let cache = &data.report.cache;
    let value = |id: &str, value: u64| format!("<data id=\"{id}\" value=\"{value}\">");
    assert!(overview.contains(&value("cache:cached_blocks", cache.cached_blocks)), "{overview}");
    let own = &data.report.volumes[1];
    assert!(overview.contains(&value("v:a%20b:share_blocks", own.share_blocks)), "{overview}");
    let page = render(&View::Volume("vm1".into()), &data).expect("it is there");
    let own = &data.report.volumes[0];
    for (key, number) in [
        ("reads", own.reads),
        ("blocks_read", own.blocks_read),
        ("read_hits", own.read_hits),
        ("backend_reads", own.backend_reads),
        ("cached_blocks", own.cached_blocks),
    ] {
        assert!(page.contains(&value(&format!("v:vm1:{key}"), number)), "{key}");
    }
    assert!(page.contains("aria-valuenow=\"1073741824\"") && page.contains("role=\"slider\""));
    assert!(page.contains("cinnabar policy pin --socket /run/cinnabar/control.sock vm1 $size"));
    assert_eq!(render(&View::Volume("none".into()), &Data { volume: "none".into(), ..data }), None);
}

#[test]
fn who_deserves_more_is_the_one_that_gains_most() {
    let data = data(&["vm1", "vm2", "vm3"]);
    let html = render(&View::Overview, &data).expect("it is there");
    assert!(html.contains("<p id=\"best\" data-volume=\"vm3\">"), "{html}");
    let shares = render(&View::Shares, &data).expect("it is there");
    assert!(shares.contains("512 MiB") && shares.contains("planned (urd;"), "{shares}");
    let what_if = render(&View::WhatIf, &data).expect("it is there");
    assert!(what_if.contains("50.0 % of all reads are expected to hit now, 75.0 % would then."));
}

#[test]
fn a_live_view_hears_what_changed_alone() {
    let before = status(vec![volume("vm1", 1000), volume("vm2", 1000)]);
    let mut after = status(vec![volume("vm1", 1100), volume("vm2", 1000)]);
    after.cache.counters.flash_written_bytes += 5 << 20;
    let rates = Rates::between(&before, &after, 5.0).expect("time passed");
    let (one, other) = (rates.volumes["vm1"], rates.volumes["vm2"]);
    assert_eq!((one.reads, one.hit_ratio, rates.ssd_bytes), (20.0, Some(0.5), 1_048_576.0));
    assert_eq!((other.iops, other.hit_ratio), (0.0, None));
    let of = |status: &DataStatus, rates: Option<&Rates>| {
        let report = cinnabar_config::status::report::StatusReport::new(status);
        Facts::of(&Scope::Overview(10), &report, rates)
    };
    let (first, second) = (of(&before, Some(&rates)), of(&after, Some(&rates)));
    let changed: Vec<&str> = second.since(&first).into_keys().collect();
    assert_eq!(changed, ["cache:flash_written_bytes", "v:vm1:cached_blocks", "v:vm1:share_blocks"]);
    assert_eq!(second.get("v:vm1:now_hit_ratio").map(|fact| fact.text.as_str()), Some("50.0 %"));
    let report = cinnabar_config::status::report::StatusReport::new(&after);
    assert_eq!(Facts::of(&Scope::Cache, &report, None).get("v:vm1:state"), None);
}

#[test]
fn a_number_that_is_gone_is_not_left_standing() {
    let status = status(vec![volume("vm1", 1000)]);
    let report = cinnabar_config::status::report::StatusReport::new(&status);
    let rates = Rates::between(&status, &status, 5.0).expect("time passed");
    let before = Facts::of(&Scope::Overview(10), &report, Some(&rates));
    let after = Facts::of(&Scope::Overview(10), &report, None);
    let changed = after.since(&before);
    let gone = changed.get("v:vm1:now_iops").expect("it changed");
    assert_eq!((gone.text.as_str(), gone.value.as_str()), ("\u{2013}", ""));
    assert!(changed.contains_key("cache:now_backend_read_us"), "{changed:?}");
    assert!(before.since(&before).is_empty());
}

#[test]
fn a_budget_that_is_used_up_is_told_of_by_the_status() {
    let mut raw = status(Vec::new());
    let range = Range::read(None, None, None, NOW).expect("a range");
    let budget = |raw: &DataStatus| {
        let html = render(&View::Overview, &of(raw.clone(), range)).expect("it is there");
        html.contains("The budget of SSD writes is used up")
    };
    assert!(!budget(&raw));
    raw.cache.throttled = true;
    assert!(budget(&raw));
}

#[test]
fn points_that_end_at_other_moments_make_no_dip() {
    let mut data = data(&["vm1", "vm2"]);
    // It was attached again: its points end two minutes before those of the other.
    data.shares[1].1.iter_mut().for_each(|point| point.at_s -= 120);
    // One of them was late, and fell into the next step.
    data.shares[1].1[50].at_s += 130;
    // And for a while there was no daemon.
    data.shares.iter_mut().for_each(|(_, points)| drop(points.drain(100..120)));
    let csv = figure("shares", &data).expect("a chart").csv();
    let rows: Vec<&str> = csv.trim().lines().skip(1).collect();
    assert!(rows.iter().all(|row| !row.ends_with(",0") && !row.contains(",0,")), "{csv:.2000}");
    let empty = rows.iter().filter(|row| row.ends_with(",,")).count();
    assert_eq!((rows.len(), empty), (288 - 20 + 1, 1), "{csv:.500}");
}

#[test]
fn sizes_that_curves_do_not_reach_are_not_offered() {
    let mut data = data(&["vm1"]);
    let beyond = |data: &Data| {
        let html = render(&View::WhatIf, data).expect("it is there");
        assert!(
            html.contains("what-if?size=8589934592&amp;allocator=vm1"),
            "twice as large: {html}"
        );
        assert!(!html.contains("what-if?size=17179869184"), "{html}");
        html.contains("id=\"what-if-beyond\"")
    };
    assert!(!beyond(&data));
    data.what_if.as_mut().expect("it was asked").size_bytes = Some((8 << 30) + 4096);
    assert!(beyond(&data));
}

#[test]
fn links_to_other_ranges_keep_what_is_shown() {
    let mut data = data(&["vm1"]);
    data.all_rows = true;
    let html = render(&View::Overview, &data).expect("it is there");
    assert!(html.contains("href=\"/ui/?range=5m&amp;rows=all\""), "{html}");
}

#[test]
fn a_problem_is_looked_at_again_only_if_it_will_pass() {
    let trouble = Trouble::default();
    assert!(problem("No answer", &trouble, "1", true).contains(" data-retry"));
    assert!(!problem("Not found", &trouble, "1", false).contains(" data-retry"));
}
