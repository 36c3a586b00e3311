//! The parts of the `cinnabar-lab` program, as a library so that tests can reach them.
//!
//! For `main.rs` and the tests; no other crate may depend on it.

pub mod cli;
