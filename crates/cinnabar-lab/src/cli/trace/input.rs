//! A trace that a command reads: opened, counted, and what is wrong with it told.

use cinnabar_text::cli::progress::Progress;
use cinnabar_text::{Failure, chain, show_size};
use cinnabar_trace::{Format, Record, Settings, Trace, TraceError};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::io::{self, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// Most requests kept back to sort: 768 MiB of them.
const WINDOW_MAX: u64 = 1 << 24;

/// How traces are read.
#[derive(Debug, clap::Args)]
pub(super) struct Reading {
    /// The format it is in [default: told by its content]
    #[arg(long, value_name = "FORMAT", value_parser = formats(), hide_possible_values = true)]
    format: Option<Format>,
    /// Requests kept back to sort those that are out of order, 48 bytes each
    #[arg(long, value_name = "N", default_value_t = Settings::default().window as u64,
          value_parser = clap::value_parser!(u64).range(..=WINDOW_MAX))]
    window: u64,
}

/// The short names of all formats, as a flag takes them.
fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .map(|name| Format::named(&name).expect("it is one of these names"))
}

/// A trace being read. It tells how far it is as it goes.
pub(super) struct Input {
    path: PathBuf,
    trace: Trace,
    line: Progress,
    requests: u64,
}

impl Input {
    /// Opens a trace; `-` is stdin.
    pub(super) fn open(path: &Path, reading: &Reading) -> Result<Self, Failure> {
        let settings = Settings { format: reading.format, window: reading.window as usize };
        let trace = if path == Path::new("-") {
            cinnabar_trace::read(Box::new(BufReader::new(io::stdin())), settings)
        } else {
            cinnabar_trace::open_with(path, settings)
        };
        let trace = trace.map_err(|error| explain(path, &error))?;
        Ok(Self { path: path.to_owned(), trace, line: Progress::new(), requests: 0 })
    }

    /// The trace, for what it says of itself.
    pub(super) fn trace(&self) -> &Trace {
        &self.trace
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, Failure> {
        let Some(next) = self.trace.next() else { return Ok(None) };
        let record = next.map_err(|error| explain(&self.path, &error))?;
        self.requests += 1;
        let Self { trace, line, requests, .. } = self;
        line.show(|| match trace.size_bytes() {
            Some(size) => {
                let part = 100.0 * trace.bytes_read() as f64 / size.max(1) as f64;
                format!("{requests} requests, {part:.0} % of {}", show_size(size))
            }
            None => format!("{requests} requests"),
        });
        Ok(Some(record))
    }

    /// Takes the line on progress off, so that something else can be written to a terminal.
    pub(super) fn hide_progress(&mut self) {
        self.line = Progress::new();
    }

    /// The request that was read last can't be taken: why, and what may help.
    pub(super) fn refuse(&self, (why, hint): &(String, &'static str)) -> Failure {
        let Self { path, requests, .. } = self;
        // Not a line's number: requests may have been sorted since they were read.
        Failure::of_usage(format!("{}: request {requests}: {why}", path.display()), *hint)
    }
}

/// What is wrong with a trace, in one line.
pub(super) fn explain(path: &Path, error: &TraceError) -> Failure {
    let message = format!("{}: {}", path.display(), chain(error));
    let (TraceError::Io { source, .. } | TraceError::IoAfter { source, .. }) = error else {
        return Failure::of_usage(message, error.hint());
    };
    match source.kind() {
        ErrorKind::NotFound
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::PermissionDenied => {
            let message = format!("can't read {}: {source}", path.display());
            Failure::of_usage(message, "check the path; cinnabar-lab trace generate makes a trace")
        }
        // What a packer says of a file that is damaged or cut short: it stays so.
        ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
            Failure::of_usage(message, error.hint())
        }
        // zstd has no kind of its own for damage, but no number of the system's either.
        _ if source.raw_os_error().is_none() => Failure::of_usage(message, error.hint()),
        _ => Failure::at_run_time(message, error.hint()),
    }
}
