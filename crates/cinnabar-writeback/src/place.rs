//! Places of the directory: volumes that come, are drained, and go.

use crate::bounds::Bound;
use crate::destage::Destage;
use crate::format::SEGMENT_PAGES;
use crate::log::WriteLog;
use crate::mutant::Mutant;
use crate::pace::PaceStatus;
use crate::seam::{Done, LogVolumeId, Refusal};
use crate::volume::Volume;
use cinnabar_engine::limits::{NAME_BYTES_MAX, VOLUME_BLOCKS_MAX};
use cinnabar_engine::units::{BLOCK_BYTES, Instant};
use cinnabar_engine::{Failure, Payload, RequestId};

impl<P: Payload> WriteLog<P> {
    pub(crate) fn attach(
        &mut self,
        id: RequestId,
        name: String,
        size_bytes: u64,
        (incarnation, group): (u64, String),
    ) {
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
            && group.len() <= NAME_BYTES_MAX
            && size_bytes <= VOLUME_BLOCKS_MAX * BLOCK_BYTES;
        if !fits {
            return self.answer(id, Err(Refusal::Invalid));
        }
        let known = self.volumes.iter().flatten().find(|volume| volume.record.name == name);
        if let Some(place) = known.map(|volume| volume.record.volume) {
            self.touched.add(place);
            let now = self.now;
            let volume = self.volume(place);
            volume.note_age(now);
            if volume.damaged {
                return self.answer(id, Err(Refusal::Damaged));
            }
            if volume.is_dirty() && size_bytes < volume.record.size_bytes {
                return self.answer(id, Err(Refusal::Smaller));
            }
            let goes = volume.discarding.is_some();
            if goes || volume.growing.is_some() || volume.attaching.is_some() {
                return self.answer(id, Err(Refusal::Busy));
            }
            let is = volume.record.size_bytes;
            if size_bytes == is {
                volume.attached = true;
                return self.answer(id, Ok(Done::Attached(LogVolumeId(place))));
            }
            if size_bytes < is && !self.is_quiet(place) {
                return self.answer(id, Err(Refusal::Busy));
            }
            self.volume(place).record.size_bytes = size_bytes;
            let waits = Some((id, self.record(place, 1)));
            let volume = self.volume(place);
            *(if size_bytes < is { &mut volume.attaching } else { &mut volume.growing }) = waits;
            return;
        }
        let places = 0..self.config.bounds.volumes;
        let free = places.into_iter().find(|place| self.volumes[usize::from(*place)].is_none());
        self.crossings.note_if(free.is_none(), Bound::Volumes);
        let Some(place) = free else { return self.answer(id, Err(Refusal::NoPlace)) };
        let stamp = self.stamps[usize::from(place)];
        let new = (name, size_bytes, incarnation, group);
        let record = Volume::<P>::first_record(self.uuid, place, stamp, new, &self.config.bounds);
        let (last, epoch) = (record.retired, record.retired_epoch);
        let mut volume = Volume::new(record, last, epoch, self.config.mutants);
        volume.attached = true;
        // Both pages: a place in use never has but one record that could be lost.
        self.volumes[usize::from(place)] = Some(volume);
        self.regroup();
        let needs = self.record(place, 2);
        self.volume(place).attaching = Some((id, needs));
    }

    /// See [`Command::Grow`](crate::Command::Grow).
    pub(crate) fn grow(&mut self, id: RequestId, LogVolumeId(place): LogVolumeId, bytes: u64) {
        let Some(Some(volume)) = self.volumes.get(usize::from(place)) else {
            return self.answer(id, Err(Refusal::NoVolume));
        };
        let name = volume.record.name.clone();
        self.attach(id, name, bytes, (0, String::new()));
    }

    /// See [`Command::Claim`](crate::Command::Claim).
    pub(crate) fn claim(&mut self, id: RequestId, LogVolumeId(place): LogVolumeId) {
        let Some(Some(volume)) = self.volumes.get_mut(usize::from(place)) else {
            return self.answer(id, Err(Refusal::NoVolume));
        };
        if volume.discarding.is_some() || volume.attaching.is_some() || volume.claiming.is_some() {
            return self.answer(id, Err(Refusal::Busy));
        }
        volume.record.claim += 1;
        let waits = Some((id, self.record(place, 1)));
        self.volume(place).claiming = waits;
    }

