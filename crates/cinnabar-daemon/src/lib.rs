//! The daemon: data threads that serve guests, and one control thread that talks to operators.
//!
//! The two sides share nothing but [`messages`].

pub mod control;
pub mod dataplane;
pub mod manager;
pub mod messages;
pub mod recording;
pub mod run;
pub mod signals;
pub mod start_error;

use cinnabar_backend::generations;
pub use cinnabar_status::{latency, report};
