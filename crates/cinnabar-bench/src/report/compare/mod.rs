//! Allocators compared: `show` for people, `json` for programs, `page` with charts.

mod json;
mod judged;
mod page;
mod show;

pub use json::{Compared, of};
pub use judged::render_judged;
pub use page::page;
pub use show::render;
