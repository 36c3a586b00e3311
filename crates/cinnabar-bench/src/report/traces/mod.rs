//! What is in a trace: `footprint` of different blocks, `summary` of all requests, `show` as text.

mod footprint;
mod show;
mod summary;

pub use show::{render, show_time};
pub use summary::{Summary, Summing, TooManyVolumes, VOLUMES_MAX};

use serde::Serialize;
use std::path::Path;

/// What is known of a file: the contract of `--json`. Keys are only ever added.
#[derive(Debug, Serialize)]
pub struct Info<'a> {
    pub trace: &'a Path,
    /// Name of its format.
    pub format: &'static str,
    /// How it is packed.
    pub packing: &'static str,
    /// None if it is no regular file.
    pub file_bytes: Option<u64>,
    /// Does the format tell times?
    pub has_times: bool,
    /// What is in it.
    #[serde(flatten)]
    pub summary: Summary,
}
