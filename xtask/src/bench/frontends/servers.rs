//! The servers that are compared, each on the same file.

use super::clients::{Load, Seen, Target};
use crate::bench::warm;
use anyhow::{Context, Result, ensure};
use e2e::{Config, Daemon, Fio, MIB, Running, Site, Volume};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const READY_LIMIT: Duration = Duration::from_secs(20);
/// Connections at most.
const CONNECTIONS: &str = "16";
const EXPORT: &str = "disk";
/// Our device's socket, beside the configuration.
const VHOST: &str = "disk.vhost";
/// Shards of a cache that two threads serve, as large devices have.
const SHARDS: u32 = 4;

/// A peer's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// `qemu-nbd`, direct I/O through `io_uring`.
    QemuNbd,
    /// `qemu-storage-daemon`, direct I/O through `io_uring`, over NBD.
    QsdNbd,
    /// The same over vhost-user-blk.
    QsdVhost,
    /// `nbdkit file`, through the page cache.
    Nbdkit,
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::QemuNbd => "qemu-nbd",
            Self::QsdNbd => "qemu-storage-daemon",
            Self::QsdVhost => "qemu-storage-daemon, vhost-user",
            Self::Nbdkit => "nbdkit file (page cache)",
        }
    }

    fn command(self, disk: &Path, socket: &Path) -> Command {
        let (disk, socket) = (disk.display(), socket.display());
        let storage_daemon = || {
            let mut command = Command::new("qemu-storage-daemon");
            command.arg("--blockdev").arg(format!(
                "driver=file,node-name=disk,filename={disk},cache.direct=on,aio=io_uring,read-only=on"
            ));
            command
        };
        match self {
            Self::QemuNbd => {
                let mut command = Command::new("qemu-nbd");
                command.args(["--persistent", "--read-only", "--format=raw", "--cache=none"]);
                command.args(["--aio=io_uring", "--shared", CONNECTIONS, "--export-name", EXPORT]);
                command.arg(format!("--socket={socket}")).arg(disk.to_string());
                command
            }
            Self::QsdNbd => {
                let mut command = storage_daemon();
                command.arg("--nbd-server").arg(format!(
                    "addr.type=unix,addr.path={socket},max-connections={CONNECTIONS}"
                ));
                command.arg("--export").arg(format!("type=nbd,id=e,node-name=disk,name={EXPORT}"));
                command
            }
            Self::QsdVhost => {
                let mut command = storage_daemon();
                command.arg("--export").arg(format!(
                    "type=vhost-user-blk,id=e,node-name=disk,addr.type=unix,addr.path={socket},\
                     num-queues=1"
                ));
                command
            }
            Self::Nbdkit => {
                let mut command = Command::new("nbdkit");
                command.args(["--foreground", "--readonly", "--unix", &socket.to_string()]);
                command.args(["--threads", CONNECTIONS, "file", &disk.to_string()]);
                command
            }
        }
    }
}

/// A server on `disk`.
pub(super) struct Server {
    pub(super) process: Process,
    nbd: Option<String>,
    vhost: Option<PathBuf>,
}

/// A server's process.
pub(super) enum Process {
    Ours(Daemon),
    Peer(Running),
}

impl Process {
    pub(super) fn running(&self) -> &Running {
        match self {
            Self::Ours(daemon) => &daemon.running,
            Self::Peer(running) => running,
        }
    }

    /// Blocks of volumes read that were not in the cache; peers have no cache and no misses.
    pub(super) fn misses(&self, mut volumes: impl Iterator<Item = String>) -> Result<u64> {
        let Self::Ours(daemon) = self else { return Ok(0) };
        let status = daemon.status()?;
        volumes.try_fold(0, |sum, volume| Ok(sum + status.count(&volume, "misses")?))
    }

    /// What `work` finds, and the server's CPU time meanwhile, user and system. Everything is to be cached.
    pub(super) fn beside<T>(
        &self,
        volumes: impl Iterator<Item = String> + Clone,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Duration)> {
        let (cpu, misses) = (self.running().cpu()?, self.misses(volumes.clone())?);
        let seen = work()?;
        let cpu = self.running().cpu()?.saturating_sub(cpu);
        ensure!(self.misses(volumes)? == misses, "a miss while everything should be cached");
        Ok((seen, cpu))
    }

