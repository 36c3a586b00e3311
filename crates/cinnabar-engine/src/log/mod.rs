//! The log: segments written once, in chunks, by share groups.
//!
//! It knows slots, buffers and segments, not keys.

pub(crate) mod ranks;
pub(crate) mod shares;

use crate::buffers::Buffer;
use crate::journal::Ticket;
use crate::metadata::chunk::DATA_BLOCKS_MAX;
use crate::metadata::superblock::Geometry;
use crate::prefetch::prefetch;
use crate::units::Instant;
use ranks::{Listed, Ranks};
use shares::{Class, Group, Stream, Tail};
use slab::Slab;
use std::collections::VecDeque;

/// What a segment is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// Holds nothing.
    Free,
    /// Is being filled.
    Open,
    /// Is full.
    Sealed,
    /// Is being emptied.
    Cleaning,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) state: SegmentState,
    pub(crate) group: u16,
    /// Chunks in RAM or being written.
    pub(crate) pending_chunks: u16,
    /// Reads under way; the segment is not reused before they end.
    pub(crate) pins: u32,
    /// Slots used, headers included.
    pub(crate) used: u32,
    /// Order of opening.
    pub(crate) sequence: u64,
    /// Sequence number of the newest chunk in it.
    pub(crate) last: u64,
    /// The record that says that it was opened.
    pub(crate) announced: Ticket,
    /// Slots that hold a block.
    pub(crate) live: u32,
    /// Of those, the ones that nothing speaks for any more: they go when the segment is emptied.
    pub(crate) condemned: u32,
    /// Where it is listed by what is worth keeping, while it is sealed.
    pub(crate) listed: Option<Listed>,
}

impl Segment {
    const FREE: Self = Self {
        state: SegmentState::Free,
        group: 0,
        pending_chunks: 0,
        pins: 0,
        used: 0,
        sequence: 0,
        last: 0,
        announced: Ticket::NONE,
        live: 0,
        condemned: 0,
        listed: None,
    };

    /// Blocks that would have to be reinserted if it were emptied now.
    pub(crate) const fn worth(&self) -> u32 {
        self.live - self.condemned
    }
}

/// A chunk in RAM: being filled, or being written.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Sequence number, once it is being written.
    pub(crate) sequence: u64,
    pub(crate) segment: u32,
    /// Slot of the header; data follow.
    pub(crate) first: u32,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) opened: Instant,
}

impl Chunk {
    fn buffer_of(&self, slot: u32) -> Option<Buffer> {
        let index = slot.checked_sub(self.first + 1)?;
        self.buffers.get(index as usize).copied()
    }
}

/// Segments, their groups and what is being written.
#[derive(Debug)]
pub(crate) struct Log {
    /// Of the device as it was made: slots and their places.
    pub(crate) geometry: Geometry,
    /// Segments that may be filled; those behind are being emptied, or hold nothing.
    pub(crate) bound: u32,
    /// Segments behind the bound that are not free, and the sealed ones of them by what is in them.
    pub(crate) behind: u32,
    ranks_behind: Ranks,
    pub(crate) segments: Vec<Segment>,
    /// Of those before the bound.
    pub(crate) free: VecDeque<u32>,
    pub(crate) groups: Vec<Group>,
    pub(crate) writing: Slab<Chunk>,
    /// Sequence number of the newest segment or chunk.
    pub(crate) sequence: u64,
    /// Segments opened that the journal has not been told of yet.
    pub(crate) opened: Vec<(u32, u64)>,
    /// Free segments that fills leave: the last one is for reinserted blocks, and one more where a
    /// segment behind the bound has its turn, which gives none back.
    pub(crate) fills_leave: usize,
    /// Segments of a share for each class of blocks that is kept apart.
    class_segments: u32,
}

