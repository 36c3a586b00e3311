//! Tests of the driver and the oracle with doubles, and of the engine with both.

mod double;
mod engine;
mod faults;
mod fixture;
mod hosts;
mod lost_syncs;
mod mutants;
mod oracle;
mod pairs;
mod partial;
mod partial_random;
mod pblcache_defects;
mod regions;
mod rot;
mod small;
mod torn;
