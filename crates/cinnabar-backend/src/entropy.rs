//! Random bytes from the kernel.
//!
//! Called where something must never be guessed or repeated: a device's identity, a generation.

use std::fs::File;
use std::io::{self, Read};

/// `N` random bytes.
///
/// # Errors
/// If there is no `/dev/urandom`.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let named = |error: io::Error| io::Error::new(error.kind(), format!("/dev/urandom: {error}"));
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).map_err(named)?;
    Ok(bytes)
}
