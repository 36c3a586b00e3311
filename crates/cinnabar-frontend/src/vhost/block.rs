//! What a guest asks of its disk: requests of a virtio block device.
//!
//! A request is judged here once and for all: what comes out is aligned, not empty and within the
//! export. After "Block Device" of the VIRTIO specification, 1.2.

use super::export::Export;
use super::limits::ZERO_SECTORS_MAX;
use super::memory::{self, Pieces};
use super::reason::DisconnectReason;
use cinnabar_engine::seam::limits::DATA_BYTES_MAX;
use cinnabar_engine::seam::units::{ByteSpan, SECTOR_BYTES};
use cinnabar_engine::seam::{Failure, IoError};

/// The result of a request, as its status byte reports it to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Io(IoError::Unsupported) => Self::Unsupported,
            _ => Self::IoError,
        }
    }
}

/// Kinds of requests.
mod kind {
    pub(super) const READ: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const GET_ID: u32 = 8;
    pub(super) const DISCARD: u32 = 11;
    pub(super) const WRITE_ZEROES: u32 = 13;
}

/// Bytes of a header: kind, priority, first sector.
const HEADER_BYTES: usize = 16;
/// Bytes of a range to be discarded or zeroed: first sector, sectors, flags.
const RANGE_BYTES: usize = 16;
/// Flag of a range to be zeroed: it may be deallocated.
const UNMAP: u32 = 1;
/// Bytes of a serial number; a shorter one ends with a zero.
pub(super) const SERIAL_BYTES: usize = 20;

/// What a request is, once judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockOp {
    /// Read into what is writable.
    Read(ByteSpan),
    /// Write what is readable.
    Write(ByteSpan),
    Flush,
    Discard(ByteSpan),
    Zero {
        span: ByteSpan,
        may_punch: bool,
    },
    /// The serial number, into what is writable.
    Serial,
    /// Nothing to be done but to say so.
    Answer(Status),
}

impl BlockOp {
    /// Bytes that are read or written.
    pub(super) fn data_bytes(&self) -> u64 {
        match self {
            Self::Read(span) | Self::Write(span) => span.len,
            _ => 0,
        }
    }
}

/// A request, and what of its memory is data.
#[derive(Debug)]
pub(super) struct BlockRequest {
    pub(super) op: BlockOp,
    /// Data of the guest, or room for it, without header and status.
    pub(super) data: Pieces,
    /// Where the status goes.
    pub(super) status: *mut u8,
    /// Bytes that the device may write, the status included.
    pub(super) writable_bytes: u32,
}

/// Takes a request apart. The memory its pieces are part of is held by the caller.
///
/// A request that can't be served is answered with an error; one that has no header, or no room for
/// an answer, ends the connection.
pub(super) fn parse(
    export: &Export,
    mut readable: Pieces,
    mut writable: Pieces,
) -> Result<BlockRequest, DisconnectReason> {
    let writable_bytes = memory::total(&writable);
    let status = memory::take_last(&mut writable).ok_or(DisconnectReason::RequestTooShort)?;
    let mut header = [0; HEADER_BYTES];
    // SAFETY: as many bytes as the header has; the caller holds the memory.
    let got = unsafe { memory::copy_from_guest(&readable, header.as_mut_ptr(), HEADER_BYTES) };
    if got < HEADER_BYTES {
        return Err(DisconnectReason::RequestTooShort);
    }
    memory::skip(&mut readable, HEADER_BYTES);
    let header = u128::from_le_bytes(header);
    let (kind, sector) = (header as u32, (header >> 64) as u64);
    let changes = matches!(kind, kind::WRITE | kind::DISCARD | kind::WRITE_ZEROES);
    let op = match kind {
        _ if changes && export.read_only => Err(Status::IoError),
        kind::READ => data_span(export, sector, memory::total(&writable)).map(BlockOp::Read),
        kind::WRITE => data_span(export, sector, memory::total(&readable)).map(BlockOp::Write),
        kind::FLUSH => Ok(BlockOp::Flush),
        kind::GET_ID => Ok(BlockOp::Serial),
        kind::DISCARD | kind::WRITE_ZEROES => range(export, kind, &readable),
        _ => Err(Status::Unsupported),
    };
    let op = op.unwrap_or_else(BlockOp::Answer);
    let data = if matches!(op, BlockOp::Write(_)) { readable } else { writable };
    // At most 1024 descriptors of less than 4 GiB: a wild length is cut, and refused anyway.
    let writable_bytes = u32::try_from(writable_bytes).unwrap_or(u32::MAX);
    Ok(BlockRequest { op, data, status, writable_bytes })
}

