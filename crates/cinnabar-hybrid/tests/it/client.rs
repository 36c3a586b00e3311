//! A volume whose requests are waited for.

use cinnabar_hybrid::local::LocalPlace;
use cinnabar_hybrid::pools::{OpenError, Place};
use cinnabar_hybrid::runtime::{Kind, Request, Running};
use cinnabar_hybrid::settings::Settings;
use cinnabar_placement::{Geometry, Header};
use libc::iovec;
use rustix::io::Errno;
use std::sync::mpsc::{Sender, channel};

/// Extents of 64 KiB.
pub(crate) const EXTENT_LOG2: u8 = 16;
pub(crate) const EXTENT: u64 = 1 << EXTENT_LOG2;

#[repr(align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

struct Job {
    kind: Kind,
    offset: u64,
    pages: Vec<Page>,
    length: u64,
    parts: [iovec; 1],
    ended: Sender<(Result<(), Errno>, Vec<u8>)>,
}

// SAFETY: the pointer is to the heap memory of `pages`.
unsafe impl Send for Job {}

impl Request for Job {
    fn kind(&self) -> Kind {
        self.kind
    }
    fn offset(&self) -> u64 {
        self.offset
    }
    fn length(&self) -> u64 {
        self.length
    }
    fn memory(&self) -> &[iovec] {
        &self.parts
    }
    fn finish(self: Box<Self>, result: Result<(), Errno>) {
        let bytes = self.pages.iter().flat_map(|page| page.0).collect();
        let _gone = self.ended.send((result, bytes));
    }
}

pub(crate) struct Client(pub(crate) Running);

pub(crate) type Waiting = std::sync::mpsc::Receiver<(Result<(), Errno>, Vec<u8>)>;

impl Client {
    pub(crate) fn open(place: &mut dyn Place, settings: Settings) -> Result<Self, OpenError> {
        Running::open(place, settings, &mut |_| false, Box::new(|| {})).map(Self)
    }

    pub(crate) fn begin(&self, kind: Kind, offset: u64, pages: usize, byte: u8) -> Waiting {
        let (ended, waiting) = channel();
        let mut pages = vec![Page([byte; 4096]); pages];
        let length = pages.len() as u64 * 4096;
        let parts = [iovec { iov_base: pages.as_mut_ptr().cast(), iov_len: length as usize }];
        self.0.submit(Box::new(Job { kind, offset, pages, length, parts, ended }));
        waiting
    }

    pub(crate) fn write(&self, offset: u64, pages: usize, byte: u8) -> Result<(), Errno> {
        let kind = Kind::Write { durable: false };
        self.begin(kind, offset, pages, byte).recv().expect("it ends").0
    }

    pub(crate) fn read(&self, offset: u64, pages: usize) -> Result<Vec<u8>, Errno> {
        let (result, bytes) = self.begin(Kind::Read, offset, pages, 0xee).recv().expect("it ends");
        result.map(|()| bytes)
    }

    pub(crate) fn flush(&self) -> Result<(), Errno> {
        self.begin(Kind::Flush, 0, 0, 0).recv().expect("it ends").0
    }
}

/// A volume of so many extents in a new folder.
pub(crate) fn created(folder: &std::path::Path, extents: u64, budget: u64) -> LocalPlace {
    let mut place = LocalPlace::new(folder.join("fast"), folder.join("slow"));
    let geometry = Geometry::new(extents * EXTENT, EXTENT_LOG2).expect("a size");
    place.create(&Header::new([7; 16], geometry, budget * EXTENT)).expect("created");
    place
}

/// Rounds so short that extents move while a test waits.
pub(crate) fn quick() -> Settings {
    Settings {
        round_s: Some(0.01),
        horizon_s: 1e9,
        copy_bytes_per_s: 1 << 30,
        ..Settings::default()
    }
}
