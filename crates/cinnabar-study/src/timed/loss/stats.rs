//! What is told of a loss: rounded as it is written, for JSON and as a table. Keys are only ever added.

use super::super::latency::Latency;
use super::report::{HostPhase, LossReport, Phase};
use cinnabar_text::Table;
use serde::{Deserialize, Serialize};

/// A value for each phase.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Phases<T> {
    /// Until the loss.
    pub before: T,
    /// Until the host that lost its cache was warm again, or to the end.
    pub during: T,
    /// From there to the end.
    pub after: T,
}

/// What hosts saw in a phase.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PhaseStats {
    /// Reads, and how many of them a second.
    pub reads: u64,
    /// See [`PhaseStats::reads`].
    pub reads_per_s: f64,
    /// Share of blocks read, 0 to 1, that the host had.
    pub hit_share: f64,
    /// Mean latency of reads, in microseconds.
    pub read_mean_us: f64,
    /// 99th percentile of reads, in microseconds.
    pub read_p99_us: f64,
    /// Writes.
    pub writes: u64,
    /// Mean latency of writes, in microseconds.
    pub write_mean_us: f64,
    /// 99th percentile of writes, in microseconds.
    pub write_p99_us: f64,
}

/// All that is told of a loss.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LossStats {
    /// The host that lost its cache; the first is 0.
    pub host: u32,
    /// Seconds until it was warm again; none if it was not by the end.
    pub warm_up_s: Option<f64>,
    /// How long the phases lasted, in seconds.
    pub seconds: Phases<f64>,
    /// Each host, in the order of their numbers.
    pub hosts: Vec<Phases<PhaseStats>>,
    /// All but the one that lost its cache, together.
    pub others: Phases<PhaseStats>,
}

fn rounded(value: f64, per_unit: f64) -> f64 {
    (value * per_unit).round() / per_unit
}

fn micros(ns: f64) -> f64 {
    rounded(ns / 1e3, 1e3)
}

impl PhaseStats {
    fn new(seen: &HostPhase, ns: u64) -> Self {
        let mean = |latency: &Latency| micros(latency.mean_ns());
        let p99 = |latency: &Latency| micros(latency.percentile_ns(99.0) as f64);
        let seconds = ns as f64 / 1e9;
        let rate = if ns == 0 { 0.0 } else { seen.reads.count() as f64 / seconds };
        Self {
            reads: seen.reads.count(),
            reads_per_s: rounded(rate, 1e3),
            hit_share: rounded(seen.hit_share(), 1e6),
            read_mean_us: mean(&seen.reads),
            read_p99_us: p99(&seen.reads),
            writes: seen.writes.count(),
            write_mean_us: mean(&seen.writes),
            write_p99_us: p99(&seen.writes),
        }
    }
}

impl<T> Phases<T> {
    fn of(mut value: impl FnMut(Phase) -> T) -> Self {
        let [before, during, after] = Phase::ALL.map(&mut value);
        Self { before, during, after }
    }

    /// In their order.
    pub fn each(&self) -> [&T; 3] {
        [&self.before, &self.during, &self.after]
    }
}

impl LossStats {
    /// What is told of a report.
    pub fn new(report: &LossReport) -> Self {
        let ns = |phase: Phase| report.phases_ns[phase as usize];
        let seconds = |ns: u64| rounded(ns as f64 / 1e9, 1e6);
        let stats = |seen: &HostPhase, phase: Phase| PhaseStats::new(seen, ns(phase));
        let host = |host: &[HostPhase; 3]| Phases::of(|phase| stats(&host[phase as usize], phase));
        Self {
            host: report.host,
            warm_up_s: report.warm_up_ns().map(seconds),
            seconds: Phases::of(|phase| seconds(ns(phase))),
            hosts: report.hosts.iter().map(host).collect(),
            others: Phases::of(|phase| stats(&report.others(phase), phase)),
        }
    }

    /// For people: a line about the warm-up, and a table with a row for each host, of its reads.
    pub fn render(&self, room: Option<usize>) -> String {
        let Phases { before, during, after } = self.seconds;
        let ending = match self.warm_up_s {
            Some(warm_up) => {
                format!("was warm again after {warm_up:.1} s, {after:.1} s before the end")
            }
            None => format!("was not warm again by the end, after {during:.1} s"),
        };
        let text = format!("host {} lost its cache after {before:.1} s and {ending}\n", self.host);
        let mut header = vec!["READS OF".to_owned()];
        for phase in ["BEFORE", "DURING", "AFTER"] {
            for column in ["/S", "HIT %", "US", "P99"] {
                header.push(format!("{phase} {column}"));
            }
        }
        let mut table = Table::new(1, &header);
        for (number, host) in self.hosts.iter().enumerate() {
            let lost = if number == self.host as usize { ", its cache lost" } else { "" };
            table.push(row(format!("host {number}{lost}"), host));
        }
        table.push(row("all others".to_owned(), &self.others));
        text + &table.render(room)
    }
}

fn row(name: String, phases: &Phases<PhaseStats>) -> Vec<String> {
    let mut cells = vec![name];
    for seen in phases.each() {
        if seen.reads == 0 {
            cells.extend(["-"; 4].map(str::to_owned));
            continue;
        }
        let PhaseStats { reads_per_s, hit_share, read_mean_us, read_p99_us, .. } = seen;
        cells.extend(
            [reads_per_s, &(hit_share * 100.0), read_mean_us, read_p99_us]
                .map(|value| format!("{value:.1}")),
        );
    }
    cells
}
