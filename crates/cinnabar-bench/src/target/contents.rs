//! What storage under test holds, looked at before any of it is overwritten.
//!
//! A file that is named may be the image of a virtual machine, and a block device, named by a letter,
//! another one's file system. So whatever holds something is overwritten only if that is said. Of a
//! block device the place is looked at where partition tables, file systems and volume managers put
//! their names. Of a file all that is allocated is looked at, up to a bound: holes, and what was
//! allocated and never written, are passed over without being read. NBD exports are not looked at.

use super::error::{Held, TargetError};
use super::layout::{UnitSpec, spec_of};
use cinnabar_backend::spec::Place;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Of a device: where nearly all put their names; the last is btrfs, at 64 KiB.
const DEVICE_BYTES: u64 = 128 << 10;
/// Of a file, of what is not a hole: a second or so on a disk. Zeros written beyond that count as data.
const FILE_BYTES: u64 = 256 << 20;
/// Places in a file where data begin.
const EXTENTS: usize = 4096;
/// Read at a time.
const STEP: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    File,
    /// Nothing, or what can't be opened as storage: that is found out later, in its own words.
    Other,
}

/// Refuses units that are written and lie on files or block devices that hold something, unless that
/// may be overwritten. Exports are not looked at.
///
/// # Errors
/// [`TargetError::Precious`]; [`TargetError::Unreadable`] if something can't be looked at.
pub fn guard(units: &[UnitSpec], overwrite: bool) -> Result<(), TargetError> {
    guard_if(units, overwrite, |path| match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => Kind::Device,
        Ok(metadata) if metadata.is_file() => Kind::File,
        _ => Kind::Other,
    })
}

fn guard_if(
    units: &[UnitSpec],
    overwrite: bool,
    kind_of: impl Fn(&Path) -> Kind,
) -> Result<(), TargetError> {
    if overwrite {
        return Ok(());
    }
    for (unit, place, _) in UnitSpec::all(units) {
        let Place::File(path) = spec_of(place)?.place else { continue };
        if unit.read_only {
            continue;
        }
        let held = match kind_of(&path) {
            Kind::Device => on_device(&path),
            Kind::File => in_file(&path, FILE_BYTES),
            Kind::Other => continue,
        };
        let held =
            held.map_err(|error| TargetError::Unreadable { place: place.to_owned(), error })?;
        if let Some(held) = held {
            let unit = unit.name.clone();
            return Err(TargetError::Precious { unit, place: place.to_owned(), held });
        }
    }
    Ok(())
}

/// Where the first byte that is not 0 is, if there is one near the beginning.
fn on_device(path: &Path) -> io::Result<Option<Held>> {
    let found = first_byte(&File::open(path)?, 0, DEVICE_BYTES)?;
    Ok(found.map(|at| Held::Device { at }))
}

/// What a file holds: of what is allocated, at most `budget` bytes are read.
fn in_file(path: &Path, budget: u64) -> io::Result<Option<Held>> {
    let file = File::open(path)?;
    let (mut at, mut left) = (0, budget);
    for _ in 0..EXTENTS {
        let begin = match seek(&file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // Holes up to the end.
            Err(Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let end = seek(&file, SeekFrom::Hole(begin))?;
        let read = left.min(end - begin);
        if let Some(at) = first_byte(&file, begin, read)? {
            return Ok(Some(Held::File { at }));
        }
        left -= read;
        if left == 0 {
            break;
        }
        at = end;
    }
    Ok(Some(Held::Unknown { looked_at: budget - left }))
}

/// Where the first byte that is not 0 is, of `len` bytes from `begin` on, or up to the end.
fn first_byte(file: &File, begin: u64, len: u64) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; STEP.min(len as usize)];
    let mut at = begin;
    while at < begin + len {
        let wanted = (begin + len - at).min(STEP as u64) as usize;
        let read = match file.read_at(&mut bytes[..wanted], at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if let Some(index) = bytes[..read].iter().position(|byte| *byte != 0) {
            return Ok(Some(at + index as u64));
        }
        at += read as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_holds_something_is_not_overwritten_unasked() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, at: Option<usize>| {
            let mut bytes = vec![0; 256 << 10];
            if let Some(at) = at {
                bytes[at] = 1;
            }
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("a file");
            path.display().to_string()
        };
        let unit = |place: &str, read_only| UnitSpec {
            name: "asu1".into(),
            places: vec![file("zeros", None), format!("sim:ssd:file:{place}")],
            read_only,
            cached: true,
        };
        let (last, behind) = (file("last", Some(131_071)), file("behind", Some(131_072)));
        let check = |place: &str, read_only, overwrite| {
            // A file stands in for the device.
            let kind =
                |path: &Path| if path.ends_with("zeros") { Kind::File } else { Kind::Device };
            guard_if(&[unit(place, read_only)], overwrite, kind)
        };
        let error = check(&last, false, false).expect_err("it holds something");
        assert!(error.to_string().contains("holds data") && error.hint().contains("--overwrite"));
        check(&last, false, true).expect("it may go");
        check(&last, true, false).expect("nothing is written to it");
        check(&behind, false, false).expect("zeros as far as names are");
        let error = check("/nowhere/sdx", false, false).expect_err("it is not there");
        assert!(matches!(error, TargetError::Unreadable { .. }), "{error}");
        let export = UnitSpec { places: vec!["nbd:unix:/s".into()], ..unit(&last, false) };
        guard_if(&[export], false, |_| Kind::File).expect("exports are not looked at");
    }

    /// All that is allocated counts, wherever it is: an image whose first part was discarded, too.
    #[test]
    fn a_file_that_holds_something_is_not_overwritten_unasked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("vm.raw");
        let unit = UnitSpec {
            name: "asu1".into(),
            places: vec![path.display().to_string()],
            read_only: false,
            cached: true,
        };
        let file = File::create(&path).expect("a file");
        guard(std::slice::from_ref(&unit), false).expect("it is empty");
        file.set_len(1 << 30).expect("it has room");
        guard(std::slice::from_ref(&unit), false).expect("a hole");
        file.write_all_at(&[0; 8192], 5 << 20).expect("zeros");
        guard(std::slice::from_ref(&unit), false).expect("zeros");
        file.write_all_at(&[7], (1 << 30) - 1).expect("a byte");
        let error = guard(std::slice::from_ref(&unit), false).expect_err("it holds something");
        assert!(
            error.to_string().contains("a file that holds data (at byte 1073741823)"),
            "{error}"
        );
        assert!(error.hint().contains("--overwrite"));
        guard(std::slice::from_ref(&unit), true).expect("it may go");
        guard(&[UnitSpec { read_only: true, ..unit }], false).expect("it is not written");
    }

    #[test]
    fn a_file_too_large_to_look_at_counts_as_one_that_holds_something() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("zeros.raw");
        std::fs::write(&path, vec![0; 3 << 20]).expect("a file");
        let look = |budget| in_file(&path, budget).expect("it can be read");
        assert_eq!(look(4 << 20), None);
        assert_eq!(look(2 << 20), Some(Held::Unknown { looked_at: 2 << 20 }));
    }
}
