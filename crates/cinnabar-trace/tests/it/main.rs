//! Tests of the readers, and of golden counts with simulators that share no code with the engine.

mod bad;
mod canonical;
mod desktop;
mod files;
mod formats;
mod generators;
mod golden;
mod packing;
mod raw;
mod reference;
mod samples;
mod spc1;
mod working_set;
mod write;
mod writers;

use files::{find as shared_trace, fixture};
