//! Where the bytes of a unit are: one place after the other.
//!
//! Called by the target.

use super::error::TargetError;
use cinnabar_backend::BackendSpec;
use cinnabar_backend::spec::Place;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Places are used in whole blocks of this size, so that no block lies in two of them.
const BLOCK_BYTES: u64 = 4096;
/// Unless there is only one: then in sectors.
const SECTOR_BYTES: u64 = 512;
/// Places of all units at most.
const PLACES_MAX: usize = 4000;

/// A unit: an ASU, or a volume of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSpec {
    /// What to call it; the names of its cached blocks begin with it.
    pub name: String,
    /// What it is laid over: paths, backends or NBD URIs.
    pub places: Vec<String>,
    /// Nothing is written to it.
    pub read_only: bool,
    /// The cache is used for it, if there is one.
    pub cached: bool,
}

impl UnitSpec {
    /// Each place of each of the units, with the name that a cache knows it by.
    pub(super) fn all(units: &[Self]) -> impl Iterator<Item = (&Self, &str, String)> {
        units.iter().flat_map(|unit| {
            let name = |index| match unit.places.len() {
                1 => unit.name.clone(),
                _ => format!("{}.{index}", unit.name),
            };
            let named = unit.places.iter().enumerate();
            named.map(move |(index, place)| (unit, place.as_str(), name(index)))
        })
    }

    /// Without the models in front of its places: their own speed, for warming.
    #[must_use]
    pub fn bare(&self) -> Self {
        let bare = |mut place: &str| {
            while let Some((_, behind)) =
                place.strip_prefix("sim:").and_then(|settings| settings.split_once(':'))
            {
                place = behind;
            }
            place.to_owned()
        };
        Self { places: self.places.iter().map(|place| bare(place)).collect(), ..self.clone() }
    }
}

/// A part of an I/O: bytes of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) place: usize,
    pub(super) offset: u64,
    pub(super) len: u64,
}

pub(super) struct Layout {
    units: Vec<Unit>,
}

struct Unit {
    /// First place, among all places of all units.
    first: usize,
    /// Where each place ends, in bytes of the unit.
    ends: Vec<u64>,
}

impl Layout {
    /// Lays the units over places of these sizes, in bytes.
    pub(super) fn new(units: &[UnitSpec], sizes: &[u64]) -> Result<Self, TargetError> {
        let mut first = 0;
        let mut all = Vec::with_capacity(units.len());
        for unit in units {
            let grain = if unit.places.len() == 1 { SECTOR_BYTES } else { BLOCK_BYTES };
            let mut ends = Vec::with_capacity(unit.places.len());
            let mut end = 0;
            for (place, &bytes) in unit.places.iter().zip(&sizes[first..]) {
                let usable = bytes / grain * grain;
                if usable == 0 {
                    return Err(TargetError::Small { place: place.clone(), bytes });
                }
                end += usable;
                ends.push(end);
            }
            all.push(Unit { first, ends });
            first += unit.places.len();
        }
        Ok(Self { units: all })
    }

    pub(super) fn size_bytes(&self, unit: usize) -> u64 {
        self.units[unit].ends.last().copied().unwrap_or(0)
    }

    pub(super) fn places(&self, unit: usize) -> usize {
        self.units[unit].ends.len()
    }

    pub(super) fn places_of(&self, unit: usize) -> std::ops::Range<usize> {
        let Unit { first, ends } = &self.units[unit];
        *first..first + ends.len()
    }

