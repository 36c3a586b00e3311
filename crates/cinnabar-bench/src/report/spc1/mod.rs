//! The SPC-1-like benchmark: `show` has a run as text, `search` a search for the highest load,
//! `page` both with charts.

mod page;
mod search;
mod show;

pub use page::{of_run, of_search};
pub use search::render as render_search;
pub use show::{mock, run};
