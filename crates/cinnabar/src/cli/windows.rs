//! What volumes did in the last second, 5 minutes, hour and day: of two statuses, and of the daemon's
//! history.

use super::client::Daemon;
use cinnabar_config::history::{SampleReport, SamplesReport};
use cinnabar_config::status::report::{OperationLatency, StatusReport, VolumeReport};
use cinnabar_control::path::escape;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::cli::output;
use cinnabar_text::{Failure, Table};
use clap::ValueEnum;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The history has no newer samples more often.
const FETCH_EVERY: Duration = Duration::from_secs(10);

/// How far back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Span {
    /// Since the last look
    #[value(name = "1s")]
    Last,
    /// 5 minutes
    #[value(name = "5min")]
    Minutes,
    /// An hour
    #[value(name = "1h")]
    Hour,
    /// A day
    #[value(name = "24h")]
    Day,
}

/// What was done in a while, by a volume or by all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Done {
    /// Of which something is known; less than the window if the daemon began within it.
    seconds: f64,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
    read_blocks: u64,
    hit_blocks: u64,
    backend_ios: u64,
    read_us: f64,
    write_us: f64,
}

/// A window of a volume, or of all, as programs read it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Window {
    /// The volume; null: all together.
    volume: Option<String>,
    /// Its length: `1s` (since the last look), `5min`, `1h`, `24h`.
    #[serde(rename = "window")]
    name: &'static str,
    /// Of it, something is known of so many seconds.
    seconds: f64,
    reads_per_s: f64,
    writes_per_s: f64,
    read_bytes_per_s: f64,
    write_bytes_per_s: f64,
    /// Null: nothing was read.
    hit_ratio: Option<f64>,
    /// Null: none.
    read_mean_us: Option<f64>,
    write_mean_us: Option<f64>,
    backend_ios_per_s: f64,
}

/// Looks again and again.
#[derive(Debug)]
pub(super) struct Watch {
    spans: Vec<Span>,
    last: Option<(Instant, StatusReport)>,
    fetched: Option<Instant>,
    /// By volume, `None` of all: samples of the last hour, and coarse ones of the last day.
    history: BTreeMap<Option<String>, [SamplesReport; 2]>,
}

impl Span {
    const fn seconds(self) -> u64 {
        match self {
            Self::Last => 1,
            Self::Minutes => 300,
            Self::Hour => 3600,
            Self::Day => 86_400,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Last => "1s",
            Self::Minutes => "5min",
            Self::Hour => "1h",
            Self::Day => "24h",
        }
    }
}

impl Watch {
    /// With windows of these lengths; of all if none is named.
    pub(super) fn new(spans: &[Span]) -> Self {
        let spans = if spans.is_empty() { Span::value_variants() } else { spans };
        let spans = spans.to_vec();
        Self { spans, last: None, fetched: None, history: BTreeMap::new() }
    }

    /// Looks at a status and, if it is time to, at the history.
    pub(super) fn look(
        &mut self,
        daemon: &Daemon,
        now: Instant,
        status: &StatusReport,
    ) -> Result<Vec<Window>, Failure> {
        let is_due = self.fetched.is_none_or(|at| now - at >= FETCH_EVERY);
        if is_due && self.spans.iter().any(|span| *span != Span::Last) {
            self.fetch(daemon, status)?;
            self.fetched = Some(now);
        }
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let windows = self.windows(now, now_ms as u64, status);
        self.last = Some((now, status.clone()));
        Ok(windows)
    }

