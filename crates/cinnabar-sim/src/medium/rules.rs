//! The seam's rules for I/O, checked on every request of the engine.

use crate::medium::Backend;
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_engine::units::{BLOCK_BYTES, SECTOR_BYTES};
use cinnabar_engine::{IoOp, IoRequest, Slices};
use std::ops::Range;

/// Bytes of all elements.
fn bytes_of(slices: &Slices<Stamped>) -> u64 {
    slices.iter().map(|slice| slice.len).sum()
}

/// Sectors of all elements.
pub(super) fn sectors_of(slices: &Slices<Stamped>) -> usize {
    (bytes_of(slices) / SECTOR_BYTES) as usize
}

/// Bytes an I/O covers on its medium.
pub(super) fn len_bytes(op: &IoOp<Stamped>) -> u64 {
    match op {
        IoOp::Read { data, .. } | IoOp::Write { data, .. } => bytes_of(data),
        IoOp::ReadMeta { pages, .. } => pages.len() as u64 * BLOCK_BYTES,
        IoOp::WriteMeta { pages, data, .. } => pages.len() as u64 * BLOCK_BYTES + bytes_of(data),
        IoOp::Flush | IoOp::Prove | IoOp::BumpGeneration { .. } => 0,
        IoOp::Trim { span } | IoOp::MakeRoom { span } | IoOp::WriteZeroes { span, .. } => span.len,
    }
}

/// First byte on the medium; 0 for a flush.
pub(crate) fn offset_bytes(op: &IoOp<Stamped>) -> u64 {
    match op {
        IoOp::Read { offset, .. }
        | IoOp::Write { offset, .. }
        | IoOp::ReadMeta { offset, .. }
        | IoOp::WriteMeta { offset, .. } => *offset,
        IoOp::Flush | IoOp::Prove | IoOp::BumpGeneration { .. } => 0,
        IoOp::Trim { span } | IoOp::MakeRoom { span } | IoOp::WriteZeroes { span, .. } => {
            span.offset
        }
    }
}

/// Blocks an I/O uses on the cache device, and whether it writes them.
pub(super) fn cache_blocks(op: &IoOp<Stamped>) -> Option<(Range<u64>, bool)> {
    let first = offset_bytes(op) / BLOCK_BYTES;
    let blocks = first..first + len_bytes(op) / BLOCK_BYTES;
    match op {
        // What is there stays as it is where room is made.
        IoOp::MakeRoom { .. } | IoOp::Flush | IoOp::Prove | IoOp::BumpGeneration { .. } => None,
        IoOp::Read { .. } | IoOp::ReadMeta { .. } => Some((blocks, false)),
        _ => Some((blocks, true)),
    }
}

pub(super) fn check_cache(request: &IoRequest<Stamped>, blocks: u64) -> Result<(), Violation> {
    check(request, BLOCK_BYTES, blocks * BLOCK_BYTES)
}

pub(super) fn check_backend(
    request: &IoRequest<Stamped>,
    backend: &Backend,
) -> Result<(), Violation> {
    let size = backend.sectors() * SECTOR_BYTES;
    let end = match request.op {
        IoOp::ReadMeta { .. } | IoOp::WriteMeta { .. } => {
            let what = format!("metadata I/O to a backend: {request:?}");
            return Err(Violation::new(Kind::BadIo, what));
        }
        IoOp::Read { .. } => size.next_multiple_of(BLOCK_BYTES),
        _ => size,
    };
    if backend.read_only
        && !matches!(
            request.op,
            IoOp::Read { .. } | IoOp::Flush | IoOp::Prove | IoOp::BumpGeneration { .. }
        )
    {
        let what = format!("a write to a read-only backend: {request:?}");
        return Err(Violation::new(Kind::BadIo, what));
    }
    check(request, backend.align_bytes, end)
}

/// Alignment of offset, length and memory, and bounds.
fn check(request: &IoRequest<Stamped>, align: u64, end: u64) -> Result<(), Violation> {
    let bad = |why: &str| {
        let what = format!("{why} (alignment {align}, size {end}): {request:?}");
        Err(Violation::new(Kind::BadIo, what))
    };
    if matches!(request.op, IoOp::Flush | IoOp::Prove | IoOp::BumpGeneration { .. }) {
        return Ok(());
    }
    let (offset, len) = (offset_bytes(&request.op), len_bytes(&request.op));
    if len == 0 {
        return bad("an empty I/O");
    }
    if !offset.is_multiple_of(align) || !len.is_multiple_of(align) {
        return bad("a misaligned I/O");
    }
    if offset.checked_add(len).is_none_or(|last| last > end) {
        return bad("an I/O beyond the end");
    }
    let (IoOp::Read { data, .. } | IoOp::Write { data, .. } | IoOp::WriteMeta { data, .. }) =
        &request.op
    else {
        return Ok(());
    };
    for slice in data {
        let memory = slice.data.sectors() as u64 * SECTOR_BYTES;
        if !slice.at.is_multiple_of(align) || !slice.len.is_multiple_of(align) || slice.len == 0 {
            return bad("misaligned memory");
        }
        if slice.at + slice.len > memory {
            return bad("memory beyond its end");
        }
    }
    Ok(())
}
