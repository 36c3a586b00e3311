//! What storage under test holds, looked at before any of it is overwritten.
//!
//! Called by the benchmarks that write. Somebody who names a file or an export means that file; a
//! block device is named by a letter, and the wrong letter is somebody's file system. So a device that
//! holds anything where partition tables, file systems and volume managers put their names is
//! overwritten only if that is said.

use super::error::TargetError;
use super::layout::{UnitSpec, spec_of};
use cinnabar_backend::spec::Place;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Where nearly all of them put their names; the last is btrfs, at 64 KiB.
const LOOKED_AT: u64 = 128 << 10;

/// Refuses units that are written and lie on a block device that holds something, unless that may be
/// overwritten. Files and exports are not looked at.
///
/// # Errors
/// [`TargetError::Precious`]; [`TargetError::Unreadable`] if a device can't be looked at.
pub fn guard(units: &[UnitSpec], overwrite: bool) -> Result<(), TargetError> {
    guard_if(units, overwrite, |path| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
    })
}

fn guard_if(
    units: &[UnitSpec],
    overwrite: bool,
    is_device: impl Fn(&Path) -> bool,
) -> Result<(), TargetError> {
    if overwrite {
        return Ok(());
    }
    for (unit, place, _) in UnitSpec::all(units) {
        let Place::File(path) = spec_of(place)?.place else { continue };
        if unit.read_only || !is_device(&path) {
            continue;
        }
        let unreadable = |error| TargetError::Unreadable { place: place.to_owned(), error };
        if let Some(offset) = first_byte(&path).map_err(unreadable)? {
            let unit = unit.name.clone();
            return Err(TargetError::Precious { unit, place: place.to_owned(), offset });
        }
    }
    Ok(())
}

/// Where the first byte that is not 0 is, if there is one near the beginning.
fn first_byte(path: &Path) -> std::io::Result<Option<usize>> {
    let mut begin = Vec::new();
    File::open(path)?.take(LOOKED_AT).read_to_end(&mut begin)?;
    Ok(begin.iter().position(|byte| *byte != 0))
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
            guard_if(&[unit(place, read_only)], overwrite, |path| !path.ends_with("zeros"))
        };
        let error = check(&last, false, false).expect_err("it holds something");
        assert!(error.to_string().contains("holds data") && error.hint().contains("--overwrite"));
        check(&last, false, true).expect("it may go");
        check(&last, true, false).expect("nothing is written to it");
        check(&behind, false, false).expect("zeros as far as names are");
        guard(&[unit(&last, false)], false).expect("files are not looked at");
        let error = check("/nowhere/sdx", false, false).expect_err("it is not there");
        assert!(matches!(error, TargetError::Unreadable { .. }), "{error}");
        let export = UnitSpec { places: vec!["nbd:unix:/s".into()], ..unit(&last, false) };
        guard_if(&[export], false, |_| true).expect("exports are not looked at");
    }
}