/// What a segment is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A block that comes in.
    Fill,
    /// One that is reinserted from behind the bound, whatever its group's maximum: it may not take the
    /// last free segment, for none comes back.
    Move,
    /// One that is reinserted from before the bound, or must not be lost: it may.
    Keep,
}

impl Log {
    /// An empty log whose sequence numbers begin behind `sequence`. Those of each session begin behind
    /// all that any earlier one can have used. Only the first `bound` segments are filled. For
    /// `class_segments` see [`Bounds`](crate::bounds::Bounds).
    pub(crate) fn new(geometry: Geometry, bound: u32, sequence: u64, class_segments: u32) -> Self {
        assert!((1..=geometry.segments).contains(&bound), "a log has segments");
        let mut log = Self {
            geometry,
            bound,
            behind: 0,
            ranks_behind: Ranks::default(),
            segments: vec![Segment::FREE; geometry.segments as usize],
            free: (0..bound).collect(),
            groups: vec![Group::common()],
            writing: Slab::new(),
            sequence,
            opened: Vec::new(),
            fills_leave: 1,
            class_segments,
        };
        log.share_out();
        log
    }

    /// Blocks that fit into it at its size.
    pub(crate) fn capacity_blocks(&self) -> u64 {
        self.geometry.blocks_of(self.bound)
    }

    /// From now on only the first `bound` segments are filled. Streams that fill another one must have
    /// been closed. Looks at each segment between the two sizes once.
    pub(crate) fn set_bound(&mut self, bound: u32) {
        assert!((1..=self.geometry.segments).contains(&bound), "segments of the log");
        let (low, high) = (self.bound.min(bound), self.bound.max(bound));
        let sealed = |log: &Self, s: &u32| log.segments[*s as usize].listed.is_some();
        let listed: Vec<u32> = (low..high).filter(|s| sealed(self, s)).collect();
        for segment in &listed {
            self.unlist(*segment);
        }
        self.bound = bound;
        for segment in listed {
            self.list(segment);
        }
        self.free.retain(|segment| *segment < low);
        for segment in low..bound {
            if self.segments[segment as usize].state == SegmentState::Free {
                self.free.push_back(segment);
            }
        }
        self.count_behind();
    }

    /// Counts the segments behind the bound that hold something.
    pub(crate) fn count_behind(&mut self) {
        let behind = self.segments[self.bound as usize..].iter();
        self.behind = behind.filter(|s| s.state != SegmentState::Free).count() as u32;
    }

    /// Closes the segment that a stream is filling, if it is behind the bound-to-be; its chunk must
    /// have been taken unless it is empty.
    pub(crate) fn close_beyond(&mut self, stream: Stream, bound: u32) {
        if self.tail(stream).open.is_none_or(|open| open < bound) {
            return;
        }
        self.drop_empty_chunk(stream);
        self.seal(stream);
    }

    /// Whether a stream fills a segment from `bound` on.
    pub(crate) fn fills_beyond(&self, stream: Stream, bound: u32) -> bool {
        self.tail(stream).open.is_some_and(|open| open >= bound)
    }

    fn drop_empty_chunk(&mut self, stream: Stream) {
        if let Some(empty) = self.tail_mut(stream).chunk.take() {
            assert!(empty.buffers.is_empty(), "a chunk that is closed loses no block");
            self.segments[empty.segment as usize].pending_chunks -= 1;
        }
    }

    pub(crate) fn segment_of(&self, slot: u32) -> u32 {
        slot / self.geometry.segment_slots()
    }

    /// Starts loading what is known of the segment of `slot`.
    pub(crate) fn prefetch(&self, slot: u32) {
        prefetch(&self.segments, self.segment_of(slot) as usize);
    }

    /// Byte offset of a slot on the cache device.
    pub(crate) fn offset_of(&self, slot: u32) -> u64 {
        debug_assert!(slot < self.geometry.slots(), "slot {slot} is one of RAM");
        (self.geometry.log + u64::from(slot)) * crate::units::BLOCK_BYTES
    }

