//! The fault-simulation driver: the engine under a virtual clock, judged by the oracle.
//!
//! [`run`] draws a [`Profile`](crate::workload::Profile), then leads the cache through several
//! sessions: format, open, attach, guests at work, volumes going and coming, plans changing, blocks
//! rotting, I/O failing, clean stops and crashes; at the end every sector is read back. The same
//! seed gives the same digest of all actions.

mod account;
mod aftermath;
mod agenda;
mod attach;
mod audit;
mod between;
mod commands;
mod crash;
mod device;
mod doubts;
mod duo;
mod grow;
mod guests;
mod io;
mod kept;
mod log;
mod loss;
mod meet;
mod qos_queues;
mod replay;
mod replies;
mod report;
mod resizes;
mod restart;
mod sabotage;
mod sessions;
mod steer;
mod threads;
mod waits;
mod world;

pub use replay::Replay;
pub use report::{Failed, Report};

use crate::machine::Factory;
use crate::stamp::Stamped;
use crate::workload::Features;
use cinnabar_engine::mutant::Mutants;
use world::World;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Requests of guests, all sessions together.
    pub requests: u64,
    /// What may happen.
    pub features: Features,
    /// Every crash must leave the cache cold.
    pub cold_after_crash: bool,
    /// A new daemon waits until the dead one's writes have landed.
    pub wait_for_lock: bool,
    /// What the frontends do with requests that a crash left unanswered.
    pub replay: Replay,
    /// Backend I/O waits for its turn.
    pub qos_queues: bool,
    /// Writes may be in active regions.
    pub regions: bool,
    /// Deliberate bugs of the engine.
    pub mutants: Mutants,
    /// Lines shown of a failed run: of the place's history, and of the last events.
    pub lines: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            requests: 2000,
            features: Features::ALL,
            cold_after_crash: false,
            wait_for_lock: true,
            replay: Replay::Sound,
            qos_queues: false,
            regions: false,
            mutants: Mutants::default(),
            lines: 60,
        }
    }
}

/// Runs a seed.
///
/// # Errors
/// [`Failed`] with the seed, what went wrong and the last events, if a promise was broken. The
/// events come from a second run of the seed, which must go wrong in the same way.
pub fn run<F: Factory<Stamped>>(
    seed: u64,
    options: &Options,
    factory: &mut F,
) -> Result<Report, Box<Failed>> {
    let mut world = World::new(seed, *options, factory, false);
    let Err(violation) = world.run() else { return Ok(world.report()) };
    let digest = world.digest();
    drop(world);
    let mut again = World::new(seed, *options, factory, true);
    let second = again.run().err();
    Err(Box::new(Failed::new(
        seed,
        violation,
        second.as_ref(),
        digest == again.digest(),
        again.log(),
        options.lines,
    )))
}
