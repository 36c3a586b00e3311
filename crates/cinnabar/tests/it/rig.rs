//! A folder with disks, and the program under test in it. The tests of both programs use it.

use super::binary;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);

/// A temporary folder.
pub(crate) struct Site {
    dir: TempDir,
}

/// What a command that has ended left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running process, killed when dropped.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Site {
    pub(crate) fn new() -> Self {
        // Short, for the path of a unix socket has 107 bytes at most.
        let dir = tempfile::Builder::new().prefix("cin-").tempdir().expect("a temporary folder");
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of `len` bytes that differ from sector to sector.
    pub(crate) fn disk(&self, name: &str, len: u64) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, pattern(0, len)).expect("a disk");
        path
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path
    }

    /// The binary, to be run in this folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("CINNABAR_SOCKET")
            .env_remove("CINNABAR_LOG")
            .env_remove("NOTIFY_SOCKET")
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        finish(&mut self.command(args))
    }

    /// Runs a command that must do well, for what it prints.
    pub(crate) fn ask(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        ended.stdout
    }

    /// Starts something whose stderr goes to a log, and doesn't wait.
    pub(crate) fn start(&self, command: &mut Command) -> Running {
        let log = self.path(&format!("log-{}", fs::read_dir(self.dir.path()).expect("it").count()));
        let file = File::create(&log).expect("a log");
        Running::new(command, file, log)
    }
}

/// Runs a command to its end, within bounds.
pub(crate) fn finish(command: &mut Command) -> Ended {
    finish_within(command, PATIENCE)
}

/// The same of a command that takes its time.
pub(crate) fn finish_within(command: &mut Command, patience: Duration) -> Ended {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let reader = thread::spawn(move || {
        let mut text = String::new();
        err.as_mut().map(|pipe| pipe.read_to_string(&mut text)).transpose().expect("stderr");
        text
    });
    let writer = thread::spawn(move || {
        let mut text = String::new();
        out.as_mut().map(|pipe| pipe.read_to_string(&mut text)).transpose().expect("stdout");
        text
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if start.elapsed() > patience {
            child.kill().expect("it is our child");
            let stderr = reader.join().expect("the reader ends");
            panic!("{command:?} does not end: {stderr}");
        }
        thread::sleep(STEP);
    };
    Ended {
        code: status.code(),
        stdout: writer.join().expect("the reader ends"),
        stderr: reader.join().expect("the reader ends"),
    }
}

impl Running {
    /// Starts something with a stderr of the test's own; what is read as its log is at `log`.
    pub(crate) fn new(command: &mut Command, stderr: impl Into<Stdio>, log: PathBuf) -> Self {
        let child = command.stdout(Stdio::null()).stderr(stderr).spawn().expect("it starts");
        Self { child, log }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM)
            .expect("it is our child");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.wait_within(PATIENCE)
    }

    /// The same, of something that takes its time.
    pub(crate) fn wait_within(&mut self, patience: Duration) -> ExitStatus {
        let start = Instant::now();
        while start.elapsed() < patience {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            thread::sleep(STEP);
        }
        panic!("it does not end: {}", self.log());
    }

    /// Kills it, as a crash would.
    pub(crate) fn crash(mut self) {
        self.child.kill().expect("it is our child");
        self.wait();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Waits for something to happen while it runs.
    pub(crate) fn wait_until(&mut self, what: &str, mut happened: impl FnMut() -> bool) {
        let start = Instant::now();
        while !happened() {
            assert!(self.is_running(), "ended before {what}: {}", self.log());
            assert!(start.elapsed() < PATIENCE, "not {what}: {}", self.log());
            thread::sleep(STEP);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Bytes of a disk: each sector begins with its number.
pub(crate) fn pattern(offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len)
        .map(|at| {
            let sector = at / 512;
            let byte = sector.to_le_bytes()[(at % 8) as usize];
            byte ^ 0x5A
        })
        .collect()
}
