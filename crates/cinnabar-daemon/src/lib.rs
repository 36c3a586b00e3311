//! The daemon: data threads that serve guests, and one control thread that talks to operators.
//!
//! The two sides share nothing but [`cinnabar_config::messages`]. Here is the data plane, and what starts both
//! and stops them; operators are answered by [`cinnabar_control`], shares managed by
//! [`cinnabar_manager`].

// They panic where stdout or stderr can't be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod dataplane;
mod http_address;
mod open_files;
pub mod run;
mod service;
pub mod signals;
mod stray_signals;
mod watchdog;
