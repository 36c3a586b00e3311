//! A queue of blocks that can lose one anywhere, in one array: what all the policies are made of.
//!
//! A ring of block numbers, oldest first, with holes where blocks were taken out; a block's node
//! knows its place, so taking out is one store. Compared with a linked list, a move touches one line
//! and not three, and looking for a victim reads forward.

const HOLE: u32 = u32::MAX;
const RING_MIN: usize = 64;

/// What a policy knows of a block, in one load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Node {
    /// Place in its queue, if it is in one.
    pub(crate) at: u32,
    /// Which queue; 0 is none, the others are the policy's.
    pub(crate) list: u8,
    /// Uses, or a reference bit.
    pub(crate) uses: u8,
}

/// A queue. Places count up and wrap; a place's slot is its low bits. There are at most 2^30 blocks,
/// so a ring has at most 2^31 slots and the difference of two places is unambiguous.
#[derive(Debug)]
pub(crate) struct Queue {
    ring: Vec<u32>,
    first: u32,
    next: u32,
    live: u32,
    /// A place that is kept through compaction: SIEVE's hand. Only SIEVE asks for it.
    hand: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { ring: vec![HOLE; RING_MIN], first: 0, next: 0, live: 0, hand: 0 }
    }
}

impl Queue {
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    /// Adds a block as the newest.
    #[inline]
    pub(crate) fn push(&mut self, block: u32, nodes: &mut [Node]) {
        if self.next.wrapping_sub(self.first) as usize == self.ring.len() {
            self.compact(nodes);
        }
        let slot = self.slot(self.next);
        self.ring[slot] = block;
        nodes[block as usize].at = self.next;
        self.next = self.next.wrapping_add(1);
        self.live += 1;
    }

    /// Takes out the block whose node says `at`.
    #[inline]
    pub(crate) fn remove(&mut self, at: u32) {
        let slot = self.slot(at);
        debug_assert!(self.ring[slot] != HOLE, "a node knows its block's place");
        self.ring[slot] = HOLE;
        self.live -= 1;
    }

    /// Is the block at this place the newest?
    #[inline]
    pub(crate) fn is_newest(&self, at: u32) -> bool {
        at.wrapping_add(1) == self.next
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        if self.live == 0 {
            return None;
        }
        self.skip_holes();
        let slot = self.slot(self.first);
        let block = self.ring[slot];
        self.ring[slot] = HOLE;
        self.first = self.first.wrapping_add(1);
        self.live -= 1;
        Some(block)
    }

    /// Is the hand at this place?
    #[inline]
    pub(crate) fn is_hand(&self, at: u32) -> bool {
        at == self.hand
    }

    /// The block at the hand, and its place. `None` if there is none at all.
    #[inline]
    pub(crate) fn at_hand(&mut self) -> Option<(u32, u32)> {
        if self.live == 0 {
            return None;
        }
        if self.ring[self.slot(self.hand)] == HOLE {
            self.advance_hand();
        }
        Some((self.ring[self.slot(self.hand)], self.hand))
    }

    /// Moves the hand to the next newer block, and from the newest to the oldest.
    #[inline]
    pub(crate) fn advance_hand(&mut self) {
        self.hand = self.hand.wrapping_add(1);
        while self.hand != self.next && self.ring[self.slot(self.hand)] == HOLE {
            self.hand = self.hand.wrapping_add(1);
        }
        if self.hand == self.next {
            self.skip_holes();
            self.hand = self.first;
        }
    }

    fn skip_holes(&mut self) {
        while self.first != self.next && self.ring[self.slot(self.first)] == HOLE {
            self.first = self.first.wrapping_add(1);
        }
    }

    #[inline]
    fn slot(&self, at: u32) -> usize {
        at as usize & (self.ring.len() - 1)
    }

    /// Closes the holes; doubles the ring unless half of it were holes, so each push pays for at
    /// most one move.
    #[cold]
    fn compact(&mut self, nodes: &mut [Node]) {
        let old_mask = self.ring.len() - 1;
        let grown = self.live as usize * 2 > self.ring.len();
        let mut grown_ring = if grown { vec![HOLE; self.ring.len() * 2] } else { Vec::new() };
        let mut to = self.first;
        let mut from = self.first;
        let mut hand = self.first;
        while from != self.next {
            let block = std::mem::replace(&mut self.ring[from as usize & old_mask], HOLE);
            if from == self.hand {
                hand = to;
            }
            if block != HOLE {
                nodes[block as usize].at = to;
                if grown {
                    let mask = grown_ring.len() - 1;
                    grown_ring[to as usize & mask] = block;
                } else {
                    self.ring[to as usize & old_mask] = block;
                }
                to = to.wrapping_add(1);
            }
            from = from.wrapping_add(1);
        }
        if grown {
            self.ring = grown_ring;
        }
        self.next = to;
        self.hand = hand;
    }
}
