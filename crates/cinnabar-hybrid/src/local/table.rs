//! The table's file: read when the volume is opened, and changed by one thread.

use super::folder::io;
use super::transfer::{read_all, write_all};
use crate::pools::{Answer, Contents, Op, OpError, OpenError};
use cinnabar_placement::limits::EXTENTS_MAX;
use cinnabar_placement::log::{Layout, Loaded, PAGE_BYTES, PAGE_CHANGES, Step, Writer, load};
use cinnabar_placement::mutant::Mutants;
use cinnabar_placement::{Header, Record, Table};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, fdatasync, flock, fstat, ftruncate, stat};
use rustix::io::Errno;
use std::path::Path;

/// Pages of each log: half of them is written before the other area is ready.
const LOG_PAGES: u32 = 1024;
/// Extents that each table has room for, and twice as many as its volume is made with: 256 GiB at 4 MiB.
const EXTENTS_MIN: u32 = 1 << 16;
/// Pages of the other area that are prepared with a batch, at least.
const PREPARE_MIN: u32 = 4;

/// See the module.
pub(super) struct TableFile {
    /// Its lock is the volume's.
    fd: OwnedFd,
    writer: Writer,
    table: Table,
    header: Header,
    /// A write failed: what is durable is not known.
    unsure: Option<Errno>,
}

/// The file, open and locked or for reading alone.
pub(super) struct Unread {
    fd: OwnedFd,
    shown: String,
}

impl Unread {
    pub(super) fn open(path: &Path, writable: bool) -> Result<Self, OpenError> {
        let mode = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let shown = path.display().to_string();
        match rustix::fs::open(path, mode | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, shown }),
            Err(Errno::NOENT) => Err(OpenError::NoVolume(format!("its table {shown}"))),
            Err(errno) => Err(io(format!("opening the table {shown}"), errno)),
        }
    }

    /// Whether the lock could be had.
    pub(super) fn lock(&self) -> Result<bool, OpenError> {
        match flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(errno) => Err(io(format!("locking the table {}", self.shown), errno)),
        }
    }

    /// Whether it still is what the path names.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let named = stat(path).map(|stat| (stat.st_dev, stat.st_ino));
        fstat(&self.fd).map(|stat| (stat.st_dev, stat.st_ino)) == named
    }

    pub(super) fn load(&self) -> Result<Loaded, OpenError> {
        let wrong = |what: String| OpenError::Table(format!("the table {}: {what}", self.shown));
        let failed = |errno| io(format!("reading the table {}", self.shown), errno);
        let size = fstat(&self.fd).map_err(failed)?.st_size.cast_unsigned();
        let read = |page: u64| {
            let mut bytes = [0; PAGE_BYTES];
            read_all(&self.fd, &mut bytes, page * PAGE_BYTES as u64).map(|()| bytes)
        };
        let pages = size / PAGE_BYTES as u64;
        let whole = size.is_multiple_of(PAGE_BYTES as u64);
        let layout = if whole { Layout::find(pages, read).map_err(failed)? } else { None };
        let layout =
            layout.ok_or_else(|| wrong("it is not the table of a hybrid volume".into()))?;
        load(layout, Mutants::NONE, read).map_err(|error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            wrong(format!("{error}{}", source.unwrap_or_default()))
        })
    }

    /// Takes the volume over.
    pub(super) fn take_over(self) -> Result<(TableFile, Contents), OpenError> {
        let loaded = self.load()?;
        let header = loaded.header.taken_over();
        let mut table = Table::new(header.geometry);
        table.resize(header.records());
        for (extent, record) in &loaded.records {
            if *extent >= table.len() {
                let text = format!("the table {} has a record behind the volume's end", self.shown);
                return Err(OpenError::Table(text));
            }
            table.set(*extent, *record);
        }
        let (writer, steps) = Writer::open(&loaded, &header, &table, Mutants::NONE);
        let failed = |errno| io(format!("writing the table {}", self.shown), errno);
        has_room(&self.fd, writer.layout()).map_err(failed)?;
        carry_out(&self.fd, steps).map_err(failed)?;
        let file = TableFile { fd: self.fd, writer, table, header, unsure: None };
        Ok((file, Contents { header, records: loaded.records }))
    }
}

/// Makes a table in a new file.
pub(super) fn create(path: &Path, header: &Header) -> Result<(), OpenError> {
    let failed = |errno| io(format!("making the table {}", path.display()), errno);
    // It may grow: a table keeps the size it is made with.
    let roomy = header.records().saturating_mul(2).clamp(EXTENTS_MIN, EXTENTS_MAX);
    let layout = Layout::new(roomy.max(header.records()), LOG_PAGES)
        .ok_or_else(|| OpenError::Other("a size that no table has".into()))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
    ftruncate(&fd, layout.pages() * PAGE_BYTES as u64).map_err(failed)?;
    has_room(&fd, layout).map_err(failed)?;
    let (_, steps) = Writer::create(layout, header, Mutants::NONE);
    carry_out(&fd, steps).and_then(|()| rustix::fs::fsync(&fd)).map_err(failed)
}

