//! What can be wrong with a trace, and where in it.

use crate::record::Record;
use std::io;

/// Why a trace could not be read, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read the trace after line {line}")]
    Io {
        /// Lines read before; 0 also before the format was known.
        line: u64,
        #[source]
        source: io::Error,
    },
    #[error("line {line} of the trace is not valid")]
    Line {
        /// Its number, from 1.
        line: u64,
        #[source]
        source: Problem,
    },
    #[error("cannot read the trace after byte {byte}")]
    IoAfter {
        /// Bytes of whole records read before, as they are when decompressed.
        byte: u64,
        #[source]
        source: io::Error,
    },
    #[error("the record at byte {byte} of the trace is not valid")]
    Record {
        /// Where it begins, from 0, as it is when decompressed.
        byte: u64,
        #[source]
        source: Problem,
    },
    #[error("the trace is in no format that is known here: {0}")]
    Unknown(Unknown),
}

impl TraceError {
    /// What may help, for the last line of a message.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } | Self::IoAfter { .. } => {
                "check the path, and that the file is whole; a packed one can be tested with \
                gzip -t, xz -t or zstd -t"
            }
            Self::Line { source, .. } | Self::Record { source, .. } => source.hint(),
            Self::Unknown(Unknown::Packed(_)) => {
                "unpack it first; traces packed once with gzip, xz or zstd are read as they are"
            }
            Self::Unknown(_) => {
                "the guide lists the formats; the format is recognised by the first lines, not by the name"
            }
        }
    }
}

/// What a file of no known format looks like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Text; its first line, shortened and escaped.
    #[error("its first line is `{0}`")]
    Text(String),
    #[error("it is not text, and no binary trace")]
    Binary,
    /// Packed in a way that is not read here, or twice.
    #[error("it is packed ({0})")]
    Packed(&'static str),
}

/// What is wrong with a line or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No line of any format is that long; this is not a text trace.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    #[error("more than {0} fields")]
    Surplus(usize),
    #[error("field `{0}` is not an unsigned decimal number in range")]
    Number(&'static str),
    #[error("field `{0}` is not a decimal number in range")]
    Decimal(&'static str),
    #[error("the operation is none of R, W, F, D")]
    Op,
    /// An operation that another format does not know.
    #[error("the operation is none of {0}")]
    OpOf(&'static str),
    /// A volume number that a reference's key can't hold.
    #[error("volume number above {}", Record::VOLUME_MAX)]
    Volume,
    #[error("more than {0} volumes")]
    Volumes(usize),
    #[error("a volume's name is empty or longer than {0} bytes")]
    Name(usize),
    /// A read or write for more than any interface carries.
    #[error("the request is longer than {} bytes", Record::LENGTH_BYTES_MAX)]
    Length,
    #[error("the request ends beyond {} bytes", Record::END_BYTES_MAX)]
    End,
    #[error("the file ends {bytes} bytes into a record of {of}")]
    Cut { bytes: usize, of: usize },
    #[error("no record begins here: its {0} is wrong")]
    Mark(&'static str),
    #[error(
        "its time is {by_us} us before a request that came more than {window} requests earlier"
    )]
    Late {
        by_us: u64,
        /// How many requests are kept back to sort them.
        window: usize,
    },
}

impl Problem {
    /// What may help.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Late { .. } => "sort the trace by time first, or allow a larger window",
            Self::Cut { .. } => "the file is cut short; get it again, or cut it at a whole record",
            Self::TooLong(_) => "a file of text has shorter lines; this one is damaged or no trace",
            Self::Volumes(_) | Self::Volume => "split the trace by volume first",
            Self::Length => {
                "check the unit of the length: some formats count sectors, others bytes"
            }
            Self::End => "check the unit of the offset: some formats count sectors, others bytes",
            _ => "the file is damaged, or two formats are mixed in it; look at that place",
        }
    }
}
