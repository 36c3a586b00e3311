//! CLOCK with one reference bit, clear when a block comes in.

use super::{CACHED, Outcome, Replacement};
use crate::queue::{Node, Queue};
use std::num::NonZeroU32;

/// Evicts the oldest that was not used since it came, or since it was last spared.
#[derive(Debug)]
pub struct Clock {
    capacity: u32,
    queue: Queue,
    nodes: Vec<Node>,
}

impl Clock {
    /// A cache of so many blocks.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self { capacity: capacity.get(), queue: Queue::default(), nodes: Vec::new() }
    }

    /// Takes out a victim. What was used goes to the back once, which is what a hand that goes round
    /// a ring does.
    fn evict(&mut self) -> Option<u32> {
        loop {
            let block = self.queue.pop()?;
            let node = &mut self.nodes[block as usize];
            if node.uses == 0 {
                node.list = 0;
                return Some(block);
            }
            node.uses = 0;
            self.queue.push(block, &mut self.nodes);
        }
    }
}

impl Replacement for Clock {
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
        super::forget(block, &mut self.queue, &mut self.nodes)
    }
}
