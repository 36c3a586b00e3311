//! Runs whose bytes choose what happens: for a fuzzer, and for each input that one has found.
//!
//! At the end of the bytes everything that is held completes, every sector is read, the engine dies,
//! and everything is read once more in its next session.

use super::coverage::Coverage;
use super::moves::{Crash, Device, Move};
use super::requests::State;
use super::setup::{SECOND_NS, Setup};
use super::tape::Tape;
use super::world::World;
use crate::machine::Machine;
use crate::violation::{Kind, Violation};
use cinnabar_engine::mutant::Mutants;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Moves of one run, and events that they may lead to.
const MOVES_MAX: u64 = 300;
const EVENTS_MAX: u64 = 20_000;

/// A run that broke a promise.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub violation: Violation,
    /// What happened, line by line.
    pub story: Vec<String>,
    /// Moves that were made.
    pub moves: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        write!(f, "{}", self.violation)
    }
}

impl std::error::Error for Failure {}

/// Runs the engine as these bytes say.
///
/// # Errors
/// [`Failure`] with its story, if a promise was broken.
pub fn run(bytes: &[u8]) -> Result<Coverage, Box<Failure>> {
    run_with(bytes, Mutants::default())
}

/// As [`run`], with a deliberate bug.
///
/// # Errors
/// As [`run`].
pub fn run_with(bytes: &[u8], mutants: Mutants) -> Result<Coverage, Box<Failure>> {
    let (world, result) = play(bytes, mutants, false);
    let Err(violation) = result else { return Ok(world.coverage) };
    let (world, again) = play(bytes, mutants, true);
    let violation = match again {
        Err(violation) => violation,
        Ok(()) => Violation::new(Kind::Nondeterminism, format!("once only: {violation}")),
    };
    let moves = world.coverage.moves as usize;
    Err(Box::new(Failure { violation, moves, story: world.into_story() }))
}

/// The story of a run, whether it fails or not.
pub fn story(bytes: &[u8]) -> Vec<String> {
    play(bytes, Mutants::default(), true).0.into_story()
}

fn play(bytes: &[u8], mutants: Mutants, told: bool) -> (World, Result<(), Violation>) {
    let mut tape = Tape::new(bytes);
    let setup = Setup::from_tape(&mut tape, mutants);
    let mut world = World::new(setup, told);
    let result = caught(|| world.live(&mut tape));
    (world, result)
}

/// A panic of the engine is a broken promise, too.
pub(super) fn caught(what: impl FnOnce() -> Result<(), Violation>) -> Result<(), Violation> {
    catch_unwind(AssertUnwindSafe(what))
        .unwrap_or_else(|panic| Err(Violation::new(Kind::Panic, panic_text(&*panic))))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

impl World {
    fn live(&mut self, tape: &mut Tape<'_>) -> Result<(), Violation> {
        self.start(Device::Same)?;
        self.settle()?;
        while let Some(next) = Move::from_tape(tape) {
            self.step(next)?;
            if self.coverage.moves >= MOVES_MAX || self.coverage.events >= EVENTS_MAX {
                break;
            }
        }
        self.look_at_everything()?;
        let fate = tape.byte();
        let crash = Crash { host: fate & 1 == 1, backends: false, fate: fate >> 1 };
        self.step(Move::Crash(crash, Device::Same))?;
        self.look_at_everything()
    }

    /// Everything completes, every request is answered, and every sector is read.
    pub(super) fn look_at_everything(&mut self) -> Result<(), Violation> {
        self.release()?;
        for _ in 0..8 {
            if self.is_quiet() {
                break;
            }
            self.pass_ns(SECOND_NS);
            self.settle()?;
        }
        if !self.is_quiet() {
            let what = format!(
                "everything has completed, but these were not answered: {:?} {:?}",
                self.pending.iter().map(|(id, pending)| (id.0, &pending.asked)).collect::<Vec<_>>(),
                self.controls
            );
            return Err(Violation::new(Kind::NoReply, what));
        }
        for volume in 0..self.volumes.len() {
            if self.volumes[volume].state == State::Away {
                self.attach(volume);
            }
        }
        self.settle()?;
        self.machine().check_invariants();
        self.sweep()?;
        if self.pending.is_empty() {
            return Ok(());
        }
        Err(Violation::new(Kind::NoReply, "a read was not answered"))
    }

    fn is_quiet(&self) -> bool {
        self.pending.is_empty() && self.controls.is_empty()
    }
}
