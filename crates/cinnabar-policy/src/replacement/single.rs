//! The policies with one queue of cached blocks, oldest first: FIFO, LRU, CLOCK and SIEVE.

use super::{CACHED, Outcome, Replacement};
use crate::queue::{Node, Queue};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::num::NonZeroU32;

/// FIFO, what a log without references does: evicts what came first.
pub type Fifo = Single<ByArrival>;
/// LRU, the baseline: evicts what was used least recently.
pub type Lru = Single<ByUse>;
/// CLOCK with one reference bit, clear when a block comes in: evicts the oldest that was not used since
/// it came, or since it was last spared.
pub type Clock = Single<SecondChance>;
/// SIEVE, a FIFO whose hand spares what was visited where it stands: evicts the first unvisited block
/// from the hand on, towards newer ones.
pub type Sieve = Single<Hand>;

/// A cache in one queue.
#[derive(Debug)]
pub struct Single<R> {
    capacity: u32,
    blocks: Blocks,
    rule: PhantomData<R>,
}

/// The queue of the cached blocks, and what is known of each block.
#[derive(Debug, Default)]
pub struct Blocks {
    queue: Queue,
    nodes: Vec<Node>,
}

/// What a hit changes, and who goes.
pub trait Rule: Debug {
    /// A cached block is used, which is noted.
    #[inline]
    fn hit(blocks: &mut Blocks, block: u32) {
        blocks.nodes[block as usize].uses = 1;
    }

    /// Takes a victim out of the queue.
    fn evict(blocks: &mut Blocks) -> Option<u32> {
        blocks.queue.pop()
    }

    /// A block is about to be taken out that is no victim.
    fn leave(_: &mut Blocks, _at: u32) {}
}

/// Of [`Fifo`].
#[derive(Debug)]
pub struct ByArrival;

impl Rule for ByArrival {
    #[inline]
    fn hit(_: &mut Blocks, _: u32) {}
}

/// Of [`Lru`].
#[derive(Debug)]
pub struct ByUse;

impl Rule for ByUse {
    #[inline]
    fn hit(blocks: &mut Blocks, block: u32) {
        let at = blocks.nodes[block as usize].at;
        if !blocks.queue.is_newest(at) {
            blocks.queue.remove(at);
            blocks.queue.push(block, &mut blocks.nodes);
        }
    }
}

/// Of [`Clock`].
#[derive(Debug)]
pub struct SecondChance;

impl Rule for SecondChance {
    /// What was used goes to the back once, which is what a hand that goes round a ring does.
    fn evict(blocks: &mut Blocks) -> Option<u32> {
        loop {
            let block = blocks.queue.pop()?;
            if std::mem::take(&mut blocks.nodes[block as usize].uses) == 0 {
                return Some(block);
            }
            blocks.queue.push(block, &mut blocks.nodes);
        }
    }
}

/// Of [`Sieve`].
#[derive(Debug)]
pub struct Hand;

impl Rule for Hand {
    fn evict(blocks: &mut Blocks) -> Option<u32> {
        loop {
            let (block, at) = blocks.queue.at_hand()?;
            blocks.queue.advance_hand();
            if std::mem::take(&mut blocks.nodes[block as usize].uses) == 0 {
                blocks.queue.remove(at);
                return Some(block);
            }
        }
    }

    fn leave(blocks: &mut Blocks, at: u32) {
        if blocks.queue.is_hand(at) {
            blocks.queue.advance_hand();
        }
    }
}

impl<R: Rule> Single<R> {
    /// A cache of so many blocks.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self { capacity: capacity.get(), blocks: Blocks::default(), rule: PhantomData }
    }
}

impl<R: Rule> Replacement for Single<R> {
    fn reserve(&mut self, blocks: u32) {
        super::reserve(&mut self.blocks.nodes, blocks);
    }

    #[inline]
    fn touch(&mut self, block: u32, mut evicted: impl FnMut(u32)) -> Outcome {
        if self.blocks.nodes[block as usize].list == CACHED {
            R::hit(&mut self.blocks, block);
            return Outcome::Hit;
        }
        if self.blocks.queue.len() == self.capacity
            && let Some(victim) = R::evict(&mut self.blocks)
        {
            self.blocks.nodes[victim as usize].list = 0;
            evicted(victim);
        }
        self.blocks.nodes[block as usize] = Node { list: CACHED, ..Node::default() };
        self.blocks.queue.push(block, &mut self.blocks.nodes);
        Outcome::Admitted
    }

    fn remove(&mut self, block: u32) -> bool {
        let node = self.blocks.nodes[block as usize];
        if node.list == CACHED {
            R::leave(&mut self.blocks, node.at);
        }
        super::forget(block, &mut self.blocks.queue, &mut self.blocks.nodes)
    }
}
