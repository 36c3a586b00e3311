//! A job in progress: which system call is next, and what its result means.
//!
//! Both ports use it, so both continue, retry, clamp and fall back in the same way; the NBD client
//! takes a task as a [`Whole`].

use super::FileId;
use super::extents::Extent;
use super::job::{Done, Job, JobOp};
use super::workers::Class;
use crate::disk::{Disk, DiskKind};
use crate::memory::Memory;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Payload, RawMemory, Slices};
use libc::iovec;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::LazyLock;

/// Elements of one vectored call (`UIO_MAXIOV`).
pub(super) const IOVECS_MAX: usize = 1024;
/// Bytes discarded or zeroed by one call.
const PIECE_BYTES_MAX: u64 = 64 << 20;
/// Times a call is tried again without a pause.
const RETRIES_MAX: u16 = 100;
/// Zeros to write where nothing cheaper zeroes a file; never written to.
static ZEROS: LazyLock<Memory> = LazyLock::new(|| {
    let zeros = Memory::alloc(256);
    zeros.zero(0, zeros.len_bytes());
    zeros
});

/// A job in progress. Owns the buffers that its calls point to.
pub(crate) struct Task {
    pub(super) token: u64,
    pub(crate) file: FileId,
    method: SyscallPlan,
    /// Where the rest starts, and how long it is.
    at: u64,
    left: u64,
    /// The rest of the buffers. More than one element is always on the heap, so that the address
    /// stays when the task moves.
    iovecs: SmallVec<[iovec; 1]>,
    /// Elements of `iovecs` that are finished.
    used: usize,
    retries: u16,
    /// A durable write is a write and a flush.
    flushes_after: bool,
    /// For a server to do.
    remote: bool,
    pages: Vec<MetaPage>,
    /// Keeps the memory alive that `iovecs` points to.
    data: Slices<Memory>,
    pub(crate) extents: Vec<Extent>,
}

// SAFETY: the raw pointers are into memory that the task owns (`pages`, `data`) or that lives
// forever (`ZEROS`).
unsafe impl Send for Task {}

/// How a job is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyscallPlan {
    Read,
    Write {
        fua: bool,
    },
    Flush,
    /// Deallocate (files): for a trim, or for zeroing.
    Punch {
        zeroing: bool,
    },
    /// Zero without deallocating (files).
    ZeroRange,
    /// Zero by writing zeros (files).
    WriteZeros,
    /// Give room, and leave what is there (files).
    MakeRoom,
    /// Requests to a block device, and questions about extents.
    BlockingOp(BlockingOp),
}

/// What only a thread can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockingOp {
    Discard,
    ZeroOut,
    Extents,
}

/// The next system call.
#[derive(Debug)]
pub(super) enum Step<'a> {
    Read { offset: u64, iovecs: &'a [iovec] },
    Write { offset: u64, iovecs: &'a [iovec], dsync: bool },
    Sync,
    Allocate { mode: FallocateFlags, span: ByteSpan },
    BlockingOp { what: BlockingOp, span: ByteSpan },
}

/// A task as one thing, for code that carries it out elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    Read { span: ByteSpan },
    Write { span: ByteSpan, fua: bool },
    Flush,
    Trim { span: ByteSpan },
    WriteZeroes { span: ByteSpan, may_punch: bool },
    Extents { span: ByteSpan },
}

/// What to do after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Do [`Task::step`].
    More,
    /// Do it on a thread that may wait: the call was refused too often.
    Patiently,
    /// All done, or failed.
    End(Result<(), Errno>),
}

