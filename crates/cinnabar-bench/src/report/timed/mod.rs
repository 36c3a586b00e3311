//! A plan of timed simulations and what came out: `outcome` of a point, `recommend` the cheapest one
//! that is good enough, `store` what is finished, `show` and `page` the forms.

mod outcome;
mod page;
mod recommend;
mod show;
mod store;

pub use outcome::PointStats;
pub use page::page;
pub use recommend::{Recommended, Rules, choices, not_a_choice, recommend};
pub use show::{Report, csv, render};
pub use store::{Identity, Store};

use cinnabar_study::timed_plan::{Plan, Point, Survey};
use cinnabar_text::Failure;

/// A plan with what came out of it.
#[derive(Debug)]
pub struct Sweep {
    pub plan: Plan,
    /// What is in its trace, if it has one.
    pub survey: Option<Survey>,
    /// The fingerprint of the model.
    pub model: String,
    /// In the order of the plan.
    pub found: Vec<Found>,
}

/// A point and what came out of it.
#[derive(Debug)]
pub struct Found {
    pub point: Point,
    /// Its outcome, or why there is none.
    pub result: Result<PointStats, Failure>,
}
