//! Plans, interval by interval: what a trace's analysis and a running cache's manager share, so that both
//! make the same plan of the same requests.
//!
//! [`interval`] says where time is cut, [`plan`] makes blocks of what allocators say, with the operator's
//! bounds, and [`live`] does all of it as requests come.

pub mod interval;
pub mod live;
pub mod plan;

pub use interval::{Ended, Every, Interval};
pub use live::{Closed, Planning};
pub use plan::{Bounds, Measured, Part, Planner, Rules};
