//! Directory records: one volume's place in the write log.
//!
//! A volume has two pages, written in turn; the one with the higher stamp counts. A record says up to
//! which chunk the back end has everything durably (*retired*), and where the numbers of chunks jump:
//! after a crash the chunks behind the first missing one are void for good, although some of them may
//! be whole, and the next session numbers its own behind them.

use super::{NUMBERS_END, SESSIONS_END, VOLUMES_MAX};
use cinnabar_engine::limits::{NAME_BYTES_MAX, VOLUME_BLOCKS_MAX};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::codec::{Reader, Writer};
use cinnabar_engine::units::BLOCK_BYTES;

const MAGIC: u32 = 0x5244_4C57;
/// Of a volume in a write group: a release without groups takes both of its records for damaged, and opens no such
/// log.
const GROUPED: u32 = 0x4744_4C57;
/// Sessions that may begin before the first of them is retired. Beyond that a volume is drained
/// before it is served.
pub const GAPS_MAX: usize = 128;
const NAME_FIELD: usize = NAME_BYTES_MAX;
const FIELDS_BYTES: usize = 4 + 4 + 8 + 16 + 2 + 1 + 1 + NAME_FIELD + 8 * 5 + 4 + 2;
const GAP_BYTES: usize = 8 + 8 + 4;
const _: () = assert!(FIELDS_BYTES + GAPS_MAX * GAP_BYTES + 1 + NAME_FIELD <= 4096);

/// A jump in the numbers of chunks: behind `last` comes `next`, written by `session`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Number of the last chunk before it that counts.
    pub last: u64,
    /// Number of the first chunk behind it.
    pub next: u64,
    /// The session that numbers its chunks from `next` on.
    pub session: u32,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The device's identity.
    pub uuid: [u8; 16],
    /// Place in the directory.
    pub volume: u16,
    /// Raised with each record of this place.
    pub stamp: u64,
    /// False: the place is free.
    pub in_use: bool,
    /// Name of the volume; 1 to 64 bytes.
    pub name: String,
    /// Drawn when the volume got this place; chunks of another one are not believed.
    pub incarnation: u64,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Number of the last chunk that the back end has durably.
    pub retired: u64,
    pub retired_epoch: u64,
    /// Number of the claim at the back end, raised before the claim is; 0 before it has one.
    pub claim: u64,
    /// Jumps in the numbers behind `retired`, in order. The first one may lie before it: it tells the
    /// session of what follows.
    pub gaps: Vec<Gap>,
    /// Its write group, up to 64 bytes: epochs are counted, and destaged, over all of its members. Empty: none.
    pub group: String,
}

impl Record {
    /// The page.
    ///
    /// # Panics
    /// If a field is longer than the format allows.
    pub fn encode(&self) -> MetaPage {
        assert!(self.volume < VOLUMES_MAX && self.gaps.len() <= GAPS_MAX, "the record's bounds");
        assert!(!self.in_use || (1..=NAME_FIELD).contains(&self.name.len()), "a name that fits");
        let mut page = MetaPage::zeroed();
        let mut w = Writer::new(&mut page.0);
        w.u32(if self.group.is_empty() { MAGIC } else { GROUPED });
        w.u64(self.stamp);
        w.bytes(&self.uuid);
        w.u16(self.volume);
        w.u8(u8::from(self.in_use));
        w.u8(self.name.len() as u8);
        let mut name = [0; NAME_FIELD];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        w.bytes(&name);
        for field in
            [self.incarnation, self.size_bytes, self.retired, self.retired_epoch, self.claim]
        {
            w.u64(field);
        }
        w.u16(self.gaps.len() as u16);
        for gap in &self.gaps {
            w.u64(gap.last);
            w.u64(gap.next);
            w.u32(gap.session);
        }
        if !self.group.is_empty() {
            w.u8(self.group.len() as u8);
            w.bytes(self.group.as_bytes());
        }
        w.seal();
        debug_assert_eq!(Self::decode(&page).as_ref(), Some(self), "what is read is what is meant");
        page
    }

