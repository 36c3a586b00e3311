//! A trace replayed on storage: `show` as text, `page` with charts.

mod page;
mod show;

pub use page::page;
pub use show::render;
