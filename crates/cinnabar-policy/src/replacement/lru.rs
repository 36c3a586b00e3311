//! LRU: the baseline.

use super::{CACHED, Outcome, Replacement};
use crate::queue::{Node, Queue};
use std::num::NonZeroU32;

/// Evicts what was used least recently.
#[derive(Debug)]
pub struct Lru {
    capacity: u32,
    queue: Queue,
    nodes: Vec<Node>,
}

impl Lru {
    /// A cache of so many blocks.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self { capacity: capacity.get(), queue: Queue::default(), nodes: Vec::new() }
    }
}

impl Replacement for Lru {
    fn reserve(&mut self, blocks: u32) {
        super::reserve(&mut self.nodes, blocks);
    }

    #[inline]
    fn touch(&mut self, block: u32, mut evicted: impl FnMut(u32)) -> Outcome {
        let node = &mut self.nodes[block as usize];
        if node.list == CACHED {
            if !self.queue.is_newest(node.at) {
                self.queue.remove(node.at);
                self.queue.push(block, &mut self.nodes);
            }
            return Outcome::Hit;
        }
        node.list = CACHED;
        if self.queue.len() == self.capacity
            && let Some(victim) = self.queue.pop()
        {
            self.nodes[victim as usize].list = 0;
            evicted(victim);
        }
        self.queue.push(block, &mut self.nodes);
        Outcome::Admitted
    }

    fn remove(&mut self, block: u32) -> bool {
        super::forget(block, &mut self.queue, &mut self.nodes)
    }
}
