//! Hit ratios and times against golden counts, published figures and models, and the engine at work
//! without faults.

mod analysis;
mod compare;
mod endurance;
mod golden_policies;
mod golden_reuse;
mod golden_sampling;
mod hit_ratio;
mod hits;
mod holland;
mod large_log;
mod managed;
mod many_volumes;
mod metadata;
mod phases;
mod shares;
mod sixteen;
mod spc1;
mod spc1_published;
mod timed_cinnabar;
mod timed_model;
mod traces;
