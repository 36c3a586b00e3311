//! Tests of the searches, and of the engine with them.

mod mutants;
mod small;
