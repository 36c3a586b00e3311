//! What the cache and its volumes did: samples over time, and events.
//!
//! Both are made of statuses that are looked at now and then, and both are bounded: a [`History`]
//! keeps a fixed number of points for each volume at two resolutions, an [`EventLog`] the newest
//! events. Nothing here reads a clock or a file: time comes with each status, and what is to
//! outlive the daemon becomes bytes ([`encode`], [`decode`]) that are checked when they are read.

mod codec;
mod event_log;
mod events;
mod point;
mod points;
mod report;
mod ring;
mod series;
#[cfg(test)]
mod tests;
mod totals;

pub use codec::{BYTES_MAX, FileError, decode, encode};
pub use event_log::{Batch, EVENTS_MAX, EventLog};
pub use events::{EventKind, EventReport, PlanEvent, Watcher};
pub use point::Point;
pub use points::{History, SERIES_MAX};
pub use report::{SampleReport, SamplesReport};
pub use ring::Step;
