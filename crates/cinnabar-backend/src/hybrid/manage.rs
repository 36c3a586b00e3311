//! Making and looking at hybrid volumes, for commands.

use super::spec::HybridSpec;
use super::{HybridError, HybridPlace};
use crate::entropy;
use cinnabar_hybrid::pools::Wait;
use cinnabar_hybrid::upkeep::{self, Upkeep};
use cinnabar_placement::volume::ResizeError;
use cinnabar_placement::{Geometry, Header, Pool, State};
use rustix::io::Errno;
use std::time::Duration;

pub use cinnabar_hybrid::check::Checked;
pub use cinnabar_hybrid::upkeep::{Lost, Progress};

/// What a table says of its volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Bytes of the volume.
    pub size_bytes: u64,
    pub extent_bytes: u64,
    /// Bytes of the fast pool that it may take.
    pub budget_bytes: u64,
    /// Owners so far.
    pub epoch: u64,
    /// Extents of the volume, and those that were written.
    pub extents: u32,
    /// See above.
    pub extents_present: u32,
    /// Extents whose data lie in the slow and in the fast pool.
    pub extents_in: [u32; 2],
    /// Extents on their way between the pools.
    pub moving: u32,
}

/// Makes a volume, all zeros.
///
/// # Errors
/// [`HybridError`].
pub fn create(
    spec: &HybridSpec,
    size_bytes: u64,
    extent_bytes: u64,
    budget_bytes: u64,
) -> Result<(), HybridError> {
    if !extent_bytes.is_power_of_two() {
        let text = format!("an extent of {extent_bytes} bytes; extents have a power of two");
        return Err(HybridError::Other(text));
    }
    let geometry = Geometry::new(size_bytes, extent_bytes.trailing_zeros() as u8)
        .map_err(|error| HybridError::Other(error.to_string()))?;
    let identity = entropy::bytes().map_err(|error| HybridError::Io {
        during: "drawing an identity".into(),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    spec.place.volume()?.create(&Header::new(identity, geometry, budget_bytes))
}

/// Reads a table, whether something serves the volume or not.
///
/// # Errors
/// [`HybridError`].
pub fn look(spec: &HybridSpec) -> Result<Looked, HybridError> {
    let contents = spec.place.volume()?.look()?;
    let header = contents.header;
    let mut looked = Looked {
        size_bytes: header.geometry.bytes(),
        extent_bytes: header.geometry.extent_bytes(),
        budget_bytes: header.budget_bytes,
        epoch: header.epoch,
        extents: header.geometry.extents(),
        extents_present: contents.records.len() as u32,
        ..Looked::default()
    };
    for (_, record) in contents.records {
        looked.extents_in[usize::from(record.pool == Pool::Fast)] += 1;
        looked.moving += u32::from(matches!(record.state, State::Copying | State::Cleaning));
    }
    Ok(looked)
}

/// Measures both pools for a few seconds, and keeps the result with the volume, for its next owner to plan moves by.
/// Gives how long a random read and write of 4 KiB take in the slow and in the fast pool.
///
/// # Errors
/// [`HybridError`]; above all of a volume in folders, which is not probed.
pub fn probe(spec: &HybridSpec) -> Result<[Probed; 2], HybridError> {
    match &spec.place {
        HybridPlace::Local(_) => {
            Err(HybridError::Other("pools in folders are not probed, those on Ceph are".into()))
        }
        #[cfg(feature = "ceph")]
        HybridPlace::Ceph(place) => {
            let found = cinnabar_hybrid::rados::RadosPlace::new(place.clone()).calibrate()?;
            Ok([found.slow, found.fast].map(|device| Probed::of(&device)))
        }
        #[cfg(not(feature = "ceph"))]
        HybridPlace::Ceph(_) => spec.place.volume().map(|_| <[Probed; 2]>::default()),
    }
}

/// What a pool takes for a random request of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    pub read: Duration,
    pub write: Duration,
}

impl Probed {
    #[cfg(feature = "ceph")]
    fn of(device: &cinnabar_placement::Device) -> Self {
        let time =
            |curve: &cinnabar_placement::Curve| Duration::from_secs_f64(curve.ns(4096) / 1e9);
        Self { read: time(&device.read), write: time(&device.write) }
    }
}

/// Gives a volume that nothing serves another size; a smaller one, which loses what is behind it, if `may_shrink`. What
/// is wrong meanwhile `progress` is told.
///
/// # Errors
/// [`HybridError`]; above all if it is served, or can't have the size.
pub fn resize(
    spec: &HybridSpec,
    size_bytes: u64,
    may_shrink: bool,
    progress: &mut Progress<'_>,
) -> Result<(), HybridError> {
    // Before it is taken over, which a cache would have to start cold for.
    let before = look(spec)?;
    let extent_log2 = before.extent_bytes.trailing_zeros() as u8;
    let other = |error: &dyn std::fmt::Display| HybridError::Other(error.to_string());
    Geometry::new(size_bytes, extent_log2).map_err(|error| other(&error))?;
    if size_bytes < before.size_bytes && !size_bytes.is_multiple_of(before.extent_bytes) {
        return Err(other(&ResizeError::NotWhole(before.extent_bytes)));
    }
    Upkeep::open(&mut *spec.place.volume()?, &mut wait, progress)?
        .resize(size_bytes, may_shrink, progress)
}

/// Moves all of a volume that nothing serves out of the fast pool, of which it may take nothing from then on. Gives
/// how many objects there were.
///
/// # Errors
/// [`HybridError`]; above all if it is served, or the slow pool is full.
pub fn evacuate(spec: &HybridSpec, progress: &mut Progress<'_>) -> Result<u32, HybridError> {
    Upkeep::open(&mut *spec.place.volume()?, &mut wait, progress)?.evacuate(progress)
}

/// Deletes what nothing needs of a volume that nothing serves; how many objects that was.
///
/// # Errors
/// [`HybridError`]; above all if it is served.
pub fn collect(spec: &HybridSpec, progress: &mut Progress<'_>) -> Result<u64, HybridError> {
    Upkeep::open(&mut *spec.place.volume()?, &mut wait, progress)?.collect(progress)
}

/// Has extents read as zeros whose objects a check has found missing; what became of each.
///
/// # Errors
/// [`HybridError`]; above all if it is served, or if there are objects that the table does not know yet: it may be an
/// older copy, and what is missing may be there under a later name.
pub fn forget_lost(
    spec: &HybridSpec,
    found: &Checked,
    progress: &mut Progress<'_>,
) -> Result<Vec<Lost>, HybridError> {
    if let Some(later) = found.later {
        return Err(HybridError::Other(format!(
            "the pools have objects that the table does not know yet, the first is {}/{later}: the table may be an \
             older copy, and nothing was changed",
            later.pool
        )));
    }
    upkeep::forget(&mut *spec.place.volume()?, &found.lost_objects, &mut wait, progress)
}

/// A volume whose lock is held is refused; that a former owner serves nothing any more is waited for.
fn wait(what: Wait<'_>) -> bool {
    what == Wait::Lease
}

/// Compares a table with its pools, while nothing serves the volume.
///
/// # Errors
/// [`HybridError`].
pub fn check(spec: &HybridSpec) -> Result<Checked, HybridError> {
    spec.place.check()
}
