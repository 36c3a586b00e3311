//! Runs whose random numbers are bytes: the first ones draw how the run is, the others what happens in it.

use super::rng::Rng;
use super::settings::{Counts, Settings};
use super::world::World;
use cinnabar_writeback::mutant::Mutants;

/// Bytes for the settings, and of these for the memory's.
pub(crate) const SETTINGS: usize = 56;
const MEMORY: usize = 8;
/// Bytes that a step takes, more or less; what they don't reach is drawn from a fixed seed.
const STEP: usize = 4;

/// Runs an input; gives what has happened, or what is wrong. Too short an input is no run.
pub(crate) fn run(bytes: &[u8], mutants: Mutants) -> Result<Counts, String> {
    let Some((settings, events)) = bytes.split_at_checked(SETTINGS) else {
        return Ok(Counts::default());
    };
    let (memory, settings) = settings.split_at(MEMORY);
    let mut settings = Settings::draw(&mut Rng::of_bytes(settings), &mut Rng::of_bytes(memory));
    settings.steps = (events.len() / STEP).min(1_500) as u32;
    settings.mutants = mutants;
    let mut world = World::with(1, Rng::of_bytes(events), &settings);
    world.run().map(|()| world.counts)
}
