//! One user at a time, across processes.

use crate::rig::{Rig, file, now, slices, soon};
use cinnabar_backend::Memory;
use cinnabar_backend::disk::{Disk, DiskErrorKind, OpenOptions, lock_folder};
use cinnabar_backend::port::{IoMode, JobOp};
use cinnabar_engine::Payload;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATH: &str = "CINNABAR_TEST_LOCK_PATH";
const READ_ONLY: &str = "CINNABAR_TEST_LOCK_READ_ONLY";
const WRITING: &str = "CINNABAR_TEST_LOCK_WRITING";
/// What the other process keeps in flight, if it writes.
const WRITES: u64 = 64;
const WRITE_BYTES: u64 = 1 << 20;

/// Not a test of its own: the other process of the tests below. Holds the lock until its standard
/// input ends.
#[test]
#[ignore = "run by other tests"]
fn holder() {
    let path = std::env::var(PATH).expect("run by other tests");
    let read_only = std::env::var(READ_ONLY).is_ok();
    if std::env::var(WRITING).is_ok() {
        let mut rig = Rig::new(IoMode::Auto, Path::new(&path));
        for round in 0_u64.. {
            for place in 0..WRITES {
                let data = Memory::alloc(256);
                data.write_at(0, &vec![round as u8; WRITE_BYTES as usize]);
                let data = slices(&data, WRITE_BYTES);
                let (offset, pages) = (place * WRITE_BYTES, Vec::new());
                rig.submit(place, JobOp::Write { offset, pages, data, fua: true });
            }
            // They are under way from here on.
            rig.finish(1);
            if round == 0 {
                println!("\nopened true");
                std::io::stdout().flush().expect("a pipe");
            }
            rig.finish(WRITES as usize - 1);
        }
    }
    let disk = Disk::open(Path::new(&path), &OpenOptions { read_only, ..soon() });
    println!("\nopened {}", disk.is_ok());
    std::io::stdout().flush().expect("a pipe");
    let _ = std::io::stdin().lines().count();
}

/// The process, and its output: what it says at its end must find a reader.
struct Holder {
    child: Child,
    _output: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn start(path: &Path, read_only: bool) -> Self {
        Self::with(path, read_only.then_some(READ_ONLY))
    }

    /// Some more to be told: the name of a variable.
    fn with(path: &Path, more: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "locks::holder", "--ignored", "--nocapture"]);
        command.env(PATH, path).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(name) = more {
            command.env(name, "1");
        }
        let mut child = command.spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let lines = out.by_ref().lines().map_while(Result::ok);
        let line = { lines }.find(|line| line.starts_with("opened"));
        assert_eq!(line.as_deref(), Some("opened true"));
        Self { child, _output: out }
    }

    fn stop(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends");
    }
}

#[test]
fn a_second_process_is_refused_and_told_who() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = file(&folder, &[0; 4096]);
    let holder = Holder::start(&path, false);
    for read_only in [false, true] {
        let options = OpenOptions { read_only, ..now() };
        let error = Disk::open(&path, &options).expect_err("it is locked");
        assert!(matches!(error.kind, DiskErrorKind::InUse { waited, .. } if waited.is_zero()));
        let text = error.to_string();
        assert!(text.contains("it is in use"), "{text}");
        assert!(text.contains(&format!("by process {}", holder.child.id())), "{text}");
    }
    let options = OpenOptions { lock_wait: Duration::from_millis(200), ..now() };
    let start = Instant::now();
    let error = Disk::open(&path, &options).expect_err("it stays locked");
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert!(error.to_string().contains("still so after 0."), "{error}");
    holder.stop();
    Disk::open(&path, &soon()).expect("it is free again");
}

#[test]
fn a_lock_that_comes_free_is_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = file(&folder, &[0; 4096]);
    let mut holder = Holder::start(&path, false);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        holder.child.kill().expect("it is a cache");
        holder.child.wait().expect("it ends");
    });
    Disk::open(&path, &OpenOptions::default()).expect("the dead don't keep locks");
    thread.join().expect("the thread ends");
}

/// What a killed process had in flight lands before its lock comes free.
#[test]
fn the_writes_of_the_dead_are_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disk.raw");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(WRITES * WRITE_BYTES).expect("a size");
    for round in 0..5 {
        let mut holder = Holder::with(&path, Some(WRITING));
        std::thread::sleep(Duration::from_millis(10 * round));
        holder.child.kill().expect("it is a cache");
        let disk = Disk::open(&path, &OpenOptions::default()).expect("the dead don't keep locks");
        let before = std::fs::read(&path).expect("it can be read");
        std::thread::sleep(Duration::from_millis(300));
        let after = std::fs::read(&path).expect("it can be read");
        assert!(before == after, "something landed after the lock came free");
        drop(disk);
        holder.child.wait().expect("it ends");
    }
}

#[test]
fn a_folder_has_one_user() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lock = lock_folder(folder.path(), &soon()).expect("it is free");
    let error = lock_folder(folder.path(), &now()).expect_err("it is locked");
    assert!(matches!(error.kind, DiskErrorKind::InUse { .. }), "{error}");
    drop(lock);
    lock_folder(folder.path(), &soon()).expect("it is free again");
    let none = lock_folder(&folder.path().join("none"), &now()).expect_err("there is none");
    assert_eq!(none.kind, DiskErrorKind::NotFound);
}

#[test]
fn readers_share() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = file(&folder, &[0; 4096]);
    let holder = Holder::start(&path, true);
    let reader =
        Disk::open(&path, &OpenOptions { read_only: true, ..soon() }).expect("it is shared");
    let error = Disk::open(&path, &now()).expect_err("readers keep writers out");
    assert!(matches!(error.kind, DiskErrorKind::InUse { .. }), "{error}");
    drop(reader);
    holder.stop();
}

/// A disk that was replaced while its lock was waited for: the new one is meant.
#[test]
fn what_the_path_names_when_the_lock_comes_free_is_opened() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = file(&folder, &[1; 4096]);
    let held = Disk::open(&path, &now()).expect("it opens");
    let opener = {
        let path = path.clone();
        std::thread::spawn(move || Disk::open(&path, &soon()).expect("it opens"))
    };
    // Long enough to wait for the lock; if not, the test shows nothing.
    std::thread::sleep(Duration::from_millis(100));
    let other = folder.path().join("other.raw");
    std::fs::write(&other, [2; 8192]).expect("a file");
    std::fs::rename(&other, &path).expect("it takes the place");
    drop(held);
    assert_eq!(opener.join().expect("no panic").size_bytes(), 8192);
}
