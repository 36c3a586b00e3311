//! How far a comparison is, for those who wait for it.

/// In which pass it is, and how far: requests read or, by all runs, replayed, and runs that are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Surveying { requests: u64 },
    Planning { requests: u64, of: u64 },
    Running { requests: u64, of: u64, runs: usize, runs_of: usize },
}
