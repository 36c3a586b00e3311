//! Copies on flash that are invalid from now on: by an active region, which waits for nothing, or by
//! a record.

use super::Store;
use crate::bounds::Bound;
use crate::descriptors::Key;
use crate::journal::Ticket;
use crate::limits::VOLUME_BLOCKS_MAX;
use crate::metadata::journal::{REGION_BLOCKS, Record};
use crate::mutant::Mutant;
use crate::regions::{Name, region_of};
use crate::seam::Payload;
use crate::units::Instant;
use std::ops::Range;

/// A request in more regions than this has one record.
const REGIONS_A_REQUEST: u64 = 4;
/// A write of so many blocks of a region does not open it: one record for all is as cheap.
const OPENED_BY_BLOCKS: u64 = REGION_BLOCKS / 4;
/// Regions whose blocks one event counts anew: each is 256 lookups.
const RECOUNTS: usize = 4;
/// While more records wait to be written, writes wait for them.
const QUEUED_MAX: usize = 4096;

impl<P: Payload> Store<P> {
    /// Copies of these blocks on flash are invalid from now on. Says whether active regions say so
    /// already; if not, the newest record has to be durable first.
    pub(crate) fn overwrite(&mut self, volume: u16, blocks: Range<u64>, now: Instant) -> bool {
        let regions = region_of(blocks.start)..=region_of(blocks.end - 1);
        if !self.journal.is_enabled()
            || self.regions.is_off()
            || u64::from(regions.end() - regions.start()) >= REGIONS_A_REQUEST
        {
            self.record_invalidation(volume, blocks.start, blocks.end);
            return false;
        }
        let mut said = true;
        for region in regions {
            let base = u64::from(region) * REGION_BLOCKS;
            let part = blocks.start.max(base)..blocks.end.min(base + REGION_BLOCKS);
            let name = (self.holdings[usize::from(volume)].incarnation, region);
            let count = part.end - part.start;
            let active = self.regions.touch(name, now).or_else(|| {
                let opens = count < OPENED_BY_BLOCKS && self.regions.is_worth_opening(name);
                opens.then(|| self.open_region(volume, name, now)).flatten()
            });
            let Some(opened) = active else {
                self.record_invalidation(volume, part.start, part.end);
                said = false;
                continue;
            };
            self.regions.overwrite(name, part);
            said &= self.journal.is_durable(opened) || self.mutants.is(Mutant::RegionNotAwaited);
        }
        // Records that nobody waits for come only as fast as the device writes them.
        said && self.journal.queued() <= QUEUED_MAX
    }

    /// Records that the copies of these blocks on flash, as of now, are invalid.
    pub(crate) fn record_invalidation(&mut self, volume: u16, first: u64, end: u64) -> Ticket {
        assert!(!self.dead, "a device that is lost records nothing");
        assert!(
            first < end && end <= VOLUME_BLOCKS_MAX,
            "an invalidation record names blocks of a volume"
        );
        let incarnation = self.holdings[usize::from(volume)].incarnation;
        let version = self.log.sequence - u64::from(self.mutants.is(Mutant::RecordTooOld));
        let mut block = first;
        while block < end {
            let count = u32::try_from(end - block).unwrap_or(u32::MAX);
            self.journal.append(Record::Invalidation { incarnation, block, count, version });
            block += u64::from(count);
        }
        self.journal.newest()
    }

    /// Makes a region active if there is room; gives the ticket of its record.
    fn open_region(&mut self, volume: u16, name: Name, now: Instant) -> Option<Ticket> {
        let (incarnation, region) = name;
        if self.regions.refuses(incarnation, now) {
            return None;
        }
        let doubt = self.blocks_on_flash(volume, region);
        self.recount_regions(Some(doubt));
        let room = self.regions.room(incarnation, doubt, now);
        if room.as_ref().is_none_or(|closed| !closed.is_empty()) {
            let full = self.regions.is_full();
            self.crossings.note(if full { Bound::Regions } else { Bound::DoubtBlocks });
        }
        for other in room? {
            self.close_region(other);
        }
        let opening = self.journal.next_stamp();
        let opened = self.journal.append(Record::RegionOpened { incarnation, region, opening });
        self.regions.insert(name, opening, opened, doubt, now);
        Some(opened)
    }