    /// Where the data of `slot` are in RAM, if its chunk has not been written yet.
    pub(crate) fn buffer_of(&self, slot: u32) -> Option<Buffer> {
        let index = self.segment_of(slot);
        let segment = &self.segments[index as usize];
        if segment.pending_chunks == 0 {
            return None;
        }
        let open = self.groups[usize::from(segment.group)].chunks();
        let writing = self.writing.iter().map(|(_, chunk)| chunk);
        open.chain(writing)
            .filter(|chunk| chunk.segment == index)
            .find_map(|chunk| chunk.buffer_of(slot))
    }

    /// The stream that blocks of a class of `group` are appended to.
    pub(crate) fn stream(&self, group: u16, class: Class) -> Stream {
        Stream { group, class: self.groups[usize::from(group)].merged(class) }
    }

    /// Slots that an append to a stream could use without a new segment.
    fn room(&self, stream: Stream) -> u32 {
        let open = self.tail(stream).open;
        open.map_or(0, |s| self.geometry.segment_slots() - self.segments[s as usize].used)
    }

    /// Makes sure that a stream has a chunk with room.
    pub(crate) fn open_chunk(&mut self, stream: Stream, need: Need, now: Instant) -> bool {
        if self.tail(stream).chunk.is_some() {
            return true;
        }
        if self.room(stream) < 2 {
            self.seal(stream);
            if !self.open_segment(stream, need) {
                return false;
            }
        }
        let segment = self.tail(stream).open.expect("just opened");
        let state = &mut self.segments[segment as usize];
        assert_eq!(state.state, SegmentState::Open, "a chunk is in a segment being filled");
        assert_eq!(state.group, stream.group, "and of its group");
        state.pending_chunks += 1;
        let first = segment * self.geometry.segment_slots() + state.used;
        let buffers = Vec::with_capacity(16);
        let chunk = Chunk { sequence: 0, segment, first, buffers, opened: now };
        self.tail_mut(stream).chunk = Some(chunk);
        true
    }

    fn open_segment(&mut self, stream: Stream, need: Need) -> bool {
        assert!(self.tail(stream).open.is_none(), "a stream fills one segment at a time");
        let reserve = match need {
            Need::Fill => self.fills_leave,
            Need::Move => 1,
            Need::Keep => 0,
        };
        let state = &self.groups[usize::from(stream.group)];
        let over = state.segments > state.segments_max && need == Need::Fill;
        if self.free.len() <= reserve || over {
            return false;
        }
        let segment = self.free.pop_front().expect("just counted");
        assert!(segment < self.bound, "nothing is filled behind the bound");
        let old = &self.segments[segment as usize];
        assert_eq!(old.state, SegmentState::Free, "a listed segment is free");
        assert!(
            old.pins == 0 && old.live == 0 && old.pending_chunks == 0,
            "its slots are not in use"
        );
        self.tail_mut(stream).open = Some(segment);
        self.groups[usize::from(stream.group)].segments += 1;
        let sequence = self.next_sequence();
        self.segments[segment as usize] = Segment {
            state: SegmentState::Open,
            group: stream.group,
            sequence,
            last: sequence,
            ..Segment::FREE
        };
        self.opened.push((segment, sequence));
        true
    }

    /// The next sequence number.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Adds a buffer to the open chunk; gives its slot and whether the chunk is now full.
    pub(crate) fn push(&mut self, stream: Stream, buffer: Buffer) -> (u32, bool) {
        let room = self.room(stream);
        let chunk = self.tail_mut(stream).chunk.as_mut().expect("open_chunk first");
        chunk.buffers.push(buffer);
        let count = chunk.buffers.len() as u32;
        assert!(count <= DATA_BLOCKS_MAX && count < room, "a chunk ends within its segment");
        (chunk.first + count, count >= DATA_BLOCKS_MAX.min(room - 1))
    }

