//! Several traces read as one: requests in order of time, volumes numbered densely.
//!
//! A single trace comes out as it is. Of several, each begins at time 0 (recordings have clocks of
//! their own), and requests are merged by time; of requests of the same time, the first trace's come
//! first.

use cinnabar_text::chain;
use cinnabar_trace::{Record, Trace, TraceError};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Volumes kept apart at most: planning for more would take hours.
pub const VOLUMES_MAX: usize = 8192;
/// Traces read at a time at most.
pub const TRACES_MAX: usize = 1024;
/// Requests between two words about how far it is.
const TELL_EVERY: u32 = 1 << 14;

/// Why traces can't be read, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{}: {}", path.display(), chain(error))]
    Trace { path: PathBuf, error: TraceError },
    #[error("{}: it is a directory", .0.display())]
    Directory(PathBuf),
    #[error("{}: more than {VOLUMES_MAX} volumes", .0.display())]
    ManyVolumes(PathBuf),
    #[error("{0} traces at a time: the most is {TRACES_MAX}")]
    ManyTraces(usize),
}

impl InputError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Trace { error: TraceError::Io { line: 0, .. }, .. } => {
                "check the path; cinnabar-lab trace generate desktop makes a trace"
            }
            Self::Trace { error, .. } => error.hint(),
            Self::Directory(_) => "name the files in it",
            Self::ManyVolumes(_) | Self::ManyTraces(_) => "split the traces by volume first",
        }
    }
}

/// How far the files have been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read, packed as they are.
    pub read_bytes: u64,
    /// Bytes there are; `None` if one of them is no regular file.
    pub size_bytes: Option<u64>,
    /// Requests so far.
    pub requests: u64,
}

/// Requests of several traces, as an iterator. After an error it yields nothing more.
pub struct Traces<'a> {
    sources: Vec<Source>,
    /// (trace, its number of the volume), by our number.
    volumes: Vec<(usize, u32)>,
    numbers: BTreeMap<(usize, u32), u32>,
    /// The last request's, which is most often the next one's, too.
    last: Option<((usize, u32), u32)>,
    failed: Option<InputError>,
    tell: &'a mut dyn FnMut(Progress),
    requests: u64,
    until_told: u32,
}

struct Source {
    path: PathBuf,
    trace: Trace,
    next: Option<Record>,
    /// Taken from every time.
    origin_us: u64,
}

impl<'a> Traces<'a> {
    /// Opens the traces; `tell` is called from time to time with the progress.
    ///
    /// # Errors
    /// The first trace that can't be opened, or that ends with its first request.
    pub fn open(paths: &[PathBuf], tell: &'a mut dyn FnMut(Progress)) -> Result<Self, InputError> {
        if paths.len() > TRACES_MAX {
            return Err(InputError::ManyTraces(paths.len()));
        }
        let mut traces = Self {
            sources: Vec::new(),
            volumes: Vec::new(),
            numbers: BTreeMap::new(),
            last: None,
            failed: None,
            tell,
            requests: 0,
            until_told: TELL_EVERY,
        };
        for path in paths {
            let mut source = Source::open(path)?;
            source.step()?;
            if paths.len() > 1 {
                source.origin_us = source.next.map_or(0, |record| record.ts_us);
            }
            traces.sources.push(source);
        }
        Ok(traces)
    }

    /// Volumes so far; numbers are below it, in order of their first request.
    pub fn volumes(&self) -> usize {
        self.volumes.len()
    }

    /// A volume's name: the trace's own word for it, behind the file's name if there are several traces.
    pub fn name(&self, volume: usize) -> String {
        let (source, number) = self.volumes[volume];
        let source = &self.sources[source];
        let name = source.trace.volume_name(number);
        if self.sources.len() == 1 {
            return name.into_owned();
        }
        format!("{}:{name}", source.path.display())
    }

    /// The traces: file and format, as they were named.
    pub fn files(&self) -> impl Iterator<Item = (&Path, cinnabar_trace::Format)> {
        self.sources.iter().map(|source| (&*source.path, source.trace.format()))
    }

    /// Does every trace tell times?
    pub fn have_times(&self) -> bool {
        self.sources.iter().all(|source| source.trace.format().has_times())
    }

    /// What ended it, in place of the [`TraceError`] that the iterator gave.
    pub fn failure(&mut self, error: TraceError) -> InputError {
        let unnamed = || InputError::Trace { path: PathBuf::new(), error };
        self.failed.take().unwrap_or_else(unnamed)
    }

    fn progress(&self) -> Progress {
        let sizes = self.sources.iter().map(|source| source.trace.size_bytes());
        Progress {
            read_bytes: self.sources.iter().map(|source| source.trace.bytes_read()).sum(),
            size_bytes: sizes.sum(),
            requests: self.requests,
        }
    }

    /// The earliest next request and where it is from.
    fn take(&mut self) -> Result<Option<(usize, Record)>, InputError> {
        let times = self.sources.iter().enumerate();
        let times = times.filter_map(|(at, source)| Some((source.time()?, at)));
        let Some((ts_us, at)) = times.min() else { return Ok(None) };
        let source = &mut self.sources[at];
        let record = source.next.take().map(|record| Record { ts_us, ..record });
        source.step()?;
        Ok(record.map(|record| (at, record)))
    }

    fn number(&mut self, key: (usize, u32)) -> Result<u32, InputError> {
        if let Some((last, number)) = self.last
            && last == key
        {
            return Ok(number);
        }
        let new = self.volumes.len();
        let number = *self.numbers.entry(key).or_insert(new as u32);
        if number as usize == new {
            if new == VOLUMES_MAX {
                return Err(InputError::ManyVolumes(self.sources[key.0].path.clone()));
            }
            self.volumes.push(key);
        }
        self.last = Some((key, number));
        Ok(number)
    }

    fn advance(&mut self) -> Result<Option<Record>, InputError> {
        let Some((source, record)) = self.take()? else { return Ok(None) };
        let volume = self.number((source, record.volume))?;
        self.requests += 1;
        self.until_told -= 1;
        if self.until_told == 0 {
            self.until_told = TELL_EVERY;
            let progress = self.progress();
            (self.tell)(progress);
        }
        Ok(Some(Record { volume, ..record }))
    }
}

impl Iterator for Traces<'_> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed.is_some() {
            return None;
        }
        match self.advance() {
            Ok(record) => record.map(Ok),
            Err(error) => {
                self.failed = Some(error);
                let placeholder = std::io::ErrorKind::InvalidData.into();
                Some(Err(TraceError::Io { line: 0, source: placeholder }))
            }
        }
    }
}

impl fmt::Debug for Traces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("volumes", &self.volumes).finish_non_exhaustive()
    }
}

impl Source {
    fn open(path: &Path) -> Result<Self, InputError> {
        if path.is_dir() {
            return Err(InputError::Directory(path.to_owned()));
        }
        let trace = cinnabar_trace::open(path)
            .map_err(|error| InputError::Trace { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), trace, next: None, origin_us: 0 })
    }

    fn step(&mut self) -> Result<(), InputError> {
        let next = self.trace.next().transpose();
        self.next = next.map_err(|error| InputError::Trace { path: self.path.clone(), error })?;
        Ok(())
    }

    /// When its next request is.
    fn time(&self) -> Option<u64> {
        self.next.map(|record| record.ts_us.saturating_sub(self.origin_us))
    }
}
