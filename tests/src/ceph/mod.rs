//! A throw-away Ceph cluster: real daemons, for tests, benchmarks and the demo.
//!
//! One monitor, two OSDs of class `ssd` and two of class `hdd`, whose messages are delayed; a pool for
//! each class, called like it. No manager, no systemd, no root. Everything is below one temporary
//! folder, listens on the loopback only, and ends with this process, however that ends.

mod keeper;
mod settings;

use crate::daemon::free_port;
use crate::process::{CLIENT_LIMIT, outcome, output};
use crate::tools::{self, Tool};
use anyhow::{Context, Result, bail, ensure};
use keeper::Keeper;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub use settings::{HDD_OSDS, SSD_OSDS};

/// The pool on OSDs of class `ssd`.
pub const FAST: &str = "ssd";
/// The pool on OSDs of class `hdd`.
pub const SLOW: &str = "hdd";

/// What it can't do without.
pub const TOOLS: &[Tool] = &[
    tools::CEPH_MON,
    tools::CEPH_OSD,
    tools::CEPH,
    tools::LIBRBD,
    tools::LIBRADOS,
    tools::LIBRADOSPP,
    tools::CXX,
];

/// How long the cluster may take to serve.
const START_LIMIT: Duration = Duration::from_secs(90);
/// How long a daemon may take to end when it is asked to.
const STOP_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

/// A running cluster, ended when dropped.
#[derive(Debug)]
pub struct Cluster {
    /// By `mon` or `osd.N`. Ended before the folder goes.
    daemons: BTreeMap<String, Child>,
    keeper: Keeper,
    folder: TempDir,
    /// Removes the folder if this process is killed.
    sweeper: Child,
}