    /// The parts of a range of a unit, in order.
    pub(super) fn split(
        &self,
        unit: usize,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = Part> + use<> {
        let Unit { first, ends } = &self.units[unit];
        let end = offset.checked_add(len).filter(|end| Some(end) <= ends.last());
        let end = end.expect("an I/O inside of its unit");
        let index = ends.partition_point(|end| *end <= offset);
        let mut parts = smallvec::SmallVec::<[Part; 2]>::new();
        let (mut at, mut index) = (offset, index);
        while at < end {
            let start = if index == 0 { 0 } else { ends[index - 1] };
            let upto = end.min(ends[index]);
            parts.push(Part { place: first + index, offset: at - start, len: upto - at });
            (at, index) = (upto, index + 1);
        }
        parts.into_iter()
    }
}

/// What a user means by a place.
pub(super) fn spec_of(place: &str) -> Result<BackendSpec, TargetError> {
    let base = std::env::current_dir().unwrap_or_default();
    BackendSpec::of_user(place, &base)
        .map_err(|error| TargetError::Spec { place: place.to_owned(), error })
}

/// Refuses a place that is named twice: two streams would overwrite each other, or the cache the
/// storage.
pub(super) fn check_distinct(units: &[UnitSpec], cache: Option<&Path>) -> Result<(), TargetError> {
    let mut known: Vec<(Same, String)> = Vec::new();
    let cache = cache.map(Same::of_path);
    for (unit, place, _) in UnitSpec::all(units) {
        let same = Same::of(&spec_of(place)?);
        let here = format!("{} ({place})", unit.name);
        if cache.as_ref() == Some(&same) {
            return Err(TargetError::IsCache { place: here });
        }
        if let Some((_, first)) = known.iter().find(|(other, _)| *other == same) {
            return Err(TargetError::Twice { first: first.clone(), second: here });
        }
        known.push((same, here));
        if known.len() > PLACES_MAX {
            return Err(TargetError::Many(PLACES_MAX));
        }
    }
    Ok(())
}

/// Whether a file is one of the places, or the cache: nothing else is to be written there.
pub fn is_part(units: &[UnitSpec], cache: Option<&Path>, path: &Path) -> bool {
    let same = Same::of_path(path);
    let of_unit =
        |(_, place, _): (_, &str, _)| spec_of(place).is_ok_and(|spec| Same::of(&spec) == same);
    UnitSpec::all(units).any(of_unit) || cache.map(Same::of_path) == Some(same)
}

/// By what two places are known to be one.
#[derive(PartialEq, Eq)]
enum Same {
    Inode(u64, u64),
    Device(u64),
    Path(std::path::PathBuf),
    Server(String),
}

impl Same {
    fn of(spec: &BackendSpec) -> Self {
        match &spec.place {
            Place::File(path) => Self::of_path(path),
            Place::Nbd(server) => Self::Server(server.place()),
            Place::Rbd(image) => Self::Server(image.place()),
            Place::Hybrid(volume) => Self::Server(volume.place()),
        }
    }

    fn of_path(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => Self::Device(metadata.rdev()),
            Ok(metadata) => Self::Inode(metadata.dev(), metadata.ino()),
            // What is not there is refused when it is opened.
            Err(_) => Self::Path(path.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(places: &[&str]) -> UnitSpec {
        let places = places.iter().map(|place| (*place).to_owned()).collect();
        UnitSpec { name: "asu1".into(), places, read_only: false, cached: true }
    }

    #[test]
    fn ranges_are_split_where_places_meet() {
        let units = [unit(&["a"]), unit(&["b", "c", "d"])];
        let layout = Layout::new(&units, &[1024, 8192 + 512, 4096, 12_288]).expect("large enough");
        assert_eq!((layout.size_bytes(0), layout.size_bytes(1)), (1024, 24_576));
        let part = |place, offset, len| Part { place, offset, len };
        let split = |unit, offset, len| layout.split(unit, offset, len).collect::<Vec<_>>();
        assert_eq!(split(0, 512, 512), [part(0, 512, 512)]);
        assert_eq!(split(1, 8192, 4096), [part(2, 0, 4096)]);
        assert_eq!(
            split(1, 4096, 16_384),
            [part(1, 4096, 4096), part(2, 0, 4096), part(3, 0, 8192)]
        );
        assert_eq!(layout.places_of(1), 1..4);
    }

    #[test]
    fn too_small_a_place_is_refused() {
        let error = Layout::new(&[unit(&["a", "b"])], &[8192, 4095]).err().expect("too small");
        assert!(error.to_string().contains("\"b\""), "{error}");
    }

    #[test]
    fn one_place_under_two_names_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        std::fs::write(&path, [0; 4096]).expect("a file");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let text = |path: &Path| path.display().to_string();
        let units = [unit(&[&text(&path)]), unit(&[&format!("sim:ssd:file:{}", text(&link))])];
        let error = check_distinct(&units, None).expect_err("one file");
        assert!(error.to_string().contains("are one and the same"), "{error}");
        let other = folder.path().join("other");
        check_distinct(&units[..1], Some(&other)).expect("one place");
        let error = check_distinct(&units[..1], Some(&link)).expect_err("the cache is the place");
        assert!(error.to_string().contains("is the cache device"), "{error}");
        assert!(is_part(&units[..1], None, &link) && is_part(&[], Some(&link), &path));
        assert!(!is_part(&units, Some(&link), &other));
    }

    #[test]
    fn models_can_be_left_out() {
        let unit = unit(&["sim:hdd,seed=1:sim:ssd:file:/a:b", "/c", "nbd:unix:/d"]);
        assert_eq!(unit.bare().places, ["file:/a:b", "/c", "nbd:unix:/d"]);
    }
}
