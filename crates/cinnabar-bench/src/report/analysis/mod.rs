//! Would a cache help, how large, and with which policy: `rows` are the table, `words` the answer in
//! sentences, `show`, `json` and `page` the three forms.

mod json;
mod page;
mod rows;
mod show;
mod words;

pub use json::{Document, document};
pub use page::page;
pub use show::render;
pub use words::notes;

/// A cache line, in bytes.
const BLOCK_BYTES: u64 = 4096;
