//! The way of a line of the log: a bounded queue, and a thread of its own that writes.
//!
//! A daemon writes its log to a pipe, a socket or a file of others, who may read slowly, not at all, or
//! be gone; the disk may be full. None of that may hold up a thread that serves guests, or end the
//! process. So a line is only queued where it arises. What finds no room is lost, and so is what can't
//! be written; both are counted, and the next line that gets through stands behind their number.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What may wait, lines with their overhead: some 10,000 lines.
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// What a line takes beside its text.
const LINE_OVERHEAD_BYTES: usize = 64;
/// Until the number of lost lines is written again where that failed, and no other line comes.
const AGAIN_AFTER: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };

/// Makes the line that tells how many lines are lost, and why.
pub(super) type TellLost = fn(lines: u64, why: &str) -> String;

/// See the module; a clone is a handle to the same queue.
#[derive(Clone, Debug)]
pub(super) struct LogQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There is something to write.
    filled: Condvar,
    /// There is nothing to write any more.
    written: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Lines that found no room behind the last one that waits.
    lost: u64,
    /// The thread has taken a line that is not written yet.
    busy: bool,
    /// What is written last is queued.
    ended: bool,
}

#[derive(Debug)]
struct Line {
    text: Box<[u8]>,
    /// Lines before it that found no room.
    lost_before: u64,
}

enum Next {
    /// So many lines are lost, and this one is to be written.
    Write { lost: u64, line: Option<Box<[u8]>> },
    /// Nothing has come for a while.
    Again,
}

impl LogQueue {
    /// Starts the thread, which writes to `sink`.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start<W: Write + Send + 'static>(
        sink: W,
        tell_lost: TellLost,
    ) -> std::io::Result<Self> {
        let queue = Self(Arc::default());
        let shared = Arc::clone(&queue.0);
        let mut writer = Writer { sink, tell_lost, torn: false, untold: 0, why: None };
        std::thread::Builder::new().name("log".into()).spawn(move || writer.run(&shared))?;
        Ok(queue)
    }

    /// Queues a line, or counts it as lost. Waits for nothing.
    pub(super) fn push(&self, text: &[u8]) {
        self.queue(text, false);
    }

    /// Queues the last one in any case: threads that are still at work have nothing to add.
    pub(super) fn push_last(&self, text: &[u8]) {
        self.queue(text, true);
    }

    fn queue(&self, text: &[u8], last: bool) {
        let (text, bytes) = (text.into(), text.len() + LINE_OVERHEAD_BYTES);
        let mut waiting = self.0.waiting();
        if waiting.ended {
            return;
        }
        waiting.ended = last;
        if !last && waiting.bytes + bytes > QUEUED_BYTES_MAX {
            waiting.lost += 1;
        } else {
            waiting.bytes += bytes;
            let lost_before = std::mem::take(&mut waiting.lost);
            waiting.lines.push_back(Line { text, lost_before });
        }
        drop(waiting);
        self.0.filled.notify_one();
    }

    /// Waits until everything is written or lost, but no longer than this; false if that was too short.
    pub(super) fn flush(&self, wait_max: Duration) -> bool {
        let until = Instant::now() + wait_max;
        let mut waiting = self.0.waiting();
        while waiting.busy || !waiting.lines.is_empty() || waiting.lost > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.0.written.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// An event of `tracing` is one `write`.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic can't leave it half changed in a way that matters.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to write; for a while only if there is something to write again.
    fn next(&self, again: bool) -> Next {
        let mut waiting = self.waiting();
        waiting.busy = false;
        loop {
            if let Some(Line { text, lost_before }) = waiting.lines.pop_front() {
                waiting.bytes -= text.len() + LINE_OVERHEAD_BYTES;
                waiting.busy = true;
                return Next::Write { lost: lost_before, line: Some(text) };
            }
            assert_eq!(waiting.bytes, 0, "an empty queue has no bytes");
            if waiting.lost > 0 {
                waiting.busy = true;
                return Next::Write { lost: std::mem::take(&mut waiting.lost), line: None };
            }
            self.written.notify_all();
            if again {
                let woken = self.filled.wait_timeout(waiting, AGAIN_AFTER);
                let (guard, time) = woken.unwrap_or_else(PoisonError::into_inner);
                waiting = guard;
                if time.timed_out() && waiting.lines.is_empty() && waiting.lost == 0 {
                    return Next::Again;
                }
            } else {
                let woken = self.filled.wait(waiting);
                waiting = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

struct Writer<W> {
    sink: W,
    tell_lost: TellLost,
    /// A line was begun and not ended.
    torn: bool,
    /// Lost lines that nobody was told of.
    untold: u64,
    /// Why lines could not be written, if that is why they are lost.
    why: Option<String>,
}

impl<W: Write> Writer<W> {
    /// Ends with the process.
    fn run(&mut self, shared: &Shared) {
        loop {
            match shared.next(self.untold > 0) {
                Next::Write { lost, line } => {
                    self.untold += lost;
                    self.tell();
                    if let Some(line) = line
                        && let Err(error) = self.write(&line)
                    {
                        self.untold += 1;
                        self.why = Some(error.to_string());
                    }
                }
                Next::Again => self.tell(),
            }
        }
    }

    /// Tells of lost lines, if that can be written by now.
    fn tell(&mut self) {
        if self.untold == 0 {
            return;
        }
        let why = self.why.as_deref().unwrap_or("they came faster than they were written");
        let text = (self.tell_lost)(self.untold, why);
        if self.write(text.as_bytes()).is_ok() {
            (self.untold, self.why) = (0, None);
        }
    }

    /// Writes a whole line, behind the end of one that was torn.
    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.torn {
            self.write_all(b"\n")?;
        }
        self.write_all(line)?;
        self.torn = false;
        Ok(())
    }

    fn write_all(&mut self, mut rest: &[u8]) -> std::io::Result<()> {
        while !rest.is_empty() {
            match self.sink.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.torn = true;
                    rest = &rest[len..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "log_queue_tests.rs"]
mod tests;