    pub(crate) fn drain(&mut self, id: RequestId, LogVolumeId(place): LogVolumeId) {
        let Some(volume) = &self.volumes[usize::from(place)] else {
            return self.answer(id, Err(Refusal::NoVolume));
        };
        let members = volume.members;
        if self.group(LogVolumeId(place)).is_some_and(|group| group.damaged) {
            return self.answer(id, Err(Refusal::Damaged));
        }
        self.close_epoch(place);
        let volume = self.volume(place);
        volume.drains.push((id, volume.commits.last, volume.epoch));
        self.group_goes_on(members);
    }

    pub(crate) fn answer_drains(&mut self, place: u16) {
        let volume = self.volume(place);
        let retired = volume.record.retired;
        // What is being recorded as retired is not retired yet.
        if matches!(volume.destage, Destage::Recording { .. }) {
            return;
        }
        let others = self.oldest_of_others(place).map_or(u64::MAX, |(oldest, _)| oldest);
        let is_done = |drain: &mut (RequestId, u64, u64)| drain.1 <= retired && drain.2 <= others;
        let done: Vec<_> = self.volume(place).drains.extract_if(.., is_done).collect();
        for (id, ..) in done {
            self.answer(id, Ok(Done::Nothing));
        }
    }

    pub(crate) fn remove(&mut self, id: RequestId, LogVolumeId(place): LogVolumeId, discard: bool) {
        let Some(volume) = self.volumes[usize::from(place)].as_mut() else {
            return self.answer(id, Err(Refusal::NoVolume));
        };
        if volume.is_dirty() && !discard {
            return self.answer(id, Err(Refusal::Dirty));
        }
        if volume.discarding.is_some() || !discard && !self.is_quiet(place) {
            return self.answer(id, Err(Refusal::Busy));
        }
        if !discard {
            return self.record_removal(place, id);
        }
        let volume = self.volume(place);
        volume.discarding = Some(id);
        // What is in memory only has no other way out.
        volume.commits.release();
        // The log may be full for as long as the back end is away.
        self.fail_waiting(place, Failure::NoVolume);
        self.give_up_run(place);
        let members = self.volume(place).members;
        self.group_goes_on(members);
    }

    /// Goes on with a volume that goes with its dirty data, once nothing of it is under way. No epoch
    /// is begun until then: a back end that is silent would be sent the same one again and again.
    pub(crate) fn discard_if_quiet(&mut self, place: u16) {
        let stays = |volume: &Volume<P>| {
            volume.is_dirty() && volume.discarding.is_none() && volume.record.in_use
        };
        let members = self.volume(place).members;
        let mut members = members.iter().filter_map(|of| self.volumes[usize::from(of)].as_ref());
        if !self.lost
            && !members.any(stays)
            && self.volume(place).discarding.is_some()
            && self.is_quiet(place)
            && let Some(id) = self.volume(place).discarding.take()
        {
            self.record_removal(place, id);
        }
    }

    fn record_removal(&mut self, place: u16, id: RequestId) {
        let volume = self.volume(place);
        volume.record.in_use = false;
        volume.record.claim = 0;
        // Both pages: what is given up does not come back if one of them is lost.
        let pages = if self.config.mutants.is(Mutant::RemovedOnce) { 1 } else { 2 };
        let needs = self.record(place, pages);
        self.volume(place).attaching = Some((id, needs));
    }

    /// Whether nothing of a volume is under way: a command may change what others build on.
    fn is_quiet(&self, place: u16) -> bool {
        let Some(volume) = &self.volumes[usize::from(place)] else { return true };
        let idle = match &volume.destage {
            Destage::Idle(_) => true,
            Destage::Running(run) => volume.damaged && run.is_quiet(),
            Destage::Durable | Destage::Recording { .. } | Destage::Retiring { .. } => false,
        };
        let commands = [volume.attaching, volume.growing, volume.claiming];
        let commands = commands.iter().any(Option::is_some);
        idle && volume.commits.is_quiet()
            && volume.waiting.is_empty()
            && !commands
            && !volume.record_writes.under_way()
            && !self.reads.iter().any(|(_, read)| read.place == place)
    }

    /// The directory says that a place is free.
    pub(crate) fn removed(&mut self, place: u16, id: RequestId) {
        let mut volume = self.volumes[usize::from(place)].take().expect("a volume at this place");
        self.short.remove(place);
        // A flush of the device that is under way was for this volume's chunks, not the next one's.
        if let Some(covered) = &mut self.flushing
            && !self.config.mutants.is(Mutant::FlushCoversNext)
        {
            covered.retain(|(of, _)| *of != place);
        }
        for segment in volume.segments.drain(..) {
            let used = self.segments.all[segment as usize].used;
            for page in 0..used {
                let slot = segment * SEGMENT_PAGES + page;
                if let Some(held) = self.slots.data(slot) {
                    self.slots.remove(place, held.block);
                }
            }
            self.segments.retire(segment);
        }
        for (drain, ..) in volume.drains {
            self.answer(drain, Err(Refusal::NoVolume));
        }
        self.answer(id, Ok(Done::Nothing));
        self.regroup();
        volume.members.remove(place);
        volume.members.iter().for_each(|member| self.volume(member).slow_down(false));
        self.group_goes_on(volume.members);
    }

