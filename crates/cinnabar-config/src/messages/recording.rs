//! What is recorded of volumes, on its way from the data thread to the control thread: a buffer of
//! fixed size, and what is said beside it.
//!
//! Made by the data plane, which keeps the [`RecordSender`]; the control plane sends out what comes from the
//! [`RecordStream`]. The data thread never waits and wakes no thread: what does not fit is counted and
//! forgotten, and the reader polls.

use cinnabar_trace::Record;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Recordings at a time.
pub const RECORDINGS_MAX: usize = 8;
/// Requests that may wait to be sent out, for each recording: at a million a second, time for a
/// reader to be late by 65 ms.
pub const BUFFER_REQUESTS: usize = 64 << 10;

const _: () = assert!(size_of::<Record>() == 32, "a full buffer has 2 MiB of requests");

/// A recording that has begun, for the control plane.
#[derive(Debug)]
pub struct Recording {
    /// Its name.
    pub id: u64,
    /// Names of its volumes; a volume's number in the trace is its place here.
    pub volumes: Vec<String>,
    /// The manager's intervals, if there is one: time 0 of the recording is where one begins.
    pub intervals: Option<Intervals>,
    /// What is recorded.
    pub feed: RecordStream,
}

/// Where the manager cuts time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
pub struct Intervals {
    /// Length of one, in microseconds.
    pub length_us: u64,
    /// Number of the one that begins at time 0.
    pub first: u64,
}

/// Why a recording ended.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It was asked for.
    Asked,
    /// All of its volumes were removed.
    Removed,
    /// The daemon stops.
    Stopping,
}

/// An end for writing and one for reading, with room for so many requests between them.
pub fn buffer(requests: usize) -> (RecordSender, RecordStream) {
    let (sender, receiver) = mpsc::sync_channel(requests);
    let shared = Arc::new(Shared::default());
    (
        RecordSender { queue: sender, shared: Arc::clone(&shared) },
        RecordStream { queue: receiver, shared },
    )
}

#[derive(Debug, Default)]
struct Shared {
    dropped: AtomicU64,
    /// Locked only when a volume leaves, and by the reader.
    said: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    left: Vec<u32>,
    ended: Option<Ending>,
}

impl Shared {
    fn said(&self) -> MutexGuard<'_, Progress> {
        // What is in it is whole at any time.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The data thread's end.
#[derive(Debug)]
pub struct RecordSender {
    queue: SyncSender<Record>,
    shared: Arc<Shared>,
}

impl RecordSender {
    /// Puts a request into the buffer, or counts it if that is full; false if the reader is
    /// gone. Never blocks.
    pub fn put(&self, record: Record) -> bool {
        match self.queue.try_send(record) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.shared.dropped.fetch_add(1, Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// No more requests of the volume of this number: it was removed.
    pub fn left(&self, volume: u32) {
        self.shared.said().left.push(volume);
    }

    /// Ends the recording; what is in the buffer is still read.
    pub fn end(self, ending: Ending) {
        // Progress before the queue is closed: a reader that finds it closed looks here.
        self.shared.said().ended = Some(ending);
    }

    /// Whether there still is a reader.
    pub fn is_read(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }
}

/// The reader's end.
#[derive(Debug)]
pub struct RecordStream {
    queue: Receiver<Record>,
    shared: Arc<Shared>,
}

/// What became of a look into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// There may be more.
    Filled,
    /// That was all, for now.
    Emptied,
    /// That was all, and will be.
    Over(Ending),
}

impl RecordStream {
    /// Appends at most `max` requests to `records`, oldest first. Never blocks.
    pub fn take(&self, max: usize, records: &mut Vec<Record>) -> Look {
        for _ in 0..max {
            match self.queue.try_recv() {
                Ok(record) => records.push(record),
                Err(TryRecvError::Empty) => return Look::Emptied,
                // An end without a word is that of the data plane.
                Err(TryRecvError::Disconnected) => {
                    return Look::Over(self.shared.said().ended.unwrap_or(Ending::Stopping));
                }
            }
        }
        Look::Filled
    }

    /// Requests that did not fit, so far.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// Numbers of the volumes that were removed since the last call.
    pub fn left(&self) -> Vec<u32> {
        std::mem::take(&mut self.shared.said().left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_trace::Op;

    fn request(ts_us: u64) -> Record {
        Record { ts_us, volume: 0, op: Op::Read, offset_bytes: 0, length_bytes: 512 }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let (tap, feed) = buffer(4);
        assert!((0..10).all(|ts_us| tap.put(request(ts_us))), "there is a reader");
        assert_eq!(feed.dropped(), 6);
        let mut records = Vec::new();
        assert_eq!(feed.take(3, &mut records), Look::Filled);
        // There is room again for what was taken, and no more.
        assert!((10..20).all(|ts_us| tap.put(request(ts_us))));
        assert_eq!(feed.dropped(), 6 + 7);
        assert_eq!(feed.take(100, &mut records), Look::Emptied);
        let times: Vec<u64> = records.iter().map(|record| record.ts_us).collect();
        assert_eq!(times, [0, 1, 2, 3, 10, 11, 12], "the oldest, in order");
    }

    #[test]
    fn an_end_comes_behind_what_was_recorded() {
        let (tap, feed) = buffer(4);
        tap.put(request(1));
        tap.left(7);
        tap.end(Ending::Removed);
        let mut records = Vec::new();
        assert_eq!(feed.take(1, &mut records), Look::Filled);
        assert_eq!(feed.take(1, &mut records), Look::Over(Ending::Removed));
        assert_eq!(records, [request(1)]);
        assert_eq!((feed.left(), feed.left()), (vec![7], vec![]));
    }

    #[test]
    fn a_data_plane_that_is_gone_has_stopped() {
        let (tap, feed) = buffer(4);
        drop(tap);
        assert_eq!(feed.take(1, &mut Vec::new()), Look::Over(Ending::Stopping));
    }

    #[test]
    fn a_reader_that_is_gone_is_noticed() {
        let (tap, feed) = buffer(1);
        assert!(tap.is_read() && tap.put(request(1)));
        drop(feed);
        assert!(!tap.is_read() && !tap.put(request(2)));
    }

    /// Everything is either read or counted, whatever the pace of the two sides.
    #[test]
    fn nothing_is_lost_uncounted_between_threads() {
        const REQUESTS: u64 = 200_000;
        let (tap, feed) = buffer(64);
        let writer = std::thread::spawn(move || {
            for ts_us in 0..REQUESTS {
                tap.put(request(ts_us));
            }
            tap.end(Ending::Asked);
        });
        let mut records = Vec::new();
        while feed.take(50, &mut records) != Look::Over(Ending::Asked) {
            std::thread::yield_now();
        }
        writer.join().expect("the writer does not panic");
        assert!(records.is_sorted_by_key(|record| record.ts_us), "in order");
        assert_eq!(records.len() as u64 + feed.dropped(), REQUESTS);
    }
}
