//! What the tests share: a port with one disk, and jobs that are waited for.

use cinnabar_backend::Memory;
use cinnabar_backend::disk::{Disk, OpenOptions};
use cinnabar_backend::port::{self, Done, FileId, IoMode, Job, JobOp, Port, PortEvent};
use cinnabar_engine::{Payload, Slice, Slices};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Long enough for anything that is not broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Folders to test in.
pub(crate) fn folders() -> Vec<tempfile::TempDir> {
    let mut folders = vec![tempfile::tempdir().expect("a temporary folder")];
    if Path::new("/dev/shm").is_dir() {
        folders.push(tempfile::tempdir_in("/dev/shm").expect("a folder on the tmpfs"));
    }
    folders
}

/// Options that don't wait for locks, for what is to be refused.
pub(crate) fn now() -> OpenOptions {
    OpenOptions { lock_wait: Duration::ZERO, ..OpenOptions::default() }
}

/// Options for what is to succeed. Locks are waited for: a child process that another test is just
/// starting holds copies of all descriptors for a moment.
pub(crate) fn soon() -> OpenOptions {
    OpenOptions { lock_wait: PATIENCE, ..OpenOptions::default() }
}

/// A file with these contents.
pub(crate) fn file(folder: &tempfile::TempDir, contents: &[u8]) -> PathBuf {
    let path = folder.path().join("disk.raw");
    std::fs::write(&path, contents).expect("a file");
    path
}

/// A port and one disk on it.
pub(crate) struct Rig {
    pub(crate) port: Box<dyn Port>,
    pub(crate) file: FileId,
    pub(crate) disk: Arc<Disk>,
}

impl Rig {
    pub(crate) fn new(mode: IoMode, path: &Path) -> Self {
        Self::with(mode, path, &soon())
    }

    pub(crate) fn with(mode: IoMode, path: &Path, options: &OpenOptions) -> Self {
        Self::of(mode, Disk::open(path, options).expect("it opens"))
    }

    pub(crate) fn of(mode: IoMode, disk: Disk) -> Self {
        let disk = Arc::new(disk);
        let mut port = port::open(mode).expect("a port");
        let file = port.register(Arc::clone(&disk)).expect("it registers");
        Self { port, file, disk }
    }

    pub(crate) fn submit(&mut self, token: u64, op: JobOp) {
        self.port.submit(Job { token, file: self.file, op });
    }

    /// Waits for `count` completions.
    pub(crate) fn finish(&mut self, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        let mut events = Vec::new();
        while done.len() < count {
            self.port.wait(Some(PATIENCE), &mut events).expect("the port works");
            assert!(!events.is_empty(), "{} of {count} jobs are done", done.len());
            for event in events.drain(..) {
                match event {
                    PortEvent::Done(one) => done.push(one),
                    other => panic!("unexpected: {other:?}"),
                }
            }
        }
        done
    }

    /// One job, waited for.
    pub(crate) fn run(&mut self, op: JobOp) -> Done {
        self.submit(7, op);
        let done = self.finish(1).pop().expect("there is one");
        assert_eq!(done.token, 7);
        assert_eq!(self.port.in_flight(), 0);
        done
    }

    pub(crate) fn read(&mut self, offset: u64, len: u64) -> Vec<u8> {
        let data = dirty(len);
        let done = self.run(JobOp::Read { offset, pages: Vec::new(), data: slices(&data, len) });
        assert_eq!(done.result, Ok(()));
        data.to_vec(0, len)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) {
        let data = Memory::alloc(bytes.len().div_ceil(4096) as u32);
        data.write_at(0, bytes);
        let data = slices(&data, bytes.len() as u64);
        let done = self.run(JobOp::Write { offset, pages: Vec::new(), data, fua });
        assert_eq!(done.result, Ok(()));
    }
}

/// Memory that is not zero, so that bytes that were never written are noticed.
pub(crate) fn dirty(len: u64) -> Memory {
    let data = Memory::alloc(len.div_ceil(4096) as u32);
    data.write_at(0, &vec![0xee; len as usize]);
    data
}

/// All of a buffer as one slice.
pub(crate) fn slices(data: &Memory, len: u64) -> Slices<Memory> {
    std::iter::once(Slice { data: data.clone(), at: 0, len }).collect()
}

/// Bytes that differ everywhere.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect()
}

/// Runs a test over both ports and all kinds of file.
pub(crate) fn everywhere(test: impl Fn(IoMode, &tempfile::TempDir)) {
    for mode in [IoMode::Uring, IoMode::Threads] {
        for folder in folders() {
            eprintln!("{mode:?} in {}", folder.path().display());
            test(mode, &folder);
        }
    }
}
