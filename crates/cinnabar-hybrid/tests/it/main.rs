//! Volumes over folders: crashes at each step of moves, refusals, errors.

mod client;
mod crashes;
mod errors;
mod faulty;
mod upkeep;
