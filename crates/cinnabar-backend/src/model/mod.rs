//! A model of a slow device, to stand in front of a real file: when would this operation complete,
//! and would it fail? Seeded, and pure but for presets in files: the same calls give the same
//! verdicts.
//!
//! The data plane carries an operation out at once and delivers its completion when the model says.

mod device;
pub mod file;
mod latency;
mod preset;
mod random;
mod settings;

pub use device::{OpKind, SimModel, Verdict, judge};
pub use file::PresetFileError;
pub use latency::Latency;
pub use settings::{Seek, SettingError, SimSpec};
