//! The NBD servers that are compared, each on the same file.
//!
//! Called by the benchmark `frontends`.

use anyhow::{Context, Result, bail};
use e2e::{Config, Daemon, Fio, MIB, Running, Site, Volume};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const READY_LIMIT: Duration = Duration::from_secs(20);
/// Passes over the disk until it is wholly cached.
const WARMING_PASSES_MAX: u32 = 40;
/// Connections at most.
const CONNECTIONS: &str = "16";
const EXPORT: &str = "disk";

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ours, everything cached.
    Cinnabar,
    /// `qemu-nbd`, direct I/O through `io_uring`.
    QemuNbd,
    /// `qemu-storage-daemon`, direct I/O through `io_uring`.
    QemuStorageDaemon,
    /// `nbdkit file`, through the page cache.
    Nbdkit,
}

/// All of them, ours first.
pub(crate) const KINDS: [Kind; 4] =
    [Kind::Cinnabar, Kind::QemuNbd, Kind::QemuStorageDaemon, Kind::Nbdkit];

impl Kind {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cinnabar => "cinnabar, 100 % hits",
            Self::QemuNbd => "qemu-nbd",
            Self::QemuStorageDaemon => "qemu-storage-daemon",
            Self::Nbdkit => "nbdkit file (page cache)",
        }
    }
}

/// A server on `disk`, which lies in `site`.
pub(crate) struct Server {
    process: Process,
    uri: String,
}

enum Process {
    Ours(Daemon),
    Peer(Running),
}

impl Server {
    /// Starts one and waits until it listens; ours also gets warm.
    pub(crate) fn start(kind: Kind, site: &Site, disk: &Path, size: u64) -> Result<Self> {
        if kind == Kind::Cinnabar {
            return Self::ours(site, disk, size);
        }
        let name = kind.name().split(' ').next().unwrap_or_default();
        let socket = site.path(&format!("{name}.sock"));
        let mut command = peer(kind, disk, &socket);
        let mut running = Running::start(&mut command, &site.path(&format!("{name}.log")))?;
        running.wait_until(READY_LIMIT, || socket.exists())?;
        let uri = format!("nbd+unix:///{EXPORT}?socket={}", socket.display());
        Ok(Self { process: Process::Peer(running), uri })
    }

    fn ours(site: &Site, disk: &Path, size: u64) -> Result<Self> {
        let volume = Volume::new(EXPORT, &format!("file:{}", disk.display()))
            .key("read_only = true")
            .key("bypass_sequential = \"0\"")
            .key("bypass_large = \"0\"");
        // Twice the disk, that nothing is ever evicted.
        let daemon = site.serve(&Config::new(size * 2 + 64 * MIB).volume(volume))?;
        let uri = site.uri(EXPORT);
        let server = Self { process: Process::Ours(daemon), uri };
        // A disk in RAM is read faster than the cache is written, and then fills are skipped: so
        // until a whole pass misses nothing.
        for _ in 0..WARMING_PASSES_MAX {
            let before = server.misses()?;
            Fio::nbd(&server.uri).arg("rw", "read").arg("bs", "128k").arg("iodepth", 8).run()?;
            if server.misses()? == before {
                return Ok(server);
            }
        }
        bail!("still missing after the disk was read {WARMING_PASSES_MAX} times");
    }

    /// Where clients find it.
    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    /// What it has printed, for errors.
    pub(crate) fn log(&self) -> String {
        match &self.process {
            Process::Ours(daemon) => daemon.running.log(),
            Process::Peer(running) => running.log(),
        }
    }

    /// CPU time so far, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        match &self.process {
            Process::Ours(daemon) => daemon.running.cpu(),
            Process::Peer(running) => running.cpu(),
        }
    }

    /// Blocks read that were not in the cache; peers have no cache and no misses.
    pub(crate) fn misses(&self) -> Result<u64> {
        match &self.process {
            Process::Ours(daemon) => daemon.status()?.count(EXPORT, "misses"),
            Process::Peer(_) => Ok(0),
        }
    }

    /// Ends it.
    pub(crate) fn stop(self) -> Result<()> {
        match self.process {
            Process::Ours(daemon) => daemon.stop(),
            Process::Peer(mut running) => {
                running.ask_to_end()?;
                running.wait(READY_LIMIT).map(|_| ()).context("ending a peer")
            }
        }
    }
}

fn peer(kind: Kind, disk: &Path, socket: &Path) -> Command {
    let (disk, socket) = (disk.display(), socket.display());
    match kind {
        Kind::Cinnabar => unreachable!("ours is no peer"),
        Kind::QemuNbd => {
            let mut command = Command::new("qemu-nbd");
            command.args(["--persistent", "--read-only", "--format=raw", "--cache=none"]);
            command.args(["--aio=io_uring", "--shared", CONNECTIONS, "--export-name", EXPORT]);
            command.arg(format!("--socket={socket}")).arg(disk.to_string());
            command
        }
        Kind::QemuStorageDaemon => {
            let mut command = Command::new("qemu-storage-daemon");
            command.arg("--blockdev").arg(format!(
                "driver=file,node-name=disk,filename={disk},cache.direct=on,aio=io_uring,read-only=on"
            ));
            command
                .arg("--nbd-server")
                .arg(format!("addr.type=unix,addr.path={socket},max-connections={CONNECTIONS}"));
            command.arg("--export").arg(format!("type=nbd,id=e,node-name=disk,name={EXPORT}"));
            command
        }
        Kind::Nbdkit => {
            let mut command = Command::new("nbdkit");
            command.args(["--foreground", "--readonly", "--unix", &socket.to_string()]);
            command.args(["--threads", CONNECTIONS, "file", &disk.to_string()]);
            command
        }
    }
}
