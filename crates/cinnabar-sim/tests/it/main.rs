//! Tests of the drivers and the oracle with doubles, and of the engine with the drivers.

mod double;
mod engine;
mod oracle;
