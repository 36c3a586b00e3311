//! Opens trace files, decompressing them on the way.
//!
//! The compression of a file is recognised by its first bytes, never by its name. Memory is bounded
//! whatever the file's header says: gzip has a window of 32 KiB, and a window above 128 MiB is
//! refused for zstd and xz. A small file that unpacks to very much is read like any long trace, a
//! buffer at a time.

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GZIP_MAGIC: &[u8] = &[0x1F, 0x8B, 0x08];
const XZ_MAGIC: &[u8] = &[0xFD, b'7', b'z', b'X', b'Z', 0];
/// First bytes of a zstd frame.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
const BUFFER_BYTES: usize = 128 << 10;
/// What the xz decoder may take, in KiB: a window of 128 MiB and its tables.
const XZ_MEMORY_KIB_MAX: u32 = 160 << 10;
/// log2 of the largest window of zstd.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Bytes of a trace, decompressed.
pub type Source = Box<dyn BufRead + Send>;

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// Compressed with gzip.
    Gzip,
    /// Compressed with xz.
    Xz,
    /// Compressed with zstd.
    Zstd,
}

impl Packing {
    /// Recognised by a file's first bytes.
    pub fn of(head: &[u8]) -> Self {
        if head.starts_with(GZIP_MAGIC) {
            Self::Gzip
        } else if head.starts_with(XZ_MAGIC) {
            Self::Xz
        } else if head.starts_with(ZSTD_MAGIC) {
            Self::Zstd
        } else {
            Self::Plain
        }
    }

    /// Its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

/// How far a file has been read, and how far there is to go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    read: Arc<AtomicU64>,
    pub(crate) size_bytes: Option<u64>,
}

impl Progress {
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

/// A file's own bytes, counted.
pub(crate) fn open_file(path: &Path) -> io::Result<(Source, Progress)> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    let size_bytes = found.is_file().then_some(found.len());
    let progress = Progress { size_bytes, ..Progress::default() };
    let counted = Counted { file, read: progress.read.clone() };
    Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, counted)), progress))
}

/// The bytes of `input`, decompressed if they begin as a compressed stream does.
///
/// # Errors
/// What reading or the decompressor's set-up says.
pub fn decompress(input: Source) -> io::Result<Source> {
    unpack(input).map(|(source, _)| source)
}

/// The same, and how it was packed.
pub(crate) fn unpack(mut input: Source) -> io::Result<(Source, Packing)> {
    // Six bytes decide; a pipe may give fewer at first.
    let mut first = Vec::with_capacity(XZ_MAGIC.len());
    input.by_ref().take(XZ_MAGIC.len() as u64).read_to_end(&mut first)?;
    let packing = Packing::of(&first);
    let whole = io::Cursor::new(first).chain(input);
    let source: Source = match packing {
        Packing::Plain => Box::new(whole),
        // Files made by appending one packed file to another are whole files: all members are read.
        Packing::Gzip => buffered(MultiGzDecoder::new(whole)),
        Packing::Xz => buffered(XzReader::new_mem_limit(whole, true, XZ_MEMORY_KIB_MAX)),
        Packing::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(whole)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            buffered(decoder)
        }
    };
    Ok((source, packing))
}

fn buffered(input: impl Read + Send + 'static) -> Source {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, input))
}

#[derive(Debug)]
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