impl Cluster {
    /// Starts one, in memory where there is room for it, and waits until both pools serve.
    ///
    /// # Errors
    /// When a program is missing, fails or takes too long; what it said is part of the error.
    pub fn start() -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let room = |folder: &Path| {
            rustix::fs::statvfs(folder).is_ok_and(|stat| stat.f_bavail * stat.f_frsize >= 8 << 30)
        };
        let parent = if room(memory) { memory.to_owned() } else { std::env::temp_dir() };
        Self::start_within(&parent)
    }

    /// The same below `parent`.
    pub fn start_within(parent: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("cinnabar-ceph-").tempdir_in(parent)?;
        let sweeper = keeper::remove_after_us(folder.path())?;
        let mut cluster =
            Self { daemons: BTreeMap::new(), keeper: Keeper::new()?, folder, sweeper };
        let uuids = cluster.prepare()?;
        // They are made while the monitor starts.
        let making: Vec<(u32, Child)> = uuids
            .iter()
            .map(|(number, uuid)| Ok((*number, cluster.make_osd(*number, uuid)?)))
            .collect::<Result<_>>()?;
        cluster.start_mon()?;
        cluster.session(&settings::commands(&uuids))?;
        for (number, mut child) in making {
            let made = ended(&mut child, START_LIMIT)
                .with_context(|| cluster.log(&format!("osd.{number}")))?;
            ensure!(
                made.success(),
                "osd.{number}: {made}\n{}",
                cluster.log(&format!("osd.{number}"))
            );
            cluster.start_osd(number)?;
        }
        for pool in [FAST, SLOW] {
            cluster.wait_for(pool)?;
        }
        Ok(cluster)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Path of `ceph.conf`.
    pub fn conf(&self) -> PathBuf {
        self.folder().join("ceph.conf")
    }

    /// How a volume's backend is written that is this image (`POOL/IMAGE[@SNAP]`).
    pub fn backend(&self, image: &str) -> String {
        format!("rbd,conf={}:{image}", self.conf().display())
    }

    /// One of Ceph's programs with this cluster's configuration.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("--conf").arg(self.conf()).args(args);
        command
    }

    /// Runs `ceph ARGS`.
    pub fn ceph(&self, args: &[&str]) -> Result<String> {
        output(&mut self.command("ceph", args))
    }

    /// Runs `rbd ARGS`.
    pub fn rbd(&self, args: &[&str]) -> Result<String> {
        output(&mut self.command("rbd", args))
    }

    /// Makes a user with these capabilities (`mon`, `profile rbd`, ...).
    pub fn user(&self, name: &str, caps: &[&str]) -> Result<()> {
        let whole = format!("client.{name}");
        let keyring = self.folder().join(format!("{whole}.keyring"));
        let key = self.ceph(&[&["auth", "get-or-create", &whole], caps].concat())?;
        std::fs::write(keyring, key)?;
        Ok(())
    }

    /// Kills an OSD at once, as a power cut would.
    pub fn kill_osd(&mut self, number: u32) -> Result<()> {
        self.kill(&format!("osd.{number}"))
    }

    /// Kills the monitor at once.
    pub fn kill_mon(&mut self) -> Result<()> {
        self.kill("mon")
    }

    fn kill(&mut self, name: &str) -> Result<()> {
        let mut child = self.daemons.remove(name).context("it is running")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Starts an OSD, for the first time or again.
    pub fn start_osd(&mut self, number: u32) -> Result<()> {
        let name = format!("osd.{number}");
        let command = self.command("ceph-osd", &["-f", "-i", &number.to_string()]);
        let child = self.keeper.start(command, &self.log_path(&name))?;
        self.daemons.insert(name, child);
        Ok(())
    }

    /// Stops all OSDs in their tracks, or has them go on.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        for (_, child) in self.daemons.iter().filter(|(name, _)| name.starts_with("osd.")) {
            kill_process(Pid::from_child(child), signal)?;
        }
        Ok(())
    }

    /// Brings back what a case that failed has left frozen or killed, and waits until it serves.
    pub fn restore(&mut self) -> Result<()> {
        self.daemons.retain(|_, child| matches!(child.try_wait(), Ok(None)));
        self.freeze(false)?;
        let mut away = !self.daemons.contains_key("mon");
        if away {
            self.start_mon()?;
        }
        for number in [SSD_OSDS, HDD_OSDS].concat() {
            if !self.daemons.contains_key(&format!("osd.{number}")) {
                away = true;
                self.start_osd(number)?;
            }
        }
        if away { [FAST, SLOW].iter().try_for_each(|pool| self.wait_for(pool)) } else { Ok(()) }
    }

    /// Waits until a pool serves: an object is written and read. Without a manager nothing else
    /// would tell.
    pub fn wait_for(&self, pool: &str) -> Result<()> {
        let begun = Instant::now();
        let file = self.folder().join(format!("{pool}.probe"));
        std::fs::write(&file, "probe")?;
        let timeouts = ["--rados-osd-op-timeout", "5", "--client-mount-timeout", "5"];
        loop {
            let file = file.to_str().context("its path is text")?;
            let args = [&timeouts[..], &["-p", pool, "put", "probe", file]].concat();
            let done = outcome(&mut self.command("rados", &args), CLIENT_LIMIT)?;
            if done.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            ensure!(begun.elapsed() < START_LIMIT, "pool {pool} does not serve: {said}");
            std::thread::sleep(POLL);
        }
    }

    /// Configuration, keys and the monitor's first map. Gives the OSDs' UUIDs.
    fn prepare(&self) -> Result<Vec<(u32, String)>> {
        let folder = self.folder();
        let (port, fsid) = (free_port()?, uuid()?);
        std::fs::write(self.conf(), settings::conf(folder, &fsid, port))?;
        let key = || {
            Ok::<_, anyhow::Error>(
                output(Command::new("ceph-authtool").arg("--gen-print-key"))?.trim().to_owned(),
            )
        };
        let admin = format!(
            "[client.admin]\nkey = {}\ncaps mon = \"allow *\"\ncaps osd = \"allow *\"\n\
             caps mgr = \"allow *\"\n",
            key()?
        );
        std::fs::write(folder.join("client.admin.keyring"), &admin)?;
        let mut keys = format!("[mon.]\nkey = {}\ncaps mon = \"allow *\"\n{admin}", key()?);
        let mut uuids = Vec::new();
        for number in [SSD_OSDS, HDD_OSDS].concat() {
            let entry = format!("[osd.{number}]\nkey = {}\n", key()?);
            let data = folder.join(format!("osd.{number}"));
            std::fs::create_dir(&data)?;
            std::fs::write(data.join("keyring"), &entry)?;
            keys += &entry;
            keys += "caps mon = \"allow profile osd\"\ncaps mgr = \"allow profile osd\"\n\
                     caps osd = \"allow *\"\n";
            uuids.push((number, uuid()?));
        }
        std::fs::write(folder.join("mon.keyring"), keys)?;
        let map = folder.join("monmap");
        let address = format!("[v2:127.0.0.1:{port}]");
        let mut make = Command::new("monmaptool");
        make.args(["--create", "--clobber", "--fsid", &fsid, "--addv", "a", &address]).arg(&map);
        output(&mut make)?;
        let mut mkfs = self.command("ceph-mon", &["--mkfs", "-i", "a"]);
        mkfs.arg("--monmap").arg(&map).arg("--keyring").arg(folder.join("mon.keyring"));
        output(&mut mkfs)?;
        Ok(uuids)
    }

    fn make_osd(&self, number: u32, uuid: &str) -> Result<Child> {
        let args = ["--no-mon-config", "--mkfs", "-i", &number.to_string(), "--osd-uuid", uuid];
        let command = self.command("ceph-osd", &args);
        self.keeper.start(command, &self.log_path(&format!("osd.{number}")))
    }

    /// Starts the monitor, for the first time or again.
    pub fn start_mon(&mut self) -> Result<()> {
        let command = self.command("ceph-mon", &["-f", "-i", "a"]);
        let child = self.keeper.start(command, &self.log_path("mon"))?;
        self.daemons.insert("mon".into(), child);
        Ok(())
    }

    /// Tells the monitor all of this in one session: each command of its own takes half a second.
    fn session(&self, commands: &str) -> Result<()> {
        let mut ceph = self.command("ceph", &["--connect-timeout", "60"]);
        let out = std::fs::File::create(self.log_path("session"))?;
        ceph.stdin(Stdio::piped()).stdout(out.try_clone()?).stderr(out);
        let mut child = ceph.spawn().context("starting ceph")?;
        let mut stdin = child.stdin.take().context("it has a standard input")?;
        stdin.write_all(commands.as_bytes())?;
        drop(stdin);
        let status = ended(&mut child, START_LIMIT)
            .with_context(|| format!("{}\n{}", self.log("session"), self.log("mon")))?;
        // A command that is refused does not end the session, nor with an error.
        let said = self.log("session");
        let refused = ["Error", "error", "EINVAL"].iter().any(|word| said.contains(word));
        ensure!(status.success() && !refused, "setting it up: {status}\n{said}");
        Ok(())
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.out"))
    }

    /// What a daemon has printed.
    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_path(name)).unwrap_or_default()
    }
}

impl Drop for Cluster {
    /// The OSDs go first, for they tell the monitor. What does not end is killed.
    fn drop(&mut self) {
        // `osd.0` comes behind `mon`.
        for (_, child) in self.daemons.iter().rev() {
            // One that was frozen would not notice.
            let _dead = kill_process(Pid::from_child(child), Signal::CONT);
            let _dead = kill_process(Pid::from_child(child), Signal::TERM);
        }
        let begun = Instant::now();
        for child in self.daemons.values_mut() {
            while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < STOP_LIMIT {
                std::thread::sleep(POLL);
            }
            let _gone = child.kill();
            let _gone = child.wait();
        }
        drop(self.sweeper.stdin.take());
        // It would only remove what is removed now.
        let _gone = self.sweeper.kill();
        let _gone = self.sweeper.wait();
    }
}

/// Waits for a process to end; one that takes too long is killed.
fn ended(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("process {} has not ended after {limit:?}", child.id());
        }
        std::thread::sleep(POLL);
    }
}

fn uuid() -> Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}
