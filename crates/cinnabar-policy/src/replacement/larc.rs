//! LARC: a block is cached when it misses a second time while its number is still remembered.
//!
//! Writes little to flash. The ghost is an LRU queue between a tenth and nine tenths of the cache:
//! hits shrink it (the cache is good as it is), misses widen it.

use super::{CACHED, Outcome, Replacement};
use crate::queue::{Node, Queue};
use std::num::NonZeroU32;

const GHOST: u8 = 2;

/// An LRU cache behind a ghost that admits.
#[derive(Debug)]
pub struct Larc {
    capacity: u32,
    ghost_target: f64,
    cached: Queue,
    ghost: Queue,
    nodes: Vec<Node>,
}

impl Larc {
    /// A cache of so many blocks.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self {
            capacity: capacity.get(),
            ghost_target: f64::from(capacity.get()) * 0.1,
            cached: Queue::default(),
            ghost: Queue::default(),
            nodes: Vec::new(),
        }
    }

    fn remember(&mut self, block: u32) {
        self.nodes[block as usize].list = GHOST;
        self.ghost.push(block, &mut self.nodes);
        // At least one, or a small cache would never admit anything.
        if f64::from(self.ghost.len()) > self.ghost_target.max(1.0)
            && let Some(forgotten) = self.ghost.pop()
        {
            self.nodes[forgotten as usize].list = 0;
        }
    }
}

impl Replacement for Larc {
    fn reserve(&mut self, blocks: u32) {
        super::reserve(&mut self.nodes, blocks);
    }

    #[inline]
    fn touch(&mut self, block: u32, mut evicted: impl FnMut(u32)) -> Outcome {
        let capacity = f64::from(self.capacity);
        let node = &mut self.nodes[block as usize];
        if node.list == CACHED {
            self.cached.remove(node.at);
            self.cached.push(block, &mut self.nodes);
            let narrower = self.ghost_target - capacity / (capacity - self.ghost_target);
            self.ghost_target = narrower.max(0.1 * capacity);
            return Outcome::Hit;
        }
        let wider = self.ghost_target + capacity / self.ghost_target;
        self.ghost_target = wider.min(0.9 * capacity);
        if node.list != GHOST {
            self.remember(block);
            return Outcome::Passed;
        }
        self.ghost.remove(node.at);
        node.list = CACHED;
        if self.cached.len() == self.capacity
            && let Some(victim) = self.cached.pop()
        {
            self.nodes[victim as usize].list = 0;
            evicted(victim);
        }
        self.cached.push(block, &mut self.nodes);
        Outcome::Admitted
    }

    fn remove(&mut self, block: u32) -> bool {
        super::forget(block, &mut self.cached, &mut self.nodes)
    }
}
