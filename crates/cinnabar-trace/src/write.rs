//! Writes traces in canonical form, record by record: plain, or compressed if the name ends in `.zst`.
//!
//! A file appears under its name only when it is whole: it is written beside it and renamed at the
//! end, so that a run that was interrupted leaves no half trace that reads like a whole one.

use crate::canonical;
use crate::names::shown;
use crate::record::{Op, Record};
use std::fmt::Debug;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use zstd::stream::write::Encoder;

const BUFFER_BYTES: usize = 128 << 10;
/// Traces are numbers as text: more effort buys little.
const ZSTD_LEVEL: i32 = 3;

/// Writes records as text to any stream.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// A writer that should be given a buffered stream.
    pub fn new(output: W) -> Self {
        Self { output }
    }

    /// Writes a volume's name, as a comment; belongs before its requests. A name that no reader would
    /// take, or that is just the number, is left out. Returns the bytes written.
    ///
    /// # Errors
    /// What the stream says.
    pub fn name(&mut self, volume: u32, name: &str) -> io::Result<u64> {
        let line = format!("{}{volume} {}", canonical::NAME, shown(name.as_bytes()));
        if canonical::name_in(line.as_bytes()).is_none() || name == volume.to_string() {
            return Ok(0);
        }
        writeln!(self.output, "{line}")?;
        Ok(line.len() as u64 + 1)
    }

    /// Writes one line.
    ///
    /// # Errors
    /// `InvalidInput` with the [`crate::Problem`] of a record that no reader would take, else what
    /// the stream says.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let record = canonical::check(*record)
            .map_err(|problem| io::Error::new(ErrorKind::InvalidInput, problem))?;
        let op = match record.op {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Flush => 'F',
            Op::Discard => 'D',
        };
        let Record { ts_us, volume, offset_bytes, length_bytes, .. } = record;
        writeln!(self.output, "{ts_us},{volume},{op},{offset_bytes},{length_bytes}")
    }

    /// The stream, with all lines written to it.
    pub fn into_inner(self) -> W {
        self.output
    }
}

/// A trace file that is being written; dropped before [`TraceFile::finish`], it leaves nothing.
#[derive(Debug)]
pub struct TraceFile(Writer<Output>);

impl TraceFile {
    /// Begins a trace at `path`, as [`Output::create`].
    ///
    /// # Errors
    /// What the system says of the path or its folder.
    pub fn create(path: &Path) -> io::Result<Self> {
        Output::create(path).map(|output| Self(Writer::new(output)))
    }

    /// Writes a volume's name, as [`Writer::name`].
    ///
    /// # Errors
    /// As [`Writer::name`].
    pub fn name(&mut self, volume: u32, name: &str) -> io::Result<u64> {
        self.0.name(volume, name)
    }

    /// Writes one record.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.0.write(record)
    }

    /// Ends the trace and gives it its name; returns its size in bytes.
    ///
    /// # Errors
    /// What the system says; there is no new file then.
    pub fn finish(self) -> io::Result<u64> {
        self.0.into_inner().finish()
    }
}

/// A file that is being written; dropped before [`Output::finish`], it leaves nothing.
#[derive(Debug)]
pub struct Output(Packed);

impl Output {
    /// Begins a file at `path`, compressed with zstd if that ends in `.zst`. What is there stays as
    /// it is until the end. What is no regular file (a pipe, `/dev/null`) is written as it is.
    ///
    /// # Errors
    /// What the system says of the path or its folder.
    pub fn create(path: &Path) -> io::Result<Self> {
        let place = match fs::metadata(path) {
            // Renaming something over it would replace the device, not fill it.
            Ok(found) if !found.is_file() => Place::Itself(File::options().write(true).open(path)?),
            // Through a link: the link stays one.
            Ok(_) => beside(fs::canonicalize(path)?)?,
            Err(error) if error.kind() == ErrorKind::NotFound => beside(path.to_owned())?,
            Err(error) => return Err(error),
        };
        let file = BufWriter::with_capacity(BUFFER_BYTES, Destination { place, bytes: 0 });
        let packed = if path.extension().is_some_and(|end| end == "zst") {
            let mut encoder = Encoder::new(file, ZSTD_LEVEL)?;
            encoder.include_checksum(true)?;
            Packed::Zstd(BufWriter::with_capacity(BUFFER_BYTES, encoder))
        } else {
            Packed::Plain(file)
        };
        Ok(Self(packed))
    }

    /// Ends the file and gives it its name; returns its size in bytes.
    ///
    /// # Errors
    /// What the system says; there is no new file then.
    pub fn finish(self) -> io::Result<u64> {
        let Destination { place, bytes } = self.0.finish()?;
        if let Place::Beside(file, path) = place {
            // The name must not become durable before the bytes.
            file.as_file().sync_all()?;
            file.persist(path).map_err(|failed| failed.error)?;
        }
        Ok(bytes)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A file in the folder of `path` that no other process has.
fn beside(path: PathBuf) -> io::Result<Place> {
    // `new/` would be taken as `new` here, and refused at the end, after all the work.
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(ErrorKind::NotADirectory.into());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let prefix = format!(".{}.", name.to_string_lossy());
    let file = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        // As any new file has, less the umask; a temporary one is its owner's only.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    Ok(Place::Beside(file, path))
}

#[derive(Debug)]
enum Place {
    /// A temporary file, and the name that it gets.
    Beside(NamedTempFile, PathBuf),
    Itself(File),
}

/// Where bytes go, counted.
#[derive(Debug)]
struct Destination {
    place: Place,
    bytes: u64,
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.place {
            Place::Beside(file, _) => file.as_file_mut(),
            Place::Itself(file) => file,
        };
        let written = file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A file keeps nothing back.
        Ok(())
    }
}

type Buffered = BufWriter<Destination>;

enum Packed {
    Plain(Buffered),
    // Lines are short; the encoder likes to be given more at once.
    Zstd(BufWriter<Encoder<'static, Buffered>>),
}

impl Packed {
    fn finish(self) -> io::Result<Destination> {
        let file = match self {
            Self::Plain(file) => file,
            Self::Zstd(encoder) => {
                encoder.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?
            }
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}
