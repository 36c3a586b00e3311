//! A daemon under test: a folder of its own, a configuration, the process.

use crate::control::{Status, get, is_ready};
use crate::process::{Running, output};
use crate::rng::Rng;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const READY_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_mins(1);
/// How long an index may load, and a cache take to hold what is read again and again.
const WARM_LIMIT: Duration = Duration::from_secs(30);

/// A folder with disks, configuration and sockets, removed when dropped.
#[derive(Debug)]
pub struct Site {
    dir: TempDir,
}

impl Site {
    /// An empty folder below the system's temporary folder.
    pub fn new() -> Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// An empty folder below `parent`.
    pub fn within(parent: &Path) -> Result<Self> {
        // Short, for the path of a unix socket may have 107 bytes only.
        let dir = tempfile::Builder::new().prefix("cinnabar-").tempdir_in(parent)?;
        Ok(Self { dir })
    }

    /// An empty folder in memory where there is a file system for that, so that a disk that is busy with other things
    /// is not seen.
    pub fn in_memory() -> Result<Self> {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::within(memory) } else { Self::new() }
    }

    /// A file's path.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a sparse file of `size` bytes.
    pub fn sparse(&self, name: &str, size: u64) -> Result<PathBuf> {
        let path = self.path(name);
        File::create(&path)?.set_len(size)?;
        Ok(path)
    }

    /// Makes a file of `size` bytes that differ from block to block and repeat for the same `seed`.
    pub fn filled(&self, name: &str, size: u64, seed: u64) -> Result<PathBuf> {
        const PIECE: u64 = 16 << 20;
        let path = self.path(name);
        let mut file = File::create(&path)?;
        for (piece, start) in (0..size).step_by(PIECE as usize).enumerate() {
            let seed = seed + piece as u64 * 1_000_003;
            file.write_all(&noise(PIECE.min(size - start), seed))?;
        }
        // Direct reads would write it out otherwise, amid whatever is measured.
        file.sync_all()?;
        Ok(path)
    }

    /// Starts a daemon here and waits until it is ready.
    ///
    /// # Errors
    /// When it does not build, start, or get ready; its log is part of the error.
    pub fn serve(&self, config: &Config) -> Result<Daemon> {
        self.launch(config)?.ready()
    }

    /// Starts a daemon here and does not wait for anything.
    pub fn launch(&self, config: &Config) -> Result<Daemon> {
        let file = self.path("cinnabar.toml");
        std::fs::write(&file, config.to_toml()?)?;
        self.spawn(&["serve", "--config"], &file, |_| Ok(()))
    }

    /// Starts a daemon here with the configuration that is there, and waits until it is ready.
    pub fn serve_again(&self) -> Result<Daemon> {
        self.spawn(&["serve", "--config"], &self.path("cinnabar.toml"), |_| Ok(()))?.ready()
    }

    /// Starts a daemon here under what `prepare` does to its command, and waits until it is ready.
    pub fn serve_under(
        &self,
        config: &Config,
        prepare: impl FnOnce(&mut Command) -> Result<()>,
    ) -> Result<Daemon> {
        let file = self.path("cinnabar.toml");
        std::fs::write(&file, config.to_toml()?)?;
        self.spawn(&["serve", "--config"], &file, prepare)?.ready()
    }

    /// Starts the daemon's own demonstration here: four machines at work on slow disks.
    pub fn serve_demo(&self) -> Result<Daemon> {
        let with_machines = |command: &mut Command| {
            // Where it is looked for, unless it lies beside the daemon.
            let laboratory = crate::binary::lab()?;
            let folder = laboratory.parent().context("a program lies in a folder")?.to_owned();
            let path = std::env::var_os("PATH").unwrap_or_default();
            let folders = std::iter::once(folder).chain(std::env::split_paths(&path));
            command.env("PATH", std::env::join_paths(folders)?);
            Ok(())
        };
        self.spawn(&["serve", "--demo", "--dir"], self.dir.path(), with_machines)?.ready()
    }

    fn spawn(
        &self,
        args: &[&str],
        path: &Path,
        prepare: impl FnOnce(&mut Command) -> Result<()>,
    ) -> Result<Daemon> {
        let binary = crate::binary::cinnabar()?;
        let socket = self.path("control.sock");
        let mut command = Command::new(&binary);
        command.args(args).arg(path);
        prepare(&mut command)?;
        let running = Running::start(&mut command, &self.path("cinnabar.log"))?;
        Ok(Daemon { running, socket, binary })
    }

    /// Where clients find the volume `name` (configured by [`Volume::new`]).
    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.path(&socket_name(name)).display())
    }
}

/// `size` bytes that look random, the same for the same `seed`.
pub fn noise(size: u64, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(size as usize);
    while (bytes.len() as u64) < size {
        bytes.extend_from_slice(&rng.roll().to_le_bytes());
    }
    bytes.truncate(size as usize);
    bytes
}

/// A TCP port of the loopback that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn socket_name(volume: &str) -> String {
    format!("{volume}.sock")
}

/// A configuration file.
#[derive(Clone, Debug, Default)]
pub struct Config {
    device: String,
    cache_size: u64,
    cache_keys: String,
    /// A port of its own for each daemon, for tests run side by side.
    http: Option<u16>,
    control_keys: String,
    sections: String,
    volumes: Vec<Volume>,
}

impl Config {
    /// A cache file of `size` bytes and no volumes.
    pub fn new(size: u64) -> Self {
        Self { device: "cache.img".to_owned(), cache_size: size, ..Self::default() }
    }

    /// Puts the cache elsewhere than into `cache.img`.
    #[must_use]
    pub fn device(mut self, path: &str) -> Self {
        path.clone_into(&mut self.device);
        self
    }