    fn fetch(&mut self, daemon: &Daemon, status: &StatusReport) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let get = |name: Option<&str>, step: u64, span: Span| {
            let since = now.saturating_sub(Duration::from_secs(span.seconds())).as_millis();
            let volume = name.map(|name| format!("&volume={}", escape(name))).unwrap_or_default();
            daemon.get::<SamplesReport>(&format!("/v1/history?since={since}&step={step}{volume}"))
        };
        self.history.clear();
        let mut known = Vec::new();
        let all = (status.volumes.len() > 1).then_some(None);
        for name in all.into_iter().chain(status.volumes.iter().map(|one| Some(&*one.name))) {
            // Of a volume that is new or that waits there is none yet.
            if name.is_some_and(|name| !known.is_empty() && !known.iter().any(|one| one == name)) {
                continue;
            }
            let Ok(hour) = get(name, 10, Span::Hour) else { continue };
            known.clone_from(&hour.volumes);
            let day = get(name, 300, Span::Day)?;
            self.history.insert(name.map(str::to_owned), [hour, day]);
        }
        Ok(())
    }

    fn windows(&self, now: Instant, now_ms: u64, status: &StatusReport) -> Vec<Window> {
        let last = self.last.as_ref().map(|(then, last)| ((now - *then).as_secs_f64(), last));
        let mut live: Vec<(Option<&str>, Done)> = status
            .volumes
            .iter()
            .map(|new| (Some(&*new.name), last.map_or_else(Done::default, |last| since(new, last))))
            .collect();
        if live.len() > 1 {
            let sum = live.iter().fold(Done::default(), |sum, (_, one)| sum.beside(one));
            live.push((None, sum));
        }
        let mut windows = Vec::new();
        for (name, live) in live {
            let history = self.history.get(&name.map(str::to_owned));
            for span in &self.spans {
                let done = match (span, history) {
                    (Span::Last, _) => live,
                    (_, None) => Done::default(),
                    (span, Some([hour, day])) => {
                        let (coarse, fine) = (&day.samples, &hour.samples);
                        let coarse = if *span == Span::Day { &coarse[..] } else { &[] };
                        // The last minutes are in no coarse sample yet.
                        let covered_ms = coarse.last().map_or(0, |sample| sample.at_ms);
                        let fine = fine.iter().filter(|sample| sample.at_ms > covered_ms);
                        let from_ms = now_ms.saturating_sub(span.seconds() * 1000);
                        let all = coarse.iter().chain(fine);
                        Done::of(all.filter(|sample| sample.at_ms > from_ms))
                    }
                };
                windows.push(done.window(name, *span));
            }
        }
        windows
    }
}

/// What a volume did since the last look. One that was added in between counts from zero; so does one
/// that was removed and added again.
fn since(new: &VolumeReport, (seconds, last): (f64, &StatusReport)) -> Done {
    let old = last.volumes.iter().find(|old| old.name == new.name && old.reads <= new.reads);
    let count = |value: fn(&VolumeReport) -> u64| value(new).saturating_sub(old.map_or(0, value));
    Done {
        seconds,
        reads: count(|own| own.reads),
        writes: count(|own| own.writes),
        read_bytes: count(|own| own.read_bytes),
        write_bytes: count(|own| own.write_bytes),
        read_blocks: count(|own| own.blocks_read),
        hit_blocks: count(|own| own.read_hits),
        backend_ios: count(|own| own.backend_reads + own.backend_writes),
        read_us: mean(&new.latency_us.read, old.map(|old| &old.latency_us.read)),
        write_us: mean(&new.latency_us.write, old.map(|old| &old.latency_us.write)),
    }
}

/// The mean of the operations that ended in between; 0 of none.
fn mean(new: &OperationLatency, old: Option<&OperationLatency>) -> f64 {
    let (sum, count) = old.map_or((0, 0), |old| (old.sum_us, old.count));
    new.sum_us.saturating_sub(sum) as f64 / new.count.saturating_sub(count).max(1) as f64
}

/// The mean of two means.
fn mixed((one_us, one): (f64, u64), (other_us, other): (f64, u64)) -> f64 {
    (one_us * one as f64 + other_us * other as f64) / (one + other).max(1) as f64
}

