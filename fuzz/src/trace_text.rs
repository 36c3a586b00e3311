//! Traces of text formats: the first byte says which one, or that it is to be detected from the
//! rest. No panic; whatever comes out is a valid record, in order; and fio's iolog of it reads back
//! the same.

use crate::trace_check;
use cinnabar_trace::write_fio::{Version, Writer};
use cinnabar_trace::{Format, Record, Settings};

/// Those of the first bytes 0, 1, ...; 14 is to be detected.
pub const FORMATS: [Format; 14] = [
    Format::Canonical,
    Format::Msr,
    Format::Spc,
    Format::Alibaba,
    Format::Tencent,
    Format::Systor,
    Format::Fiu,
    Format::BlkParse,
    Format::TraceFs,
    Format::Fio2,
    Format::Fio3,
    Format::SsdSim,
    Format::DiskSim,
    Format::Arc,
];

/// The others are binary; `trace_binary` has them.
const BINARY: usize = 4;
const _: () = assert!(FORMATS.len() + BINARY == Format::ALL.len(), "a format is not fuzzed");

/// The format (`u8`), and the trace; whether it has records.
///
/// # Panics
/// When they do not come back out of an iolog.
pub fn run(input: &[u8]) -> bool {
    let Some((&choice, bytes)) = input.split_first() else { return false };
    let format = FORMATS.get(usize::from(choice) % (FORMATS.len() + 1)).copied();
    let read = trace_check::read(bytes, format, usize::from(choice) * 3);
    let Some((_, records)) = read else { return false };
    comes_back(&records);
    !records.is_empty()
}

/// Writes and reads an iolog of what it can hold: no times that go back, no empty requests, pieces of at most 1 GiB.
fn comes_back(records: &[Record]) {
    let settings = Settings { format: Some(Format::Fio3), ..Settings::default() };
    let holds = |record: &&Record| record.length_bytes <= 1 << 30;
    let records: Vec<Record> = records.iter().filter(holds).copied().collect();
    if !records.is_sorted_by_key(|record| record.ts_us) {
        return;
    }
    let mut writer = Writer::new(Vec::new(), Version::V3).expect("memory");
    for record in &records {
        writer.write(record, &record.volume.to_string()).expect("a valid record");
    }
    let text = writer.finish().expect("memory");
    let trace = cinnabar_trace::read(Box::new(std::io::Cursor::new(text)), settings);
    let back: Vec<Record> =
        trace.expect("it is said to be").collect::<Result<_, _>>().expect("what was written");
    let flush =
        |record: &&Record| record.op == cinnabar_trace::Op::Flush || record.length_bytes > 0;
    let first = records.iter().find(flush).map_or(0, |record| record.ts_us);
    let expected = records.iter().filter(flush);
    assert_eq!(back.len(), expected.clone().count());
    for (back, expected) in back.iter().zip(expected) {
        assert_eq!((back.ts_us, back.op), (expected.ts_us - first, expected.op));
    }
}
