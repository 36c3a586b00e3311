//! Every order of at most so many moves in a small world.
//!
//! Breadth first, so that the first finding is a shortest one. A state is reached by making its moves
//! once more from the beginning: an engine can't be copied, for its buffers are shared. States whose
//! digest was seen are cut off. At each new one everything is judged: what a guest reads when all has
//! completed, and what it reads after a crash at this point in which nothing that was under way
//! happened, all of it did, or the host lost power.

use super::guided::Failure;
use super::moves::{Crash, Device, Move};
use super::scenes::Scene;
use super::world::World;
use cinnabar_engine::mutant::Mutants;
use cinnabar_sim::violation::Violation;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// What a search has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Searched {
    /// All orders of this many moves were tried.
    pub moves: u32,
    /// States.
    pub states: u64,
    /// Ways that led to a state seen before.
    pub cut_off: u64,
    /// Nothing is left: more moves lead nowhere new.
    pub complete: bool,
}

/// How the state is looked at.
const CRASHES: [Option<Crash>; 4] = [
    None,
    Some(Crash { host: false, backends: false, fate: 0 }),
    Some(Crash { host: false, backends: false, fate: 1 }),
    Some(Crash { host: true, backends: false, fate: 0 }),
];

/// Tries every order of at most `moves` moves of a scene; ends early when `limit` has passed.
///
/// # Errors
/// The first order that broke a promise, with its story.
pub fn search(
    scene: Scene,
    moves: u32,
    limit: Duration,
    mutants: Mutants,
) -> Result<Searched, Box<Failure>> {
    let start = Instant::now();
    let mut searched = Searched::default();
    let mut seen = HashSet::new();
    let mut frontier: Vec<Vec<Move>> = vec![Vec::new()];
    for depth in 0..=moves {
        let mut next = Vec::new();
        for way in &frontier {
            if start.elapsed() >= limit {
                return Ok(searched);
            }
            let (world, result) = reach(scene, way, mutants, false);
            if result.is_err() {
                return Err(Box::new(tell(scene, way, (None, Device::Same), mutants)));
            }
            if !seen.insert(world.digest()) {
                searched.cut_off += 1;
                continue;
            }
            searched.states += 1;
            let enabled = scene.enabled(&world);
            for (crash, device) in looks(scene) {
                let (mut world, _) = reach(scene, way, mutants, false);
                if world.judge(crash, device).is_err() {
                    return Err(Box::new(tell(scene, way, (crash, device), mutants)));
                }
            }
            if depth < moves {
                next.extend(enabled.into_iter().map(|one| {
                    let mut way = way.clone();
                    way.push(one);
                    way
                }));
            }
        }
        searched.moves = depth;
        if next.is_empty() {
            searched.complete = depth < moves;
            return Ok(searched);
        }
        frontier = next;
    }
    Ok(searched)
}

/// How a state is looked at: by which crash, and with which device then. Where one is replaced, the one
/// that was put away comes back, too.
fn looks(scene: Scene) -> impl Iterator<Item = (Option<Crash>, Device)> {
    let back =
        CRASHES.into_iter().filter(move |crash| crash.is_some() && scene == Scene::Replacing);
    let same = CRASHES.into_iter().map(|crash| (crash, Device::Same));
    same.chain(back.map(|crash| (crash, Device::Other)))
}

/// How a scene begins, line by line.
pub fn story(scene: Scene) -> Vec<String> {
    let (mut world, _) = reach(scene, &[], Mutants::default(), true);
    world.note(|world| format!("phases {:?}", world.phases().iter().collect::<Vec<_>>()));
    world.into_story()
}

/// The world after these moves.
fn reach(
    scene: Scene,
    way: &[Move],
    mutants: Mutants,
    told: bool,
) -> (World, Result<(), Violation>) {
    let mut world = World::new(scene.setup(mutants), told);
    world.stand_still();
    let result = super::guided::caught(|| {
        scene.begin(&mut world)?;
        way.iter().try_for_each(|one| world.step(*one))
    });
    (world, result)
}

/// The same once more, with the story.
fn tell(
    scene: Scene,
    way: &[Move],
    (crash, device): (Option<Crash>, Device),
    mutants: Mutants,
) -> Failure {
    let (mut world, mut result) = reach(scene, way, mutants, true);
    if result.is_ok() {
        result = world.judge(crash, device);
    }
    let violation = result.expect_err("it has failed before");
    Failure { violation, moves: way.len(), story: world.into_story() }
}

impl World {
    fn judge(&mut self, crash: Option<Crash>, device: Device) -> Result<(), Violation> {
        super::guided::caught(|| {
            if let Some(crash) = crash {
                self.hold(0);
                self.step(Move::Crash(crash, device))?;
            }
            self.look_at_everything()
        })
    }
}
