//! Searches of small worlds: one engine on a tiny cache, two small volumes, and a list of moves that
//! says what happens next.
//!
//! The seeded simulation draws schedules at random; here something else chooses them. [`guided`] reads
//! the moves from bytes, so that a fuzzer which watches the engine's coverage can look for those that
//! lead somewhere new. [`exhaustive`] tries all of them, up to a number of moves.
//!
//! A [`World`](world::World) is synchronous: after each [`Move`](moves::Move) every I/O that is not
//! held completes in the order in which it was asked for, until nothing is left to do. Which kinds of
//! I/O are held ([`Class`](class::Class)) is chosen by moves, too. The oracle, the media and the
//! stamps are those of the seeded simulation, [`cinnabar_sim`].

pub mod class;
pub mod coverage;
mod device;
mod digest;
pub mod evolve;
pub mod exhaustive;
pub mod guided;
pub mod moves;
mod replies;
mod requests;
pub mod scenes;
mod session;
pub mod setup;
mod tape;
pub mod world;

pub use guided::{Failure, run, run_with};