/// The span of a read or write; an empty one needs nothing.
fn data_span(export: &Export, sector: u64, len: u64) -> Result<ByteSpan, Status> {
    if len == 0 {
        return Err(Status::Ok);
    }
    if len > DATA_BYTES_MAX {
        return Err(Status::IoError);
    }
    within(export, sector, len)
}

/// The range of a discard or of zeroes: one, as the configuration space says.
fn range(export: &Export, kind: u32, readable: &Pieces) -> Result<BlockOp, Status> {
    if memory::total(readable) != RANGE_BYTES as u64 {
        return Err(Status::Unsupported);
    }
    let mut bytes = [0; RANGE_BYTES];
    // SAFETY: as many bytes as the range has; the caller of `parse` holds the memory.
    unsafe { memory::copy_from_guest(readable, bytes.as_mut_ptr(), RANGE_BYTES) };
    let value = u128::from_le_bytes(bytes);
    let (sector, sectors, flags) = (value as u64, (value >> 64) as u32, (value >> 96) as u32);
    let allowed = if kind == kind::WRITE_ZEROES { UNMAP } else { 0 };
    if flags & !allowed != 0 {
        return Err(Status::Unsupported);
    }
    if sectors == 0 {
        return Err(Status::Ok);
    }
    if sectors > ZERO_SECTORS_MAX {
        return Err(Status::IoError);
    }
    let span = within(export, sector, u64::from(sectors) * SECTOR_BYTES)?;
    Ok(if kind == kind::WRITE_ZEROES {
        BlockOp::Zero { span, may_punch: flags & UNMAP != 0 }
    } else {
        BlockOp::Discard(span)
    })
}

fn within(export: &Export, sector: u64, len: u64) -> Result<ByteSpan, Status> {
    let offset = sector.checked_mul(SECTOR_BYTES).ok_or(Status::IoError)?;
    let end = offset.checked_add(len).ok_or(Status::IoError)?;
    if end > export.size_bytes || !len.is_multiple_of(SECTOR_BYTES) {
        return Err(Status::IoError);
    }
    Ok(ByteSpan::new(offset, len))
}

