//! Allocators compared: `show` for people, `json` for programs, `page` with charts.

mod json;
mod page;
mod show;

pub use json::{Compared, of};
pub use page::page;
pub use show::render;
