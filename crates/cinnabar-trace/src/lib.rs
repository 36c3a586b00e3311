//! Block traces: writers of Cinnabar's own format, and, with the feature `read`, streaming readers of
//! many formats, writers of some, generators, and the expansion to block references.
//!
//! Nothing is ever loaded whole, every line is bounded, and an error names the line or byte that is
//! wrong. [`canonical`] is Cinnabar's own format, which [`mod@write`] writes: that is all that a
//! recording needs.
//!
//! With `read`: `source` opens and decompresses, `detect` recognises the format, one module for each
//! format below `formats` turns a line or record into [`Record`]s, `order` puts them in order of
//! time, `trace` combines these, `references` turns records into references to 4 KiB blocks;
//! `write_fio` and `write_oracle` write other formats, `generate` makes traces.

pub mod canonical;
pub mod counts;
pub mod demo;
pub mod error;
mod lines;
mod names;
mod number;
pub mod record;
pub mod write;

#[cfg(feature = "read")]
mod detect;
#[cfg(feature = "read")]
mod feed;
#[cfg(feature = "read")]
mod fields;
#[cfg(feature = "read")]
pub mod format;
#[cfg(feature = "read")]
mod formats;
#[cfg(feature = "read")]
pub mod generate;
#[cfg(feature = "read")]
mod order;
#[cfg(feature = "read")]
pub mod references;
#[cfg(feature = "read")]
mod sink;
#[cfg(feature = "read")]
pub mod source;
#[cfg(feature = "read")]
pub mod trace;
#[cfg(feature = "read")]
mod volumes;
#[cfg(feature = "read")]
pub mod write_fio;
#[cfg(feature = "read")]
pub mod write_oracle;

pub use counts::Counts;
pub use error::{Problem, TraceError};
pub use record::{Op, Record};
pub use write::TraceFile;

#[cfg(feature = "read")]
pub use format::Format;
#[cfg(feature = "read")]
pub use references::{Reference, References, references};
#[cfg(feature = "read")]
pub use trace::{Settings, Trace, open, open_with, read};
