//! Formatting a write log, and finding out what is on one.
//!
//! Everything is read before anything is written. A chunk counts if its number follows from the record
//! of its volume; behind the last chunk that is known to be durable the first one that is missing or
//! torn ends the log, and what comes behind it is recorded as void before the volume is served. A
//! chunk that is missing *before* that is damage: the volume is not served, and nothing is dropped.

mod begin;
mod media;
mod scan;
mod survey;

pub use begin::open;
pub use media::{Media, OpenError, format, superblock};
pub(crate) use media::{is_overdue, read_each};
pub(crate) use scan::{BadSlots, Headers, directory, look_at_each, records, scan};
pub use survey::{Damage, Found, Survey, is_whole, survey};
