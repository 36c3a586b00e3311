//! SIEVE: a FIFO whose hand spares what was visited where it stands.

use super::{CACHED, Outcome, Replacement};
use crate::queue::{Node, Queue};
use std::num::NonZeroU32;

/// Evicts the first unvisited block from the hand on, towards newer ones.
#[derive(Debug)]
pub struct Sieve {
    capacity: u32,
    queue: Queue,
    nodes: Vec<Node>,
}

impl Sieve {
    /// A cache of so many blocks.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self { capacity: capacity.get(), queue: Queue::default(), nodes: Vec::new() }
    }

    fn evict(&mut self) -> Option<u32> {
        loop {
            let (block, at) = self.queue.at_hand()?;
            self.queue.advance_hand();
            let node = &mut self.nodes[block as usize];
            if node.uses == 0 {
                node.list = 0;
                self.queue.remove(at);
                return Some(block);
            }
            node.uses = 0;
        }
    }
}

impl Replacement for Sieve {
    fn reserve(&mut self, blocks: u32) {
        super::reserve(&mut self.nodes, blocks);
    }

    #[inline]
    fn touch(&mut self, block: u32, mut evicted: impl FnMut(u32)) -> Outcome {
        let node = &mut self.nodes[block as usize];
        if node.list == CACHED {
            node.uses = 1;
            return Outcome::Hit;
        }
        if self.queue.len() == self.capacity
            && let Some(victim) = self.evict()
        {
            evicted(victim);
        }
        self.nodes[block as usize] = Node { list: CACHED, ..Node::default() };
        self.queue.push(block, &mut self.nodes);
        Outcome::Admitted
    }

    fn remove(&mut self, block: u32) -> bool {
        let node = &mut self.nodes[block as usize];
        let cached = node.list == CACHED;
        if cached {
            node.list = 0;
            if self.queue.is_hand(node.at) {
                self.queue.advance_hand();
            }
            self.queue.remove(node.at);
        }
        cached
    }
}