    /// What the status says of a volume.
    pub fn status(&self, LogVolumeId(place): LogVolumeId) -> Option<Status> {
        let volume = self.volumes[usize::from(place)].as_ref()?;
        Some(Status {
            name: volume.record.name.clone(),
            incarnation: volume.record.incarnation,
            claim: volume.record.claim,
            size_bytes: volume.record.size_bytes,
            dirty_bytes: volume.pages * BLOCK_BYTES * u64::from(volume.is_dirty()),
            dirty_chunks: volume.commits.last - volume.record.retired,
            epoch: volume.epoch,
            retired_epoch: self.retired_epoch(place)?,
            taken: volume.is_dirty()
                || volume.record.retired_epoch > self.config.bounds.first_epoch,
            damaged: volume.damaged,
            destaged_blocks: volume.destaged_blocks,
            destaged_writes: volume.destaged_writes,
            answered_blocks: volume.answered_blocks,
            failing: volume.failing,
            group: volume.record.group.clone(),
            waits_for: self.waits_for(place).map(str::to_owned),
            pace: volume.pace.status(),
        })
    }

    /// Bytes for chunks, and how many of them are in use.
    pub fn room_bytes(&self) -> (u64, u64) {
        let bytes = |segments: u64| segments * u64::from(SEGMENT_PAGES) * BLOCK_BYTES;
        let all = self.segments.all.len() as u64;
        (bytes(all), bytes(all - u64::from(self.segments.free_count())))
    }

    /// Bytes of its tables.
    pub fn ram_bytes(&self) -> u64 {
        self.slots.ram_bytes() + (self.segments.all.len() * 24) as u64
    }

    /// Incarnations of volumes that had left when it was opened, as far as their places have not been used again.
    pub fn left(&self) -> &[u64] {
        &self.left
    }

    /// Where pages could not be read when it was opened, in bytes.
    pub fn bad_pages(&self) -> impl Iterator<Item = u64> {
        self.bad.iter().map(|slot| crate::format::offset_of(*slot))
    }

    /// Identity of the log, drawn when it was formatted.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// For how long the oldest write of this session that the back end lacks has been waiting, in ns.
    pub fn dirty_age_ns(&self, LogVolumeId(place): LogVolumeId, now: Instant) -> Option<u64> {
        let volume = self.volumes.get(usize::from(place))?.as_ref()?;
        let oldest = volume.oldest.unwrap_or(volume.record.retired_epoch + 1);
        let dirty = volume.ages.iter().rfind(|(epoch, _)| *epoch <= oldest);
        let (_, since) = dirty.or(volume.ages.front()).filter(|_| volume.is_dirty())?;
        Some(now.since_ns(*since))
    }

    /// The places in use.
    pub fn places(&self) -> impl Iterator<Item = LogVolumeId> {
        self.volumes.iter().flatten().map(|volume| LogVolumeId(volume.record.volume))
    }
}

/// What the write log holds of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    /// Which use of its place this is: drawn when it got the place.
    pub incarnation: u64,
    /// Number of its claim: see [`Command::Claim`](crate::Command::Claim).
    pub claim: u64,
    pub size_bytes: u64,
    /// Bytes of the log in use for it, chunk headers included; 0 if the back end has everything.
    pub dirty_bytes: u64,
    /// Chunks that the back end does not have; numbers that were skipped after a crash count.
    pub dirty_chunks: u64,
    /// The epoch that is written now.
    pub epoch: u64,
    /// The newest epoch that the back end has.
    pub retired_epoch: u64,
    /// It has taken writes of the volume since that has its place.
    pub taken: bool,
    /// Some of its dirty data are damaged.
    pub damaged: bool,
    /// Blocks written to the back end.
    pub destaged_blocks: u64,
    /// Requests that took.
    pub destaged_writes: u64,
    /// Blocks of reads that the log has answered alone, since it was opened and has the volume.
    pub answered_blocks: u64,
    /// Why the last try to bring an epoch to the back end failed, until one succeeds.
    pub failing: Option<Failure>,
    /// Its write group, empty for none.
    pub group: String,
    /// The other volume of its group whose back end must have an earlier epoch first.
    pub waits_for: Option<String>,
    /// How many requests of the destage may be under way at a time.
    pub pace: PaceStatus,
}
