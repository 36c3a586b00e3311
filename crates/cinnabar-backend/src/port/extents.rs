//! Which parts of a file are allocated.

use crate::disk::{Disk, DiskKind};
use cinnabar_engine::units::ByteSpan;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Extents of one answer; a client asks again for the rest.
const EXTENTS_MAX: usize = 512;

/// A stretch of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length in bytes.
    pub len: u64,
    /// Nothing is allocated: it reads as zeros.
    pub hole: bool,
}

/// Extents from the start of `span` on, joined and at most [`EXTENTS_MAX`].
pub(super) fn find(disk: &Disk, span: ByteSpan) -> rustix::io::Result<Vec<Extent>> {
    let end = span.offset.saturating_add(span.len).min(disk.size_bytes());
    if disk.kind() != DiskKind::File {
        return Ok(vec![Extent { len: end.saturating_sub(span.offset), hole: false }]);
    }
    let mut extents = Vec::new();
    let mut at = span.offset;
    while at < end && extents.len() < EXTENTS_MAX {
        let data = match seek(disk, SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            // No data behind `at`.
            Err(Errno::NXIO) => end,
            // The file system can't tell: all is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(errno),
        };
        if data > at {
            extents.push(Extent { len: data - at, hole: true });
        }
        if data >= end {
            break;
        }
        let hole = match seek(disk, SeekFrom::Hole(data)) {
            // One that doesn't move forward would never end.
            Ok(hole) if hole > data => hole.min(end),
            Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => end,
            Err(errno) => return Err(errno),
        };
        extents.push(Extent { len: hole - data, hole: false });
        at = hole;
    }
    Ok(extents)
}