impl Done {
    /// All of these samples. They know blocks, not bytes.
    fn of<'s>(samples: impl Iterator<Item = &'s SampleReport>) -> Self {
        samples.fold(Self::default(), |sum, sample| {
            let one = Self {
                seconds: sample.seconds,
                reads: sample.reads,
                writes: sample.writes,
                read_bytes: sample.read_blocks * BLOCK_BYTES,
                write_bytes: sample.written_blocks * BLOCK_BYTES,
                read_blocks: sample.read_blocks,
                hit_blocks: sample.hit_blocks,
                backend_ios: sample.backend_reads + sample.backend_writes,
                read_us: sample.read_mean_us as f64,
                write_us: sample.write_mean_us as f64,
            };
            Self { seconds: sum.seconds + one.seconds, ..sum.beside(&one) }
        })
    }

    /// With what another volume did at the same time.
    fn beside(&self, other: &Self) -> Self {
        Self {
            seconds: self.seconds.max(other.seconds),
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
            read_blocks: self.read_blocks + other.read_blocks,
            hit_blocks: self.hit_blocks + other.hit_blocks,
            backend_ios: self.backend_ios + other.backend_ios,
            read_us: mixed((self.read_us, self.reads), (other.read_us, other.reads)),
            write_us: mixed((self.write_us, self.writes), (other.write_us, other.writes)),
        }
    }

    fn window(&self, volume: Option<&str>, span: Span) -> Window {
        let rate = |count: u64| count as f64 / self.seconds.max(1e-3);
        Window {
            volume: volume.map(str::to_owned),
            name: span.name(),
            seconds: self.seconds,
            reads_per_s: rate(self.reads),
            writes_per_s: rate(self.writes),
            read_bytes_per_s: rate(self.read_bytes),
            write_bytes_per_s: rate(self.write_bytes),
            hit_ratio: (self.read_blocks > 0)
                .then(|| self.hit_blocks as f64 / self.read_blocks as f64),
            read_mean_us: (self.reads > 0).then_some(self.read_us),
            write_mean_us: (self.writes > 0).then_some(self.write_us),
            backend_ios_per_s: rate(self.backend_ios),
        }
    }
}

/// Windows for people, the volume's name on its first line.
pub(super) fn render(windows: &[Window]) -> String {
    let header = [
        "VOLUME",
        "LAST",
        "READS/s",
        "WRITES/s",
        "READ MB/s",
        "WRITE MB/s",
        "HITS",
        "READ",
        "WRITE",
        "BACKEND/s",
    ];
    let mut table = Table::new(2, &header).least(&["WRITE", "BACKEND/s", "READ", "WRITE MB/s"]);
    let mut before = None;
    for one in windows {
        let name = one.volume.as_deref().unwrap_or("(all)");
        let first = before.replace(name) != Some(name);
        let mut row = vec![if first { name.to_owned() } else { String::new() }, length(one)];
        if one.seconds > 0.0 {
            let ratio = one.hit_ratio.map(|ratio| format!("{:.1}%", ratio * 100.0));
            row.extend([
                format!("{:.0}", one.reads_per_s),
                format!("{:.0}", one.writes_per_s),
                format!("{:.1}", one.read_bytes_per_s / 1e6),
                format!("{:.1}", one.write_bytes_per_s / 1e6),
                ratio.unwrap_or_else(|| "-".into()),
                time(one.read_mean_us),
                time(one.write_mean_us),
                format!("{:.0}", one.backend_ios_per_s),
            ]);
        } else {
            row.extend(vec!["-".to_owned(); header.len() - 2]);
        }
        table.push(row);
    }
    output::table(&table)
}

/// A mean, `-` of none.
#[expect(clippy::cast_sign_loss, reason = "means are positive, and the cast saturates")]
fn time(us: Option<f64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| output::time(us.round() as u64))
}

