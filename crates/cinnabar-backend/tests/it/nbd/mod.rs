//! Disks on NBD servers: one of our own that follows a script, and real ones.

mod hostile;
mod outages;
mod plain;
mod real;
mod rest;
pub(crate) mod server;

use crate::rig::{dirty, slices};
use cinnabar_backend::disk::{Disk, OpenOptions};
use cinnabar_backend::nbd::NbdSpec;
use cinnabar_backend::port::{self, Done, FileId, IoMode, Job, JobOp, Port, PortEvent};
use cinnabar_backend::{DiskError, Memory};
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Payload, Slice};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for anything that is not broken.
const PATIENCE: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// What a port told, in order.
#[derive(Debug)]
enum Told {
    Done(Done),
    Restarted(Vec<ByteSpan>),
}

/// A port with a disk on a server.
struct Volume {
    port: Box<dyn Port>,
    file: FileId,
    disk: Arc<Disk>,
    /// Told while something was being submitted.
    early: Vec<Told>,
    /// Its port is the first with a job for the disk.
    first: bool,
}

fn connect(text: &str) -> Result<Disk, DiskError> {
    connect_as(text, false)
}

fn connect_as(text: &str, read_only: bool) -> Result<Disk, DiskError> {
    let text = text.strip_prefix("nbd").expect("an nbd backend");
    let spec = NbdSpec::parse(text, Path::new("/")).expect("well-formed");
    Disk::connect(&spec, &OpenOptions { read_only, ..OpenOptions::default() })
}

/// A socket's path, and the text of the backend behind it.
fn place(folder: &tempfile::TempDir, options: &str) -> (PathBuf, String) {
    let path = folder.path().join("nbd.sock");
    let text = format!("nbd{options}:unix:{}", path.display());
    (path, text)
}

impl Volume {
    fn open(mode: IoMode, text: &str) -> Self {
        Self::of(mode, Arc::new(connect(text).expect("it connects")))
    }

    fn of(mode: IoMode, disk: Arc<Disk>) -> Self {
        let mut port = port::open(mode).expect("a port");
        let file = port.register(Arc::clone(&disk)).expect("it registers");
        Self { port, file, disk, early: Vec::new(), first: true }
    }

    fn submit(&mut self, token: u64, op: JobOp) {
        self.port.submit(Job { token, file: self.file, op });
        // Some jobs start with the wait only.
        self.early = self.told(Duration::ZERO);
    }

    /// What is reported within a time, once something is.
    fn told(&mut self, timeout: Duration) -> Vec<Told> {
        let early = std::mem::take(&mut self.early);
        let timeout = if early.is_empty() { timeout } else { Duration::ZERO };
        let mut events = Vec::new();
        self.port.wait(Some(timeout), &mut events).expect("the port works");
        let (file, expected) = (self.file, self.first);
        let told = events.into_iter().map(|event| match event {
            PortEvent::Done(done) => Told::Done(done),
            PortEvent::Restarted { file: restarted, ranges, first } => {
                assert_eq!(restarted, file);
                assert_eq!(first, expected);
                Told::Restarted(ranges)
            }
            other => panic!("unexpected: {other:?}"),
        });
        early.into_iter().chain(told).collect()
    }

    /// Waits for `count` completions; all that was told.
    fn all(&mut self, count: usize) -> Vec<Told> {
        let mut all = Vec::new();
        let begun = Instant::now();
        let done = |all: &[Told]| all.iter().filter(|one| matches!(one, Told::Done(_))).count();
        while done(&all) < count {
            assert!(begun.elapsed() < PATIENCE, "{} of {count} are done: {all:?}", done(&all));
            all.extend(self.told(Duration::from_millis(100)));
        }
        all
    }

    /// Does one job; how it ended, and the ranges of restarts told before.
    fn run(&mut self, op: JobOp) -> (Result<(), Errno>, Vec<ByteSpan>) {
        self.port.submit(Job { token: 7, file: self.file, op });
        let mut ranges = Vec::new();
        let mut result = None;
        for told in self.all(1) {
            match told {
                Told::Done(done) => result = Some((done.token, done.result)),
                Told::Restarted(more) => {
                    assert!(result.is_none(), "told of a restart after what came of it");
                    ranges.extend(more);
                }
            }
        }
        let (token, result) = result.expect("one is done");
        assert_eq!((token, self.port.in_flight()), (7, 0));
        (result, ranges)
    }

    /// One job that is to succeed, without a restart.
    fn well(&mut self, op: JobOp) {
        assert_eq!(self.run(op), (Ok(()), Vec::new()));
    }

    fn read(&mut self, offset: u64, len: u64) -> Vec<u8> {
        let data = dirty(len);
        self.well(JobOp::Read { offset, pages: Vec::new(), data: slices(&data, len) });
        data.to_vec(0, len)
    }
}

fn write_op(offset: u64, bytes: &[u8], fua: bool) -> JobOp {
    let data = Memory::alloc(bytes.len().div_ceil(4096) as u32);
    data.write_at(0, bytes);
    JobOp::Write { offset, pages: Vec::new(), data: slices(&data, bytes.len() as u64), fua }
}

fn read_op(offset: u64, data: &Memory, len: u64) -> JobOp {
    JobOp::Read { offset, pages: Vec::new(), data: slices(data, len) }
}

/// The same bytes as many pieces of memory, in no order and with gaps.
fn scattered(bytes: &[u8], piece: usize) -> (Memory, cinnabar_engine::Slices<Memory>) {
    let count = bytes.len().div_ceil(piece);
    let data = Memory::alloc((count * 2 * piece).div_ceil(4096) as u32);
    let place = |index: usize| (count - index) * 2 * piece - piece;
    let slices = bytes.chunks(piece).enumerate().map(|(index, part)| {
        data.write_at(place(index) as u64, part);
        Slice { data: data.clone(), at: place(index) as u64, len: part.len() as u64 }
    });
    let slices = slices.collect();
    (data, slices)
}

/// Over both ports.
fn both(test: impl Fn(IoMode)) {
    for mode in [IoMode::Uring, IoMode::Threads] {
        eprintln!("{mode:?}");
        test(mode);
    }
}

/// Waits until something is so.
fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
