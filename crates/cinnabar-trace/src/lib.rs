//! Block traces: streaming readers, a writer, generators, and the expansion to block references.
//!
//! Called by the simulator and by the `trace`, `bench` and `simulate` commands. Nothing is ever loaded
//! whole, every line is bounded, and an error names the line that is wrong. The shape: [`source`]
//! opens and decompresses, one module a format turns bytes into [`Record`]s ([`canonical`] so far),
//! [`mod@references`] turns records into references to 4 KiB blocks.

pub mod canonical;
pub mod error;
pub mod generate;
mod lines;
pub mod record;
pub mod references;
pub mod source;
pub mod write;

pub use error::{Problem, TraceError};
pub use record::{Op, Record};
pub use references::{Reference, References, references};
pub use source::open;
pub use write::TraceFile;
