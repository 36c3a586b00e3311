//! One recording, from its first word to its last.
//!
//! Whatever ends it, what came until then is kept.

use super::lines::{Gibberish, Line, Lines};
use super::report::{End, Tally};
use crate::cli::client::Daemon;
use cinnabar_config::messages::recording::Ending;
use cinnabar_control::recordings::{RecordInput, Word};
use cinnabar_daemon::signals::Signals;
use cinnabar_text::Failure;
use cinnabar_text::cli::progress::Progress;
use cinnabar_text::cli::trace_file::cannot_write;
use cinnabar_text::show_size;
use cinnabar_trace::{Record, TraceFile};
use http_body_util::BodyExt;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Longest line of a canonical trace: times and places of 20 digits, a volume of 8.
pub(super) const LINE_BYTES_MAX: u64 = 4 * 20 + 6;
/// Longest line that names a volume: its words, a number of 8 digits, a name of 256 bytes, the end.
const NAME_BYTES_MAX: u64 = 9 + 8 + 1 + 256 + 1;
/// Time for the daemon to send the rest, once it was asked to end.
const REST_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often the line on the terminal is rewritten.
const SHOW_EVERY: Duration = Duration::from_millis(250);
/// Farther than anybody waits.
const FOR_EVER: Duration = Duration::from_hours(24 * 365 * 30);

/// When to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) duration: Option<Duration>,
    /// Of the trace as text.
    pub(super) bytes_max: u64,
}

/// Where requests go.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    path: &'a Path,
    pub(super) file: TraceFile,
    pub(super) tally: Tally,
    bytes: u64,
    bytes_max: u64,
}

/// Why no more lines are taken.
enum Stopped {
    Failed(Failure),
    Gibberish(Gibberish),
    /// The trace is as large as it may be.
    Full,
}

impl From<Gibberish> for Stopped {
    fn from(gibberish: Gibberish) -> Self {
        Self::Gibberish(gibberish)
    }
}

impl<'a> Sink<'a> {
    pub(super) fn new(path: &'a Path, file: TraceFile, bytes_max: u64) -> Self {
        Self { path, file, tally: Tally::default(), bytes: 0, bytes_max }
    }

    /// Writes down what the volumes are called, by their numbers in the trace, as far as that leaves
    /// room for a request.
    fn name(&mut self, volumes: &[String]) -> Result<(), Stopped> {
        for (number, name) in (0..).zip(volumes) {
            if self.bytes + NAME_BYTES_MAX + LINE_BYTES_MAX > self.bytes_max {
                break;
            }
            let written = self.file.name(number, name);
            self.bytes +=
                written.map_err(|error| Stopped::Failed(cannot_write(self.path, &error)))?;
        }
        Ok(())
    }

    fn write(&mut self, record: &Record) -> Result<(), Stopped> {
        let bytes = line_bytes(record);
        if self.bytes + bytes > self.bytes_max {
            return Err(Stopped::Full);
        }
        if !self.tally.count(record) {
            // Said as if by the daemon: it is its mistake.
            let (line, source) = (self.tally.counts.requests, cinnabar_trace::Problem::Volume);
            return Err(Gibberish::from(cinnabar_trace::TraceError::Line { line, source }).into());
        }
        self.bytes += bytes;
        let written = self.file.write(record);
        written.map_err(|error| Stopped::Failed(cannot_write(self.path, &error)))
    }
}

/// Records until something ends it.
pub(super) async fn record(
    daemon: &Daemon,
    input: &RecordInput,
    limits: &Limits,
    sink: &mut Sink<'_>,
) -> Result<End, Failure> {
    let mut body = daemon.stream("/v1/recordings", input).await?;
    // From here on a signal ends the recording and not the process.
    let mut signals =
        Signals::new().map_err(|error| Failure::at_run_time(format!("no signals: {error}"), ""))?;
    let began = Instant::now();
    let until_us = limits.duration.map(|duration| duration.as_micros());
    let mut due = began + limits.duration.unwrap_or(FOR_EVER).min(FOR_EVER);
    let mut show = tokio::time::interval(SHOW_EVERY);
    let (mut line, mut lines) = (Progress::new(), Lines::default());
    let (mut ended, mut asked) = (None, None);
    let mut silence = std::pin::pin!(daemon.silence());
    loop {
        tokio::select! {
            frame = body.frame() => {
                let Some(Ok(frame)) = frame else { break };
                let Ok(piece) = frame.into_data() else { continue };
                let taken = lines.push(&piece, |line| match line {
                    // The clock that counts is the daemon's.
                    Line::Request(record) if is_late(&record, until_us) => Ok(()),
                    Line::Request(record) => sink.write(&record),
                    Line::Word(word) => {
                        sink.tally.hear(&word);
                        match word {
                            Word::Began { volumes, .. } => {
                                announce(&volumes, sink.path);
                                sink.name(&volumes)?;
                            }
                            Word::Ended { reason } => ended = Some(reason),
                            Word::Dropped { .. } | Word::Removed { .. } => {}
                        }
                        Ok(())
                    }
                });
                match taken {
                    Ok(()) => {}
                    Err(Stopped::Full) => {
                        asked = Some(End::MaxSize);
                        break;
                    }
                    Err(Stopped::Gibberish(what)) => return Err(daemon.gibberish(&what)),
                    Err(Stopped::Failed(failure)) => return Err(failure),
                }
            }
            end = asked_to_end(&mut signals, due) => {
                if asked.is_some() {
                    // A second signal, or the daemon does not get to an end.
                    break;
                }
                asked = Some(end);
                due = Instant::now() + REST_WAIT_MAX;
                let path = format!("/v1/recordings/{}", sink.tally.id);
                // If it can't be asked the answer ends anyhow, or is given up.
                tokio::spawn(daemon.clone().delete_within(path));
            }
            // Volumes that rest send nothing; a daemon that does not turn sends nothing either.
            _ = &mut silence => break,
            _ = show.tick() => {}
        }
        line.show(|| progress(sink, began.elapsed()));
    }
    sink.tally.elapsed = began.elapsed();
    Ok(match (asked, ended) {
        (Some(end), _) => end,
        (None, Some(Ending::Asked)) => End::Asked,
        (None, Some(Ending::Removed)) => End::Removed,
        (None, Some(Ending::Stopping)) => End::Stopping,
        (None, None) => End::Lost,
    })
}