    /// Takes the open chunk of a stream for writing, if it holds anything.
    pub(crate) fn take_chunk(&mut self, stream: Stream) -> Option<usize> {
        let mut chunk = self.tail_mut(stream).chunk.take_if(|chunk| !chunk.buffers.is_empty())?;
        chunk.sequence = self.next_sequence();
        let slots = self.geometry.segment_slots();
        let segment = &mut self.segments[chunk.segment as usize];
        assert_eq!(segment.state, SegmentState::Open, "only a segment being filled is written");
        assert!(chunk.sequence > segment.last, "chunks of a segment are numbered in order");
        assert_eq!(chunk.first, chunk.segment * slots + segment.used, "and follow one another");
        segment.used += 1 + chunk.buffers.len() as u32;
        assert!(segment.used <= slots, "a chunk ends within its segment");
        segment.last = chunk.sequence;
        Some(self.writing.insert(chunk))
    }

    /// Whether the chunk of `slot` has been written, or is being written: only then the device can
    /// hold a copy.
    pub(crate) fn is_submitted(&self, slot: u32) -> bool {
        let segment = &self.segments[self.segment_of(slot) as usize];
        let mut open = self.groups[usize::from(segment.group)].chunks();
        segment.pending_chunks == 0 || open.all(|chunk| chunk.buffer_of(slot).is_none())
    }

    /// Slots of chunks in RAM, as (first, end).
    pub(crate) fn pending_slots(&self) -> impl Iterator<Item = (u32, u32)> {
        let open = self.groups.iter().flat_map(Group::chunks);
        let writing = self.writing.iter().map(|(_, chunk)| chunk);
        open.chain(writing).map(|chunk| (chunk.first, chunk.first + 1 + chunk.buffers.len() as u32))
    }

    /// Blocks in chunks in RAM.
    pub(crate) fn staged_blocks(&self) -> u64 {
        self.pending_slots().map(|(first, end)| u64::from(end - first - 1)).sum()
    }

    /// Whether a chunk up to `sequence` is still being written.
    pub(crate) fn is_writing_up_to(&self, sequence: u64) -> bool {
        self.writing.iter().any(|(_, chunk)| chunk.sequence <= sequence)
    }

    /// A chunk's write has ended.
    pub(crate) fn written(&mut self, chunk: usize) -> Chunk {
        let chunk = self.writing.remove(chunk);
        let segment = &mut self.segments[chunk.segment as usize];
        assert!(chunk.sequence <= segment.last, "what has been written was submitted");
        assert!(segment.pending_chunks > 0, "a chunk being written counts");
        segment.pending_chunks -= 1;
        chunk
    }

    /// Closes the open segment of a stream; its chunk must have been taken.
    pub(crate) fn seal(&mut self, stream: Stream) {
        let tail = self.tail_mut(stream);
        assert!(tail.chunk.is_none(), "a chunk is still being filled");
        if let Some(segment) = tail.open.take() {
            self.enqueue(segment, false);
        }
    }

    /// Closes the open segment of a stream that no block is appended to any more, so that it can be
    /// emptied like the others.
    pub(crate) fn seal_if_abandoned(&mut self, stream: Stream) {
        let state = &self.groups[usize::from(stream.group)];
        let merged = state.merged(stream.class) != stream.class;
        let left = stream.group != 0 && state.members == 0;
        if (merged || left) && self.tail(stream).open.is_some() {
            self.drop_empty_chunk(stream);
            self.seal(stream);
        }
    }

    /// Gives an emptied segment back.
    pub(crate) fn release(&mut self, segment: u32) {
        let state = &mut self.segments[segment as usize];
        assert!(state.pins == 0 && state.pending_chunks == 0, "still in use");
        assert!(state.live == 0 && state.condemned == 0, "still holds blocks");
        assert_eq!(state.state, SegmentState::Cleaning, "only what was emptied is given back");
        state.state = SegmentState::Free;
        state.used = 0;
        let group = usize::from(state.group);
        assert!(self.groups[group].segments > 0, "a group counts what it gives back");
        self.groups[group].segments -= 1;
        if segment < self.bound {
            self.free.push_back(segment);
        } else {
            assert!(self.behind > 0, "what is emptied behind the bound was counted");
            self.behind -= 1;
        }
    }

