//! A task of the port's as calls of librbd, one after the other.

use crate::nbd::Sink;
use crate::port::{FileId, Task, Whole};
use cinnabar_engine::units::ByteSpan;
use libc::iovec;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;

/// Memory of a call.
pub(super) type Parts = SmallVec<[iovec; 4]>;

/// Most elements of one call: librbd takes `IOV_MAX`.
const PARTS_MAX: usize = 1024;
/// Most bytes that one call moves.
const MOVE_BYTES_MAX: u64 = 32 << 20;
/// Most bytes that one call discards or zeroes.
const RANGE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a look.
const LOOK_BYTES: usize = 512;

/// See the module.
pub(super) struct Job {
    what: What,
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

enum What {
    /// A port's.
    Task(Task, Arc<dyn Sink>),
    /// A read by the worker itself, to see whether the cluster still serves this client.
    Look(Box<[u8; LOOK_BYTES]>),
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
    Read { offset: u64, parts: Parts },
    Write { offset: u64, parts: Parts },
    Flush,
    Discard { offset: u64, len: u64 },
    WriteZeroes { offset: u64, len: u64, thick: bool },
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
        Self::over(What::Task(task, sink), span, fua, stage, number)
    }

    /// A look whether the cluster still serves this client.
    pub(super) fn look(number: u64) -> Self {
        let span = ByteSpan::new(0, LOOK_BYTES as u64);
        Self::over(What::Look(Box::new([0; LOOK_BYTES])), span, false, Stage::Main, number)
    }

    fn over(what: What, span: ByteSpan, fua: bool, stage: Stage, number: u64) -> Self {
        let since = Instant::now();
        Self { what, span, done: 0, piece: 0, fua, stage, since, number }
    }

    /// Whether it changes the image.
    pub(super) fn writes(&self) -> bool {
        match &self.what {
            What::Task(task, _) => {
                !matches!(task.whole(), Whole::Read { .. } | Whole::Flush | Whole::Extents { .. })
            }
            What::Look(_) => false,
        }
    }

    /// Whether it is a flush, or a write that ends with one.
    pub(super) fn is_flush(&self) -> bool {
        self.stage == Stage::Flush
    }

    /// Whom to tell of what is not to be believed, if it has data of the disk.
    pub(super) fn teller(&self) -> Option<(&Arc<dyn Sink>, FileId)> {
        match &self.what {
            What::Task(task, sink) if self.span.len > 0 => Some((sink, task.file)),
            _ => None,
        }
    }

    /// The next call. Its memory is the job's, and lives as long as it.
    pub(super) fn call(&mut self) -> Call {
        if self.stage == Stage::Flush {
            return Call::Flush;
        }
        let (offset, left) = (self.span.offset + self.done, self.span.len - self.done);
        let range = left.min(RANGE_BYTES_MAX);
        let call = match &mut self.what {
            What::Look(bytes) => {
                let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
                self.piece = left;
                return Call::Read { offset, parts: SmallVec::from_elem(part, 1) };
            }
            What::Task(task, _) => match task.whole() {
                Whole::Trim { .. } => Call::Discard { offset, len: range },
                Whole::WriteZeroes { may_punch, .. } => {
                    Call::WriteZeroes { offset, len: range, thick: !may_punch }
                }
                whole => {
                    let (parts, len) = parts_of(task.memory(), self.done, left);
                    self.piece = len;
                    return if matches!(whole, Whole::Read { .. }) {
                        Call::Read { offset, parts }
                    } else {
                        Call::Write { offset, parts }
                    };
                }
            },
        };
        self.piece = range;
        call
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

    /// Tells that it has ended.
    pub(super) fn finish(self, result: Result<(), Errno>) {
        if let What::Task(task, sink) = self.what {
            sink.done(task.finish(result));
        }
    }
}

/// What of this memory a call takes, from `skip` bytes on, and how many bytes these are.
fn parts_of(memory: &[iovec], skip: u64, left: u64) -> (Parts, u64) {
    let (mut skip, mut room) = (skip as usize, left.min(MOVE_BYTES_MAX) as usize);
    let (mut parts, mut len) = (Parts::new(), 0);
    for whole in memory {
        if room == 0 || parts.len() == PARTS_MAX {
            break;
        }
        if skip >= whole.iov_len {
            skip -= whole.iov_len;
            continue;
        }
        let iov_len = room.min(whole.iov_len - skip);
        parts.push(iovec { iov_base: whole.iov_base.wrapping_byte_add(skip), iov_len });
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
        assert_eq!((parts.len(), len), (PARTS_MAX, PARTS_MAX as u64 * 4096));
        let (rest, rest_len) = parts_of(&memory, len, all - len);
        assert_eq!((rest.len(), len + rest_len), (1500 - PARTS_MAX, all));
        assert_eq!(rest[0].iov_base, memory[PARTS_MAX].iov_base);
        let (parts, len) = parts_of(&memory, 4096 + 100, 5000);
        assert_eq!((parts[0].iov_len, parts[1].iov_len, len), (3996, 1004, 5000));
        let long = [part(4096, 100 << 20)];
        assert_eq!(parts_of(&long, 0, 100 << 20).1, MOVE_BYTES_MAX);
    }
}
