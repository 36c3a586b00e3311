//! The log, walked by its chunk headers.

use super::image::PAGES_A_READ;
use super::{Source, Watch};
use cinnabar_backend::Memory;
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::chunk::{CHUNK_BLOCKS, ChunkHeader, RecordKind, checksum_seed};
use cinnabar_engine::metadata::superblock::Superblock;
use std::ops::ControlFlow;

const _: () = assert!(PAGES_A_READ >= CHUNK_BLOCKS as usize);

/// A chunk found in the log.
#[derive(Debug)]
pub struct Found {
    pub header: ChunkHeader,
    /// Positions in `header.entries` whose data don't have the checksum that it says; empty if
    /// data were not asked for.
    pub wrong: Vec<usize>,
}

/// Reads headers, and data where asked for, with one buffer for all of it.
pub struct Walker<'a, S: Source + ?Sized> {
    source: &'a S,
    superblock: &'a Superblock,
    with_data: bool,
    pages: Vec<MetaPage>,
    data: Memory,
}

impl<'a, S: Source + ?Sized> Walker<'a, S> {
    /// A walker over a device; `with_data` verifies the checksum of every block.
    pub fn new(source: &'a S, superblock: &'a Superblock, with_data: bool) -> Self {
        let pages = vec![MetaPage::zeroed(); if with_data { CHUNK_BLOCKS as usize } else { 1 }];
        Self { source, superblock, with_data, pages, data: Memory::alloc(1) }
    }

    /// Walks `segments`, in this order, until `visit` breaks it off: it gets the chunks of one
    /// segment at a time.
    pub fn walk(
        &mut self,
        segments: &[u32],
        watch: &mut dyn Watch,
        visit: &mut dyn FnMut(u32, &[Found]) -> ControlFlow<()>,
    ) {
        for (done, &segment) in segments.iter().enumerate() {
            watch.at("segments", done as u64, segments.len() as u64);
            if visit(segment, &self.segment(segment)).is_break() {
                return;
            }
        }
        watch.at("segments", segments.len() as u64, segments.len() as u64);
    }

    /// One segment, from its start: each chunk begins where the last one ended, and is newer.
    /// Behind the newest one lies what the segment held when it was used before, or nothing.
    fn segment(&mut self, segment: u32) -> Vec<Found> {
        let mut chunks = Vec::new();
        let slots = self.superblock.geometry.segment_slots();
        let first = segment * slots;
        let mut at = 0;
        let mut newest = 0;
        while at < slots {
            let count = (slots - at).min(self.pages.len() as u32) as usize;
            let block = self.superblock.geometry.log + u64::from(first + at);
            self.source.read(block, &mut self.pages[..count]);
            let Some(header) = self.header(first + at, slots - at) else { break };
            if header.sequence <= newest {
                break;
            }
            newest = header.sequence;
            at += 1 + header.entries.len() as u32;
            let wrong = if self.with_data { self.verify(&header) } else { Vec::new() };
            chunks.push(Found { header, wrong });
        }
        chunks
    }

    /// The header that was read, if it belongs here.
    fn header(&self, slot: u32, room: u32) -> Option<ChunkHeader> {
        let header = ChunkHeader::decode(&self.pages[0])?;
        let here = header.uuid == self.superblock.uuid
            && header.slot == slot
            && !header.entries.is_empty()
            && (header.entries.len() as u32) < room;
        here.then_some(header)
    }

    fn verify(&self, header: &ChunkHeader) -> Vec<usize> {
        let entries = header.entries.iter().zip(&self.pages[1..]).enumerate();
        entries
            .filter(|(_, (entry, page))| {
                if !has_data(entry.kind) {
                    return false;
                }
                // The payload's own checksum, which the daemon verifies on each read.
                self.data.write_at(0, &page.0);
                let seed = checksum_seed(self.superblock.uuid, entry.incarnation, entry.block);
                self.data.checksum(0, seed) != entry.checksum
            })
            .map(|(index, _)| index)
            .collect()
    }
}

/// Whether a record of this kind has a block of data.
pub const fn has_data(kind: RecordKind) -> bool {
    matches!(kind, RecordKind::Clean | RecordKind::Written | RecordKind::Dirty)
}

/// Segments that may have chunks: behind them there is no room, or what reads as anything.
pub fn held(superblock: &Superblock) -> u32 {
    superblock.segments_used.max(superblock.segments_room).min(superblock.geometry.segments)
}

/// The segments to look at: all of `count`, or at most `sample` evenly spread.
pub fn choose(count: u32, sample: Option<u32>) -> Vec<u32> {
    let wanted = sample.unwrap_or(count).clamp(1, count.max(1)).min(count);
    let spread = |index: u32| u64::from(index) * u64::from(count) / u64::from(wanted);
    (0..wanted).map(|index| spread(index) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_engine::metadata::superblock::Geometry;

    #[test]
    fn of_a_cache_that_could_be_larger_only_what_has_room_is_looked_at() {
        let geometry = Geometry::for_device(128 << 20).expect("a good size");
        let all = Superblock::format_all([1; 16], geometry).remove(0);
        assert_eq!(held(&all), geometry.segments);
        let mut smaller = all.with_segments(20);
        assert_eq!(held(&smaller), 20);
        // What an interrupted resize left is looked at, too.
        smaller.segments_room = 30;
        assert_eq!(choose(held(&smaller), None), (0..30).collect::<Vec<_>>());
    }
}
