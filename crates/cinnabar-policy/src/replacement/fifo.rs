//! FIFO: what a log without references does.

use super::{CACHED, Outcome, Replacement};
use crate::queue::{Node, Queue};
use std::num::NonZeroU32;

/// Evicts what came first.
#[derive(Debug)]
pub struct Fifo {
    capacity: u32,
    queue: Queue,
    nodes: Vec<Node>,
}

impl Fifo {
    /// A cache of so many blocks.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self { capacity: capacity.get(), queue: Queue::default(), nodes: Vec::new() }
    }
}

impl Replacement for Fifo {
    fn reserve(&mut self, blocks: u32) {
        super::reserve(&mut self.nodes, blocks);
    }

    #[inline]
    fn touch(&mut self, block: u32, mut evicted: impl FnMut(u32)) -> Outcome {
        let node = &mut self.nodes[block as usize];
        if node.list == CACHED {
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
