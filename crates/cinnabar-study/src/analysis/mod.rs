//! Traces through the policy crate: intervals, plans, and what they come to.
//!
//! [`traces`] reads several traces as one, [`intervals`] cuts them, [`measure`] looks at all of it
//! and the policy crate's monitor at each interval, whose planner divides a cache; [`mod@recommend`] says
//! how large one should be; [`run`] does it all, and [`outcome`] is what was found.

pub mod error;
pub mod intervals;
pub mod measure;
pub mod outcome;
pub mod recommend;
pub mod run;
pub mod traces;

pub use cinnabar_policy::planning::{Bounds, Every, Interval, Measured, Part, Planner, Rules};
pub use error::AnalysisError;
pub use intervals::Intervals;
pub use measure::{Curves, Look};
pub use outcome::{Analysis, Expected, Found, Planned, PlannedVolume, Verdict};
pub use recommend::{Recommended, recommend};
pub use run::{Settings, analyze};
pub use traces::{InputError, Progress, Traces};
