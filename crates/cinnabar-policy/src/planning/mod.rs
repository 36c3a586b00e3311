//! Plans, interval by interval: what a trace's analysis and a running cache's manager share, so that both
//! make the same plan of the same requests.
//!
//! [`interval`] says where time is cut, [`plan`] makes blocks of what allocators say, with the operator's
//! bounds, and [`live`] does all of it as requests come. In a running cache [`actuator`] goes from plans
//! to what the engines are told, at prices that [`prices`] has measured.

pub mod actuator;
mod digest;
pub mod interval;
pub mod live;
pub mod plan;
pub mod prices;

pub use actuator::{Actuator, Limits, Target, Wanted, Why};
pub use interval::{Ended, Every, Interval};
pub use live::{Closed, Planning};
pub use plan::{Bounds, Measured, Part, Planner, Rules};
pub use prices::{Latency, MeasuredPrices, Totals};
