//! Records of the directory being written: one of a place at a time. What changes a record waits for a
//! write that began afterwards.

use crate::destage::Destage;
use crate::format::directory::Record;
use crate::format::directory_offset;
use crate::log::{LogIo, WriteLog};
use crate::seam::{Done, LogVolumeId};
use cinnabar_engine::{IoOp, Payload};

/// Writes of one place's record, counted since the log was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordWrites {
    begun: u64,
    /// So many must have ended before all changes are durable.
    wanted: u64,
    under_way: bool,
}

impl RecordWrites {
    pub(crate) fn under_way(&self) -> bool {
        self.under_way
    }
}

impl<P: Payload> WriteLog<P> {
    /// Has the record of a place written, as it is now, so many times; says how many writes of it must
    /// have ended then.
    pub(crate) fn record(&mut self, place: u16, times: u64) -> u64 {
        let writes = &mut self.volume(place).record_writes;
        let needs = writes.begun + times;
        writes.wanted = writes.wanted.max(needs);
        if !writes.under_way {
            self.write_record(place);
        }
        needs
    }

    /// The stamp of a place's next record, which goes to the page that does not hold the newest one.
    pub(crate) fn next_stamp(&mut self, place: u16) -> u64 {
        let stamp = &mut self.stamps[usize::from(place)];
        let next = *stamp + 1;
        *stamp = next.max(self.stamps_from + (self.stamps_from ^ next) % 2);
        *stamp
    }

    fn write_record(&mut self, place: u16) {
        let stamp = self.next_stamp(place);
        let volume = self.volume(place);
        volume.record_writes.begun += 1;
        volume.record_writes.under_way = true;
        volume.record.stamp = stamp;
        let mut record: Record = volume.record.clone();
        if !record.in_use {
            // A release without groups can read it.
            record.group.clear();
        }
        let offset = directory_offset(place, (stamp % 2) as u8);
        let (pages, data) = (vec![record.encode()], smallvec::SmallVec::new());
        self.counters.records += 1;
        self.log(LogIo::Record { place }, IoOp::WriteMeta { offset, pages, data, fua: true });
    }

    /// A record is durable.
    pub(crate) fn recorded(&mut self, place: u16) {
        let volume = self.volume(place);
        volume.record_writes.under_way = false;
        let ended = volume.record_writes.begun;
        if volume.record_writes.wanted > ended {
            self.write_record(place);
        }
        let volume = self.volume(place);
        if let Some((id, _)) = volume.attaching.take_if(|(_, needs)| *needs <= ended) {
            if !volume.record.in_use {
                return self.removed(place, id);
            }
            volume.size_bytes = volume.record.size_bytes;
            volume.attached = true;
            self.answer(id, Ok(Done::Attached(LogVolumeId(place))));
        }
        let volume = self.volume(place);
        if let Some((id, _)) = volume.growing.take_if(|(_, needs)| *needs <= ended) {
            volume.size_bytes = volume.record.size_bytes;
            volume.attached = true;
            self.answer(id, Ok(Done::Attached(LogVolumeId(place))));
        }
        if let Some((id, _)) = self.volume(place).claiming.take_if(|(_, needs)| *needs <= ended) {
            self.answer(id, Ok(Done::Nothing));
        }
        let volume = self.volume(place);
        if let Destage::Recording { upto, end, needs } = volume.destage
            && needs <= ended
        {
            volume.destage = Destage::Retiring { upto, end };
            volume.oldest = None;
            let members = volume.members;
            // A session whose gap had no room begins when its gap is durable.
            if let Some(gap) = volume.drains_first.take_if(|gap| volume.record.gaps == [*gap]) {
                volume.session = gap.session;
            }
            self.group_goes_on(members);
        }
    }
}
