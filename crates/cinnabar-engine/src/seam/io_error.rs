//! Why an I/O failed.

/// Why an I/O failed, as far as the engine or a guest cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The medium or the transport failed (EIO and all that is not listed).
    #[error("input/output error")]
    Io,
    /// No space left (ENOSPC, EDQUOT).
    #[error("no space left")]
    NoSpace,
    /// The device is read-only (EROFS, EPERM, EBADF on a write).
    #[error("read-only")]
    ReadOnly,
    /// The operation is not supported by this device (EOPNOTSUPP).
    #[error("operation not supported")]
    Unsupported,
    /// It took longer than the driver's bound.
    #[error("timed out")]
    TimedOut,
}