    /// The stream whose open chunk is the fullest, for relief when buffers run out.
    pub(crate) fn fullest_chunk(&self) -> Option<Stream> {
        let chunks = self.streams().filter_map(|stream| Some((stream, self.chunk(stream)?)));
        let (stream, chunk) = chunks.max_by_key(|(_, chunk)| chunk.buffers.len())?;
        (!chunk.buffers.is_empty()).then_some(stream)
    }

    fn tail(&self, stream: Stream) -> &Tail {
        &self.groups[usize::from(stream.group)].tails[stream.class as usize]
    }

    fn tail_mut(&mut self, stream: Stream) -> &mut Tail {
        &mut self.groups[usize::from(stream.group)].tails[stream.class as usize]
    }

    /// The segment being filled of a stream.
    #[cfg(test)]
    fn tails_open(&self, stream: Stream) -> u32 {
        self.tail(stream).open.expect("a segment is open")
    }

    /// The chunk being filled of a stream.
    pub(crate) fn chunk(&self, stream: Stream) -> Option<&Chunk> {
        self.tail(stream).chunk.as_ref()
    }

    /// Every stream of every group.
    pub(crate) fn streams(&self) -> impl Iterator<Item = Stream> + use<> {
        let groups = 0..self.groups.len() as u16;
        groups.flat_map(|group| Class::ALL.map(|class| Stream { group, class }))
    }

    /// A block is in `slot` now.
    pub(crate) fn settle(&mut self, slot: u32) {
        let index = self.segment_of(slot);
        let segment = &mut self.segments[index as usize];
        assert_ne!(segment.state, SegmentState::Free, "a block in a segment that is free");
        segment.live += 1;
        assert!(segment.live <= self.geometry.segment_slots(), "a slot holds one block");
        self.groups[usize::from(segment.group)].worth += 1;
        self.rerank(index);
    }

    /// So many slots of a segment hold a block each, while segments are not in order yet.
    pub(crate) fn settle_some(&mut self, index: u32, count: u32) {
        if count == 0 {
            return;
        }
        let segment = &mut self.segments[index as usize];
        assert_ne!(segment.state, SegmentState::Free, "blocks in a segment that is free");
        assert!(segment.listed.is_none(), "it is listed when all of it is known");
        segment.live += count;
        assert!(segment.live <= self.geometry.segment_slots(), "a slot holds one block");
        self.groups[usize::from(segment.group)].worth += u64::from(count);
    }

    /// The block in `slot` is gone.
    pub(crate) fn unsettle(&mut self, slot: u32, condemned: bool) {
        let index = self.segment_of(slot);
        let segment = &mut self.segments[index as usize];
        assert!(segment.live > segment.condemned - u32::from(condemned), "a block that counts");
        segment.live -= 1;
        if condemned {
            segment.condemned -= 1;
        } else {
            self.groups[usize::from(segment.group)].worth -= 1;
        }
        self.rerank(index);
    }

    /// The block in `slot` may go when its segment is emptied, or may not after all.
    pub(crate) fn condemn(&mut self, slot: u32, condemned: bool) {
        let index = self.segment_of(slot);
        let segment = &mut self.segments[index as usize];
        let worth = &mut self.groups[usize::from(segment.group)].worth;
        if condemned {
            segment.condemned += 1;
            assert!(segment.condemned <= segment.live, "only blocks are condemned");
            *worth -= 1;
        } else {
            assert!(segment.condemned > 0, "only what is condemned is saved");
            segment.condemned -= 1;
            *worth += 1;
        }
        self.rerank(index);
    }
}
