//! Opens trace files, decompressing them on the way.
//!
//! Called by users with a path. What a file is, is told by its first bytes, never by its name.

use crate::canonical;
use crate::error::TraceError;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const BUFFER_BYTES: usize = 128 << 10;

/// Bytes of a trace, decompressed.
pub type Source = Box<dyn BufRead + Send>;

/// Opens a trace in canonical form, plain or compressed with zstd.
///
/// # Errors
/// [`TraceError::Io`] if the file can't be opened or its first bytes can't be read.
pub fn open(path: &Path) -> Result<canonical::Reader<Source>, TraceError> {
    let source = File::open(path)
        .and_then(|file| decompress(Box::new(BufReader::with_capacity(BUFFER_BYTES, file))))
        .map_err(|source| TraceError::Io { line: 0, source })?;
    Ok(canonical::Reader::new(source))
}

/// The bytes of `input`, decompressed if they begin as a compressed stream does.
///
/// # Errors
/// What reading or the decompressor's set-up says.
pub fn decompress(mut input: Source) -> io::Result<Source> {
    if input.fill_buf()?.starts_with(&ZSTD_MAGIC) {
        // The decoder itself refuses windows above 128 MiB, so a hostile file can't claim all RAM.
        let decoder = zstd::stream::read::Decoder::with_buffer(input)?;
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)));
    }
    Ok(input)
}
