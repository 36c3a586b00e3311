//! Recordings of what guests ask for, as it is asked.
//!
//! Every request of a guest passes `admit`, whichever front end it came through and whichever thread
//! will serve it. Without a recording that costs a look at an empty list.

use super::plane::DataPlane;
use cinnabar_config::messages::recording::{
    BUFFER_REQUESTS, Ending, Intervals, RECORDINGS_MAX, RecordSender, Recording, buffer,
};
use cinnabar_config::messages::{CommandError, CommandErrorKind};
use cinnabar_engine::Op;
use cinnabar_engine::units::Instant;
use cinnabar_trace::{Op as TraceOp, Record};

/// In place of the number of a volume that is not recorded.
const NONE: u32 = u32::MAX;

/// All that are under way.
#[derive(Default)]
pub(super) struct Recordings {
    all: Vec<Running>,
    begun: u64,
    /// The volumes that are recorded are others than when this was last asked.
    changed: bool,
    /// Length of the manager's intervals, if there is one.
    every_us: Option<u64>,
}

struct Running {
    id: u64,
    tap: RecordSender,
    began: Instant,
    /// By key, the volumes' numbers in the trace.
    numbers: Vec<u32>,
    /// Volumes that are still there.
    volumes: usize,
}

impl Recordings {
    /// None under way; a manager has intervals of so many microseconds.
    pub(super) fn new(every_us: Option<u64>) -> Self {
        Self { every_us, ..Self::default() }
    }

    /// The time that requests are told from: with a manager the beginning of its interval, so that the
    /// recording is cut where the manager's plans are made; and that interval.
    fn origin(&self, now: Instant) -> (Instant, Option<Intervals>) {
        let Some(length_us) = self.every_us else { return (now, None) };
        let first = now.0 / 1000 / length_us;
        (Instant(first * length_us * 1000), Some(Intervals { length_us, first }))
    }

    /// Takes note of a request of a guest, if its volume is recorded.
    #[inline]
    pub(super) fn note<P>(&mut self, now: Instant, key: usize, op: &Op<P>) {
        if !self.all.is_empty() {
            self.note_for_all(now, key, op);
        }
    }

    #[cold]
    fn note_for_all<P>(&mut self, now: Instant, key: usize, op: &Op<P>) {
        let Some((op, offset_bytes, length_bytes)) = in_words_of_a_trace(op) else { return };
        self.all.retain(|running| {
            let volume = running.number(key);
            if volume == NONE {
                return true;
            }
            let ts_us = now.since_ns(running.began) / 1000;
            let is_read = running.tap.put(Record { ts_us, volume, op, offset_bytes, length_bytes });
            if !is_read {
                self.changed = true;
                tracing::info!(recording = running.id, "its reader has gone");
            }
            is_read
        });
    }

    /// Whether a volume is recorded.
    pub(super) fn has(&self, key: usize) -> bool {
        self.all.iter().any(|running| running.number(key) != NONE)
    }

