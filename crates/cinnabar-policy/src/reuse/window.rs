//! What was used within a window of time: its working set, and the part of it that was used again.
//!
//! No list of the window's blocks is kept. A block that was used before the window has, between that
//! use and now, all of the window's blocks but itself: its distance is at least their number. A
//! block that was used within the window has fewer. So the distance shows whether a block is new to
//! the window.

/// Counts of a window that continues until it is reset.
#[derive(Clone, Debug)]
pub(super) struct Window {
    blocks: u32,
    again: u32,
    reuses_min: u8,
    /// By block: uses within the window up to one more than `reuses_min`; stale for others.
    uses: Vec<u8>,
}

impl Window {
    /// One whose blocks count as used again after so many reuses.
    pub(super) const fn new(reuses_min: u8) -> Self {
        Self { blocks: 0, again: 0, reuses_min, uses: Vec::new() }
    }

    /// An access at a distance; `None`: the block was never used.
    #[inline]
    pub(super) fn access(&mut self, number: usize, distance: Option<u32>) {
        if number >= self.uses.len() {
            self.uses.resize((number + 1).next_power_of_two(), 0);
        }
        let uses = &mut self.uses[number];
        if distance.is_none_or(|distance| distance >= self.blocks) {
            self.blocks += 1;
            *uses = 0;
        } else if *uses > self.reuses_min {
            return;
        }
        // First uses count for nothing, unless nothing is asked for.
        *uses = uses.saturating_add(1);
        self.again += u32::from(*uses > self.reuses_min);
    }

    /// A block is taken out as if it had never been; `newer` blocks were used since.
    pub(super) fn forget(&mut self, number: usize, newer: u32) {
        if newer < self.blocks {
            self.blocks -= 1;
            self.again -= u32::from(self.uses[number] > self.reuses_min);
        }
    }

    pub(super) fn restart(&mut self) {
        (self.blocks, self.again) = (0, 0);
    }

    /// Different blocks used.
    pub(super) const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Those that were used again often enough.
    pub(super) const fn again(&self) -> u32 {
        self.again
    }
}

impl Default for Window {
    /// Once is enough.
    fn default() -> Self {
        Self::new(1)
    }
}
