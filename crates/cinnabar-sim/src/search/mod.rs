//! Searches of small worlds: one engine on a tiny cache, two small volumes, and a list of moves that
//! says what happens next.
//!
//! The seeded simulation draws schedules at random; here something else chooses them. [`guided`] reads
//! the moves from bytes, so that a fuzzer which watches the engine's coverage can look for those that
//! lead somewhere new.
//!
//! A [`World`](world::World) is synchronous: after each [`Move`](moves::Move) every I/O that is not
//! held completes in the order in which it was asked for, until nothing is left to do. Which kinds of
//! I/O are held ([`Class`](class::Class)) is chosen by moves, too. The oracle, the media and the
//! stamps are those of the seeded simulation, [`crate`].

pub mod class;
pub mod coverage;
mod device;
pub mod evolve;
pub mod guided;
pub mod moves;
mod replies;
mod requests;
mod session;
pub mod setup;
mod tape;
pub mod world;

pub use guided::{Failure, run, run_with};
