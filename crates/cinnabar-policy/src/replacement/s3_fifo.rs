//! S3-FIFO: most blocks are used once, so they pass through a small queue only.
//!
//! The variant, where published ones differ (the golden counts of libCacheSim 0.3.5 are met with all
//! of these and with no other choice): small queue a tenth of the cache, main the rest, ghost nine
//! tenths; two uses in the small queue move a block to main, where it starts with none; main counts
//! to three and is asked for a victim only if larger than its share. Until the first eviction, what
//! does not fit into small starts in main.

use super::{Outcome, Replacement};
use crate::queue::{Node, Queue};
use std::num::NonZeroU32;

const SMALL: u8 = 1;
const MAIN: u8 = 2;
const GHOST: u8 = 3;
/// Uses in the small queue that earn a place in main.
const USES_TO_MOVE: u8 = 2;
const USES_MAX: u8 = 3;

/// Small, main and ghost queue.
#[derive(Debug)]
pub struct S3Fifo {
    capacity: u32,
    small_target: u32,
    ghost_capacity: u32,
    small: Queue,
    main: Queue,
    ghost: Queue,
    nodes: Vec<Node>,
    has_evicted: bool,
}

impl S3Fifo {
    /// A cache of so many blocks.
    pub fn new(capacity: NonZeroU32) -> Self {
        let capacity = capacity.get();
        Self {
            capacity,
            small_target: (capacity / 10).max(1),
            ghost_capacity: (u64::from(capacity) * 9 / 10) as u32,
            small: Queue::default(),
            main: Queue::default(),
            ghost: Queue::default(),
            nodes: Vec::new(),
            has_evicted: false,
        }
    }

    fn evict(&mut self) -> u32 {
        self.has_evicted = true;
        if self.main.len() <= self.capacity - self.small_target
            && let Some(victim) = self.evict_small()
        {
            return victim;
        }
        self.evict_main()
    }

    /// Moves what was used to main until it finds something that was not.
    fn evict_small(&mut self) -> Option<u32> {
        loop {
            let block = self.small.pop()?;
            let node = &mut self.nodes[block as usize];
            if node.uses < USES_TO_MOVE {
                self.remember(block);
                return Some(block);
            }
            *node = Node { list: MAIN, ..Node::default() };
            self.main.push(block, &mut self.nodes);
        }
    }

    fn evict_main(&mut self) -> u32 {
        loop {
            let block =
                self.main.pop().expect("a full cache whose small queue is empty has a main");
            let node = &mut self.nodes[block as usize];
            if node.uses == 0 {
                node.list = 0;
                return block;
            }
            node.uses -= 1;
            self.main.push(block, &mut self.nodes);
        }
    }

    fn remember(&mut self, block: u32) {
        self.nodes[block as usize].list = 0;
        if self.ghost_capacity == 0 {
            return;
        }
        if self.ghost.len() == self.ghost_capacity
            && let Some(forgotten) = self.ghost.pop()
        {
            self.nodes[forgotten as usize].list = 0;
        }
        self.nodes[block as usize].list = GHOST;
        self.ghost.push(block, &mut self.nodes);
    }
}

impl Replacement for S3Fifo {
    fn reserve(&mut self, blocks: u32) {
        super::reserve(&mut self.nodes, blocks);
    }

    #[inline]
    fn touch(&mut self, block: u32, mut evicted: impl FnMut(u32)) -> Outcome {
        let node = &mut self.nodes[block as usize];
        if node.list == SMALL || node.list == MAIN {
            node.uses = (node.uses + 1).min(USES_MAX);
            return Outcome::Hit;
        }
        let was_ghost = node.list == GHOST;
        if was_ghost {
            self.ghost.remove(node.at);
            node.list = 0;
        }
        if self.small.len() + self.main.len() == self.capacity {
            evicted(self.evict());
        }
        let warming = !self.has_evicted && self.small.len() >= self.small_target;
        let to_main = was_ghost || warming;
        let list = if to_main { MAIN } else { SMALL };
        self.nodes[block as usize] = Node { list, ..Node::default() };
        let queue = if to_main { &mut self.main } else { &mut self.small };
        queue.push(block, &mut self.nodes);
        Outcome::Admitted
    }

    fn remove(&mut self, block: u32) -> bool {
        let node = &mut self.nodes[block as usize];
        let queue = match node.list {
            SMALL => &mut self.small,
            MAIN => &mut self.main,
            _ => return false,
        };
        node.list = 0;
        queue.remove(node.at);
        true
    }
}