impl Task {
    /// Takes a job apart. It may be at its end already (past the end of the disk, nothing to do).
    pub(super) fn new(job: Job, disk: &Disk) -> (Self, Progress) {
        let mut task = Self {
            token: job.token,
            file: job.file,
            method: SyscallPlan::Flush,
            at: 0,
            left: 0,
            iovecs: SmallVec::new(),
            used: 0,
            retries: 0,
            flushes_after: !disk.is_remote() && !disk.writes_durably(),
            remote: disk.is_remote(),
            pages: Vec::new(),
            data: Slices::new(),
            extents: Vec::new(),
        };
        let progress = match job.op {
            JobOp::Read { offset, pages, data } => {
                task.take(SyscallPlan::Read, offset, pages, data);
                task.clamp_read(disk)
            }
            JobOp::Write { offset, pages, data, fua } => {
                task.take(SyscallPlan::Write { fua }, offset, pages, data);
                task.check_end(disk)
            }
            JobOp::Flush => Progress::More,
            JobOp::Trim { span } => task.range(
                span,
                disk,
                match disk.kind() {
                    DiskKind::File | DiskKind::Server => SyscallPlan::Punch { zeroing: false },
                    DiskKind::Block => SyscallPlan::BlockingOp(BlockingOp::Discard),
                },
            ),
            JobOp::WriteZeroes { span, may_punch } => task.range(
                span,
                disk,
                match disk.kind() {
                    DiskKind::File | DiskKind::Server if may_punch => {
                        SyscallPlan::Punch { zeroing: true }
                    }
                    DiskKind::File | DiskKind::Server => SyscallPlan::ZeroRange,
                    DiskKind::Block => SyscallPlan::BlockingOp(BlockingOp::ZeroOut),
                },
            ),
            JobOp::MakeRoom { span } => match task.range(span, disk, SyscallPlan::MakeRoom) {
                // A device has its room.
                Progress::More if disk.kind() != DiskKind::File => Progress::End(Ok(())),
                progress => progress,
            },
            JobOp::Extents { span } => {
                task.range(span, disk, SyscallPlan::BlockingOp(BlockingOp::Extents))
            }
        };
        (task, progress)
    }

    fn take(
        &mut self,
        method: SyscallPlan,
        offset: u64,
        mut pages: Vec<MetaPage>,
        data: Slices<Memory>,
    ) {
        self.method = method;
        self.at = offset;
        if !pages.is_empty() {
            self.add(pages.as_mut_ptr().cast(), size_of_val(pages.as_slice()));
        }
        for slice in &data {
            self.add(slice.data.address(slice.at, slice.len), slice.len as usize);
        }
        self.pages = pages;
        self.data = data;
    }

    /// Appends a buffer, joined with the one before where memory goes on.
    fn add(&mut self, start: *mut u8, len: usize) {
        if len == 0 {
            return;
        }
        self.left += len as u64;
        if let Some(last) = self.iovecs.last_mut()
            && last.iov_base.wrapping_byte_add(last.iov_len) == start.cast()
        {
            last.iov_len += len;
        } else {
            self.iovecs.push(iovec { iov_base: start.cast(), iov_len: len });
        }
    }

    /// Cuts a read off at the end of the disk and zeroes what lies behind.
    fn clamp_read(&mut self, disk: &Disk) -> Progress {
        let keep = disk.size_bytes().saturating_sub(self.at).min(self.left);
        let mut past = self.left - keep;
        self.left = keep;
        while past > 0 {
            let last = self.iovecs.last_mut().expect("there are as many bytes as counted");
            let cut = past.min(last.iov_len as u64) as usize;
            last.iov_len -= cut;
            // SAFETY: the last `cut` bytes of a buffer that the task owns.
            unsafe { last.iov_base.byte_add(last.iov_len).write_bytes(0, cut) };
            past -= cut as u64;
            if last.iov_len == 0 {
                self.iovecs.pop();
            }
        }
        if self.left == 0 { Progress::End(Ok(())) } else { Progress::More }
    }

    /// Refuses to reach past the end of the disk: a write would make a file longer.
    fn check_end(&self, disk: &Disk) -> Progress {
        let size = disk.size_bytes();
        if self.at > size || self.left > size - self.at {
            Progress::End(Err(Errno::INVAL))
        } else if self.left == 0 && self.method != (SyscallPlan::Write { fua: true }) {
            Progress::End(Ok(()))
        } else {
            Progress::More
        }
    }

    fn range(&mut self, span: ByteSpan, disk: &Disk, method: SyscallPlan) -> Progress {
        (self.method, self.at, self.left) = (method, span.offset, span.len);
        self.check_end(disk)
    }

