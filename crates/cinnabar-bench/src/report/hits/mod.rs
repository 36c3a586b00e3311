//! Hit ratios of caches of many sizes: `show` has tables and JSON, `page` curves.

mod page;
mod show;

pub use page::page;
pub use show::{lines, render};

use cinnabar_policy::Writes;
use cinnabar_study::hits::Found;

/// A trace and what was found.
#[derive(Debug)]
pub struct Simulated {
    /// The trace's path.
    pub trace: String,
    /// What a write does.
    pub writes: Writes,
    /// Requests were given to the engine by sectors.
    pub exact: bool,
    /// Each policy at each size.
    pub found: Found,
}
