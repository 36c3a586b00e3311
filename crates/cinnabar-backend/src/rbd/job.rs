//! A task of the port's as calls of librbd, one after the other.

use super::sys::Parts;
use crate::nbd::Sink;
use crate::port::{Task, Whole};
use cinnabar_engine::units::ByteSpan;
use libc::iovec;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Instant;

/// Most elements of one call: librbd takes `IOV_MAX`.
const PARTS_MAX: usize = 1024;
/// Most bytes that one call moves.
const MOVE_BYTES_MAX: u64 = 32 << 20;
/// Most bytes that one call discards or zeroes.
const RANGE_BYTES_MAX: u64 = 64 << 20;

/// See the module.
pub(super) struct Job {
    task: Task,
    sink: Arc<dyn Sink>,
    /// Memory of the call under way: librbd reads the list itself when it completes.
    parts: Parts,
    span: ByteSpan,
    /// Bytes already done.
    done: u64,
    /// Length of the call under way, in bytes.
    piece: u64,
    /// Durable when it ends.
    fua: bool,
    stage: Stage,
    /// When it came.
    pub(super) since: Instant,
    /// Its number among all of its worker.
    pub(super) number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The thing itself.
    Main,
    /// A flush: the job is one, or a write that is to be durable.
    Flush,
}

/// The next call.
pub(super) enum Call {
    /// Into [`Job::parts`].
    Read {
        offset: u64,
    },
    /// Of the same.
    Write {
        offset: u64,
    },
    Flush,
    Discard {
        offset: u64,
        len: u64,
    },
    WriteZeroes {
        offset: u64,
        len: u64,
        thick: bool,
    },
}

impl Job {
    pub(super) fn new(task: Task, sink: Arc<dyn Sink>, number: u64) -> Self {
        let none = ByteSpan::new(0, 0);
        let (span, fua, stage) = match task.whole() {
            Whole::Write { span, fua } => (span, fua, Stage::Main),
            Whole::Flush => (none, false, Stage::Flush),
            Whole::Read { span }
            | Whole::Trim { span }
            | Whole::WriteZeroes { span, .. }
            | Whole::Extents { span } => (span, false, Stage::Main),
        };
        let (parts, since) = (Parts::default(), Instant::now());
        Self { task, sink, parts, span, done: 0, piece: 0, fua, stage, since, number }
    }

    /// Whether it changes the image.
    pub(super) fn writes(&self) -> bool {
        !matches!(self.task.whole(), Whole::Read { .. } | Whole::Flush | Whole::Extents { .. })
    }

    /// Whether it is a flush, or a write that ends with one.
    pub(super) fn is_flush(&self) -> bool {
        self.stage == Stage::Flush
    }

    /// The next call. Its memory, and the list of it, are the job's, and live as long as it.
    pub(super) fn call(&mut self) -> Call {
        if self.stage == Stage::Flush {
            return Call::Flush;
        }
        let (offset, left) = (self.span.offset + self.done, self.span.len - self.done);
        self.piece = left.min(RANGE_BYTES_MAX);
        let len = self.piece;
        match self.task.whole() {
            Whole::Trim { .. } => Call::Discard { offset, len },
            Whole::WriteZeroes { may_punch, .. } => {
                Call::WriteZeroes { offset, len, thick: !may_punch }
            }
            whole => {
                (self.parts, self.piece) = parts_of(self.task.memory(), self.done, left);
                if matches!(whole, Whole::Read { .. }) {
                    Call::Read { offset }
                } else {
                    Call::Write { offset }
                }
            }
        }
    }

    /// Memory of the call that [`call`](Self::call) gave.
    pub(super) fn parts(&self) -> &[iovec] {
        &self.parts.0
    }

    /// The call has ended. `None`: another one is to be made.
    pub(super) fn ended(&mut self, result: Result<u64, Errno>) -> Option<Result<(), Errno>> {
        let moved = match result {
            Ok(moved) => moved,
            Err(errno) => return Some(Err(errno)),
        };
        if self.stage == Stage::Flush {
            return Some(Ok(()));
        }
        if !self.writes() && moved < self.piece {
            // The image was cut off below its size.
            return Some(Err(Errno::NODATA));
        }
        self.done += self.piece;
        if self.done < self.span.len {
            return None;
        }
        if self.fua {
            self.stage = Stage::Flush;
            return None;
        }
        Some(Ok(()))
    }

    /// It begins again: what it has read is not good.
    pub(super) fn again(&mut self) {
        assert!(!self.writes(), "a write has landed");
        (self.done, self.piece) = (0, 0);
    }

    /// Tells that it has ended.
    pub(super) fn finish(self, result: Result<(), Errno>) {
        self.sink.done(self.task.finish(result));
    }
}

/// What of this memory a call takes, from `skip` bytes on, and how many bytes these are.
fn parts_of(memory: &[iovec], skip: u64, left: u64) -> (Parts, u64) {
    let (mut skip, mut room) = (skip as usize, left.min(MOVE_BYTES_MAX) as usize);
    let (mut parts, mut len) = (Parts::default(), 0);
    for whole in memory {
        if room == 0 || parts.0.len() == PARTS_MAX {
            break;
        }
        if skip >= whole.iov_len {
            skip -= whole.iov_len;
            continue;
        }
        let iov_len = room.min(whole.iov_len - skip);
        parts.0.push(iovec { iov_base: whole.iov_base.wrapping_byte_add(skip), iov_len });
        (skip, room) = (0, room - iov_len);
        len += iov_len as u64;
    }
    assert!(len > 0, "a call moves something");
    (parts, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_buffers_takes_several_calls() {
        let part =
            |at: usize, iov_len| iovec { iov_base: std::ptr::without_provenance_mut(at), iov_len };
        let memory: Vec<iovec> =
            (0..1500).map(|index| part(4096 * (1 + index * 2), 4096)).collect();
        let all = 1500 * 4096;
        let (parts, len) = parts_of(&memory, 0, all);
        assert_eq!((parts.0.len(), len), (PARTS_MAX, PARTS_MAX as u64 * 4096));
        let (rest, rest_len) = parts_of(&memory, len, all - len);
        assert_eq!((rest.0.len(), len + rest_len), (1500 - PARTS_MAX, all));
        assert_eq!(rest.0[0].iov_base, memory[PARTS_MAX].iov_base);
        let (parts, len) = parts_of(&memory, 4096 + 100, 5000);
        assert_eq!((parts.0[0].iov_len, parts.0[1].iov_len, len), (3996, 1004, 5000));
        let long = [part(4096, 100 << 20)];
        assert_eq!(parts_of(&long, 0, 100 << 20).1, MOVE_BYTES_MAX);
    }
}