    /// The record in a page, or nothing if there is none or it is damaged.
    pub fn decode(page: &MetaPage) -> Option<Self> {
        let mut r = Reader::verified(&page.0)?;
        let magic = r.u32();
        if ![MAGIC, GROUPED].contains(&magic) {
            return None;
        }
        let (stamp, uuid, volume) = (r.u64(), r.array(), r.u16());
        let (in_use, length) = (r.u8(), usize::from(r.u8()));
        let name = r.array::<NAME_FIELD>();
        if volume >= VOLUMES_MAX || in_use > 1 || length > NAME_FIELD {
            return None;
        }
        let name = std::str::from_utf8(&name[..length]).ok()?.to_owned();
        let [incarnation, size_bytes, retired, retired_epoch, claim] =
            std::array::from_fn(|_| r.u64());
        let count = usize::from(r.u16());
        if count > GAPS_MAX || (in_use == 1 && name.is_empty()) {
            return None;
        }
        let gap = |_| Gap { last: r.u64(), next: r.u64(), session: r.u32() };
        let gaps: Vec<Gap> = (0..count).map(gap).collect();
        let length = if magic == GROUPED { usize::from(r.u8()) } else { 0 };
        let group = r.array::<NAME_FIELD>();
        let group = std::str::from_utf8(group.get(..length)?).ok()?.to_owned();
        let ordered = gaps.iter().all(|gap| gap.last < gap.next)
            && gaps.windows(2).all(|pair| pair[0].next <= pair[1].last);
        let bounded = [stamp, retired, retired_epoch].iter().all(|number| *number < NUMBERS_END)
            && gaps.iter().all(|gap| gap.next < NUMBERS_END && gap.session < SESSIONS_END)
            && size_bytes <= VOLUME_BLOCKS_MAX * BLOCK_BYTES;
        let record = Self {
            uuid,
            volume,
            stamp,
            in_use: in_use == 1,
            name,
            incarnation,
            size_bytes,
            retired,
            retired_epoch,
            claim,
            gaps,
            group,
        };
        (ordered && bounded && (magic == MAGIC || length > 0)).then_some(record)
    }

    /// The number that follows `number`, and the session that writes it.
    pub fn after(&self, number: u64) -> (u64, u32) {
        let jump = self.gaps.iter().rev().find(|gap| gap.last <= number);
        match jump {
            Some(gap) => (gap.next.max(number + 1), gap.session),
            None => (number + 1, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let gap = |last, next, session| Gap { last, next, session };
        Record {
            uuid: [7; 16],
            volume: 255,
            stamp: 9,
            in_use: true,
            name: "a".repeat(64),
            incarnation: 3,
            size_bytes: 1 << 40,
            retired: 8,
            retired_epoch: 4,
            claim: 1,
            gaps: vec![gap(10, 20, 2), gap(25, 31, 3)],
            group: String::new(),
        }
    }

    #[test]
    fn a_record_comes_back_and_a_flipped_bit_does_not() {
        let mut page = record().encode();
        assert_eq!(Record::decode(&page), Some(record()));
        page.0[100] ^= 1;
        assert_eq!(Record::decode(&page), None);
    }

    #[test]
    fn only_a_record_of_a_group_is_of_another_kind() {
        let grouped = Record { group: "vm".into(), ..record() };
        let page = grouped.encode();
        assert_eq!(Record::decode(&page), Some(grouped));
        assert_ne!(page.0[..4], record().encode().0[..4], "a release without groups can't read it");
    }

    #[test]
    fn a_number_that_could_not_be_counted_on_from_is_damage() {
        // Retired, its epoch, and the number behind the last gap.
        for at in [116, 124, 170] {
            let mut page = record().encode();
            page.0[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            Writer::new(&mut page.0).seal();
            assert!(Reader::verified(&page.0).is_some());
            assert_eq!(Record::decode(&page), None, "byte {at}");
        }
    }

    #[test]
    fn numbers_jump_at_gaps_only() {
        let record = record();
        assert_eq!(record.after(9), (10, 0));
        assert_eq!(record.after(10), (20, 2), "11 to 19 are void");
        assert_eq!(record.after(20), (21, 2));
        assert_eq!(record.after(25), (31, 3));
        assert_eq!(record.after(40), (41, 3));
    }
}
