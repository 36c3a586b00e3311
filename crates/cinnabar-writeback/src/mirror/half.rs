//! One device of a log while it is opened.

use crate::recover::Media;
use cinnabar_engine::metadata::MetaPage;
use std::cell::Cell;
use std::io::{Error, ErrorKind, Result};

/// One of the devices that were given.
#[derive(Debug)]
pub struct Half<'a, M> {
    /// It. Its I/O has a bound of its own: one that does not end in time fails with
    /// [`ErrorKind::TimedOut`]. Then the half counts as missing, and is not asked for anything more;
    /// what it was asked for may still happen.
    pub media: &'a M,
    /// Its size.
    pub bytes: u64,
}

/// A half that is not asked again once it was overdue: each further I/O would take as long.
#[derive(Debug)]
pub(super) struct Asked<'a, M> {
    media: &'a M,
    pub(super) bytes: u64,
    silent: Cell<bool>,
}

impl<'a, M> Asked<'a, M> {
    pub(super) const fn new(half: &Half<'a, M>) -> Self {
        Self { media: half.media, bytes: half.bytes, silent: Cell::new(false) }
    }

    /// Whether it was overdue.
    pub(super) const fn is_silent(&self) -> bool {
        self.silent.get()
    }

    fn ask<T>(&self, io: impl FnOnce(&M) -> Result<T>) -> Result<T> {
        if self.silent.get() {
            return Err(overdue());
        }
        let done = io(self.media);
        let silent = done.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
        self.silent.set(silent);
        done
    }
}

/// The error of a half that does not answer.
pub(super) fn overdue() -> Error {
    Error::new(ErrorKind::TimedOut, "the device does not answer")
}

impl<P, M: Media<P>> Media<P> for Asked<'_, M> {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> Result<()> {
        self.ask(|media| media.read_pages(offset, pages))
    }

    fn read_data(&self, offset: u64, blocks: u32) -> Result<P> {
        self.ask(|media| media.read_data(offset, blocks))
    }

    fn write_page(&self, offset: u64, page: &MetaPage) -> Result<()> {
        self.ask(|media| media.write_page(offset, page))
    }

    fn write_pages(&self, offset: u64, pages: &[MetaPage]) -> Result<()> {
        self.ask(|media| media.write_pages(offset, pages))
    }

    fn flush(&self) -> Result<()> {
        self.ask(Media::flush)
    }
}
