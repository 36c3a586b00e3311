//! A trace of any format, as a stream of requests.
//!
//! Programs give a path, fuzzing and tests give bytes. Its compression and its format are
//! recognised by content ([`crate::source`], `detect`), time is counted from the first request, and
//! requests of formats with times are put in order within a window (`order`). The canonical form is
//! the exception: its times, order and volume numbers are not changed.

use crate::canonical;
use crate::detect::{self, HEAD_BYTES, Parser};
use crate::error::TraceError;
use crate::feed::Feed;
use crate::format::Format;
use crate::order::{Order, WINDOW_DEFAULT};
use crate::record::Record;
use crate::sink::Sink;
use crate::source::{self, Packing, Progress, Source};
use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::io::{self, Read};
use std::path::Path;

/// How to read a trace.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Don't look, it is this.
    pub format: Option<Format>,
    /// How many requests are kept back to sort those that are out of order; 48 bytes each.
    pub window: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { format: None, window: WINDOW_DEFAULT }
    }
}

/// Opens a trace of any format, packed or not.
///
/// # Errors
/// [`TraceError::Io`] if the file can't be opened or its beginning can't be read or unpacked,
/// [`TraceError::Unknown`] if it is in no known format.
pub fn open(path: &Path) -> Result<Trace, TraceError> {
    open_with(path, Settings::default())
}

/// The same, with settings.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: &Path, settings: Settings) -> Result<Trace, TraceError> {
    let (file, progress) = source::open_file(path).map_err(at_first)?;
    Trace::new(file, progress, settings)
}

/// Reads a trace from a stream.
///
/// # Errors
/// As [`open`].
pub fn read(input: Source, settings: Settings) -> Result<Trace, TraceError> {
    Trace::new(input, Progress::default(), settings)
}

/// The requests of a trace. After an error it yields nothing more; requests that came before what is
/// wrong come before the error.
pub struct Trace {
    format: Format,
    packing: Packing,
    progress: Progress,
    records: Records,
}

impl Trace {
    fn new(input: Source, progress: Progress, settings: Settings) -> Result<Self, TraceError> {
        let (mut input, packing) = source::unpack(input).map_err(at_first)?;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(at_first)?;
        let format = match settings.format {
            Some(format) => format,
            None => detect::detect(&head).map_err(TraceError::Unknown)?,
        };
        let parser = detect::parser(format, &head);
        let whole: Source = Box::new(io::Cursor::new(head).chain(input));
        let window = if format.is_sorted_here() { settings.window } else { 0 };
        let ordered = |feed| Records::Ordered(Box::new(Ordered::new(feed, window)));
        let records = match parser {
            Parser::Canonical => Records::Canonical(canonical::Reader::new(whole)),
            Parser::Text(parser) => ordered(Feed::text(whole, parser)),
            Parser::Binary(parser) => ordered(Feed::binary(whole, parser)),
        };
        Ok(Self { format, packing, progress, records })
    }

    /// Format of the trace.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// How the file is packed.
    pub const fn packing(&self) -> Packing {
        self.packing
    }

    /// Names of the volumes met so far, in order of first appearance in the file: a volume's number is
    /// its place. Empty for formats that number volumes themselves (canonical, oracleGeneral); a
    /// canonical trace may name some of them, see [`Trace::volume_name`].
    pub fn volumes(&self) -> &[String] {
        match &self.records {
            Records::Canonical(_) => &[],
            Records::Ordered(ordered) => ordered.sink.volumes.names(),
        }
    }

    /// A volume's name, or its number if it has none.
    pub fn volume_name(&self, volume: u32) -> Cow<'_, str> {
        let name = match &self.records {
            Records::Canonical(reader) => reader.volume_name(volume),
            Records::Ordered(_) => self.volumes().get(volume as usize).map(String::as_str),
        };
        match name {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(volume.to_string()),
        }
    }

    /// Bytes of the file that were read so far, packed as they are; it runs ahead of the requests by
    /// what is buffered and kept back. 0 for a stream.
    pub fn bytes_read(&self) -> u64 {
        self.progress.bytes_read()
    }

    /// Size of the file, if it is a regular one.
    pub const fn size_bytes(&self) -> Option<u64> {
        self.progress.size_bytes
    }
}

impl Iterator for Trace {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.records {
            Records::Canonical(reader) => reader.next(),
            Records::Ordered(ordered) => ordered.next(),
        }
    }
}

impl Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("format", &self.format)
            .field("packing", &self.packing)
            .finish_non_exhaustive()
    }
}

fn at_first(source: io::Error) -> TraceError {
    TraceError::Io { line: 0, source }
}

enum Records {
    Canonical(canonical::Reader<Source>),
    Ordered(Box<Ordered>),
}

/// What is read, on its way through the window.
struct Ordered {
    feed: Feed,
    sink: Sink,
    order: Order,
    state: State,
}

enum State {
    Reading,
    /// Nothing more comes in; then the error, if there is one.
    Emptying(Option<TraceError>),
}

impl Ordered {
    fn new(feed: Feed, window: usize) -> Self {
        Self { feed, sink: Sink::default(), order: Order::new(window), state: State::Reading }
    }

    fn next(&mut self) -> Option<Result<Record, TraceError>> {
        while matches!(self.state, State::Reading) {
            if self.order.is_over_full() {
                return self.order.pop().map(Ok);
            }
            match self.read_one() {
                Ok(true) => {}
                Ok(false) => self.state = State::Emptying(None),
                Err(error) => self.state = State::Emptying(Some(error)),
            }
        }
        let State::Emptying(error) = &mut self.state else { return None };
        self.order.pop().map(Ok).or_else(|| error.take().map(Err))
    }

    fn read_one(&mut self) -> Result<bool, TraceError> {
        let more = self.feed.next(&mut self.sink);
        // What a line said before what is wrong in it doesn't count.
        let records = self.sink.records.drain(..);
        if more? {
            for record in records {
                self.order.push(record).map_err(|problem| self.feed.wrong(problem))?;
            }
            return Ok(true);
        }
        Ok(false)
    }
}
