//! Tests of the drivers and the oracle with doubles, and of the engine with the drivers.

mod double;
mod engine;
mod hit_ratio;
mod oracle;
mod pblcache_defects;
mod shares;
mod traces;
