//! After a crash each of two members may lack what the other one has: it was under way. Before anything
//! relies on one of them, both get what either has.
//!
//! It is done page by page: what can't be read on one half, or is rotten there, is healed from the other
//! one. Both members hold all that was ever acknowledged, so what is added was under way, and may have
//! happened.

use crate::format::chunk::{ChunkHeader, Entry};
use crate::format::directory::Record;
use crate::format::superblock::Superblock;
use crate::format::{DIRECTORY_PAGE, MARK_PAGE, NOTE_PAGE, SEGMENT_PAGES, offset_of};
use crate::memory::note;
use crate::mutant::{Mutant, Mutants};
use crate::recover::{BadSlots, Headers, Media, OpenError, directory, look_at_each, scan};
use crate::slots::checksum_seed;
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::chunk::device_seed;
use cinnabar_engine::units::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// What levelling has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levelled {
    /// Pages written to each half.
    pub pages: [u64; 2],
    /// Halves that could not be written.
    pub failed: [bool; 2],
}

/// A half of which a page that can't be read looks like a header or record that is damaged.
struct Lenient<'a, M>(&'a M);

impl<P, M: Media<P>> Media<P> for Lenient<'_, M> {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> std::io::Result<()> {
        if self.0.read_pages(offset, pages).is_ok() {
            return Ok(());
        }
        for (n, page) in (0..).zip(pages) {
            let at = offset + n * BLOCK_BYTES;
            if self.0.read_pages(at, std::slice::from_mut(page)).is_err() {
                *page = ChunkHeader::unreadable();
            }
        }
        Ok(())
    }

    fn read_data(&self, offset: u64, blocks: u32) -> std::io::Result<P> {
        self.0.read_data(offset, blocks)
    }

    fn write_page(&self, offset: u64, page: &MetaPage) -> std::io::Result<()> {
        self.0.write_page(offset, page)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// The pages before the segments, in RAM.
struct Pages(Vec<MetaPage>);

impl<P> Media<P> for Pages {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> std::io::Result<()> {
        let first = (offset / BLOCK_BYTES) as usize;
        pages.clone_from_slice(&self.0[first..first + pages.len()]);
        Ok(())
    }

    fn read_data(&self, _: u64, _: u32) -> std::io::Result<P> {
        Err(std::io::Error::other("there are no data in RAM"))
    }

    fn write_page(&self, _: u64, _: &MetaPage) -> std::io::Result<()> {
        Err(std::io::Error::other("it is only read"))
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Leveller<'a, M> {
    halves: [&'a M; 2],
    done: Levelled,
}

/// Levels two members, durably. An error of one half is not one of this: it says which could not be
/// written.
///
/// # Errors
/// If both have failed.
pub(super) fn level<P: Payload, M: Media<P>>(
    halves: [&M; 2],
    log: Superblock,
    mutants: Mutants,
) -> Result<Levelled, OpenError> {
    let mut leveller = Leveller { halves, done: Levelled::default() };
    let pages = leveller.pages::<P>(log, mutants)?;
    if !mutants.is(Mutant::ChunksNotLevelled) {
        leveller.chunks::<P>(log, &pages, mutants)?;
    }
    for (half, failed) in halves.into_iter().zip(&mut leveller.done.failed) {
        *failed |= half.flush().is_err();
    }
    leveller.done()
}

impl<M> Leveller<'_, M> {
    fn done(&self) -> Result<Levelled, OpenError> {
        if self.done.failed == [true; 2] {
            return Err(std::io::Error::other("both halves have failed").into());
        }
        Ok(self.done)
    }

    fn put<P>(&mut self, half: usize, offset: u64, page: &MetaPage)
    where
        M: Media<P>,
    {
        self.done.pages[half] += 1;
        self.done.failed[half] |= self.halves[half].write_page(offset, page).is_err();
    }

    /// Superblocks, records and notes: of each page the newer one.
    fn pages<P>(&mut self, log: Superblock, mutants: Mutants) -> Result<Pages, OpenError>
    where
        M: Media<P>,
    {
        let mut all = [(); 2].map(|()| vec![MetaPage::zeroed(); MARK_PAGE as usize]);
        for (half, pages) in self.halves.into_iter().zip(&mut all) {
            Lenient(half).read_pages(0, pages)?;
        }
        let mut newest = all[0].clone();
        for (number, (a, b)) in (0..).zip(all[0].iter().zip(&all[1])) {
            let skips = mutants.is(Mutant::DirectoryNotLevelled);
            if a == b || skips && (DIRECTORY_PAGE..NOTE_PAGE).contains(&number) {
                continue;
            }
            match (stamp_of(number, a, &log), stamp_of(number, b, &log)) {
                (None, None) => {}
                (of_a, of_b) if of_a >= of_b => self.put(1, number * BLOCK_BYTES, a),
                _ => {
                    self.put(0, number * BLOCK_BYTES, b);
                    newest[number as usize] = b.clone();
                }
            }
        }
        self.done().map(|_| Pages(newest))
    }

    /// Chunks that the back end lacks, and that one half lacks.
    fn chunks<P: Payload>(
        &mut self,
        log: Superblock,
        pages: &Pages,
        mutants: Mutants,
    ) -> Result<(), OpenError>
    where
        M: Media<P>,
    {
        let of = (log.uuid, log.segments);
        let mut found: [BTreeMap<u16, Headers>; 2] = Default::default();
        let mut newest = vec![0; log.segments as usize];
        for (half, volumes) in self.halves.into_iter().zip(&mut found) {
            *volumes = directory::<P>(pages, log.uuid)?.volumes;
            let mut bad = BadSlots::default();
            let half = Lenient(half);
            let openings = scan::<P>(&half, of, volumes, (mutants, &mut bad), &mut |_| {})?;
            for (newest, opening) in newest.iter_mut().zip(openings) {
                *newest = opening.max(*newest);
            }
        }
        // A half may lack what leads to chunks that it has. They are found now: once it has that, too, a
        // later start would find them, and what was lost would come back.
        if !mutants.is(Mutant::ChainFollowed) {
            for (segment, openings) in unlike(&found) {
                let slots = segment * SEGMENT_PAGES..(segment + 1) * SEGMENT_PAGES;
                let is_of = |header: &ChunkHeader| openings.contains(&header.opening);
                for (half, volumes) in self.halves.into_iter().zip(&mut found) {
                    let (half, slots) = (Lenient(half), slots.clone());
                    let how = (mutants, &mut BadSlots::default());
                    look_at_each::<P>(&half, log.uuid, (slots, &is_of), volumes, how)?;
                }
            }
        }
        let [first, second] = found;
        for (place, a) in first {
            self.volume::<P>([&a, &second[&place]], &newest);
        }
        Ok(())
    }

    /// The chunks of a volume, as each half has them. `newest`: the newest opening of each segment, on
    /// whichever half: what is older was retired, or is void, and its place is another chunk's.
    fn volume<P: Payload>(&mut self, [a, b]: [&Headers; 2], newest: &[u64])
    where
        M: Media<P>,
    {
        let record = &a.record;
        // Recovery reads the headers of one half: what that does not call durable it looks at, and it
        // takes what is torn there for the end.
        let durable = a.durable.min(b.durable);
        let keys: BTreeSet<_> = a.chunks.keys().chain(b.chunks.keys()).copied().collect();
        let is_newest = |header: &&ChunkHeader| {
            newest[(header.slot / SEGMENT_PAGES) as usize] == header.opening
        };
        let of = |key| [a, b].map(|half| half.chunks.get(key).filter(is_newest));
        let counts = |key: &&(u64, u32)| key.0 > record.retired && record.after(key.0 - 1) == **key;
        let used = keys.iter().filter(counts).flat_map(of).flatten().map(use_of);
        let used: BTreeSet<_> = used.collect();
        // The write memory may have more chunks of the newest session.
        let session = record.gaps.last().map_or(0, |gap| gap.session);
        for key in &keys {
            let headers = of(key);
            if counts(&key) {
                // What was durable is read from the other half if it does not match its checksum.
                if headers[0] != headers[1] || key.0 > durable {
                    self.chunk::<P>(headers, record.incarnation);
                }
                continue;
            }
            // Headers before a chunk lead to it.
            let leads = |h: &&ChunkHeader| h.session == session || used.contains(&use_of(h));
            let Some(header) = newer(headers).filter(leads) else { continue };
            for half in (0..2).filter(|half| headers[*half].is_none()) {
                self.put(half, offset_of(header.slot), &header.encode());
            }
        }
    }

    /// Completes a chunk on both halves, if they have all of it together.
    fn chunk<P: Payload>(&mut self, headers: [Option<&ChunkHeader>; 2], incarnation: u64)
    where
        M: Media<P>,
    {
        let Some(header) = newer(headers) else { return };
        for (half, other) in headers.into_iter().enumerate() {
            if let Some(old) = other.filter(|other| other.opening < header.opening) {
                // Left behind by a history that was given up: it must not stand in for this one.
                self.put(half, offset_of(old.slot), &MetaPage::zeroed());
            }
        }
        let mut sound = headers.map(|of| vec![of == Some(header)]);
        for (half, sound) in self.halves.into_iter().zip(&mut sound) {
            sound.extend(sound_pages::<P>(half, header, incarnation));
        }
        let [a, b] = &sound;
        if !a.iter().zip(b).all(|(a, b)| *a || *b) {
            return;
        }
        for (half, sound) in sound.iter().enumerate() {
            let lacking = (0..).zip(sound).skip(1).filter(|(_, sound)| !**sound);
            for offset in lacking.map(|(page, _)| offset_of(header.slot + page)) {
                let mut page = [MetaPage::zeroed()];
                if self.halves[1 - half].read_pages(offset, &mut page).is_err() {
                    // It was read a moment ago.
                    return;
                }
                self.put(half, offset, &page[0]);
            }
            if !sound[0] {
                // A header says that its data are there: the next start may not look.
                self.done.failed[half] |= self.halves[half].flush().is_err();
                self.put(half, offset_of(header.slot), &header.encode());
            }
        }
    }
}

/// Segments of which two halves have other chunks that are not retired, and the openings of these: what a
/// segment may hold of other uses is none of theirs.
fn unlike(found: &[BTreeMap<u16, Headers>; 2]) -> BTreeMap<u32, BTreeSet<u64>> {
    let [a, b] = found.each_ref().map(|volumes| {
        let unretired = |of: &Headers| {
            let headers = of.chunks.values().filter(|header| header.number > of.record.retired);
            headers.map(|of| (of.slot, of.opening, of.volume, of.number)).collect::<Vec<_>>()
        };
        volumes.values().flat_map(unretired).collect::<BTreeSet<_>>()
    });
    let mut unlike: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for (slot, opening, ..) in a.symmetric_difference(&b) {
        unlike.entry(slot / SEGMENT_PAGES).or_default().insert(*opening);
    }
    unlike
}

/// Of two chunks with the same number the one that was written later.
fn newer([a, b]: [Option<&ChunkHeader>; 2]) -> Option<&ChunkHeader> {
    match (a, b) {
        (Some(a), Some(b)) if b.opening > a.opening => Some(b),
        (a, b) => a.or(b),
    }
}

/// The use of a segment that a chunk is of.
fn use_of(header: &ChunkHeader) -> (u32, u64, u32) {
    (header.slot / SEGMENT_PAGES, header.opening, header.session)
}

/// Which of two versions of a page is newer; `None` if it is none.
fn stamp_of(number: u64, page: &MetaPage, log: &Superblock) -> Option<u64> {
    if *page == MetaPage::zeroed() {
        // Nothing was ever written there that counts.
        return Some(0);
    }
    if number < DIRECTORY_PAGE {
        return (Superblock::decode(page).ok()? == *log).then_some(1);
    }
    if number >= NOTE_PAGE {
        return note::of_page(page, log.uuid).map(|(stamp, _)| stamp);
    }
    let own = |record: &Record| {
        record.uuid == log.uuid && u64::from(record.volume) == (number - DIRECTORY_PAGE) / 2
    };
    Record::decode(page).filter(own).map(|record| record.stamp)
}

/// Which pages of data of a chunk a half has.
fn sound_pages<P: Payload>(
    media: &impl Media<P>,
    header: &ChunkHeader,
    incarnation: u64,
) -> Vec<bool> {
    let data = header.entries.iter().filter_map(|entry| match *entry {
        Entry::Data { block, checksum, .. } => Some((block, checksum)),
        Entry::Range { .. } => None,
    });
    let (first, count) = (header.slot + 1, header.data_pages());
    let all = (count > 0).then(|| media.read_data(offset_of(first), count).ok()).flatten();
    let device = device_seed(header.uuid);
    let is_sound = |(page, (block, checksum)): (u32, (u64, u32))| {
        let seed = checksum_seed(device, incarnation, header.number as u32, block);
        match &all {
            Some(all) => all.checksum(u64::from(page) * BLOCK_BYTES, seed) == checksum,
            // Some page of it can't be read.
            None => media
                .read_data(offset_of(first + page), 1)
                .is_ok_and(|data| data.checksum(0, seed) == checksum),
        }
    };
    (0..).zip(data).map(is_sound).collect()
}
