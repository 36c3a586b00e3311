//! Text that people write and read: sizes and times with units, TOML with the line of each value,
//! numbers of three digits, tables, how a
//! command fails.
//!
//! Below everything that shows or reads such text; knows nothing of caches. Never touches the
//! terminal: the width of a table is its caller's to say. `cli`, with the feature of that name, is the
//! exception: what the programs' command lines have in common.

// They panic where stdout or stderr can't be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod chart;
#[cfg(feature = "cli")]
pub mod cli;
mod error;
mod failure;
pub mod guide;
mod shown;
mod table;
pub mod toml_reader;
pub mod unit;
pub mod units;

pub use error::{ConfigError, chain, suggest};
pub use failure::Failure;
pub use shown::{seen, shown};
pub use table::Table;
pub use unit::{Unit, percent, percent_of};
pub use units::{parse_duration, parse_size, show_size, write_size};
