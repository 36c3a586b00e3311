//! Reads a trace to its end or error, and checks what must be true of every record.

use cinnabar_trace::{Format, Record, Settings, TraceError};
use std::io::Cursor;

/// More than an input of some KiB has, unless it is a bomb, which needn't be read to its end.
const RECORDS_MAX: usize = 1 << 16;

/// The trace's format and records; `None` if it has no format.
pub(crate) fn read(
    bytes: &[u8],
    format: Option<Format>,
    window: usize,
) -> Option<(Format, Vec<Record>)> {
    let input = Box::new(Cursor::new(bytes.to_vec()));
    let mut trace = match cinnabar_trace::read(input, Settings { format, window }) {
        Ok(trace) => trace,
        Err(error) => {
            told(&error);
            return None;
        }
    };
    let mut records: Vec<Record> = Vec::new();
    while let Some(next) = trace.next() {
        match next {
            Ok(record) => records.push(record),
            Err(error) => {
                told(&error);
                assert!(trace.next().is_none(), "a record after an error");
            }
        }
        if records.len() == RECORDS_MAX {
            break;
        }
    }
    let named = !matches!(trace.format(), Format::Canonical | Format::OracleGeneral);
    for record in &records {
        assert!(record.offset_bytes + record.length_bytes <= Record::END_BYTES_MAX);
        assert!(record.volume <= Record::VOLUME_MAX);
        assert!(!named || (record.volume as usize) < trace.volumes().len());
    }
    if trace.format() != Format::Canonical {
        assert!(records.is_sorted_by_key(|record| record.ts_us));
        assert!(records.first().is_none_or(|record| record.ts_us == 0));
    }
    Some((trace.format(), records))
}

/// Every error has words and a hint.
fn told(error: &TraceError) {
    assert!(!error.to_string().is_empty() && !error.hint().is_empty());
}