    /// Cached blocks of a region on flash.
    fn blocks_on_flash(&self, volume: u16, region: u32) -> u64 {
        let base = u64::from(region) * REGION_BLOCKS;
        let keys = || (base..base + REGION_BLOCKS).map(|block| Key { volume, block });
        keys().for_each(|key| self.map.prefetch(self.hash(key)));
        let on_flash = |key: &Key| self.find(*key).is_some_and(|slot| self.is_on_flash(slot));
        keys().filter(on_flash).count() as u64
    }

    /// Counts what is cached of regions, a few at a time, as long as they cost too much, with another one
    /// of so many blocks.
    fn recount_regions(&mut self, more: Option<u64>) {
        for _ in 0..RECOUNTS {
            let Some(name) = self.regions.uncounted(more) else { return };
            let volume = self.holdings.iter().position(|one| one.incarnation == name.0);
            let blocks = volume.map_or(0, |volume| self.blocks_on_flash(volume as u16, name.1));
            self.regions.recount(name, blocks);
        }
    }

    /// Ends a region. What is invalid in it is recorded with its end; nobody waits for that, for a
    /// write that comes before it is durable opens the region anew, and that record comes behind.
    pub(crate) fn close_region(&mut self, name: Name) {
        let version = self.log.sequence - u64::from(self.mutants.is(Mutant::RegionEndTooOld));
        let Some(mut ended) = self.regions.remove(name, version) else { return };
        if self.mutants.is(Mutant::RegionEndsWithoutRecords) {
            ended.stale = [0; 4];
        }
        let ticket = self.journal.append(Record::RegionClosed(Box::new(ended)));
        let journal = &self.journal;
        self.regions.ends(name, ticket, |ticket| journal.is_durable(ticket));
    }

    /// Ends all regions of a volume: it leaves.
    pub(crate) fn close_regions_of(&mut self, volume: u16) {
        if self.dead || self.mutants.is(Mutant::RegionsOutliveVolume) {
            return;
        }
        for name in self.regions.of(self.holdings[usize::from(volume)].incarnation) {
            self.close_region(name);
        }
    }

    /// Ends regions that are idle, and those beyond what may be in doubt. Gives when to look again.
    pub(crate) fn tend_regions(&mut self, now: Instant) -> Option<Instant> {
        if self.regions.is_empty() {
            return None;
        }
        let (idle, next) = self.regions.idle(now);
        for name in idle {
            self.close_region(name);
        }
        self.recount_regions(None);
        while let Some(name) = self.regions.surplus() {
            self.close_region(name);
        }
        next
    }

    /// The chunk with these slots is about to be written as number `sequence`. Older copies of its
    /// blocks that are invalid without a record get theirs: should this chunk's segment be emptied
    /// one day, nothing else would keep them from coming back.
    pub(crate) fn supersede(&mut self, slots: Range<u32>, sequence: u64) {
        if self.regions.is_empty() {
            return;
        }
        let version = sequence - u64::from(!self.mutants.is(Mutant::NewCopySuperseded));
        let silent = self.mutants.is(Mutant::OldCopiesNotSuperseded);
        let mut run: Option<(u32, u64, u32)> = None;
        let mut runs = Vec::new();
        for slot in slots {
            let Some(key) = self.descriptors.key(slot) else { continue };
            let incarnation = self.holdings[usize::from(key.volume)].incarnation;
            if !self.regions.supersede(incarnation, key.block) || silent {
                continue;
            }
            match &mut run {
                Some((of, first, count))
                    if *of == incarnation && *first + u64::from(*count) == key.block =>
                {
                    *count += 1;
                }
                _ => runs.extend(run.replace((incarnation, key.block, 1))),
            }
        }
        for (incarnation, block, count) in runs.into_iter().chain(run) {
            self.journal.append(Record::Invalidation { incarnation, block, count, version });
        }
    }
}