    /// Whether other volumes are recorded than when this was last asked.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn begin(&mut self, now: Instant, volumes: Vec<(usize, String)>) -> Option<Recording> {
        // Of a reader that has gone while its volumes were idle nobody has heard yet.
        self.all.retain(|running| running.tap.is_read());
        self.changed = true;
        if self.all.len() >= RECORDINGS_MAX {
            return None;
        }
        let (tap, feed) = buffer(BUFFER_REQUESTS);
        let keys = volumes.iter().map(|(key, _)| key + 1).max().unwrap_or(0);
        let mut numbers = vec![NONE; keys];
        for (number, (key, _)) in (0..).zip(&volumes) {
            numbers[*key] = number;
        }
        let id = self.begun;
        self.begun += 1;
        tracing::info!(recording = id, volumes = volumes.len(), "recording");
        let (began, intervals) = self.origin(now);
        self.all.push(Running { id, tap, began, numbers, volumes: volumes.len() });
        let volumes = volumes.into_iter().map(|(_, name)| name).collect();
        Some(Recording { id, volumes, intervals, feed })
    }

    /// A volume takes no more requests.
    pub(super) fn leave(&mut self, key: usize, stopping: bool) {
        let ending = if stopping { Ending::Stopping } else { Ending::Removed };
        self.changed = true;
        let over = self.all.extract_if(.., |running| {
            let number = running.number(key);
            if number == NONE {
                return false;
            }
            if !stopping {
                running.tap.left(number);
            }
            running.numbers[key] = NONE;
            running.volumes -= 1;
            running.volumes == 0
        });
        over.for_each(|running| running.end(ending));
    }

    /// Ends a recording; whether there was one.
    fn end(&mut self, id: u64) -> bool {
        let found = self.all.iter().position(|running| running.id == id);
        self.changed = true;
        found.map(|at| self.all.swap_remove(at).end(Ending::Asked)).is_some()
    }

    /// Memory of the buffers.
    pub(super) fn ram_bytes(&self) -> usize {
        // Beside each request the queue keeps a number.
        let buffer = BUFFER_REQUESTS * (size_of::<Record>() + size_of::<usize>());
        self.all.iter().map(|running| buffer + running.numbers.len() * size_of::<u32>()).sum()
    }
}

impl Running {
    fn number(&self, key: usize) -> u32 {
        self.numbers.get(key).copied().unwrap_or(NONE)
    }

    fn end(self, ending: Ending) {
        tracing::info!(recording = self.id, ?ending, "recorded");
        self.tap.end(ending);
    }
}

impl DataPlane {
    /// Begins to record these volumes, or all that are served now.
    pub(super) fn record(
        &mut self,
        now: Instant,
        names: Option<Vec<String>>,
    ) -> Result<Recording, CommandError> {
        if self.stop.is_some() {
            return Err(CommandError::gone());
        }
        let volumes: Vec<(usize, String)> = if let Some(names) = names {
            let found = names.into_iter().map(|name| self.find(&name).map(|key| (key, name)));
            found.collect::<Result<_, _>>()?
        } else {
            let serves = |key: &&usize| self.volumes[**key].life.serving().is_some();
            let keys = self.order.iter().filter(serves);
            keys.map(|key| (*key, self.volumes[*key].config.name.clone())).collect()
        };
        if volumes.is_empty() {
            let hint = "add one: cinnabar volume add";
            return Err(CommandError::new(CommandErrorKind::NotFound, "there is no volume", hint));
        }
        let begun = self.recordings.begin(now, volumes);
        // From here on their requests are seen here, wherever they arrive.
        self.mark_recorded();
        begun.ok_or_else(CommandError::too_many_recordings)
    }

    pub(super) fn end_recording(&mut self, id: u64) -> Result<(), CommandError> {
        if self.recordings.end(id) {
            return Ok(());
        }
        let message = format!("there is no recording {id}");
        let hint = "it may have ended with its volumes";
        Err(CommandError::new(CommandErrorKind::NotFound, message, hint))
    }
}