    /// The next call.
    pub(super) fn step(&self) -> Step<'_> {
        let (span, piece) = (ByteSpan::new(self.at, self.left), self.piece());
        let keep = FallocateFlags::KEEP_SIZE;
        match self.method {
            SyscallPlan::Read => Step::Read { offset: self.at, iovecs: self.rest() },
            // Nothing to write, but durably: that is a flush.
            SyscallPlan::Write { .. } if self.left == 0 => Step::Sync,
            SyscallPlan::Write { fua } => {
                let dsync = fua && !self.flushes_after;
                Step::Write { offset: self.at, iovecs: self.rest(), dsync }
            }
            SyscallPlan::WriteZeros => {
                Step::Write { offset: self.at, iovecs: self.rest(), dsync: false }
            }
            SyscallPlan::Flush => Step::Sync,
            SyscallPlan::Punch { .. } => {
                Step::Allocate { mode: keep | FallocateFlags::PUNCH_HOLE, span: piece }
            }
            SyscallPlan::MakeRoom => Step::Allocate { mode: keep, span: piece },
            SyscallPlan::ZeroRange => {
                Step::Allocate { mode: keep | FallocateFlags::ZERO_RANGE, span: piece }
            }
            SyscallPlan::BlockingOp(BlockingOp::Extents) => {
                Step::BlockingOp { what: BlockingOp::Extents, span }
            }
            SyscallPlan::BlockingOp(what) => Step::BlockingOp { what, span: piece },
        }
    }

    fn rest(&self) -> &[iovec] {
        let rest = &self.iovecs[self.used..];
        &rest[..rest.len().min(IOVECS_MAX)]
    }

    /// Whether a ring carries out the next call of a task on this disk without a thread. All the
    /// rest is for the workers: the kernel's own threads are few and shared by all files, and what
    /// hangs would hold them.
    pub(super) fn is_for_ring(&self, disk: &Disk) -> bool {
        match self.step() {
            _ if self.remote => false,
            Step::Read { .. } => disk.starts_without_waiting(false),
            Step::Write { .. } => disk.starts_without_waiting(true),
            Step::Sync | Step::Allocate { .. } | Step::BlockingOp { .. } => false,
        }
    }

    /// Whom it must not keep waiting. `in_memory`: its file is.
    pub(super) fn class(&self, in_memory: bool) -> Class {
        match self.method {
            SyscallPlan::BlockingOp(BlockingOp::Extents) => Class::Serial,
            SyscallPlan::Read | SyscallPlan::Write { .. } | SyscallPlan::Flush if in_memory => {
                Class::Serial
            }
            SyscallPlan::Read | SyscallPlan::Write { .. } | SyscallPlan::Flush => Class::Light,
            _ => Class::Heavy,
        }
    }

    /// A piece of it, so that a call lasts moments and not minutes.
    fn piece(&self) -> ByteSpan {
        ByteSpan::new(self.at, self.left.min(PIECE_BYTES_MAX))
    }

    /// All of a task that has just begun.
    pub(crate) fn whole(&self) -> Whole {
        let span = ByteSpan::new(self.at, self.left);
        match self.method {
            SyscallPlan::Read => Whole::Read { span },
            SyscallPlan::Write { .. } if self.left == 0 => Whole::Flush,
            SyscallPlan::Write { fua } => Whole::Write { span, fua },
            SyscallPlan::WriteZeros => Whole::Write { span, fua: false },
            SyscallPlan::Flush => Whole::Flush,
            SyscallPlan::Punch { zeroing: false }
            | SyscallPlan::BlockingOp(BlockingOp::Discard) => Whole::Trim { span },
            SyscallPlan::Punch { zeroing: true } => Whole::WriteZeroes { span, may_punch: true },
            SyscallPlan::ZeroRange | SyscallPlan::BlockingOp(BlockingOp::ZeroOut) => {
                Whole::WriteZeroes { span, may_punch: false }
            }
            SyscallPlan::BlockingOp(BlockingOp::Extents) => Whole::Extents { span },
            SyscallPlan::MakeRoom => unreachable!("on a server this ends when it begins"),
        }
    }

    /// The memory of a task that has just begun: as long as it lives, and no other task's.
    pub(crate) fn memory(&self) -> &[iovec] {
        &self.iovecs
    }

    /// Whether it is a copy of at most `bytes` bytes, or less work, on a file in memory.
    pub(super) fn is_copy(&self, bytes: u64) -> bool {
        matches!(self.method, SyscallPlan::Read | SyscallPlan::Write { .. } | SyscallPlan::Flush)
            && self.left <= bytes
    }

    /// Takes the result of the call that [`step`](Self::step) named: bytes for a transfer.
    pub(super) fn advance(&mut self, result: Result<usize, Errno>) -> Progress {
        match (result, self.method) {
            (
                Ok(count),
                SyscallPlan::Read | SyscallPlan::Write { .. } | SyscallPlan::WriteZeros,
            ) => self.moved(count),
            (Ok(_), SyscallPlan::Flush | SyscallPlan::BlockingOp(BlockingOp::Extents)) => {
                Progress::End(Ok(()))
            }
            (Ok(_), _) => self.piece_done(),
            (Err(Errno::INTR | Errno::AGAIN), _) => {
                self.retries = self.retries.saturating_add(1);
                if self.retries > RETRIES_MAX { Progress::Patiently } else { Progress::More }
            }
            (Err(Errno::OPNOTSUPP | Errno::NOSYS), method) => self.fall_back(method),
            (Err(errno), _) => Progress::End(Err(errno)),
        }
    }

    /// A piece of a discard or of zeroing is done.
    fn piece_done(&mut self) -> Progress {
        let piece = self.piece();
        self.retries = 0;
        self.at += piece.len;
        self.left -= piece.len;
        if self.left == 0 { Progress::End(Ok(())) } else { Progress::More }
    }

    fn moved(&mut self, count: usize) -> Progress {
        if self.left == 0 {
            return Progress::End(Ok(()));
        }
        if count == 0 {
            // The file was cut off below its size, or the medium takes no more.
            let errno = if self.method == SyscallPlan::Read { Errno::NODATA } else { Errno::IO };
            return Progress::End(Err(errno));
        }
        assert!(count as u64 <= self.left, "the kernel moved more than it was given");
        self.retries = 0;
        self.at += count as u64;
        self.left -= count as u64;
        let mut count = count;
        while count > 0 {
            let first = &mut self.iovecs[self.used];
            let part = count.min(first.iov_len);
            first.iov_base = first.iov_base.wrapping_byte_add(part);
            first.iov_len -= part;
            count -= part;
            if first.iov_len == 0 {
                self.used += 1;
            }
        }
        if self.left == 0 {
            let flush = self.flushes_after && self.method == (SyscallPlan::Write { fua: true });
            return if flush { Progress::More } else { Progress::End(Ok(())) };
        }
        if self.method == SyscallPlan::WriteZeros && self.used == self.iovecs.len() {
            self.lay_out_zeros();
        }
        Progress::More
    }

    /// The next cheaper-to-have, dearer-to-do way of the same thing.
    fn fall_back(&mut self, method: SyscallPlan) -> Progress {
        match method {
            // A hint that isn't taken; room that is there, or is not, when it is written.
            SyscallPlan::Punch { zeroing: false }
            | SyscallPlan::BlockingOp(BlockingOp::Discard)
            | SyscallPlan::MakeRoom => Progress::End(Ok(())),
            SyscallPlan::Punch { zeroing: true } => {
                self.method = SyscallPlan::ZeroRange;
                Progress::More
            }
            SyscallPlan::ZeroRange => {
                self.method = SyscallPlan::WriteZeros;
                self.lay_out_zeros();
                Progress::More
            }
            _ => Progress::End(Err(Errno::OPNOTSUPP)),
        }
    }

    /// Points the buffers at zeros for the next stretch.
    fn lay_out_zeros(&mut self) {
        self.iovecs.clear();
        self.used = 0;
        let len = self.left.min(ZEROS.len_bytes());
        self.iovecs.push(iovec { iov_base: ZEROS.as_ptr().cast(), iov_len: len as usize });
    }

    /// A flush that no job asked for.
    pub(crate) fn flush() -> Self {
        Self {
            token: 0,
            file: FileId(u32::MAX),
            method: SyscallPlan::Flush,
            at: 0,
            left: 0,
            iovecs: SmallVec::new(),
            used: 0,
            retries: 0,
            flushes_after: false,
            remote: true,
            pages: Vec::new(),
            data: Slices::new(),
            extents: Vec::new(),
        }
    }

    /// Gives the buffers back.
    pub(crate) fn finish(self, result: Result<(), Errno>) -> Done {
        drop(self.data);
        Done { token: self.token, result, pages: self.pages, extents: self.extents }
    }
}
