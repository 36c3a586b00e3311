//! What was recorded, in figures.

use cinnabar_config::messages::recording::Intervals;
use cinnabar_control::recordings::Word;
use cinnabar_text::Table;
use cinnabar_text::cli::output;
use cinnabar_text::show_size;
use cinnabar_trace::{Counts, Record};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What ended a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// Ctrl-C, or another signal.
    Signal,
    /// `--duration`.
    Duration,
    /// `--max-size`.
    MaxSize,
    /// All volumes were removed.
    Removed,
    /// The daemon stopped.
    Stopping,
    /// It was ended, over the control socket.
    Asked,
    /// The connection broke.
    Lost,
}

/// What was heard so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The recording's number in the daemon.
    pub(super) id: u64,
    pub(super) counts: Counts,
    pub(super) dropped: u64,
    pub(super) elapsed: Duration,
    last_ts_us: u64,
    volumes: Vec<VolumeTally>,
    intervals: Option<Intervals>,
    cache_bytes: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct VolumeTally {
    /// In the trace.
    number: usize,
    name: String,
    #[serde(flatten)]
    counts: Counts,
    /// While it was recorded.
    removed: bool,
}

impl Tally {
    /// Counts a request; false if there is no such volume.
    pub(super) fn count(&mut self, record: &Record) -> bool {
        let Some(volume) = self.volumes.get_mut(record.volume as usize) else { return false };
        self.last_ts_us = record.ts_us;
        volume.counts.add(record);
        self.counts.add(record);
        true
    }

    /// Takes note of what the daemon says.
    pub(super) fn hear(&mut self, word: &Word) {
        match word {
            Word::Began { id, volumes, intervals, cache_bytes } => {
                (self.id, self.intervals, self.cache_bytes) = (*id, *intervals, *cache_bytes);
                let new = |(number, name): (usize, &String)| VolumeTally {
                    number,
                    name: name.clone(),
                    ..VolumeTally::default()
                };
                self.volumes = volumes.iter().enumerate().map(new).collect();
            }
            Word::Dropped { requests } => self.dropped = *requests,
            Word::Removed { volume } => {
                if let Some(volume) = self.volumes.get_mut(*volume as usize) {
                    volume.removed = true;
                }
            }
            Word::Ended { .. } => {}
        }
    }
}

/// The contract of `--json`. Keys are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    file: PathBuf,
    file_bytes: u64,
    ended: End,
    /// How long it was recorded.
    seconds: f64,
    #[serde(flatten)]
    counts: Counts,
    /// Requests that are missing because this reader was too slow.
    dropped: u64,
    /// Time of the last record.
    last_ts_us: u64,
    volumes: Vec<VolumeTally>,
    /// The manager's intervals, the first of which begins at time 0; absent without a manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    intervals: Option<Intervals>,
    /// The size of the cache that the manager plans for; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_bytes: Option<u64>,
}

impl Report {
    pub(super) fn new(file: &Path, file_bytes: u64, ended: End, tally: Tally) -> Self {
        let Tally { counts, dropped, elapsed, last_ts_us, volumes, .. } = tally;
        let (intervals, cache_bytes) = (tally.intervals, tally.cache_bytes);
        Self {
            file: file.to_owned(),
            file_bytes,
            ended,
            // Milliseconds: a command is no more exact.
            seconds: (elapsed.as_secs_f64() * 1e3).round() / 1e3,
            counts,
            dropped,
            last_ts_us,
            volumes,
            intervals,
            cache_bytes,
        }
    }

    /// What is not as hoped for, a line each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.dropped > 0 {
            all.push(format!(
                "{} requests are missing from the trace: they came faster than they could be \
                written; record fewer volumes, or to a faster disk",
                self.dropped
            ));
        }
        if self.counts.requests == 0 {
            all.push("nothing was asked for while it was recorded: the trace is empty".into());
        }
        if self.ended == End::MaxSize {
            all.push("ended early: the trace has the size that --max-size allows".into());
        }
        let gone = self.volumes.iter().filter(|volume| volume.removed);
        all.extend(gone.map(|volume| format!("volume {:?} was removed meanwhile", volume.name)));
        all
    }

    /// For people.
    pub(super) fn render(&self) -> String {
        let why = match self.ended {
            End::Signal => "ended by a signal",
            End::Duration => "ended by --duration",
            End::MaxSize => "ended by --max-size",
            End::Removed => "ended with its volumes",
            End::Stopping => "ended with the daemon",
            End::Asked => "ended over the control socket",
            End::Lost => "cut off",
        };
        let mut table = Table::new(2, &["trace", &self.file.display().to_string()]);
        let mut line = |name: &str, text: String| table.push(vec![name.to_owned(), text]);
        line("file", show_size(self.file_bytes));
        line("time", format!("{:.3} s, {why}", self.seconds));
        line("requests", format!("{}, and {} dropped", self.counts.requests, self.dropped));
        let header =
            ["VOLUME", "NUMBER", "READS", "WRITES", "FLUSHES", "DISCARDS", "READ", "WRITTEN"];
        let mut volumes = Table::new(1, &header);
        for volume in &self.volumes {
            let gone = if volume.removed { " (removed)" } else { "" };
            let of = &volume.counts;
            let counts = [of.reads, of.writes, of.flushes, of.discards];
            let mut row = vec![format!("{}{gone}", volume.name), volume.number.to_string()];
            row.extend(counts.map(|count| count.to_string()));
            row.extend([of.read_bytes, of.write_bytes].map(show_size));
            volumes.push(row);
        }
        format!("{}\n{}", output::table(&table), output::table(&volumes))
    }
}
