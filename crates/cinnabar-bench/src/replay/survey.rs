//! The first pass over a trace: how long it is, what it touches, and whether it can be replayed at
//! all. Nothing is opened for I/O before that is known.

use super::error::ReplayError;
use super::footprint::Footprint;
use cinnabar_engine::limits::DATA_BYTES_MAX;
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_trace::{Op, Record};
use std::collections::BTreeMap;
use std::path::Path;

/// Volumes of a trace at most: as many targets can be named.
const VOLUMES_MAX: usize = 4000;

/// What a trace is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Records of any kind.
    pub records: u64,
    /// Reads of at least a byte.
    pub reads: u64,
    /// Writes of at least a byte.
    pub writes: u64,
    /// Flushes, discards and empty requests: they are not replayed.
    pub left_out: u64,
    /// Time of the first read or write, in microseconds.
    pub first_us: u64,
    /// Time of the last one, in microseconds.
    pub last_us: u64,
    /// By number, ascending.
    pub volumes: Vec<Volume>,
    /// The trace touches so many places that footprints are lower bounds.
    pub footprint_is_bound: bool,
}

/// What a trace asks of one volume; bytes in whole sectors, as they are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// As in the trace.
    pub number: u32,
    /// End of the furthest request, in bytes.
    pub end_bytes: u64,
    /// The longest request, in bytes.
    pub longest_bytes: u64,
    /// Different blocks of 4 KiB that are read or written.
    pub footprint_blocks: u64,
}

/// Reads all of a trace.
///
/// # Errors
/// [`ReplayError`]: it can't be read, is out of order, or has a request that can't be carried out.
pub(super) fn survey(path: &Path, mut so_far: impl FnMut(u64)) -> Result<Survey, ReplayError> {
    let mut found = Survey::default();
    let mut volumes: BTreeMap<u32, Volume> = BTreeMap::new();
    let mut footprint = Footprint::default();
    let mut now_us = 0;
    for record in open(path)? {
        let record = record.map_err(|error| trace_error(path, error))?;
        found.records += 1;
        so_far(found.records);
        if record.ts_us < now_us {
            return Err(ReplayError::Disorder { path: path.to_owned(), line: found.records });
        }
        now_us = record.ts_us;
        let Some((offset, len)) = span(&record) else {
            found.left_out += 1;
            continue;
        };
        let (line, most) = (found.records, DATA_BYTES_MAX);
        if len > most {
            return Err(ReplayError::TooLong { path: path.to_owned(), line, bytes: len, most });
        }
        if found.reads + found.writes == 0 {
            found.first_us = now_us;
        }
        found.last_us = now_us;
        if record.op == Op::Read {
            found.reads += 1;
        } else {
            found.writes += 1;
        }
        let number = record.volume;
        let volume = volumes.entry(number).or_insert(Volume { number, ..Volume::default() });
        volume.end_bytes = volume.end_bytes.max(offset + len);
        volume.longest_bytes = volume.longest_bytes.max(len);
        volume.footprint_blocks += footprint.touch(number, record.blocks());
        if volumes.len() > VOLUMES_MAX {
            return Err(ReplayError::ManyVolumes { path: path.to_owned(), most: VOLUMES_MAX });
        }
    }
    if volumes.is_empty() {
        return Err(ReplayError::Empty(path.to_owned()));
    }
    found.volumes = volumes.into_values().collect();
    found.footprint_is_bound = footprint.is_full();
    Ok(found)
}

/// The records of a trace that is a file.
pub(super) fn open(path: &Path) -> Result<cinnabar_trace::Trace, ReplayError> {
    // A pipe can't be read twice, and opening one may never return.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(ReplayError::NoFile(path.to_owned()));
    }
    cinnabar_trace::open(path).map_err(|error| trace_error(path, error))
}

pub(super) fn trace_error(path: &Path, error: cinnabar_trace::TraceError) -> ReplayError {
    ReplayError::Trace { path: path.to_owned(), error }
}

/// What is replayed of a record, in bytes: a read's or write's range, widened to whole sectors.
pub(super) fn span(record: &Record) -> Option<(u64, u64)> {
    if !matches!(record.op, Op::Read | Op::Write) || record.length_bytes == 0 {
        return None;
    }
    let start = record.offset_bytes / SECTOR_BYTES * SECTOR_BYTES;
    let end = (record.offset_bytes + record.length_bytes).next_multiple_of(SECTOR_BYTES);
    Some((start, end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Survey, ReplayError> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("a trace");
        survey(file.path(), |_| ())
    }

    #[test]
    fn everything_is_counted() {
        let text = "5,3,R,4096,8192\n6,3,W,8192,4096\n6,3,F,0,0\n7,9,R,100,1000\n9,3,R,0,0\n\
            9,3,D,999999999,4096\n";
        let found = of(text).expect("a good trace");
        let volume = |number, end_bytes, longest_bytes, footprint_blocks| Volume {
            number,
            end_bytes,
            longest_bytes,
            footprint_blocks,
        };
        // Bytes 100 to 1100 lie in three sectors.
        let volumes = vec![volume(3, 12_288, 8192, 2), volume(9, 1536, 1536, 1)];
        let counted = Survey {
            records: 6,
            reads: 2,
            writes: 1,
            left_out: 3,
            first_us: 5,
            last_us: 7,
            volumes,
            footprint_is_bound: false,
        };
        assert_eq!(found, counted);
    }

    #[test]
    fn what_can_not_be_replayed_is_refused() {
        let error = |text: &str| of(text).expect_err(text).to_string();
        let tail = |text: &str| {
            error(text).split_once(": ").map(|(_, tail)| tail.to_owned()).expect("a path before it")
        };
        assert_eq!(tail(""), "no reads and no writes in it");
        assert_eq!(tail("1,0,F,0,0\n"), "no reads and no writes in it");
        assert_eq!(tail("2,0,R,0,1\n1,0,R,0,1\n"), "line 2 is earlier than the line before it");
        assert!(tail("1,0,R,0,33554433\n").starts_with("line 1 asks for 33554944 bytes"));
        assert!(tail("0,0,R,0,1\n1,0,X,0,1\n").ends_with("the operation is none of R, W, F, D"));
        let many: Vec<String> =
            (0..=VOLUMES_MAX).map(|volume| format!("1,{volume},R,0,1\n")).collect();
        assert_eq!(tail(&many.concat()), "more than 4000 volumes");
        let folder = survey(&std::env::temp_dir(), |_| ()).expect_err("a folder");
        assert!(matches!(folder, ReplayError::NoFile(_)));
        let none = survey(Path::new("/nowhere/t.csv"), |_| ()).expect_err("no file");
        assert!(none.to_string().contains("No such file"), "{none}");
    }
}
