//! fio in the background, with a line of its log for each request: figures of any part of its time.

use anyhow::{Context, Result, ensure};
use e2e::{Fio, Running};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const END_LIMIT: Duration = Duration::from_mins(1);

/// What is written.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// `zipf:1.5`, or nothing for sequential writes.
    pub(super) law: Option<String>,
    pub(super) block_bytes: u64,
    pub(super) depth: u32,
    /// Which blocks are hot.
    pub(super) seed: u64,
}

impl Load {
    pub(super) fn zipf(theta: f64, block_bytes: u64, depth: u32, seed: u64) -> Self {
        Self { law: Some(format!("zipf:{theta}")), block_bytes, depth, seed }
    }

    fn job(&self, uri: &str) -> Fio {
        let job = Fio::nbd(uri).arg("bs", self.block_bytes).arg("iodepth", self.depth);
        let job = job.arg("randseed", self.seed).flag("time_based");
        match &self.law {
            Some(law) => job.arg("rw", "randwrite").arg("random_distribution", law),
            None => job.arg("rw", "write"),
        }
    }

    /// Begins to write all over a volume of `size` bytes, for at most `limit`.
    pub(super) fn start(
        &self,
        uri: &str,
        size: u64,
        limit: Duration,
        folder: &Path,
    ) -> Result<Going> {
        let log = folder.join("fio");
        let job = self.job(uri).arg("size", size).arg("runtime", limit.as_secs().max(1));
        let job = job.arg("write_lat_log", log.display()).arg("log_offset", 1);
        let job = job.arg("log_unix_epoch", 1);
        let began = now_s();
        let running = Running::start(&mut job.command(), &folder.join("fio.out"))?;
        Ok(Going { running, began, log: folder.join("fio_lat.1.log") })
    }
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A load under way.
pub(super) struct Going {
    running: Running,
    began: f64,
    log: PathBuf,
}

impl Going {
    /// Seconds since it began.
    pub(super) fn age_s(&self) -> f64 {
        now_s() - self.began
    }

    /// Ends it; all that it wrote.
    pub(super) fn end(mut self) -> Result<Trace> {
        // It may have come to its end by itself.
        let _gone = self.running.ask_to_end();
        self.running.wait(END_LIMIT).context("ending fio")?;
        let text = std::fs::read_to_string(&self.log)
            .with_context(|| format!("fio has left no log: {}", self.running.log()))?;
        std::fs::remove_file(&self.log)?;
        let trace = Trace::parse(&text, self.began)?;
        ensure!(!trace.0.is_empty(), "fio has written nothing: {}", self.running.log());
        Ok(trace)
    }
}

/// A write that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Write {
    /// Seconds after the load began.
    pub(super) end_s: f64,
    pub(super) latency_ms: f64,
    pub(super) offset: u64,
}

/// All writes of a load, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace(pub(super) Vec<Write>);

/// Figures of a part of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) writes: usize,
    pub(super) iops: f64,
    pub(super) mean_ms: f64,
    pub(super) p99_ms: f64,
}

impl Trace {
    /// Lines of fio: time in ms, latency in ns, direction, bytes, offset, priority.
    fn parse(text: &str, began_s: f64) -> Result<Self> {
        let line = |line: &str| -> Option<Write> {
            let mut fields = line.split(',').map(str::trim);
            let end_ms: f64 = fields.next()?.parse().ok()?;
            let latency_ns: f64 = fields.next()?.parse().ok()?;
            let offset = fields.nth(2)?.parse().ok()?;
            Some(Write { end_s: end_ms / 1e3 - began_s, latency_ms: latency_ns / 1e6, offset })
        };
        let parse = |text: &str| line(text).with_context(|| format!("no line of fio's: {text}"));
        let mut writes = text.lines().map(parse).collect::<Result<Vec<_>>>()?;
        writes.sort_by(|a, b| a.end_s.total_cmp(&b.end_s));
        Ok(Self(writes))
    }

    /// Those that ended from one second up to another one.
    pub(super) fn part(&self, from_s: f64, to_s: f64) -> &[Write] {
        let place = |s: f64| self.0.partition_point(|write| write.end_s < s);
        let (from, to) = (place(from_s), place(to_s));
        self.0.get(from..to).unwrap_or_default()
    }

    /// Figures of that part.
    pub(super) fn figures(&self, from_s: f64, to_s: f64) -> Figures {
        let part = self.part(from_s, to_s);
        let latencies = part.iter().map(|write| write.latency_ms).collect();
        let seconds = to_s - from_s;
        Figures { iops: part.len() as f64 / seconds, ..figures(latencies) }
    }

    /// The fewest extents that take this part of the writes.
    pub(super) fn extents_of(&self, share: f64, extent_bytes: u64) -> usize {
        let mut counts = HashMap::<u64, usize>::new();
        for write in &self.0 {
            *counts.entry(write.offset / extent_bytes).or_default() += 1;
        }
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = share * self.0.len() as f64;
        let mut sum = 0.0;
        for (number, count) in counts.iter().enumerate() {
            sum += *count as f64;
            if sum >= wanted {
                return number + 1;
            }
        }
        counts.len()
    }
}

/// Figures of some writes' latencies; their rate is not known.
pub(super) fn figures(mut latencies: Vec<f64>) -> Figures {
    latencies.sort_by(f64::total_cmp);
    let writes = latencies.len();
    let p99_ms = latencies.get(writes * 99 / 100).copied().unwrap_or(f64::NAN);
    let mean_ms = latencies.iter().sum::<f64>() / writes as f64;
    Figures { writes, iops: f64::NAN, mean_ms, p99_ms }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn figures_are_those_of_the_part() {
        let mut lines = String::new();
        for i in 0..1000_u64 {
            let (at_ms, latency_ns, offset) =
                (10_000 + i * 10, 1_000_000 * (i % 100), (i % 4) << 20);
            let _ok = writeln!(lines, "{at_ms}, {latency_ns}, 1, 4096, {offset}, 0");
        }
        let trace = Trace::parse(&lines, 10.0).expect("fio's lines");
        let figures = trace.figures(2.0, 4.0);
        assert_eq!(figures.writes, 200);
        assert!((figures.iops - 100.0).abs() < 1e-9, "{figures:?}");
        assert!((figures.p99_ms - 99.0).abs() < 1e-9, "{figures:?}");
        assert_eq!(trace.extents_of(0.5, 1 << 20), 2);
        assert!(Trace::parse("7, x, 1, 4096, 0, 0", 0.0).is_err());
    }
}
