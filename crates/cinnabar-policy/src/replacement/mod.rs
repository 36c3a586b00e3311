//! Replacement policies: what is thrown out when the cache is full. One file each.
//!
//! A policy knows block numbers and nothing else; what a write means, and what is counted, is the
//! simulation's. A batch of accesses runs through one policy's own code: the trait is a bound, never
//! an object.

mod arc;
mod belady;
mod larc;
mod s3_fifo;
mod single;

pub use arc::Arc;
pub use belady::{Belady, Future, TooLong};
pub use larc::Larc;
pub use s3_fifo::S3Fifo;
pub use single::{Clock, Fifo, Lru, Sieve};

use crate::named;
use crate::queue::{Node, Queue};

/// What became of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The block was cached.
    Hit,
    /// It was not, and is now.
    Admitted,
    /// It was not, and still isn't.
    Passed,
}

/// A cache of so many blocks. Each access of a trace is exactly one call of [`touch`] or [`remove`],
/// in order: Belady counts them.
///
/// [`touch`]: Self::touch
/// [`remove`]: Self::remove
pub trait Replacement {
    /// Makes room for block numbers below `blocks`; never shrinks.
    fn reserve(&mut self, blocks: u32);

    /// Looks up a block, and caches it if the policy says so. Reports the blocks that it evicts.
    fn touch(&mut self, block: u32, evicted: impl FnMut(u32)) -> Outcome;

    /// Forgets a cached block, leaving a free place; says whether it was cached.
    fn remove(&mut self, block: u32) -> bool;
}

/// Nodes for all block numbers below `blocks`.
fn reserve(nodes: &mut Vec<Node>, blocks: u32) {
    if nodes.len() < blocks as usize {
        nodes.resize(blocks as usize, Node::default());
    }
}

/// Where the policies with one queue of cached blocks have them: [`Node::list`].
const CACHED: u8 = 1;

/// [`Replacement::remove`] where cached blocks stand in one queue.
fn forget(block: u32, queue: &mut Queue, nodes: &mut [Node]) -> bool {
    let node = &mut nodes[block as usize];
    let cached = node.list == CACHED;
    if cached {
        node.list = 0;
        queue.remove(node.at);
    }
    cached
}

named! {
    "policy":
    /// The policies by name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Policy {
        /// Least recently used.
        Lru = "lru",
        /// First in, first out.
        Fifo = "fifo",
        /// FIFO with a second chance.
        Clock = "clock",
        /// FIFO with a hand that passes by what was visited (NSDI'24).
        Sieve = "sieve",
        /// Three queues: small, main, ghost (SOSP'23).
        S3Fifo = "s3-fifo",
        /// Adaptive replacement (FAST'03).
        Arc = "arc",
        /// Lazy adaptive replacement: only what missed twice is cached (MSST'13).
        Larc = "larc",
        /// The optimum among those that cache every miss: needs the future.
        Belady = "belady",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "lfu".parse::<Policy>().expect_err("there is none");
        for policy in Policy::ALL {
            assert!(error.to_string().contains(policy.name()), "{error}");
        }
    }
}
