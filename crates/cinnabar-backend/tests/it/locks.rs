//! One user at a time, across processes.

use crate::rig::{file, now, soon};
use cinnabar_backend::disk::{Disk, DiskErrorKind, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATH: &str = "CINNABAR_TEST_LOCK_PATH";
const READ_ONLY: &str = "CINNABAR_TEST_LOCK_READ_ONLY";

/// Not a test of its own: the other process of the tests below. Holds the lock until its standard
/// input ends.
#[test]
#[ignore = "run by other tests"]
fn holder() {
    let path = std::env::var(PATH).expect("run by other tests");
    let read_only = std::env::var(READ_ONLY).is_ok();
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
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "locks::holder", "--ignored", "--nocapture"]);
        command.env(PATH, path).stdin(Stdio::piped()).stdout(Stdio::piped());
        if read_only {
            command.env(READ_ONLY, "1");
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
        holder.child.kill().expect("it is ours");
        holder.child.wait().expect("it ends");
    });
    Disk::open(&path, &OpenOptions::default()).expect("the dead don't keep locks");
    thread.join().expect("the thread ends");
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