/// `5 min`, or `80 s of 5 min` if no more is known.
fn length(window: &Window) -> String {
    let (name, whole) = match window.name {
        "5min" => ("5 min", 300.0),
        "1h" => ("1 h", 3600.0),
        "24h" => ("24 h", 86_400.0),
        _ if window.seconds >= 0.95 || window.seconds == 0.0 => {
            return format!("{:.0} s", window.seconds.max(1.0));
        }
        _ => return format!("{:.1} s", window.seconds),
    };
    match window.seconds {
        seconds if seconds == 0.0 || seconds >= 0.9 * whole => name.to_owned(),
        seconds if seconds < 600.0 => format!("{seconds:.0} s of {name}"),
        seconds => format!("{:.0} min of {name}", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::sample;

    fn two_volumes(reads: u64) -> StatusReport {
        let mut report = StatusReport::new(&sample(reads));
        let mut other = report.volumes[0].clone();
        other.name = "vm2".into();
        (other.writes, other.write_bytes) = (reads / 2, reads * 4096);
        report.volumes.push(other);
        report
    }

    #[test]
    fn the_last_second_is_the_difference_of_two_looks() {
        let mut watch = Watch::new(&[Span::Last]);
        let begun = Instant::now();
        let first = watch.windows(begun, 0, &two_volumes(20_000));
        assert!(first.iter().all(|one| one.seconds == 0.0), "nothing is known yet");
        assert!(render(&first).contains("vm1     1 s"), "{}", render(&first));
        watch.last = Some((begun, two_volumes(20_000)));
        let second = watch.windows(begun + Duration::from_secs(2), 0, &two_volumes(40_000));
        assert_eq!(second.len(), 3, "two volumes, and both together");
        assert_eq!((second[0].reads_per_s, second[0].hit_ratio), (10_000.0, Some(0.75)));
        assert_eq!((second[1].writes_per_s, second[1].write_bytes_per_s), (5_000.0, 40_960_000.0));
        assert_eq!((second[2].volume.as_ref(), second[2].reads_per_s), (None, 20_000.0));
        assert_eq!(second[2].read_mean_us, Some(0.0));
        let text = render(&second);
        assert!(text.contains("(all)   2 s") && text.contains("41.0"), "{text}");
    }

    #[test]
    fn longer_windows_are_sums_of_the_history() {
        let at = |at_s: u64, reads: u64, read_mean_us: u64| SampleReport {
            at_ms: at_s * 1000,
            seconds: 10.0,
            reads,
            read_blocks: 2 * reads,
            hit_blocks: reads,
            read_mean_us,
            ..SampleReport::default()
        };
        let samples = vec![at(10, 1000, 50), at(3000, 100, 10), at(3010, 300, 30)];
        let hour = SamplesReport { samples, ..SamplesReport::default() };
        let mut watch = Watch::new(&[]);
        watch.history.insert(Some("vm1".into()), [hour, SamplesReport::default()]);
        let status = StatusReport::new(&sample(8));
        let windows = watch.windows(Instant::now(), 3_010_000, &status);
        let names: Vec<_> = windows.iter().map(|one| one.name).collect();
        assert_eq!(names, ["1s", "5min", "1h", "24h"]);
        let minutes = &windows[1];
        assert_eq!((minutes.seconds, minutes.reads_per_s), (20.0, 20.0));
        assert_eq!((minutes.writes_per_s, minutes.read_bytes_per_s), (0.0, 163_840.0));
        assert_eq!((minutes.hit_ratio, minutes.read_mean_us), (Some(0.5), Some(25.0)));
        assert_eq!((windows[2].seconds, windows[3].seconds), (30.0, 30.0));
        let text = render(&windows);
        assert!(text.contains("20 s of 5 min") && text.contains("30 s of 24 h"), "{text}");
        let coarse = SampleReport { seconds: 300.0, ..at(3000, 5000, 20) };
        let day = SamplesReport { samples: vec![coarse], ..SamplesReport::default() };
        watch.history.get_mut(&Some("vm1".into())).expect("it is there")[1] = day;
        let windows = watch.windows(Instant::now(), 3_010_000, &status);
        assert_eq!((windows[2].seconds, windows[3].seconds), (30.0, 310.0), "the newest, too");
    }
}
