//! The data plane: one thread that owns the engine and carries out its I/O.
//!
//! Called by the `serve` command through [`start`]. (Placeholder: being built.)

use super::messages::{DataPlaneHandle, StartConfig, StartError, StartErrorKind, Subject};

/// Starts the data plane.
///
/// # Errors
/// [`StartError`] if something it needs is missing or in the way.
pub fn start(_config: StartConfig) -> Result<DataPlaneHandle, StartError> {
    Err(StartError::new(StartErrorKind::Resources, Subject::Daemon, "not built yet", ""))
}
