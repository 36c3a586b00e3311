//! The manager: divides the cache among volumes by what each can use, while it serves.
//!
//! Data threads count requests and let through what samples want ([`cinnabar_config::messages::samplers`]). A
//! thread of the manager's own makes a plan behind each interval ([`watch`]: the same that `cinnabar
//! analyze` makes of a recording), goes from plans to targets ([`act`]) and modes, has the data plane adopt them
//! in one message, and keeps what was planned and why ([`history`]). It holds a budget of SSD writes.
//! Operators ask it and overrule it ([`query`]). It knows the data plane by its messages alone.

#![forbid(unsafe_code)]

pub mod act;
mod budget;
mod configure;
mod explain;
pub mod history;
mod modes;
mod plans;
pub mod query;
pub mod report;
pub mod share;
mod thread;
pub mod watch;

pub use query::{Handle, Query};
pub use thread::{PlanListener, start};
