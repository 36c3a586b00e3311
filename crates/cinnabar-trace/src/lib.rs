//! Block traces: streaming readers of many formats, writers, generators, and the expansion to block
//! references.
//!
//! Nothing is ever loaded whole, every line is bounded, and an error names the line or byte that is
//! wrong. [`source`] opens and decompresses, `detect` recognises the format, one module for each
//! format below `formats` turns a line or record into [`Record`]s, `order` puts them in order of
//! time, [`trace`] combines these, [`mod@references`] turns records into references to 4 KiB
//! blocks. [`canonical`] is Cinnabar's own format, [`mod@write`], [`write_fio`] and
//! [`write_oracle`] write traces.

pub mod canonical;
mod detect;
pub mod error;
mod feed;
mod fields;
pub mod format;
mod formats;
pub mod generate;
mod lines;
mod order;
pub mod record;
pub mod references;
mod sink;
pub mod source;
pub mod trace;
mod volumes;
pub mod write;
pub mod write_fio;
pub mod write_oracle;

pub use error::{Problem, TraceError};
pub use format::Format;
pub use record::{Op, Record};
pub use references::{Reference, References, references};
pub use trace::{Settings, Trace, open, open_with, read};
pub use write::TraceFile;
