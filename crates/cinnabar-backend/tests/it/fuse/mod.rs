//! A file system of the tests' own, over `/dev/fuse`: it holds its files in memory, keeps requests
//! waiting on command, fails flushes and counts them.
//!
//! A really hanging file can't be had otherwise. Mounting needs root; without it, or without
//! `/dev/fuse`, the tests that need this say so and pass.

mod proto;
mod server;

use rustix::fd::OwnedFd;
use server::Server;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long something hangs at most: a test that fails must end, and it ends with its I/O.
const HANG_MAX: Duration = Duration::from_secs(40);

/// What the tests change while the server runs.
#[derive(Default)]
pub(crate) struct Knobs {
    /// Reads, writes, flushes and allocations of this file wait, since then.
    hangs: Mutex<Option<(String, Instant)>>,
    /// Requests that wait now.
    pub(crate) waiting: AtomicU32,
    /// Flushes carried out.
    pub(crate) flushes: AtomicU32,
    /// Writes carried out.
    pub(crate) writes: AtomicU32,
    /// Flushes that are still to fail.
    pub(crate) failing_flushes: AtomicU32,
    /// The file system tells neither its size nor its room.
    pub(crate) tells_no_room: AtomicBool,
    /// Every lock is another host's.
    pub(crate) locked_elsewhere: AtomicBool,
    /// Files by name.
    files: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl Knobs {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.files.lock().expect("no panic while it is held")
    }

    fn hangs(&self, name: &str) -> bool {
        let hangs = self.hangs.lock().expect("no panic while it is held");
        hangs.as_ref().is_some_and(|(hung, since)| hung == name && since.elapsed() < HANG_MAX)
    }
}

/// A mounted file system; unmounted when it is dropped.
pub(crate) struct Fuse {
    pub(crate) knobs: Arc<Knobs>,
    folder: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fuse {
    /// Mounts one; `None`, said on stderr, where that is not possible.
    pub(crate) fn mount() -> Option<Self> {
        let device = match open_device() {
            Ok(device) => device,
            Err(error) => {
                eprintln!("left out: /dev/fuse: {error}");
                return None;
            }
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        if let Err(error) = mount(folder.path(), &options) {
            eprintln!("left out: mounting a file system: {error}");
            return None;
        }
        let knobs = Arc::new(Knobs::default());
        let stop = Arc::new(AtomicBool::new(false));
        let server = Server::new(device, Arc::clone(&knobs), Arc::clone(&stop));
        let thread = std::thread::spawn(move || server.run());
        Some(Self { knobs, folder, stop, thread: Some(thread) })
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.knobs.files().contains_key(name)
    }

    /// A file of so many bytes.
    pub(crate) fn file(&self, name: &str, bytes: usize) -> PathBuf {
        self.knobs.files().insert(name.to_owned(), vec![0; bytes]);
        self.folder().join(name)
    }

    /// Where it is mounted.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// From now on I/O on this file waits; `None`: nothing waits any more.
    pub(crate) fn hang(&self, name: Option<&str>) {
        let since = Instant::now();
        *self.knobs.hangs.lock().expect("no panic while it is held") =
            name.map(|name| (name.to_owned(), since));
    }

    /// Waits until that many requests are kept waiting.
    pub(crate) fn await_waiting(&self, count: u32) {
        let until = Instant::now() + crate::rig::PATIENCE;
        while self.knobs.waiting.load(SeqCst) < count {
            assert!(Instant::now() < until, "{} wait", self.knobs.waiting.load(SeqCst));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.hang(None);
        unmount(self.folder());
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open_device() -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("no zero byte")
}

fn mount(folder: &Path, options: &str) -> std::io::Result<()> {
    let (source, target) = (c_string(b"cinnabar-test"), c_string(folder.as_os_str().as_bytes()));
    let (kind, options) = (c_string(b"fuse"), c_string(options.as_bytes()));
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: all are strings that live until the call returns.
    let result = unsafe {
        let options = options.as_ptr().cast();
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn unmount(folder: &Path) {
    let target = c_string(folder.as_os_str().as_bytes());
    // By force first, which ends all that waits for the server.
    for flags in [libc::MNT_FORCE, libc::MNT_DETACH] {
        // SAFETY: a string that lives until the call returns.
        unsafe { libc::umount2(target.as_ptr(), flags) };
    }
}
