//! Tests of the drivers and the oracle with doubles, and of the engine with the drivers.

mod analysis;
mod compare;
mod double;
mod engine;
mod faults;
mod fixture;
mod golden_policies;
mod golden_reuse;
mod golden_sampling;
mod hit_ratio;
mod hits;
mod holland;
mod lost_syncs;
mod many_volumes;
mod mutants;
mod oracle;
mod pairs;
mod pblcache_defects;
mod rot;
mod shares;
mod sixteen;
mod spc1;
mod spc1_published;
mod timed_cinnabar;
mod timed_model;
mod traces;
