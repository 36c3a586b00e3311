//! What is probed: named by a user, opened and locked as everything here opens disks.

use super::error::ProbeError;
use super::plan::Plan;
use super::scratch::Scratch;
use cinnabar_backend::disk::{DiskKind, OpenOptions};
use cinnabar_backend::spec::Place;
use cinnabar_backend::{BackendSpec, Disk};
use cinnabar_model::SimSpec;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How a device is named and what may be done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A path, a backend or an NBD URI.
    pub text: String,
    /// Make a file of so many bytes there first.
    pub size_bytes: Option<u64>,
    /// Leave that file there.
    pub keep: bool,
    /// What it holds may be overwritten.
    pub destroy_contents: bool,
}

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) disk: Disk,
    /// Models in front of it.
    pub(super) layers: Vec<SimSpec>,
    /// What is to be known of what is measured.
    pub(super) notes: Vec<String>,
}

impl Device {
    /// Opens it for the plan. A file that is made for it is gone with it, unless it is kept.
    pub(super) fn open(
        target: &Target,
        plan: &Plan,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ProbeError> {
        let here = std::env::current_dir().unwrap_or_default();
        let spec = BackendSpec::of_user(&target.text, &here)
            .map_err(|error| ProbeError::Spec { text: target.text.clone(), error })?;
        if plan.write && target.size_bytes.is_none() && !target.destroy_contents {
            return Err(ProbeError::Precious(target.text.clone()));
        }
        let scratch = match (target.size_bytes, &spec.place) {
            (None, _) => None,
            (Some(_), Place::Nbd(_) | Place::Rbd(_) | Place::Hybrid(_)) => {
                return Err(ProbeError::NotAFile(target.text.clone()));
            }
            (Some(bytes), Place::File(path)) => {
                check_size(bytes, plan)?;
                Some(Scratch::make(path, bytes, plan.seed, progress)?)
            }
        };
        let read_only = !plan.write;
        let options =
            OpenOptions { read_only, lock_wait: Duration::ZERO, ..OpenOptions::default() };
        let disk = Disk::open_backend(&spec, &options).map_err(ProbeError::Disk)?;
        check_size(disk.size_bytes(), plan)?;
        match scratch {
            Some(scratch) if target.keep => scratch.keep(),
            // The open file stays until it is closed, and is gone even if this process is killed.
            other => drop(other),
        }
        let notes = notes(&disk, &spec.place);
        Ok(Self { disk, layers: spec.layers, notes })
    }
}

fn check_size(has: u64, plan: &Plan) -> Result<(), ProbeError> {
    let (size, depth) = (plan.size_max(), plan.depth_max());
    if has < size {
        return Err(ProbeError::Small { has, needs: size });
    }
    if has / size < u64::from(depth) {
        return Err(ProbeError::Narrow { has, size, depth });
    }
    Ok(())
}

fn notes(disk: &Disk, place: &Place) -> Vec<String> {
    let mut notes = Vec::new();
    if !disk.is_direct() {
        notes.push("no direct I/O there: what is measured is the page cache".to_owned());
    }
    if disk.is_in_memory() {
        notes.push("it lies in memory (tmpfs)".to_owned());
    }
    if let (DiskKind::File, Place::File(path)) = (disk.kind(), place)
        && has_holes(path, disk.size_bytes())
    {
        notes.push("the file has holes, which are read without the device".to_owned());
    }
    notes
}

fn has_holes(path: &Path, size_bytes: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.blocks() * 512 < size_bytes)
}
