//! ARC: two LRU lists, used once and used again, and two ghosts that say which of them to favour.
//!
//! As in the paper's figure 4, with a real number for the target.

use super::{Outcome, Replacement};
use crate::queue::{Node, Queue};
use std::num::NonZeroU32;

/// Cached, used once.
const T1: u8 = 1;
/// Cached, used again.
const T2: u8 = 2;
/// Evicted from T1.
const B1: u8 = 3;
/// Evicted from T2.
const B2: u8 = 4;

/// Four lists; the target is for T1.
#[derive(Debug)]
pub struct Arc {
    capacity: u32,
    target: f64,
    lists: [Queue; 4],
    nodes: Vec<Node>,
}

impl Arc {
    /// A cache of so many blocks.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self {
            capacity: capacity.get(),
            target: 0.0,
            lists: <[Queue; 4]>::default(),
            nodes: Vec::new(),
        }
    }

    fn len(&self, list: u8) -> u32 {
        self.lists[usize::from(list) - 1].len()
    }

    fn push(&mut self, block: u32, list: u8) {
        self.nodes[block as usize].list = list;
        self.lists[usize::from(list) - 1].push(block, &mut self.nodes);
    }

    fn pop(&mut self, list: u8) -> Option<u32> {
        let block = self.lists[usize::from(list) - 1].pop()?;
        self.nodes[block as usize].list = 0;
        Some(block)
    }

    fn take(&mut self, block: u32) {
        let node = &mut self.nodes[block as usize];
        self.lists[usize::from(node.list) - 1].remove(node.at);
        node.list = 0;
    }

    /// Evicts from T1 if it is over its target, else from T2; into the list's ghost.
    fn replace(&mut self, for_b2: bool, evicted: &mut impl FnMut(u32)) {
        if self.len(T1) + self.len(T2) < self.capacity {
            return;
        }
        let t1 = f64::from(self.len(T1));
        let from_t1 = self.len(T1) > 0 && (t1 > self.target || (for_b2 && t1 >= self.target));
        let (from, ghost) = if from_t1 || self.len(T2) == 0 { (T1, B1) } else { (T2, B2) };
        if let Some(victim) = self.pop(from) {
            self.push(victim, ghost);
            evicted(victim);
        }
    }

    /// A block of which nothing is known: keeps T1 and B1 within the cache's size, all four within
    /// twice that.
    fn make_room(&mut self, evicted: &mut impl FnMut(u32)) {
        let l1 = self.len(T1) + self.len(B1);
        let all = l1 + self.len(T2) + self.len(B2);
        if l1 == self.capacity {
            if self.len(T1) < self.capacity {
                self.pop(B1);
                self.replace(false, evicted);
            } else if let Some(victim) = self.pop(T1) {
                evicted(victim);
            }
        } else if all >= self.capacity {
            if u64::from(all) == 2 * u64::from(self.capacity) {
                self.pop(B2);
            }
            self.replace(false, evicted);
        }
    }
}

impl Replacement for Arc {
    fn reserve(&mut self, blocks: u32) {
        super::reserve(&mut self.nodes, blocks);
    }

    #[inline]
    fn touch(&mut self, block: u32, mut evicted: impl FnMut(u32)) -> Outcome {
        let (b1, b2) = (f64::from(self.len(B1)), f64::from(self.len(B2)));
        match self.nodes[block as usize].list {
            T1 | T2 => {
                self.take(block);
                self.push(block, T2);
                return Outcome::Hit;
            }
            B1 => {
                self.target = (self.target + (b2 / b1).max(1.0)).min(f64::from(self.capacity));
                self.replace(false, &mut evicted);
                self.take(block);
                self.push(block, T2);
            }
            B2 => {
                self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
                self.replace(true, &mut evicted);
                self.take(block);
                self.push(block, T2);
            }
            _ => {
                self.make_room(&mut evicted);
                self.push(block, T1);
            }
        }
        Outcome::Admitted
    }

    fn remove(&mut self, block: u32) -> bool {
        let cached = matches!(self.nodes[block as usize].list, T1 | T2);
        if cached {
            self.take(block);
        }
        cached
    }
}
