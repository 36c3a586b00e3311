//! Reports: what the laboratory and the benchmarks found, as text for people, as JSON for programs,
//! as pages with charts.
//!
//! A module a report; [`page`] is what pages are made of. `render` gives text of at most so many
//! columns: nothing here touches the terminal.
//!
//! * [`analysis`], [`compare`], [`hits`], [`timed`], [`holland`]: what `cinnabar-study` finds.
//! * [`spc1`], [`replay`]: what `cinnabar-bench` measures.
//! * [`traces`]: what is in a trace.

pub mod analysis;
pub mod compare;
pub mod hits;
pub mod holland;
pub mod page;
pub mod replay;
pub mod spc1;
pub mod timed;
pub mod traces;
