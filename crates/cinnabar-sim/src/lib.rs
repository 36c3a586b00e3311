//! The fault simulation: the production engine under a virtual clock.
//!
//! Its driver moves version stamps instead of data and completes I/O in any order from a seed, media
//! lose, tear and rot what is not durable, and an oracle judges every read.

pub mod driver;
pub mod faults;
pub mod hosts;
pub mod kinds;
pub mod machine;
pub mod medium;
pub mod oracle;
pub mod pairs;
pub mod rng;
pub mod script;
pub mod search;
pub mod shards;
pub mod stamp;
pub mod threaded;
pub mod violation;
pub mod workload;

pub use driver::{Failed, Options, Replay, Report, run};
pub use faults::{FaultOptions, Summary};
pub use kinds::{Counted, Fault, Path, Tally};
pub use machine::{CacheSetup, Factory, Machine};
pub use shards::ShardedFactory;
pub use stamp::{Stamp, Stamped};
pub use violation::{Kind, Violation};
pub use workload::Features;