    /// Adds a line to the table `[cache]`.
    #[must_use]
    pub fn cache_key(mut self, line: &str) -> Self {
        self.cache_keys.push_str(line);
        self.cache_keys.push('\n');
        self
    }

    /// Serves HTTP at this port instead of one that is free.
    #[must_use]
    pub const fn http(mut self, port: u16) -> Self {
        self.http = Some(port);
        self
    }

    /// Adds a line to the table `[control]`.
    #[must_use]
    pub fn control_key(mut self, line: &str) -> Self {
        self.control_keys.push_str(line);
        self.control_keys.push('\n');
        self
    }

    /// Adds a section, whole.
    #[must_use]
    pub fn section(mut self, text: &str) -> Self {
        self.sections.push_str(text);
        self.sections.push('\n');
        self
    }

    /// Adds a volume.
    #[must_use]
    pub fn volume(mut self, volume: Volume) -> Self {
        self.volumes.push(volume);
        self
    }

    fn to_toml(&self) -> Result<String> {
        let http = self.http.map_or_else(free_port, Ok)?;
        let mut text = format!(
            "[cache]\ndevice = \"{}\"\nsize = \"{}\"\n{}\n[control]\nhttp = \"127.0.0.1:{http}\"\n{}\n{}",
            self.device, self.cache_size, self.cache_keys, self.control_keys, self.sections
        );
        for volume in &self.volumes {
            let Volume { name, backend, attach, keys } = volume;
            write!(
                text,
                "\n[[volume]]\nname = \"{name}\"\nbackend = \"{backend}\"\n{attach}\n{keys}"
            )?;
        }
        Ok(text)
    }
}

/// A volume of a configuration.
#[derive(Clone, Debug)]
pub struct Volume {
    name: String,
    backend: String,
    /// The line that says where clients find it.
    attach: String,
    keys: String,
}

impl Volume {
    /// A volume on a unix socket named after it.
    pub fn new(name: &str, backend: &str) -> Self {
        let attach = format!("nbd = \"unix:{}\"", socket_name(name));
        Self { name: name.into(), backend: backend.into(), attach, keys: String::new() }
    }

    /// Serves it elsewhere, for example at `tcp:127.0.0.1:10809`.
    #[must_use]
    pub fn at(mut self, nbd: &str) -> Self {
        self.attach = format!("nbd = \"{nbd}\"");
        self
    }

    /// Serves it over vhost-user instead, at the socket `path`.
    #[must_use]
    pub fn vhost_user(mut self, path: &Path) -> Self {
        self.attach = format!("vhost_user = \"{}\"", path.display());
        self
    }

    /// Adds a line to its table.
    #[must_use]
    pub fn key(mut self, line: &str) -> Self {
        self.keys.push_str(line);
        self.keys.push('\n');
        self
    }
}

/// A running daemon, ended when dropped.
#[derive(Debug)]
pub struct Daemon {
    /// The process.
    pub running: Running,
    socket: PathBuf,
    binary: PathBuf,
}

impl Daemon {
    /// Waits until it serves.
    ///
    /// # Errors
    /// When it ends before, or takes too long; its log is part of the error.
    pub fn ready(mut self) -> Result<Self> {
        let socket = &self.socket;
        self.running.wait_until(READY_LIMIT, || is_ready(socket))?;
        Ok(self)
    }

    /// Runs one of the binary's commands against this daemon, with `--socket`.
    pub fn command(&self, args: &[&str]) -> Result<String> {
        output(Command::new(&self.binary).args(args).arg("--socket").arg(&self.socket))
    }

    /// Its status, checked for what must always hold.
    pub fn status(&self) -> Result<Status> {
        let status = Status::parse(&self.command(&["status", "--json"])?)?;
        status.check_sums()?;
        Ok(status)
    }

    /// Its status at this very moment: one exchange over the control socket, nothing started.
    pub fn glance(&self) -> Result<Status> {
        let (code, body) = get(&self.socket, "/v1/status")?;
        ensure!(code == 200, "status {code}: {body}");
        let status = Status::parse(&body)?;
        status.check_sums()?;
        Ok(status)
    }

    /// Waits until the index is loaded, and hands back the status then. Until then guests are served,
    /// and read from the back end.
    pub fn loaded(&self) -> Result<Status> {
        let start = Instant::now();
        loop {
            let status = self.glance()?;
            if !status.is_loading()? {
                return Ok(status);
            }
            ensure!(start.elapsed() < WARM_LIMIT, "still loading: {}", status.0);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Repeats `read`, which reads `blocks` blocks of a volume, until all of them are hits: while the
    /// SSD is busy, some are not kept.
    pub fn warm_up(
        &self,
        name: &str,
        blocks: u64,
        mut read: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            let before = self.glance()?.count(name, "read_hits")?;
            read()?;
            let status = self.glance()?;
            if status.count(name, "read_hits")? - before >= blocks {
                return Ok(());
            }
            ensure!(start.elapsed() < WARM_LIMIT, "{name} does not get warm: {}", status.0);
        }
    }

    /// Stops it the clean way and checks that it says so.
    pub fn stop(self) -> Result<()> {
        self.running.ask_to_end()?;
        self.ended()
    }

    /// Waits for the end of a daemon that was asked to, and checks that it was a clean one.
    pub fn ended(mut self) -> Result<()> {
        let status = self.running.wait(STOP_LIMIT).context("stopping the daemon")?;
        ensure!(status.success(), "ended with {status}:\n{}", self.running.log());
        Ok(())
    }

    /// Kills it, as a crash would.
    pub fn crash(mut self) -> Result<()> {
        self.running.kill()
    }
}
