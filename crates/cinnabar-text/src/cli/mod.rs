//! What the command lines of the project's programs have in common.
//!
//! stdout is data, stderr is talk. Exit codes: 0 well, 1 failed at run time, 2 usage or
//! configuration. The last line of an error is a hint.

pub mod commands;
pub mod failure;
mod file_limit;
mod log_queue;
pub mod logging;
pub mod man;
pub mod output;
mod panics;
pub mod parse;
pub mod program;
pub mod progress;
pub mod report_file;
pub mod talk;
pub mod told;
pub mod trace_file;
