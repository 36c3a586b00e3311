//! Processes that end with the process that started them, and clients with a time limit.
//!
//! A process is only ever ended by its own id.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time a client gets before it counts as hung.
pub const CLIENT_LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(5);

/// A server in the background, ended when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts `command` with both output streams appended to the file `log`.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until `ready` holds.
    ///
    /// # Errors
    /// When the process ends before, or `limit` passes; the log is part of the error.
    pub fn wait_until(&mut self, limit: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let start = Instant::now();
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!("ended too early ({status}):\n{}", self.log());
            }
            if start.elapsed() > limit {
                bail!("not ready after {limit:?}:\n{}", self.log());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Asks it to end (SIGTERM) without waiting.
    pub fn ask_to_end(&self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).with_context(|| format!("ending {}", self.child.id()))
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                bail!("still running {limit:?} after it was asked to end:\n{}", self.log());
            }
            thread::sleep(POLL);
        }
    }

    /// Ends it at once (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(())
    }

    /// CPU time of all its threads so far, user and system.
    pub fn cpu(&self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        // The second field is the program's name in parentheses and may hold blanks; counted from
        // behind it, user and system time are the 12th and 13th fields (14 and 15 in proc(5)).
        let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |index: usize| -> Result<u64> {
            Ok(fields.get(index).context("stat is too short")?.parse()?)
        };
        let ticks = field(11)? + field(12)?;
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_nanos(ticks * 1_000_000_000 / ticks_per_second))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("could not end process {}: {error}", self.child.id());
        }
    }
}

/// Runs `command` to its end and hands back what it printed, whether it succeeded or not.
///
/// # Errors
/// When it can't be started, or is still running after `limit` (it is ended then).
pub fn outcome(command: &mut Command, limit: Duration) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let drain = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is still worth showing.
            let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
            bytes
        })
    };
    let stdout = drain(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = drain(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(POLL);
    };
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    let Some(status) = status else {
        bail!("{command:?} hung for {limit:?}:\n{}", String::from_utf8_lossy(&stderr));
    };
    Ok(Output { status, stdout, stderr })
}

/// Runs a client to its end and hands back its standard output.
///
/// # Errors
/// When it can't be started, fails, or hangs; what it printed is part of the error.
pub fn output(command: &mut Command) -> Result<String> {
    let done = outcome(command, CLIENT_LIMIT)?;
    let stdout = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        let stderr = String::from_utf8_lossy(&done.stderr);
        bail!("{command:?} failed ({}):\n{stdout}{stderr}", done.status);
    }
    Ok(stdout)
}