/// A file system that is full must not keep a change of the table from being written.
fn has_room(fd: &OwnedFd, layout: Layout) -> Result<(), Errno> {
    let none = rustix::fs::FallocateFlags::empty();
    match rustix::fs::fallocate(fd, none, 0, layout.pages() * PAGE_BYTES as u64) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        done => done,
    }
}

fn carry_out(fd: &OwnedFd, steps: Vec<Step>) -> Result<(), Errno> {
    for step in steps {
        match step {
            Step::Write(page, bytes) => write_all(fd, &bytes[..], page * PAGE_BYTES as u64)?,
            Step::Flush => fdatasync(fd)?,
        }
    }
    Ok(())
}

impl TableFile {
    /// Changes that one page takes.
    pub(super) const BATCH_MAX: usize = PAGE_CHANGES;

    /// Carries changes out, in order; those of records that follow each other as one page.
    pub(super) fn carry_out(
        &mut self,
        ops: Vec<(u64, Op)>,
        mut ended: impl FnMut(u64, Result<Answer, OpError>),
    ) {
        let mut batch = Batch::default();
        for (token, op) in ops {
            match op {
                Op::StoreRecord { extent, expected, new, epoch } => {
                    // A second change of an extent is compared with the first one's outcome.
                    if batch.changes.iter().any(|(known, _)| *known == extent) {
                        self.store(&mut batch, &mut ended);
                    }
                    let inside = extent < self.table.len();
                    if epoch == self.header.epoch && inside && self.table.get(extent) == expected {
                        batch.changes.push((extent, new));
                        batch.tokens.push(token);
                    } else {
                        ended(token, Err(OpError::Fenced));
                    }
                }
                Op::StoreHeader { expected, new } => {
                    self.store(&mut batch, &mut ended);
                    ended(token, self.store_header(expected, new));
                }
                _ => unreachable!("the table's own"),
            }
        }
        self.store(&mut batch, &mut ended);
        self.prepare();
    }

    fn store(&mut self, batch: &mut Batch, ended: &mut impl FnMut(u64, Result<Answer, OpError>)) {
        let Batch { changes, tokens } = std::mem::take(batch);
        if changes.is_empty() {
            return;
        }
        let result = self.append(|writer| writer.append(&changes));
        if result.is_ok() {
            for (extent, record) in changes {
                self.table.set(extent, record);
            }
        }
        for token in tokens {
            ended(token, result.clone().map(|()| Answer::Done));
        }
    }

    fn store_header(&mut self, expected: Header, new: Header) -> Result<Answer, OpError> {
        if expected != self.header || new.epoch != expected.epoch {
            return Err(OpError::Fenced);
        }
        let layout_has_room = new.records() <= self.writer.layout().extents();
        if !layout_has_room {
            return Err(OpError::Other(Errno::FBIG));
        }
        self.append(|writer| writer.append_header(&new))?;
        self.header = new;
        self.table.resize(new.records());
        Ok(Answer::Done)
    }

    fn append(
        &mut self,
        steps: impl Fn(&mut Writer) -> Result<Vec<Step>, cinnabar_placement::log::Full>,
    ) -> Result<(), OpError> {
        if let Some(errno) = self.unsure {
            return Err(OpError::Unsure(errno));
        }
        let steps_now = if let Ok(steps) = steps(&mut self.writer) {
            steps
        } else {
            while self.prepare_page() {}
            steps(&mut self.writer).map_err(|_full| OpError::Other(Errno::NOSPC))?
        };
        carry_out(&self.fd, steps_now).map_err(|errno| {
            self.unsure = Some(errno);
            OpError::Unsure(errno)
        })
    }

    /// Prepares the other area, a part with each batch, so that it is ready before the log is full.
    fn prepare(&mut self) {
        let pages = self.writer.layout().pages() as u32 / 2;
        let share = (pages / (LOG_PAGES / 4)).max(PREPARE_MIN);
        for _ in 0..share {
            if !self.writer.wants_room() || !self.prepare_page() {
                break;
            }
        }
    }

    /// Whether there is more to prepare.
    fn prepare_page(&mut self) -> bool {
        if self.unsure.is_some() {
            return false;
        }
        let mut steps = Vec::new();
        let more = self.writer.prepare(&self.table, &self.header, &mut steps);
        if let Err(errno) = carry_out(&self.fd, steps) {
            self.unsure = Some(errno);
            return false;
        }
        more
    }
}

/// Changes that become one page.
#[derive(Default)]
struct Batch {
    changes: Vec<(u32, Record)>,
    tokens: Vec<u64>,
}
