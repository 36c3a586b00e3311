//! Writes oracleGeneral, libCacheSim's binary form ([`Format::OracleGeneral`](crate::Format)).
//!
//! Each 4 KiB reference ([`mod@crate::references`]) is one record of the object of its key, with a
//! size of 4096 bytes; flushes and discards refer to nothing and are left out, and the form does not
//! tell reads from writes.
//!
//! A record holds the number of the next access to its object, which is not known yet when the record
//! is: records go to a spool file first. At the end it is walked back, a buffer at a time, with the
//! last place of each object in a table; then it is copied out. So memory is bounded by the number of
//! distinct blocks (some 32 bytes each), not by the length of the trace; the spool has 24 bytes a
//! reference.

use crate::error::TraceError;
use crate::formats::oracle::{NEVER, NEXT_AT, OBJECT_AT, RECORD_BYTES, SIZE_AT, object};
use crate::record::Record;
use crate::references::{BLOCK_BITS, references};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};

/// Records that are walked at a time: 1.5 MiB.
const STRIDE_RECORDS: usize = 1 << 16;
const US_PER_SECOND: u64 = 1_000_000;

/// Records on their way to their next accesses.
#[derive(Debug)]
pub struct Writer {
    spool: BufWriter<File>,
    records: u64,
}

impl Writer {
    /// Begins a trace; the spool is an empty file to be read and written, a temporary one.
    pub fn new(spool: File) -> Self {
        Self { spool: BufWriter::with_capacity(STRIDE_RECORDS * RECORD_BYTES, spool), records: 0 }
    }

    /// Takes the references of a request.
    ///
    /// # Errors
    /// `InvalidInput` if its time is beyond the form's 136 years, else what the spool says.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let Ok(seconds) = u32::try_from(record.ts_us / US_PER_SECOND) else {
            let what = "the time is beyond what oracleGeneral holds, 2^32 seconds";
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        };
        for reference in references(std::iter::once(Ok::<_, TraceError>(*record))).flatten() {
            let mut packed = [0; RECORD_BYTES];
            packed[..OBJECT_AT].copy_from_slice(&seconds.to_le_bytes());
            packed[OBJECT_AT..SIZE_AT].copy_from_slice(&reference.key.to_le_bytes());
            packed[SIZE_AT..NEXT_AT].copy_from_slice(&(1_u32 << BLOCK_BITS).to_le_bytes());
            self.spool.write_all(&packed)?;
            self.records += 1;
        }
        Ok(())
    }

    /// Finds the next accesses and writes the trace out; returns how many records it has.
    ///
    /// # Errors
    /// What spool and stream say.
    pub fn finish(self, output: &mut impl Write) -> io::Result<u64> {
        let mut spool = self.spool.into_inner().map_err(io::IntoInnerError::into_error)?;
        let mut next_of: HashMap<u64, i64> = HashMap::new();
        let mut stride = Vec::with_capacity(STRIDE_RECORDS * RECORD_BYTES);
        let mut end = self.records;
        while end > 0 {
            let first = end.saturating_sub(STRIDE_RECORDS as u64);
            let place = SeekFrom::Start(first * RECORD_BYTES as u64);
            stride.resize((end - first) as usize * RECORD_BYTES, 0);
            spool.seek(place)?;
            spool.read_exact(&mut stride)?;
            let records = stride.chunks_exact_mut(RECORD_BYTES);
            for (number, record) in records.enumerate().rev() {
                let number = (first + number as u64).cast_signed();
                let next = next_of.insert(object(record), number).unwrap_or(NEVER);
                record[NEXT_AT..].copy_from_slice(&next.to_le_bytes());
            }
            spool.seek(place)?;
            spool.write_all(&stride)?;
            end = first;
        }
        spool.rewind()?;
        io::copy(&mut spool, output)?;
        Ok(self.records)
    }
}
