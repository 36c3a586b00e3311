//! Which segments are free, who reads from them, and how far they are filled.

use crate::format::SEGMENT_PAGES;
use std::collections::VecDeque;

/// A segment in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    /// Pages used, from the first on; 0: the segment is free.
    pub(crate) used: u32,
    /// Reads of guests under way; it is not used again before they end.
    pub(crate) pins: u32,
    /// Unique for each use of a segment.
    pub(crate) opening: u64,
    /// All that it held is retired; it is free once nothing reads it.
    pub(crate) retired: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) all: Vec<Segment>,
    free: VecDeque<u32>,
    /// What waits for room may go on.
    pub(crate) made_room: bool,
    /// The newest opening.
    opening: u64,
}

impl Segments {
    pub(crate) fn new(count: u32, opening: u64) -> Self {
        let all = vec![Segment::default(); count as usize];
        Self { all, free: (0..count).collect(), made_room: false, opening }
    }

    /// What recovery has found in use.
    pub(crate) fn take_over(&mut self, used: impl Fn(u32) -> Option<(u32, u64)>) {
        let all = &mut self.all;
        self.free.retain(|segment| match used(*segment) {
            Some((used, opening)) => {
                all[*segment as usize] = Segment { used, opening, ..Segment::default() };
                false
            }
            None => true,
        });
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Opens a free segment.
    pub(crate) fn open(&mut self) -> Option<u32> {
        let segment = self.free.pop_front()?;
        self.opening += 1;
        let state = &mut self.all[segment as usize];
        assert!(state.used == 0 && state.pins == 0, "a free segment is not in use");
        *state = Segment { opening: self.opening, ..Segment::default() };
        Some(segment)
    }

    /// All that a segment held is retired.
    pub(crate) fn retire(&mut self, segment: u32) {
        self.all[segment as usize].retired = true;
        self.made_room = true;
        self.free_if_unused(segment);
    }

    pub(crate) fn pin(&mut self, slot: u32) {
        self.all[(slot / SEGMENT_PAGES) as usize].pins += 1;
    }

    pub(crate) fn unpin(&mut self, slot: u32) {
        let segment = slot / SEGMENT_PAGES;
        let state = &mut self.all[segment as usize];
        assert!(state.pins > 0, "a read that has ended was counted");
        state.pins -= 1;
        self.free_if_unused(segment);
    }

    fn free_if_unused(&mut self, segment: u32) {
        let state = &mut self.all[segment as usize];
        if state.retired && state.pins == 0 {
            *state = Segment::default();
            self.free.push_back(segment);
            self.made_room = true;
        }
    }
}