    pub(super) fn stop(self) -> Result<()> {
        match self {
            Self::Ours(daemon) => daemon.stop(),
            Self::Peer(mut running) => {
                running.ask_to_end()?;
                running.wait(READY_LIMIT).map(|_| ()).context("ending a peer")
            }
        }
    }
}

impl Server {
    /// Starts a peer in `site` and waits until it listens.
    pub(super) fn peer(peer: Peer, site: &Site, disk: &Path) -> Result<Self> {
        let name = format!("{peer:?}");
        let socket = site.path(&format!("{name}.sock"));
        let log = site.path(&format!("{name}.log"));
        let mut running = Running::start(&mut peer.command(disk, &socket), &log)?;
        running.wait_until(READY_LIMIT, || socket.exists())?;
        let (nbd, vhost) = if peer == Peer::QsdVhost {
            (None, Some(socket))
        } else {
            (Some(format!("nbd+unix:///{EXPORT}?socket={}", socket.display())), None)
        };
        Ok(Self { process: Process::Peer(running), nbd, vhost })
    }

    /// Starts Cinnabar in `site` with so many data threads, over NBD and vhost-user both, and reads
    /// until all of the disk is cached.
    pub(super) fn ours(site: &Site, disk: &Path, size: u64, threads: u32) -> Result<Self> {
        Self::ours_with(site, disk, size, threads, &[])
    }

    /// The same with these lines in the volume's section.
    pub(super) fn ours_with(
        site: &Site,
        disk: &Path,
        size: u64,
        threads: u32,
        lines: &[&str],
    ) -> Result<Self> {
        let volume = Volume::new(EXPORT, &format!("file:{}", disk.display()))
            // Both front ends at once are for readers only.
            .key("read_only = true")
            .key(&format!("vhost_user = \"{VHOST}\""))
            .key("bypass_sequential = \"0\"")
            .key("bypass_large = \"0\"");
        let volume = lines.iter().fold(volume, |volume, line| volume.key(line));
        // Twice the disk, that nothing is ever evicted.
        let mut config = Config::new((size * 2).max(128 * MIB) + 64 * MIB).volume(volume);
        if threads > 1 {
            config = config
                .cache_key(&format!("threads = {threads}"))
                .cache_key(&format!("shards = {SHARDS}"));
        }
        let server = Self::serve(site, &config)?;
        if let (Process::Ours(daemon), Some(uri)) = (&server.process, &server.nbd) {
            warm_over(daemon, EXPORT, uri)?;
        }
        Ok(server)
    }

    /// Starts Cinnabar with a configuration whose volume is called `disk`.
    pub(super) fn serve(site: &Site, config: &Config) -> Result<Self> {
        let daemon = site.serve(config)?;
        let vhost = Some(site.path(VHOST));
        Ok(Self { process: Process::Ours(daemon), nbd: Some(site.uri(EXPORT)), vhost })
    }

    /// Where NBD clients find it.
    pub(super) fn nbd(&self) -> Result<Target> {
        self.nbd.clone().map(Target::Nbd).context("no NBD")
    }

    /// Where drivers find it.
    pub(super) fn vhost(&self) -> Result<Target> {
        self.vhost.clone().map(Target::Vhost).context("no vhost-user")
    }

    /// What a load on it finds, and its CPU time an operation, in us.
    pub(super) fn under(
        &self,
        load: Load,
        target: &Target,
        check: Option<&Path>,
    ) -> Result<(Seen, f64)> {
        let export = std::iter::once(EXPORT.to_owned());
        let (seen, cpu) = self.process.beside(export, || load.on(target, check))?;
        Ok((seen, cpu.as_secs_f64() * 1e6 / seen.operations.max(1) as f64))
    }

    /// A counter of our volume's; 0 for peers.
    pub(super) fn count(&self, key: &str) -> Result<u64> {
        match &self.process {
            Process::Ours(daemon) => daemon.status()?.count(EXPORT, key),
            Process::Peer(_) => Ok(0),
        }
    }

    pub(super) fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

/// Reads a volume over NBD until all of it is cached.
pub(super) fn warm_over(daemon: &Daemon, name: &str, uri: &str) -> Result<()> {
    let job = Fio::nbd(uri).arg("rw", "read").arg("bs", "128k").arg("iodepth", 8);
    warm(daemon, name, || job.clone().run().map(drop))
}
