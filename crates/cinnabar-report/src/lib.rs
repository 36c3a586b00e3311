//! Reports: what was found, as text for people, as JSON for programs, as pages with charts.

pub mod page;
