//! What can be wrong with a trace, and on which line.
//!
//! Called by every reader.

use crate::record::Record;
use std::io;

/// Why a trace could not be read on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened, read or decompressed.
    #[error("cannot read the trace after line {line}")]
    Io {
        /// Lines read before.
        line: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line is not what the format demands.
    #[error("line {line} of the trace is not valid")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        #[source]
        source: Problem,
    },
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No line of any format is that long; this is not a text trace.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// A field is missing.
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    /// There are more fields than the format has.
    #[error("more than {0} fields")]
    Surplus(usize),
    /// Not an unsigned decimal number that fits.
    #[error("field `{0}` is not an unsigned decimal number in range")]
    Number(&'static str),
    /// An operation nobody knows.
    #[error("the operation is none of R, W, F, D")]
    Op,
    /// A volume number that a reference's key can't hold.
    #[error("volume number above {}", Record::VOLUME_MAX)]
    Volume,
    /// The request ends beyond any volume.
    #[error("the request ends beyond {} bytes", Record::END_BYTES_MAX)]
    End,
}
