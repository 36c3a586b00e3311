//! The stack of caches that drop what is written, blind to what is counted of it.
//!
//! A dropped block leaves a free place in every cache that had it, and the next block that comes in
//! takes it instead of evicting. In the stack that is a **hole**: a place that stays taken, by no
//! block. Which caches profit follows from the newest hole alone.
//!
//! A sample of bounded size forgets blocks, and holes must go with them, or there would be ever more
//! of them for the blocks that are left. So with `FORGETS` each hole belongs to a block that was
//! written; when another block's read fills it, its owner gets the hole of that block in exchange, if
//! it had one.

use super::places::Places;
use crate::bit_set::BitSet;

/// No position: never read, or written since; no hole; no block.
const NONE: u32 = u32::MAX;

/// Blocks in the order of their last read, and holes.
#[derive(Debug)]
pub(super) struct HoleStack<const FORGETS: bool> {
    places: Places,
    holes: BitSet,
    blocks: Vec<u32>,
    /// The hole of each written block, and the block of each hole's place; empty unless `FORGETS`.
    hole_of: Vec<u32>,
    owners: Vec<u32>,
}

impl<const FORGETS: bool> Default for HoleStack<FORGETS> {
    fn default() -> Self {
        let places = Places::default();
        let holes = BitSet::new(places.capacity());
        let owners = if FORGETS { vec![NONE; places.capacity()] } else { Vec::new() };
        Self { places, holes, blocks: Vec::new(), hole_of: Vec::new(), owners }
    }
}

impl<const FORGETS: bool> HoleStack<FORGETS> {
    /// A write: the block is dropped.
    #[inline]
    pub(super) fn write(&mut self, number: usize) {
        self.know(number);
        let place = std::mem::replace(&mut self.blocks[number], NONE);
        if place != NONE {
            self.holes.insert(place);
            self.own(number as u32, place);
        }
    }

    /// A read: the block's distance, holes counted as blocks, if some cache has it.
    #[inline]
    pub(super) fn read(&mut self, number: usize) -> Option<u32> {
        self.know(number);
        if self.places.is_full() {
            self.compact();
        }
        let place = self.blocks[number];
        let distance = (place != NONE).then(|| self.places.newer(place));
        match self.holes.last() {
            // Caches that have the hole but not the block fill it; those that have both get a hole
            // where the block was.
            Some(hole) if place == NONE || hole > place => {
                self.holes.remove(hole);
                self.places.clear(hole);
                if place != NONE {
                    self.holes.insert(place);
                }
                self.hand_on(number, hole, place);
            }
            _ if place != NONE => self.places.clear(place),
            _ => {}
        }
        self.blocks[number] = self.places.push();
        distance
    }

    /// Takes a block out, or the hole it left; its number may be given to another.
    pub(super) fn forget(&mut self, number: usize) {
        const { assert!(FORGETS, "who forgets keeps account of holes") };
        if number >= self.blocks.len() {
            return;
        }
        let hole = std::mem::replace(&mut self.hole_of[number], NONE);
        if hole != NONE {
            self.holes.remove(hole);
            self.places.clear(hole);
        }
        let place = std::mem::replace(&mut self.blocks[number], NONE);
        if place != NONE {
            self.places.clear(place);
        }
    }

    fn know(&mut self, number: usize) {
        if number >= self.blocks.len() {
            self.blocks.resize(number + 1, NONE);
            if FORGETS {
                self.hole_of.resize(number + 1, NONE);
            }
        }
    }

    /// The hole at `place` is this block's.
    fn own(&mut self, number: u32, place: u32) {
        if FORGETS {
            self.hole_of[number as usize] = place;
            self.owners[place as usize] = number;
        }
    }

    /// Block `number` was read and filled `hole`; its owner gets what the block leaves behind: its
    /// old place, or the hole that it owned when it was written, or nothing.
    fn hand_on(&mut self, number: usize, hole: u32, place: u32) {
        if !FORGETS {
            return;
        }
        let owner = self.owners[hole as usize];
        self.hole_of[owner as usize] = NONE;
        let own_hole = std::mem::replace(&mut self.hole_of[number], NONE);
        let left = if place == NONE { own_hole } else { place };
        if left != NONE {
            self.own(owner, left);
        }
    }

    fn compact(&mut self) {
        for place in self.blocks.iter_mut().filter(|place| **place != NONE) {
            *place = self.places.rank(*place);
        }
        for hole in self.hole_of.iter_mut().filter(|hole| **hole != NONE) {
            *hole = self.places.rank(*hole);
        }
        let mut moved = Vec::new();
        while let Some(hole) = self.holes.take_last() {
            moved.push(self.places.rank(hole));
        }
        self.places.compact();
        self.holes = BitSet::new(self.places.capacity());
        for hole in moved {
            self.holes.insert(hole);
        }
        if FORGETS {
            self.owners = vec![NONE; self.places.capacity()];
            for (number, &hole) in self.hole_of.iter().enumerate() {
                if hole != NONE {
                    self.owners[hole as usize] = number as u32;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack written down plainly, newest first: a block, or the hole that a block left.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Slot {
        Block(usize),
        Hole(usize),
    }

    fn naive_read(slots: &mut Vec<Slot>, number: usize) -> Option<u32> {
        let at = slots.iter().position(|slot| *slot == Slot::Block(number));
        let hole = slots.iter().position(|slot| matches!(slot, Slot::Hole(_)));
        let own = slots.iter().position(|slot| *slot == Slot::Hole(number));
        match (at, hole) {
            (Some(at), Some(hole)) if hole < at => {
                slots[at] = slots[hole];
                slots.remove(hole);
            }
            (Some(at), _) => {
                slots.remove(at);
            }
            (None, Some(hole)) => {
                let Slot::Hole(owner) = slots[hole] else { panic!("it is a hole") };
                if let Some(own) = own {
                    slots[own] = Slot::Hole(owner);
                }
                slots.remove(hole);
            }
            (None, None) => {}
        }
        slots.insert(0, Slot::Block(number));
        at.map(|at| at as u32)
    }

    #[test]
    fn blocks_are_forgotten_with_their_holes() {
        let mut chance = 1_u64;
        let mut below = |end: usize| {
            chance = chance * 48_271 % 0x7FFF_FFFF;
            chance as usize % end
        };
        for _ in 0..200 {
            let (mut stack, mut slots) = (HoleStack::<true>::default(), Vec::new());
            for _ in 0..8_000 {
                let number = below(12);
                match below(20) {
                    0 => {
                        stack.forget(number);
                        slots.retain(|slot| {
                            ![Slot::Block(number), Slot::Hole(number)].contains(slot)
                        });
                    }
                    1..8 => {
                        stack.write(number);
                        for slot in slots.iter_mut().filter(|slot| **slot == Slot::Block(number)) {
                            *slot = Slot::Hole(number);
                        }
                    }
                    _ => assert_eq!(stack.read(number), naive_read(&mut slots, number)),
                }
                assert!(slots.len() <= 12, "no more places than blocks");
            }
            (0..12).for_each(|number| stack.forget(number));
            assert_eq!((stack.holes.last(), stack.read(3)), (None, None));
            assert_eq!(stack.places.newer(stack.blocks[3]), 0, "it is alone");
            assert_eq!(stack.places.rank(stack.blocks[3]), 0, "it is alone");
        }
    }
}
