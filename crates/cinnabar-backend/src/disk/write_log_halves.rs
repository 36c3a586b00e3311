//! The two devices of a mirrored write log: each opened, locked and made by itself, so that one which is
//! missing does not keep the other one from being used. Which of them counts is not decided here.

use super::error::{DiskError, DiskErrorKind};
use super::{DiskKind, WriteLogDisk};
use cinnabar_writeback::format::bytes_of;
use cinnabar_writeback::recover::{self, Media, OpenError};

/// What was found at each path.
pub type LogHalves = [Result<WriteLogDisk, DiskError>; 2];

/// Opens both devices, each by `open`, which is given the half and the size of a file that it has to make.
/// That is the configured one, or else the size of the log on the other device.
pub fn open_halves(
    size_bytes: Option<u64>,
    mut open: impl FnMut(usize, Option<u64>) -> Result<WriteLogDisk, DiskError>,
) -> LogHalves {
    let mut halves = [open(0, size_bytes), open(1, size_bytes)];
    for half in 0..2 {
        let other = halves[1 - half].as_ref().ok();
        let Some(log) = other.and_then(|other| other.superblock) else { continue };
        let need = bytes_of(log.segments);
        let lacks = match &halves[half] {
            Ok(found) => {
                let disk = &found.disk;
                let is_new = found.superblock.is_none() && disk.kind() == DiskKind::File;
                is_new && disk.size_bytes() < need
            }
            Err(error) => error.kind == DiskErrorKind::NoSize,
        };
        if lacks {
            // A file that was made is let go of before it is made again.
            halves[half] = Err(DiskError::new(&path_of(&halves[half]), DiskErrorKind::NoSize));
            halves[half] = open(half, Some(need));
        }
    }
    halves
}

fn path_of(half: &Result<WriteLogDisk, DiskError>) -> std::path::PathBuf {
    match half {
        Ok(found) => found.disk.path().to_owned(),
        Err(error) => error.path.clone(),
    }
}

/// Makes a new log of the first device if both are empty, as large as both allow; the other one is filled
/// from it like any empty one. Gives the log's size in bytes if it was made.
///
/// # Errors
/// If the device fails or is too small.
pub fn format_if_empty<P>(
    halves: &LogHalves,
    first: &impl Media<P>,
    uuid: [u8; 16],
) -> Result<Option<u64>, OpenError> {
    let [Ok(a), Ok(b)] = halves else { return Ok(None) };
    if a.superblock.is_some() || b.superblock.is_some() {
        return Ok(None);
    }
    let bytes = a.disk.size_bytes().min(b.disk.size_bytes());
    recover::format(first, bytes, uuid)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;
    use crate::disk::{OpenOptions, open_write_log};
    use std::path::Path;

    const SIZE: u64 = 16 << 20;

    fn open(paths: [&Path; 2], size: Option<u64>) -> LogHalves {
        let options = OpenOptions::default();
        open_halves(size, |half, size| open_write_log(paths[half], size, &options))
    }

    #[test]
    fn the_first_of_two_empty_ones_is_formatted_as_large_as_both_allow() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let paths = [paths[0].as_path(), paths[1].as_path()];
        std::fs::File::create(paths[1]).and_then(|file| file.set_len(SIZE)).expect("it is made");
        let halves = open(paths, Some(SIZE));
        let first = &halves[0].as_ref().expect("it is made").disk;
        let made = format_if_empty::<Memory>(&halves, first, [7; 16]).expect("it is formatted");
        assert_eq!(made, Some(SIZE));
        drop(halves);
        let halves = open(paths, None);
        let found = halves.each_ref().map(|half| half.as_ref().expect("it is there").superblock);
        assert_eq!(found[0].map(|log| log.uuid), Some([7; 16]));
        assert_eq!(found[1], None, "the other one is filled later");
        let first = &halves[0].as_ref().expect("it is there").disk;
        assert_eq!(format_if_empty::<Memory>(&halves, first, [8; 16]).expect("it is"), None);
    }

    #[test]
    fn a_file_that_is_not_there_gets_the_size_of_the_other_ones_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let (a, b) = (paths[0].as_path(), paths[1].as_path());
        let made = open_write_log(a, Some(SIZE), &OpenOptions::default()).expect("it is made");
        recover::format(&made.disk, SIZE, [7; 16]).expect("it is formatted");
        drop(made);
        for paths in [[a, b], [b, a]] {
            // A size that is too small for the log does not count either.
            for size in [None, Some(SIZE / 4 * 3)] {
                let halves = open(paths, size);
                for half in halves {
                    assert_eq!(half.expect("it is there").disk.size_bytes(), SIZE);
                }
                assert!(!b.exists(), "what is never written is not kept");
            }
        }
    }

    #[test]
    fn one_that_is_missing_or_in_use_does_not_keep_the_other_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let missing = folder.path().join("none/b");
        let [a, b] = open([&path, &missing], Some(SIZE));
        assert!(a.is_ok());
        assert_eq!(b.expect_err("no folder").kind, DiskErrorKind::NoFolder);
        drop(a);
        let [a, b] = open([&path, &path], Some(SIZE));
        assert!(a.is_ok() && matches!(b.expect_err("in use").kind, DiskErrorKind::InUse { .. }));
    }
}
