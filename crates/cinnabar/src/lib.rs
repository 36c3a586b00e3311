//! The parts of the `cinnabar` binary, as a library so that tests can reach them.
//!
//! For `main.rs` and the tests; no other crate may depend on it.

// They panic where stdout or stderr can't be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod cli;
pub mod offline;