/// Says that requests are recorded from now on: scripts wait for it, too.
fn announce(volumes: &[String], path: &Path) {
    let what = match volumes {
        [name] => name.clone(),
        all => format!("{} volumes", all.len()),
    };
    // If stderr is gone there is nobody to tell.
    let _gone = writeln!(std::io::stderr().lock(), "recording {what} to {}", path.display());
}

/// Waits until it is time to end, or that is asked for.
async fn asked_to_end(signals: &mut Signals, due: Instant) -> End {
    tokio::select! {
        () = signals.next() => End::Signal,
        () = sleep_until(due) => End::Duration,
    }
}

fn is_late(record: &Record, until_us: Option<u128>) -> bool {
    until_us.is_some_and(|until_us| u128::from(record.ts_us) > until_us)
}

fn progress(sink: &Sink<'_>, elapsed: Duration) -> String {
    let Tally { counts, dropped, .. } = sink.tally;
    let dropped = if dropped > 0 { format!(", {dropped} dropped") } else { String::new() };
    let (size, seconds) = (show_size(sink.bytes), elapsed.as_secs());
    format!("{} requests in {seconds} s, {size} as text{dropped}; Ctrl-C ends it", counts.requests)
}

/// Bytes of a line of the trace.
fn line_bytes(record: &Record) -> u64 {
    let digits = |number: u64| u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
    let Record { ts_us, volume, offset_bytes, length_bytes, .. } = *record;
    let numbers = [ts_us, u64::from(volume), offset_bytes, length_bytes];
    // The operation, four commas, the end.
    numbers.map(digits).iter().sum::<u64>() + 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_trace::Op;
    use cinnabar_trace::write::Writer;

    #[test]
    fn a_recording_keeps_the_names_of_its_volumes() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("two.csv.zst");
        let file = TraceFile::create(&path).expect("a new file");
        let mut sink = Sink::new(&path, file, 1 << 20);
        let volumes = vec!["vm1".to_owned(), "vm2".to_owned()];
        let (intervals, cache_bytes) = (None, None);
        sink.tally.hear(&Word::Began { id: 1, volumes: volumes.clone(), intervals, cache_bytes });
        assert!(sink.name(&volumes).is_ok());
        let (op, length_bytes) = (Op::Write, 4096);
        let record = Record { ts_us: 7, volume: 1, op, offset_bytes: 0, length_bytes };
        assert!(sink.write(&record).is_ok());
        assert_eq!(sink.bytes, "# volume 0 vm1\n# volume 1 vm2\n7,1,W,0,4096\n".len() as u64);
        sink.file.finish().expect("there is room");
        let mut trace = cinnabar_trace::open(&path).expect("it is a trace");
        let read = trace.next().expect("one request").expect("it is one");
        assert_eq!(read, record);
        assert_eq!(trace.volume_name(read.volume), "vm2");
    }

    #[test]
    fn the_length_of_a_line_is_that_of_what_is_written() {
        for (ts_us, volume, offset_bytes, length_bytes) in
            [(0, 0, 0, 0), (9, 10, 99, 100), (u64::MAX, Record::VOLUME_MAX, 1 << 51, 1 << 51)]
        {
            let op = Op::Discard;
            let record = Record { ts_us, volume, op, offset_bytes, length_bytes };
            let mut writer = Writer::new(Vec::new());
            writer.write(&record).expect("it is a record");
            let bytes = writer.into_inner().len() as u64;
            assert_eq!(line_bytes(&record), bytes, "{record:?}");
            assert!(bytes <= LINE_BYTES_MAX);
        }
    }
}
