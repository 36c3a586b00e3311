//! The production engine in place of the flash cache, driven through its seam by virtual time.
//!
//! Each host has an engine, with as many shards as a device of that size has. What a host's RAM does
//! not hold becomes a request to the engine; the engine's I/O takes the time of flash, link and file
//! server; its metadata are real bytes, which a restart in the middle reads again.
//! `docs/design/timed-simulator.md` says what is modelled of it and what is not.
//!
//! `node` is an engine with its device, `ask` brings requests to it and answers back, `carry` gives
//! its I/O the time that it takes, `life` starts and stops it, `setup` says which devices are
//! possible, and [`report`] holds results other than hits and latencies.

mod ask;
mod carry;
mod life;
mod node;
pub(super) mod report;
mod setup;

pub(super) use setup::check;

use super::config::Config;
use node::Node;

pub(super) struct Engines {
    /// Taken out while one has its turn.
    nodes: Vec<Option<Box<Node>>>,
    /// Does a host have RAM in front? Then it asks for single blocks, else for whole operations.
    has_ram: bool,
}

impl Engines {
    pub(super) fn new(config: &Config) -> Self {
        let nodes = (0..config.hosts).map(|_| Some(Box::new(Node::new(config))));
        Self { nodes: nodes.collect(), has_ram: config.ram_blocks > 0 }
    }

    /// Do hosts ask for whole operations?
    pub(super) fn takes_whole(&self) -> bool {
        !self.has_ram
    }

    fn node(&mut self, host: usize) -> &mut Node {
        self.nodes[host].as_mut().expect("it is not its turn")
    }
}
