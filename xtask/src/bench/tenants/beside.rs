//! What stands beside the daemon and goes silent: the server of its back ends, the reader of its log.

use super::DISK;
use anyhow::{Context, Result};
use e2e::{Config, Daemon, Site, Volume};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Back ends that hang, and all there are with them.
pub(super) const HUNG: usize = 80;
const ALL: usize = 400;
/// Each of them beside the victim's.
const BYTES: u64 = 1 << 20;

/// The name of a volume whose back end hangs.
pub(super) fn hung(number: usize) -> String {
    format!("hung{number}")
}

/// A server of back ends that is stopped, as a host that lost its power would be.
pub(super) struct BackEnds {
    server: Daemon,
    site: Site,
}

impl BackEnds {
    pub(super) fn start() -> Result<Self> {
        let site = Site::within(Path::new("/dev/shm"))?;
        let mut config = Config::new(DISK);
        for name in (0..HUNG).map(hung) {
            site.sparse(&name, BYTES)?;
            config = config.volume(Volume::new(&name, &format!("file:{name}")));
        }
        Ok(Self { server: site.serve(&config)?, site })
    }

    /// The volumes that are there beside `others`: those on this server, and healthy ones.
    pub(super) fn add_to(&self, mut config: Config, site: &Site, others: usize) -> Result<Config> {
        for name in (0..HUNG).map(hung) {
            let socket = self.site.path(&format!("{name}.sock"));
            let back_end = format!("nbd:unix:{}:{name}", socket.display());
            config = config.volume(Volume::new(&name, &back_end));
        }
        for name in (HUNG + others..ALL).map(|number| format!("idle{number}")) {
            site.sparse(&name, BYTES)?;
            config = config.volume(Volume::new(&name, &format!("file:{name}")));
        }
        Ok(config)
    }

    pub(super) fn hang(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// They answer again, and end.
    pub(super) fn end(self) -> Result<()> {
        self.signal(Signal::CONT)?;
        self.server.crash()
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.server.running.pid().cast_signed()).context("a process")?;
        Ok(kill_process(pid, signal)?)
    }
}

/// A pipe for the daemon's log that nobody reads.
pub(super) struct Pipe {
    /// Held open: else the daemon's writes would fail.
    both_ends: File,
    path: PathBuf,
}

impl Pipe {
    pub(super) fn new(site: &Site) -> Result<Self> {
        let path = site.path("log.pipe");
        match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).context("making a pipe"),
        }
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let pipe = File::options().read(true).write(true).custom_flags(flags).open(&path)?;
        Ok(Self { both_ends: pipe, path })
    }

    /// Fills it to the last byte.
    pub(super) fn fill(&self) {
        while rustix::io::write(&self.both_ends, b".").is_ok() {}
    }

    /// Has a command write to it.
    pub(super) fn take_log_of(&self, command: &mut Command) {
        let mut wrapped = Command::new("sh");
        wrapped.args(["-c", "pipe=$1; shift; exec \"$@\" 2>\"$pipe\"", "sh"]).arg(&self.path);
        wrapped.arg(command.get_program()).args(command.get_args());
        *command = wrapped;
    }
}