/// Zeroes written by the storage itself carry no data, as a discard: so the readers of kernel traces
/// take them, too. `None`: not a guest's.
fn in_words_of_a_trace<P>(op: &Op<P>) -> Option<(TraceOp, u64, u64)> {
    let (op, span) = match op {
        Op::Read { span, .. } => (TraceOp::Read, span),
        Op::Write { span, .. } => (TraceOp::Write, span),
        Op::Trim { span, .. } | Op::WriteZeroes { span, .. } => (TraceOp::Discard, span),
        Op::Flush => return Some((TraceOp::Flush, 0, 0)),
        Op::Invalidate { .. } => return None,
    };
    Some((op, span.offset, span.len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_config::messages::recording::{Look, RecordStream};
    use cinnabar_engine::units::ByteSpan;

    const SECOND: Instant = Instant(1_000_000_000);

    fn begin(recordings: &mut Recordings, keys: &[usize]) -> RecordStream {
        let volumes = keys.iter().map(|key| (*key, format!("vm{key}"))).collect();
        recordings.begin(SECOND, volumes).expect("there is room").feed
    }

    fn read(offset: u64) -> Op<()> {
        Op::Read { span: ByteSpan::new(offset, 512), data: () }
    }

    fn heard(feed: &RecordStream) -> (Vec<(u32, u64)>, Look) {
        let mut records = Vec::new();
        let look = feed.take(100, &mut records);
        (records.iter().map(|record| (record.volume, record.offset_bytes)).collect(), look)
    }

    #[test]
    fn requests_are_told_as_a_trace_has_them() {
        let mut recordings = Recordings::default();
        let feed = begin(&mut recordings, &[3]);
        let span = ByteSpan::new(1024, 512);
        let ops = [
            Op::Read { span, data: () },
            Op::Write { span, data: (), fua: true },
            Op::Flush,
            Op::Trim { span, fua: false },
            Op::WriteZeroes { span, fua: false, may_punch: false },
            Op::Invalidate { span },
        ];
        for (at, op) in (0..).zip(&ops) {
            recordings.note(SECOND.plus_ns(at * 2000 + 999), 3, op);
        }
        let mut records = Vec::new();
        assert_eq!(feed.take(100, &mut records), Look::Emptied);
        let told: Vec<_> = records.iter().map(|r| (r.ts_us, r.op, r.offset_bytes)).collect();
        let expected = [
            (0, TraceOp::Read, 1024),
            (2, TraceOp::Write, 1024),
            (4, TraceOp::Flush, 0),
            (6, TraceOp::Discard, 1024),
            (8, TraceOp::Discard, 1024),
        ];
        assert_eq!(told, expected, "an invalidation is the operator's");
    }

    #[test]
    fn each_recording_has_its_own_volumes_and_numbers() {
        let mut recordings = Recordings::default();
        let both = begin(&mut recordings, &[5, 2]);
        let one = begin(&mut recordings, &[2]);
        for key in [2, 5, 4, 9] {
            recordings.note(SECOND, key, &read(key as u64 * 512));
        }
        assert_eq!(heard(&both), (vec![(1, 1024), (0, 2560)], Look::Emptied));
        assert_eq!(heard(&one), (vec![(0, 1024)], Look::Emptied));
        // The place of a volume that has gone may be another's soon.
        recordings.leave(2, false);
        recordings.note(SECOND, 2, &read(0));
        assert_eq!(heard(&both), (vec![], Look::Emptied));
        assert_eq!(both.left(), [1]);
        assert_eq!(heard(&one), (vec![], Look::Over(Ending::Removed)));
        recordings.leave(5, true);
        assert_eq!(heard(&both), (vec![], Look::Over(Ending::Stopping)));
        assert_eq!(recordings.ram_bytes(), 0, "all is let go of");
    }

    #[test]
    fn recordings_are_so_many_and_those_nobody_reads_do_not_count() {
        let mut recordings = Recordings::default();
        let mut streams: Vec<RecordStream> =
            (0..RECORDINGS_MAX).map(|_| begin(&mut recordings, &[0])).collect();
        let another = vec![(0, "vm0".to_owned())];
        assert!(recordings.begin(SECOND, another.clone()).is_none());
        streams.pop();
        assert!(recordings.begin(SECOND, another).is_some(), "its place is free");
        drop(streams);
        recordings.note(SECOND, 0, &read(0));
        assert_eq!(recordings.ram_bytes(), 0, "found out by the next request");
    }

    #[test]
    fn a_recording_is_ended_once() {
        let mut recordings = Recordings::default();
        let volumes = vec![(0, "vm0".to_owned())];
        let Recording { id, feed, .. } = recordings.begin(SECOND, volumes).expect("room");
        recordings.note(SECOND, 0, &read(512));
        assert!(recordings.end(id) && !recordings.end(id));
        assert_eq!(heard(&feed), (vec![(0, 512)], Look::Over(Ending::Asked)));
    }
}