/// The disk's serial number.
pub(super) fn serial(export: &Export) -> [u8; SERIAL_BYTES] {
    let mut serial = [0; SERIAL_BYTES];
    let name = export.name.as_bytes();
    let len = name.len().min(SERIAL_BYTES);
    serial[..len].copy_from_slice(&name[..len]);
    serial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ExportId;
    use crate::vhost::memory::Piece;

    fn export() -> Export {
        Export {
            id: ExportId(1),
            name: "a name of more than twenty bytes".into(),
            size_bytes: 1 << 20,
            read_only: false,
            min_block_bytes: 512,
            queues_max: 1,
            memory_bytes_max: 1 << 40,
        }
    }

    fn pieces(bytes: &mut [u8], cuts: &[usize]) -> Pieces {
        let mut pieces = Pieces::new();
        let mut rest = bytes;
        for cut in cuts {
            let (here, more) = rest.split_at_mut(*cut);
            pieces.push(Piece { first: here.as_mut_ptr(), len: here.len() });
            rest = more;
        }
        pieces.push(Piece { first: rest.as_mut_ptr(), len: rest.len() });
        pieces
    }

    fn header(kind: u32, sector: u64) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(sector.to_le_bytes());
        bytes
    }

    fn op(export: &Export, mut readable: Vec<u8>, writable: usize) -> BlockOp {
        let mut room = vec![0; writable];
        let readable = pieces(&mut readable, &[]);
        parse(export, readable, pieces(&mut room, &[])).expect("whole").op
    }

    #[test]
    fn any_layout_gives_the_same_request() {
        let mut bytes = [header(1, 3), vec![5; 1024]].concat();
        for cuts in [&[][..], &[16], &[1, 2, 3, 10, 100, 900], &[0, 16, 1024]] {
            let mut status = [9; 1];
            let readable = pieces(&mut bytes, cuts);
            let request = parse(&export(), readable, pieces(&mut status, &[])).expect("whole");
            assert_eq!(request.op, BlockOp::Write(ByteSpan::new(1536, 1024)));
            assert_eq!((memory::total(&request.data), request.writable_bytes), (1024, 1));
            assert_eq!(request.status, status.as_mut_ptr());
        }
    }

    #[test]
    fn what_can_not_be_done_is_answered() {
        let (fine, last) = (export(), (1 << 11) - 1);
        let sealed = Export { read_only: true, ..export() };
        let zeroes = |sector: u64, sectors: u32, flags: u32| {
            let range = [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()];
            [header(13, 0), range.concat()].concat()
        };
        let large = Export { size_bytes: 1 << 40, ..export() };
        let trim = [header(11, 0), zeroes(0, 1, 1)[16..].to_vec()].concat();
        for (export, readable, writable, status) in [
            (&fine, header(0, last), 1025, Status::IoError),
            (&fine, header(0, 0), 514, Status::IoError),
            (&fine, header(0, u64::MAX), 513, Status::IoError),
            (&fine, header(0, u64::MAX / 512), 513, Status::IoError),
            (&fine, header(0, 0), 1, Status::Ok),
            (&fine, header(0, 0), (32 << 20) + 513, Status::IoError),
            (&fine, header(2, 0), 1, Status::Unsupported),
            (&sealed, [header(1, 0), vec![0; 512]].concat(), 1, Status::IoError),
            (&sealed, zeroes(0, 1, 0), 1, Status::IoError),
            (&fine, zeroes(0, 0, 0), 1, Status::Ok),
            (&fine, zeroes(0, 1, 2), 1, Status::Unsupported),
            (&fine, zeroes(last, 2, 0), 1, Status::IoError),
            (&large, zeroes(0, ZERO_SECTORS_MAX + 1, 0), 1, Status::IoError),
            (&fine, trim, 1, Status::Unsupported),
            (&fine, [zeroes(0, 1, 0), vec![0; 16]].concat(), 1, Status::Unsupported),
        ] {
            assert_eq!(op(export, readable.clone(), writable), BlockOp::Answer(status));
        }
        let zero = BlockOp::Zero { span: ByteSpan::new(512, 512), may_punch: true };
        assert_eq!(op(&fine, zeroes(1, 1, 1), 1), zero);
        assert_eq!(op(&fine, header(4, 99), 1), BlockOp::Flush);
        assert_eq!(&serial(&fine), b"a name of more than ");
    }

    #[test]
    fn without_header_or_status_there_is_no_answer() {
        for (readable, writable) in [(15, 1), (16, 0), (0, 0)] {
            let (mut one, mut other) = (vec![0; readable], vec![0; writable]);
            let readable = pieces(&mut one, &[]);
            let writable = if writable == 0 { Pieces::new() } else { pieces(&mut other, &[]) };
            let error = parse(&export(), readable, writable).err();
            assert_eq!(error, Some(DisconnectReason::RequestTooShort));
        }
    }
}
