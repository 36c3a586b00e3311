//! The virtual driver: the production engine under a virtual clock.
//!
//! Two ways to drive the engine: [`instant`] carries out every I/O at once and moves no data (hit
//! ratios, CPU cost); the fault simulation moves version stamps instead of data, completes I/O in
//! any order from a seed, and an oracle judges every read.

pub mod analysis;
pub mod compare;
pub mod dice;
pub mod driver;
pub mod faults;
pub mod hits;
pub mod holland;
pub mod instant;
pub mod kinds;
pub mod machine;
pub mod medium;
pub mod oracle;
pub mod pairs;
pub mod script;
pub mod shards;
pub mod small;
pub mod stamp;
pub mod sweep;
pub mod threaded;
pub mod timed;
pub mod violation;
pub mod workload;

pub use driver::{Failed, Options, Replay, Report, run};
pub use faults::{FaultOptions, Summary};
pub use instant::{InstantCache, Length};
pub use kinds::{Counted, Fault, Path, Tally};
pub use machine::{CacheSetup, Factory, Machine};
pub use shards::ShardedFactory;
pub use stamp::{Stamp, Stamped};
pub use violation::{Kind, Violation};
pub use workload::Features;
