//! A paper's experiments done again: `found` is what came out, `show` prints it, `files` and `page`
//! write it.

mod files;
mod found;
mod page;
mod show;

pub use files::{prepare, write};
pub use found::{Found, Listed};
pub use show::{all, list};

const PAGE: &str = "holland.html";
