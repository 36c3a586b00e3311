//! Where parsers put what they find: checked, and with a volume's number for its name.

use crate::canonical;
use crate::error::Problem;
use crate::record::{Op, Record};
use crate::volumes::Volumes;

/// Records of one line or binary record, and the volumes of all of them.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) volumes: Volumes,
    /// Mostly one; none for what is skipped; a write that asks for a flush first is two.
    pub(crate) records: Vec<Record>,
}

impl Sink {
    /// A request of the volume of that name, at a time of the trace's own clock.
    pub(crate) fn push(
        &mut self,
        ts_us: u64,
        volume: &[u8],
        op: Op,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), Problem> {
        // Checked before the volume gets a number: what is refused leaves no trace.
        let record = canonical::check(Record { ts_us, volume: 0, op, offset_bytes, length_bytes })?;
        let volume = self.volumes.number(volume)?;
        self.records.push(Record { volume, ..record });
        Ok(())
    }

    /// A request of a volume that the format itself numbers.
    pub(crate) fn push_numbered(&mut self, record: Record) -> Result<(), Problem> {
        self.records.push(canonical::check(record)?);
        Ok(())
    }
}
