//! Write groups: the volumes of one guest, whose flushes order writes of all of them.
//!
//! The members count epochs together: a barrier at one of them ends the epoch of all. An epoch of a member is
//! destaged once the others' back ends have all earlier ones, and this is recorded. So at each moment the back ends
//! of a group hold all of its epochs up to N, and some writes of N + 1. A volume without a group is one of its own.

use crate::destage::{Destage, first_epoch};
use crate::log::WriteLog;
use crate::mutant::Mutant;
use crate::places::Places;
use crate::seam::LogVolumeId;
use cinnabar_engine::Payload;
use cinnabar_engine::units::BLOCK_BYTES;

/// What the log has of the volumes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Bytes of the log in use for what back ends lack.
    pub dirty_bytes: u64,
    /// Blocks written to back ends.
    pub destaged_blocks: u64,
    /// The last try to bring an epoch to one of them failed.
    pub failing: bool,
    /// Some of the dirty data are damaged.
    pub damaged: bool,
}

impl<P: Payload> WriteLog<P> {
    /// Finds out who belongs together, after a volume has come or gone, and gives them one count of epochs.
    pub(crate) fn regroup(&mut self) {
        let all = self.volumes.iter().flatten();
        let all = all.map(|of| (of.record.group.clone(), of.record.volume, of.epoch));
        let all: Vec<_> = all.filter(|(group, ..)| !group.is_empty()).collect();
        for volume in self.volumes.iter_mut().flatten() {
            volume.members = Places::default();
            volume.members.add(volume.record.volume);
            for (_, place, epoch) in all.iter().filter(|(of, ..)| *of == volume.record.group) {
                volume.members.add(*place);
                volume.epoch = volume.epoch.max(*epoch);
            }
        }
    }

    /// Ends the epoch of a volume's group: what is written from now on may depend on what was written before.
    pub(crate) fn close_epoch(&mut self, place: u16) {
        let mut members = self.volume(place).members;
        if self.config.mutants.is(Mutant::BarrierOfOne) {
            members = Places::default();
            members.add(place);
        }
        if members.iter().all(|member| self.volume(member).epoch_since.is_none()) {
            return;
        }
        for member in members.iter() {
            let volume = self.volume(member);
            if volume.epoch_since.take().is_some() {
                volume.commits.release();
            }
            volume.epoch += 1;
            if member != place {
                self.touched.add(member);
            }
        }
    }

    /// The oldest epoch of which a volume's back end may lack something.
    pub(crate) fn oldest(&self, place: u16) -> Option<u64> {
        let volume = self.volumes[usize::from(place)].as_ref()?;
        if volume.damaged {
            // What it lacks comes first.
            return Some(0);
        }
        let used = |segment: u32| self.segments.all[segment as usize].used;
        let dirty = volume.is_dirty();
        volume.oldest.or_else(|| dirty.then(|| first_epoch(volume, &self.slots, &used)).flatten())
    }

    /// The oldest epoch of which the back ends of a volume's group may lack something, its own left out, and whose.
    pub(crate) fn oldest_of_others(&self, place: u16) -> Option<(u64, u16)> {
        let is = |mutant| self.config.mutants.is(mutant);
        let counts = |member: &u16| {
            let of = self.volumes[usize::from(*member)].as_ref().expect("a volume at this place");
            let is_recorded = !matches!(of.destage, Destage::Recording { .. });
            let forgotten = is(Mutant::GroupNotAwaited)
                || (is(Mutant::AbsentNotAwaited) && !of.attached)
                || (is(Mutant::GroupRecordNotAwaited) && !is_recorded);
            *member != place && !forgotten
        };
        let members = self.volumes[usize::from(place)].as_ref()?.members.iter().filter(counts);
        members.filter_map(|member| Some((self.oldest(member)?, member))).min()
    }

    /// The newest epoch before which a volume's back end has everything.
    pub(crate) fn retired_epoch(&self, place: u16) -> Option<u64> {
        let volume = self.volumes[usize::from(place)].as_ref()?;
        let next = self.oldest(place).unwrap_or(volume.epoch);
        Some(volume.record.retired_epoch.max(next.saturating_sub(1)))
    }

    /// What is to be said of a volume and the others of its group.
    pub fn group(&self, LogVolumeId(place): LogVolumeId) -> Option<GroupStatus> {
        let at = |place: u16| self.volumes.get(usize::from(place))?.as_ref();
        let mut all = GroupStatus::default();
        for volume in at(place)?.members.iter().filter_map(at) {
            all.dirty_bytes += volume.pages * BLOCK_BYTES * u64::from(volume.is_dirty());
            all.destaged_blocks += volume.destaged_blocks;
            all.failing |= volume.failing.is_some();
            all.damaged |= volume.damaged;
        }
        Some(all)
    }

    /// The volume of its group for which a volume's destage waits.
    pub(crate) fn waits_for(&self, place: u16) -> Option<&str> {
        let own = self.oldest(place)?;
        let (_, other) = self.oldest_of_others(place).filter(|(oldest, _)| *oldest < own)?;
        Some(&self.volumes[usize::from(other)].as_ref()?.record.name)
    }

    /// Pages that a group holds.
    pub(crate) fn group_pages(&self, place: u16) -> u64 {
        let at = |place: u16| self.volumes[usize::from(place)].as_ref();
        let members = at(place).expect("a volume at this place").members;
        members.iter().filter_map(at).map(|volume| volume.pages).sum()
    }

    /// A volume's back end has an epoch, or the volume has left: others of its group may go on.
    pub(crate) fn group_goes_on(&mut self, members: Places) {
        for member in members.iter() {
            if self.volumes[usize::from(member)].is_some() {
                self.touched.add(member);
                self.answer_drains(member);
            }
        }
    }
}
