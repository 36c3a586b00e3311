//! A task of the port's in the client's hands: cut into requests, and put together again.

use super::client::Sink;
use super::export_info::ExportInfo;
use super::in_flight::Command;
use super::unflushed::Mark;
use crate::port::{Task, Whole};
use cinnabar_engine::units::ByteSpan;
use libc::iovec;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;

/// Memory of a piece.
pub(super) type Iovecs = SmallVec<[iovec; 4]>;

/// See the module.
pub(super) struct Job {
    task: Task,
    sink: Arc<dyn Sink>,
    command: Command,
    pub(super) span: ByteSpan,
    /// Durable when it ends.
    fua: bool,
    /// Zeroes may be deallocated.
    may_punch: bool,
    /// Bytes already cut off.
    next: u64,
    /// Requests under way.
    pub(super) outstanding: u32,
    /// Bytes answered since it was last begun, and the most that ever were.
    answered: u64,
    answered_max: u64,
    /// When it came, or last got further than ever before.
    pub(super) since: Instant,
    stage: Stage,
    pub(super) result: Result<(), Errno>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The thing itself.
    Main,
    /// A flush is due: the job is one, or is a write to a server that can't do both at once.
    Flush,
    /// It is under way.
    Flushing(Mark),
}

/// The next request of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) command: Command,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Where it begins within the job's range.
    pub(super) at: u64,
    pub(super) fua: bool,
    pub(super) may_punch: bool,
}

/// What is next after all that was asked is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is more to ask.
    Ask,
    /// It has written something that no flush has covered yet; then it is at its end.
    EndUnflushed,
    /// As above, and a flush is due before the end.
    FlushUnflushed,
    /// It is at its end; a flush that began at the mark has succeeded.
    End(Option<Mark>),
}

impl Job {
    pub(super) fn new(task: Task, sink: Arc<dyn Sink>, now: Instant) -> Self {
        let none = ByteSpan::new(0, 0);
        let (command, span, fua, may_punch) = match task.whole() {
            Whole::Read { span } => (Command::Read, span, false, false),
            Whole::Write { span, fua } => (Command::Write, span, fua, false),
            Whole::Flush => (Command::Flush, none, false, false),
            Whole::Trim { span } => (Command::Trim, span, false, false),
            Whole::WriteZeroes { span, may_punch } => {
                (Command::WriteZeroes, span, false, may_punch)
            }
            Whole::Extents { .. } => unreachable!("answered on the spot"),
        };
        let mut job = Self {
            task,
            sink,
            command,
            span,
            fua,
            may_punch,
            next: 0,
            outstanding: 0,
            answered: 0,
            answered_max: 0,
            since: now,
            stage: Stage::Main,
            result: Ok(()),
        };
        job.restart();
        job
    }

    /// What an export can't do at all, or need not.
    pub(super) fn verdict(&self, export: &ExportInfo) -> Option<Result<(), Errno>> {
        let writes = !matches!(self.command, Command::Read | Command::Flush);
        match self.command {
            _ if writes && export.read_only => Some(Err(Errno::ROFS)),
            Command::Flush if !export.flush => Some(Ok(())),
            // A hint that isn't taken.
            Command::Trim if !export.trim => Some(Ok(())),
            Command::WriteZeroes if !export.zeroes => Some(Err(Errno::OPNOTSUPP)),
            _ => None,
        }
    }

    /// Forgets what was asked: it will be asked for again, all of it.
    pub(super) fn restart(&mut self) {
        self.next = 0;
        self.outstanding = 0;
        self.answered = 0;
        self.stage = if self.command == Command::Flush { Stage::Flush } else { Stage::Main };
    }

    /// Whether there is a request to be made of it now.
    pub(super) fn has_piece(&self) -> bool {
        self.result.is_ok()
            && match self.stage {
                Stage::Main => self.next < self.span.len,
                Stage::Flush => true,
                Stage::Flushing(_) => false,
            }
    }

    /// Makes the next request, if [`has_piece`](Self::has_piece). `mark` is asked for where a flush
    /// begins.
    pub(super) fn piece(&mut self, export: &ExportInfo, mark: impl FnOnce() -> Mark) -> Piece {
        self.outstanding += 1;
        if self.stage == Stage::Flush {
            self.stage = Stage::Flushing(mark());
            let command = Command::Flush;
            return Piece { command, offset: 0, len: 0, at: 0, fua: false, may_punch: false };
        }
        let max = match self.command {
            Command::Read | Command::Write => export.payload_bytes_max,
            _ => export.range_bytes_max,
        };
        let at = self.next;
        let len = (self.span.len - at).min(u64::from(max)) as u32;
        self.next += u64::from(len);
        Piece {
            command: self.command,
            offset: self.span.offset + at,
            len,
            at,
            fua: self.fua && export.fua,
            may_punch: self.may_punch,
        }
    }

    /// A request of `len` bytes was answered. `None` while others are under way.
    pub(super) fn answered(
        &mut self,
        len: u32,
        result: Result<(), Errno>,
        export: &ExportInfo,
        now: Instant,
    ) -> Option<Next> {
        self.outstanding -= 1;
        self.answered += u64::from(len);
        if self.answered > self.answered_max {
            self.answered_max = self.answered;
            self.since = now;
        }
        self.result = self.result.and(result);
        if self.outstanding > 0 {
            return None;
        }
        let writes = !matches!(self.command, Command::Read | Command::Flush);
        let durable = !export.flush || self.fua && export.fua;
        Some(match self.stage {
            _ if self.has_piece() => Next::Ask,
            Stage::Main if !writes => Next::End(None),
            // What failed may have been written in part.
            Stage::Main if self.result.is_err() => Next::EndUnflushed,
            Stage::Main if durable => Next::End(None),
            Stage::Main if self.fua => {
                self.stage = Stage::Flush;
                Next::FlushUnflushed
            }
            Stage::Main => Next::EndUnflushed,
            Stage::Flush => unreachable!("it has a piece, or has failed before"),
            Stage::Flushing(mark) => Next::End(self.result.is_ok().then_some(mark)),
        })
    }

    /// Whether it ends with a flush, which has been answered.
    pub(super) fn is_flush(&self) -> bool {
        matches!(self.stage, Stage::Flushing(_))
    }

    /// Whether the server may be changing what it holds for this job.
    pub(super) fn is_write_under_way(&self) -> bool {
        self.outstanding > 0 && !matches!(self.command, Command::Read | Command::Flush)
    }

    /// The memory of a part of its range.
    pub(super) fn memory(&self, at: u64, len: u64) -> Iovecs {
        let mut parts = Iovecs::new();
        let (mut skip, mut left) = (at as usize, len as usize);
        for whole in self.task.memory() {
            if left == 0 {
                break;
            }
            if skip >= whole.iov_len {
                skip -= whole.iov_len;
                continue;
            }
            let iov_len = left.min(whole.iov_len - skip);
            parts.push(iovec { iov_base: whole.iov_base.wrapping_byte_add(skip), iov_len });
            (skip, left) = (0, left - iov_len);
        }
        assert!(left == 0, "{left} bytes more than the job has memory");
        parts
    }

    /// Whom to tell of a restart.
    pub(super) fn teller(&self) -> (&Arc<dyn Sink>, crate::port::FileId) {
        (&self.sink, self.task.file)
    }

    /// Tells that it has ended.
    pub(super) fn finish(self, result: Result<(), Errno>) {
        self.sink.done(self.task.finish(result));
    }
}
