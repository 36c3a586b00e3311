//! The claim: a small file or object beside a volume's back end that says where writes of the volume are
//! that the back end may not have.
//!
//! It is there before the first such write is acknowledged, and goes after the last one has reached the
//! back end. A host that finds another log's claim does not use the volume: what it would read is not
//! what the guest wrote. Whose a claim is, is decided by the log's identity and the volume's incarnation
//! in it; host, device and time are for people. Every function here blocks.

mod error;
mod file;
mod location;
mod operations;
mod record;
#[cfg(test)]
mod tests;
mod text;

pub use error::{ClaimError, ClaimErrorKind};
pub use file::path_beside;
pub use location::Location;
pub use record::Claim;
#[cfg(feature = "ceph")]
pub(crate) use text::{BYTES_MAX, parse, render};
