//! How far a comparison is, for those who wait for it.

/// How far a comparison is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// In the first pass.
    Surveying {
        /// Requests read.
        requests: u64,
    },
    /// In the second one.
    Planning {
        /// Requests read.
        requests: u64,
        /// Of so many.
        of: u64,
    },
    /// In the runs.
    Running {
        /// Requests replayed, in all runs.
        requests: u64,
        /// Of so many.
        of: u64,
        /// Runs that are done.
        runs: usize,
        /// Of so many.
        runs_of: usize,
    },
}
