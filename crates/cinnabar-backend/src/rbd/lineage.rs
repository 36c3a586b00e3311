//! Of which snapshot an image is a clone, and which objects it has itself: asked under its lock, when nothing
//! of it has been written yet.

use super::error::RbdError;
use super::object_map;
use super::spec::RbdSpec;
use super::sys::{Ancestor, Image};
use crate::lineage::{Lineage, Snapshot};
use cinnabar_driver::CloneMap;
use cinnabar_driver::clone_map::{CloneMapError, OBJECTS_MAX};
use rustix::io::Errno;
use std::sync::Arc;

/// `RBD_FEATURE_OBJECT_MAP` and `RBD_FEATURE_FAST_DIFF`.
const MAPPED: u64 = 1 << 3 | 1 << 4;
/// `RBD_FEATURE_JOURNALING`: another's journal may be replayed.
pub(super) const JOURNALING: u64 = 1 << 6;
/// `RBD_FEATURE_MIGRATING`: what librbd takes for the parent is the image's old place.
pub(super) const MIGRATING: u64 = 1 << 9;
/// `RBD_FLAG_OBJECT_MAP_INVALID` and `RBD_FLAG_FAST_DIFF_INVALID`.
const INVALID: u64 = 1 | 1 << 1;

/// A snapshot by its numbers: those of cluster, pool and snapshot are never given again.
pub(super) fn snapshot(fsid: [u8; 16], of: &Ancestor) -> Snapshot {
    let Ancestor { pool, namespace, image_id, snap, .. } = of;
    let cluster = u128::from_be_bytes(fsid);
    Snapshot::new(format!("rbd:{cluster:032x}:{pool}:{namespace}:{image_id}@{snap}"), of.name())
}

/// The lineage of an image that is open under its exclusive lock. One that can't say what it has itself reads
/// all of it itself: a cache keeps no disk from being served.
pub(super) fn read(
    spec: &RbdSpec,
    image: &Image,
    fsid: [u8; 16],
    image_id: &str,
) -> Result<Lineage, RbdError> {
    let lineage = match image.parent().map_err(io("its parent"))? {
        None => Lineage::without_parent("the image is no clone (any more)"),
        Some(parent) => match own_objects(image, image_id)? {
            Ok(map) => Lineage { parent: Ok(snapshot(fsid, &parent)), map: Arc::new(map) },
            Err(reason) => Lineage::without_parent(reason),
        },
    };
    let (image, map) = (spec.image_spec(), &lineage.map);
    match &lineage.parent {
        Ok(parent) => {
            let (covered, (_, own)) = (map.covered_bytes(), map.objects_and_own());
            tracing::info!(image, %parent, covered, own, "a clone");
        }
        Err(reason) => tracing::warn!(image, reason, "all of it is read from itself"),
    }
    Ok(lineage)
}

fn io(during: &'static str) -> impl Fn(Errno) -> RbdError {
    move |errno| match errno {
        Errno::TIMEDOUT => RbdError::Silent(during),
        errno => RbdError::Io { during, errno },
    }
}

/// What a clone has itself, or why that can't be known.
fn own_objects(image: &Image, image_id: &str) -> Result<Result<CloneMap, String>, RbdError> {
    let features = image.features().map_err(io("features"))?;
    let flags = image.flags().map_err(io("flags"))?;
    let layout = image.layout().map_err(io("its layout"))?;
    let blind = |reason: &str| Ok(Err(reason.to_owned()));
    if features & (JOURNALING | MIGRATING) != 0 {
        return blind("it has a journal, or is being migrated");
    }
    if features & MAPPED != MAPPED {
        return blind(
            "its features object-map and fast-diff are off (rbd feature enable POOL/IMAGE object-map \
             fast-diff, and rbd object-map rebuild POOL/IMAGE)",
        );
    }
    if flags & INVALID != 0 {
        return blind("its object map is not valid (rbd object-map rebuild POOL/IMAGE)");
    }
    if !layout.is_plain() {
        return blind("its data are striped over several objects");
    }
    let overlap = image.overlap().map_err(io("its overlap"))?;
    let objects = overlap.div_ceil(layout.object_bytes.max(1));
    // All of the image's objects are in the answer.
    let all = layout.objects.max(objects);
    if objects > OBJECTS_MAX || all > object_map::OBJECTS_MAX {
        return Ok(Err(CloneMapError::Objects(all).to_string()));
    }
    let room = usize::try_from(object_map::answer_bytes(all)).unwrap_or(usize::MAX);
    let answer = match image.cluster().load_object_map(&object_map::object_name(image_id), room) {
        Ok(answer) => answer,
        Err(Errno::TIMEDOUT) => return Err(RbdError::Silent("its object map")),
        Err(errno) => return Ok(Err(format!("its object map can't be read: {errno}"))),
    };
    let Ok(own) = object_map::present(&answer, objects) else {
        return blind("its object map is of a form that is not known");
    };
    Ok(CloneMap::new(layout.object_bytes, overlap, own).map_err(|wrong| wrong.to_string()))
}
