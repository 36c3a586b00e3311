//! Places of the directory: volumes that come, are drained, and go.

use crate::destage::Destage;
use crate::format::VOLUMES_MAX;
use crate::log::WriteLog;
use crate::seam::{Done, Place, Refusal};
use crate::volume::Volume;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{Payload, RequestId};

impl<P: Payload> WriteLog<P> {
    pub(crate) fn attach(
        &mut self,
        id: RequestId,
        name: String,
        size_bytes: u64,
        incarnation: u64,
    ) {
        let known = self.volumes.iter().flatten().find(|volume| volume.record.name == name);
        if let Some(place) = known.map(|volume| volume.record.volume) {
            let volume = self.volume(place);
            if volume.damaged {
                return self.answer(id, Err(Refusal::Damaged));
            }
            if volume.is_dirty() && size_bytes < volume.record.size_bytes {
                return self.answer(id, Err(Refusal::Smaller));
            }
            if volume.recording || volume.attaching.is_some() {
                return self.answer(id, Err(Refusal::Busy));
            }
            if volume.record.size_bytes != size_bytes {
                volume.record.size_bytes = size_bytes;
                volume.attaching = Some((id, 1));
                return self.record(place);
            }
            return self.answer(id, Ok(Done::Attached(Place(place))));
        }
        let Some(place) = (0..VOLUMES_MAX).find(|p| self.volumes[usize::from(*p)].is_none()) else {
            return self.answer(id, Err(Refusal::NoPlace));
        };
        let stamp = self.stamps[usize::from(place)];
        let new = (name, size_bytes, incarnation);
        let record = Volume::<P>::first_record(self.uuid, place, stamp, new);
        let mut volume = Volume::new(record, 0, 0, self.config.mutants);
        // Both pages: a place in use never has but one record that could be lost.
        volume.attaching = Some((id, 2));
        self.volumes[usize::from(place)] = Some(volume);
        self.record(place);
    }

    pub(crate) fn drain(&mut self, id: RequestId, Place(place): Place) {
        let Some(volume) = self.volumes[usize::from(place)].as_mut() else {
            return self.answer(id, Err(Refusal::NoVolume));
        };
        if volume.damaged {
            return self.answer(id, Err(Refusal::Damaged));
        }
        volume.close_epoch();
        let number = volume.commits.last;
        volume.drains.push((id, number));
        self.answer_drains(place);
    }

    pub(crate) fn answer_drains(&mut self, place: u16) {
        let volume = self.volume(place);
        let retired = volume.record.retired;
        // What is being recorded as retired is not retired yet.
        if matches!(volume.destage, Destage::Recording { .. }) {
            return;
        }
        let done: Vec<RequestId> =
            volume.drains.extract_if(.., |(_, number)| *number <= retired).map(|d| d.0).collect();
        for id in done {
            self.answer(id, Ok(Done::Nothing));
        }
    }

    pub(crate) fn remove(&mut self, id: RequestId, Place(place): Place, discard: bool) {
        let Some(volume) = self.volumes[usize::from(place)].as_mut() else {
            return self.answer(id, Err(Refusal::NoVolume));
        };
        if volume.is_dirty() && !discard {
            return self.answer(id, Err(Refusal::Dirty));
        }
        let idle = matches!(volume.destage, Destage::Idle(_)) || volume.damaged;
        let quiet = idle && volume.commits.is_quiet() && volume.waiting.is_empty();
        let recording = volume.recording || volume.attaching.is_some();
        if !quiet || recording || self.reads.iter().any(|(_, read)| read.place == place) {
            return self.answer(id, Err(Refusal::Busy));
        }
        let volume = self.volume(place);
        volume.record.in_use = false;
        volume.record.claim = 0;
        volume.attaching = Some((id, 1));
        self.record(place);
    }

    /// The directory says that a place is free.
    pub(crate) fn removed(&mut self, place: u16) {
        let mut volume = self.volumes[usize::from(place)].take().expect("a volume at this place");
        for segment in volume.segments.drain(..) {
            let used = self.segments.all[segment as usize].used;
            for page in 0..used {
                let slot = segment * crate::format::SEGMENT_PAGES + page;
                if let Some(held) = self.slots.data(slot) {
                    self.slots.remove(place, held.block);
                }
            }
            self.segments.retire(segment);
        }
        if let Some((id, _)) = volume.attaching {
            self.answer(id, Ok(Done::Nothing));
        }
    }

    /// What the status says of a volume.
    pub fn status(&self, Place(place): Place) -> Option<Status> {
        let volume = self.volumes[usize::from(place)].as_ref()?;
        Some(Status {
            name: volume.record.name.clone(),
            size_bytes: volume.record.size_bytes,
            dirty_bytes: volume.pages * BLOCK_BYTES * u64::from(volume.is_dirty()),
            dirty_chunks: volume.commits.last - volume.record.retired,
            epoch: volume.epoch,
            retired_epoch: volume.record.retired_epoch,
            damaged: volume.damaged,
            destaged_blocks: volume.destaged_blocks,
            destaged_writes: volume.destaged_writes,
        })
    }

    /// The places in use.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.volumes.iter().flatten().map(|volume| Place(volume.record.volume))
    }
}

/// What the write log holds of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes of the log in use for it, chunk headers included; 0 if the back end has everything.
    pub dirty_bytes: u64,
    /// Chunks that the back end does not have; numbers that were skipped after a crash count.
    pub dirty_chunks: u64,
    /// The epoch that is written now.
    pub epoch: u64,
    /// The newest epoch that the back end has.
    pub retired_epoch: u64,
    /// Some of its dirty data are damaged.
    pub damaged: bool,
    /// Blocks written to the back end.
    pub destaged_blocks: u64,
    /// Requests that took.
    pub destaged_writes: u64,
}
