//! Numbers and layouts of the NBD protocol; pure.
//!
//! Called by the handshake, the transmission phase and by tests.

/// Bytes before an option's data: magic, option, length.
pub const OPTION_HEADER_BYTES: usize = 16;
