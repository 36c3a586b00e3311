//! The daemon: data threads that serve guests, one control thread that talks to operators, and the
//! configuration of both.
//!
//! The two sides share nothing but [`messages`].

pub mod config;
pub mod control;
pub mod data_status;
pub mod dataplane;
pub mod latency;
pub mod messages;
pub mod recording;
pub mod report;
pub mod run;
pub mod settings;
pub mod signals;
pub mod start_error;

use cinnabar_backend::generations;
