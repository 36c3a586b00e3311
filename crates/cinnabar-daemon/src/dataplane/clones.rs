//! Volumes that are clones: what a clone does not have itself is read from the parent volume, through that
//! volume's engine and cache. `docs/design/clones.md` says why no read is stale.
//!
//! Nothing here keeps a clone from being served: without its parent volume it reads through its own back end.

use super::disks::OpenedVolume;
use super::plane::DataPlane;
use super::requests::GuestRequest;
use super::volume::{Volume, VolumeIo};
use cinnabar_backend::{Disk, Memory};
use cinnabar_config::messages::{ParentStatus, StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use cinnabar_engine::{Failure, IoError, Op, Reply};
use std::time::Duration;

/// What is said of a clone of which the parent answers nothing any more.
const NOTHING_LEFT: &str = "nothing of the image is its parent's any more: it was flattened or \
    cut off, or its lock was lost";

/// A clone's view of its parent volume.
pub(super) struct Parent {
    /// The volume, if it may be used: its key, and its own number, for the key may be another's by now.
    link: Option<(usize, u64)>,
    /// Why there is none.
    reason: String,
    /// Reads that it was given.
    reads: u64,
    /// Blocks that it has answered.
    blocks: u64,
    /// Reads that the clone was asked for behind it.
    repeated: u64,
}

/// What is kept of a read that the parent volume was given.
pub(super) struct Routed {
    span: ByteSpan,
    /// Where it reads to.
    data: Memory,
    /// The clone's own number.
    number: u64,
}

impl Parent {
    /// Of a volume with these settings, until its parent is looked for.
    pub(super) fn new(config: &VolumeConfig) -> Option<Box<Self>> {
        let name = config.parent.as_ref()?;
        let reason = absent(name);
        Some(Box::new(Self { link: None, reason, reads: 0, blocks: 0, repeated: 0 }))
    }
}

impl Routed {
    /// Whether this is the clone that it was for.
    pub(super) const fn is_of(&self, volume: &Volume) -> bool {
        self.number == volume.number
    }
}

fn absent(name: &str) -> String {
    format!("volume {name:?} does not serve")
}

/// Why one disk is no parent of another, which is a clone.
fn mismatch(name: &str, clone: &Disk, parent: &Disk) -> Option<String> {
    let wanted = clone.lineage()?.parent.as_ref().ok()?;
    match parent.snapshot() {
        Some(found) if found == wanted => None,
        Some(found) => {
            Some(format!("it is a clone of {wanted}, and volume {name:?}, its parent, is {found}"))
        }
        None => Some(format!("it is a clone of {wanted}, and volume {name:?} is no snapshot")),
    }
}

/// Refuses a clone that is not one of its parent volume, where both are open.
pub(super) fn check(
    config: &VolumeConfig,
    clone: &Disk,
    parent: Option<&Disk>,
) -> Result<(), StartError> {
    let (Some(name), Some(parent)) = (&config.parent, parent) else { return Ok(()) };
    mismatch(name, clone, parent).map_or(Ok(()), |reason| {
        let subject = Subject::Volume(config.name.clone());
        let message = format!("backend {}: {reason}", config.backend);
        let hint = "name the volume that is on this snapshot, or leave parent out";
        Err(StartError::new(StartErrorKind::BackendAccess, subject, message, hint))
    })
}

impl DataPlane {
    /// The same of one that comes while others are served.
    pub(super) fn check_parent(&self, opened: &OpenedVolume) -> Result<(), StartError> {
        let parent = opened.config.parent.as_ref();
        let parent = parent.and_then(|name| self.volume_named(name));
        let parent = parent.map(|(_, volume)| &*volume.io.disk);
        check(&opened.config, &opened.disk, parent)
    }

    fn volume_named(&self, name: &str) -> Option<(usize, &Volume)> {
        self.volumes.iter().find(|(_, volume)| volume.config.name == name)
    }

    /// A volume serves from now on: clones look for their parents.
    pub(super) fn link_clones(&mut self) {
        let clones = self.volumes.iter().filter(|(_, volume)| volume.parent.is_some());
        let clones: Vec<usize> = clones.map(|(key, _)| key).collect();
        for key in clones {
            let found = self.find_parent(key);
            let volume = &mut self.volumes[key];
            let Some(parent) = &mut volume.parent else { continue };
            volume.io.set_reads_parent(found.is_ok());
            match found {
                Ok(link) => (parent.link, parent.reason) = (Some(link), String::new()),
                Err(reason) => {
                    if parent.reason != reason {
                        let (volume, reason) = (&volume.config.name, &reason);
                        tracing::warn!(volume, reason, "the clone reads all of it itself");
                    }
                    (parent.link, parent.reason) = (None, reason);
                }
            }
        }
    }

    /// The parent volume that a clone may read from, or why there is none.
    fn find_parent(&self, key: usize) -> Result<(usize, u64), String> {
        let volume = &self.volumes[key];
        let name = volume.config.parent.as_deref().unwrap_or_default();
        let serves = |found: &(usize, &Volume)| found.1.life.serving().is_some();
        let (at, parent) = self.volume_named(name).filter(serves).ok_or_else(|| absent(name))?;
        let Some(lineage) = volume.io.disk.lineage() else {
            return Err("this host does not have the image's lock".into());
        };
        if let Err(reason) = &lineage.parent {
            return Err(reason.clone());
        }
        if !parent.config.read_only || parent.config.parent.is_some() {
            return Err(format!("volume {name:?} is written, so that it can't be a parent"));
        }
        if let Some(reason) = mismatch(name, &volume.io.disk, &parent.io.disk) {
            return Err(reason);
        }
        // It would give up reads for which the clone's guests still wait.
        if is_hastier(parent.io.timeout, volume.io.timeout) {
            return Err(format!("backend_timeout_s of volume {name:?} is shorter than its own"));
        }
        Ok((at, parent.number))
    }

    /// The parent volume, if it serves, with what the engines call it.
    fn parent_of(&self, key: usize) -> Option<(&Volume, VolumeId)> {
        let (at, number) = self.volumes[key].parent.as_ref()?.link?;
        let parent = self.volumes.get(at).filter(|parent| parent.number == number)?;
        Some((parent, parent.life.serving()?))
    }

    /// The parent volume, if a read of a volume is to be given to it.
    fn reader_of(&self, key: usize, span: ByteSpan) -> Option<(&Volume, VolumeId)> {
        let lineage = self.volumes[key].io.disk.lineage()?;
        let (parent, id) = self.parent_of(key).filter(|_| lineage.map.is_parents(span))?;
        let end = span.end_block() * BLOCK_BYTES;
        (end <= parent.io.disk.size_bytes()).then_some((parent, id))
    }

    /// The volume whose cache a guest's request uses.
    pub(super) fn user_of<'a>(&'a self, key: usize, op: &Op<Memory>) -> &'a VolumeIo {
        let reader = match op {
            Op::Read { span, .. } => self.reader_of(key, *span),
            _ => None,
        };
        reader.map_or(&*self.volumes[key].io, |(parent, _)| &*parent.io)
    }

    /// Where a request goes: `None` is the volume itself. What changes something makes it the clone's own
    /// before it is sent.
    pub(super) fn route(&mut self, key: usize, op: &Op<Memory>) -> Option<(VolumeId, Routed)> {
        let lineage = self.volumes[key].io.disk.lineage()?;
        match op {
            Op::Write { span, .. } | Op::Trim { span, .. } | Op::WriteZeroes { span, .. } => {
                lineage.map.begin_change(*span);
                None
            }
            Op::Read { span, data } => {
                let (_, id) = self.reader_of(key, *span)?;
                let volume = &mut self.volumes[key];
                let routed = Routed { span: *span, data: data.clone(), number: volume.number };
                if let Some(parent) = &mut volume.parent {
                    parent.reads += 1;
                }
                Some((id, routed))
            }
            Op::Flush | Op::Invalidate { .. } => None,
        }
    }

    /// The parent volume has answered a read, or could not. Gives the read that the clone is to be asked for
    /// instead, with the name that the engines have for it.
    pub(super) fn parent_answered(
        &mut self,
        request: &GuestRequest,
        routed: Routed,
        reply: &Reply<Memory>,
    ) -> Option<(VolumeId, Op<Memory>)> {
        let key = request.volume();
        let volume = self.volumes.get_mut(key).filter(|volume| routed.is_of(volume))?;
        let parent = volume.parent.as_mut()?;
        let Err(failure) = reply.result else {
            parent.blocks += routed.span.blocks();
            return None;
        };
        // Of one that takes too long, I/O may be under way that would read into the same memory.
        let over = request.is_late() || matches!(failure, Failure::Io(IoError::TimedOut));
        // Another host may have it by now.
        let over = over || volume.moves.as_ref().is_some_and(|moves| !moves.is_owner());
        let id = volume.life.serving().filter(|_| !over && routed.data.is_alone())?;
        parent.repeated += 1;
        Some((id, Op::Read { span: routed.span, data: routed.data }))
    }

    /// What the status says of a clone's parent.
    pub(super) fn parent_status(&self, key: usize) -> Option<ParentStatus> {
        let volume = &self.volumes[key];
        let name = volume.config.parent.clone()?;
        let parent = volume.parent.as_ref()?;
        let gone = parent.link.is_some() && self.parent_of(key).is_none();
        let lineage = volume.io.disk.lineage();
        let cut = lineage.is_some_and(|own| own.parent.is_ok() && own.map.covered_bytes() == 0);
        let reason = if gone {
            absent(&name)
        } else if cut {
            NOTHING_LEFT.to_owned()
        } else {
            parent.reason.clone()
        };
        let &Parent { reads, blocks, repeated, .. } = &**parent;
        let counts = lineage.map(|lineage| lineage.map.objects_and_own());
        let (objects, own_objects) = counts.unwrap_or_default();
        Some(ParentStatus { name, reason, reads, blocks, repeated, objects, own_objects })
    }

    /// Bytes of all clones' maps.
    pub(super) fn clones_ram_bytes(&self) -> u64 {
        let lineages = self.volumes.iter().filter_map(|(_, volume)| volume.io.disk.lineage());
        lineages.map(|lineage| lineage.map.ram_bytes()).sum()
    }
}

/// Whether one bound, zero being none, ends before another.
fn is_hastier(bound: Duration, other: Duration) -> bool {
    !bound.is_zero() && (other.is_zero() || bound < other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_gives_up_no_sooner_than_its_clone() {
        let seconds = Duration::from_secs;
        for (bound, other, hastier) in
            [(0, 0, false), (0, 5, false), (5, 0, true), (5, 6, true), (5, 5, false), (6, 5, false)]
        {
            assert_eq!(is_hastier(seconds(bound), seconds(other)), hastier, "{bound} {other}");
        }
    }
}
