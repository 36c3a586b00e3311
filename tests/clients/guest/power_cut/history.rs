//! A guest's life, recorded behind the daemon.

use super::super::disk::{Attach, Disk, over_nbd, over_vhost_user};
use super::super::machine::{Guest, Plan};
use anyhow::{Context, Result, ensure};
use e2e::dice::Dice;
use e2e::disk_log::{self, DiskLog};
use e2e::nbd::Client;
use e2e::tools::SQLITE;
use e2e::{Config, Daemon, MIB, Running, Site, Volume, output};
use std::fmt::{self, Display};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The guest's disk. Small, for it is copied for each image.
pub(super) const DISK: u64 = 64 * MIB;
const CACHE: u64 = 64 * MIB;
const VOLUME: &str = "vm1";
const READY: Duration = Duration::from_secs(10);
/// All commits, on a busy machine.
const COMMITS_LIMIT: Duration = Duration::from_mins(5);
/// The mode in which the back end may lag behind the guest.
const WRITE_BACK: &str = "write-back";
/// A back end that takes its time.
const SLOW: &str = "sim:hdd,seed=1:";
const SCHEMA: &str = "CREATE TABLE commits(id INTEGER PRIMARY KEY, hash INTEGER, size INTEGER, \
    body TEXT); CREATE INDEX by_hash ON commits(hash); CREATE TABLE total(n INTEGER); \
    INSERT INTO total VALUES(0);";

/// What to record.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The volume's.
    pub(super) mode: String,
    pub(super) seed: u64,
    /// Transactions of the guest.
    pub(super) commits: u64,
    /// Times that the daemon is killed meanwhile.
    pub(super) kills: u64,
    /// Whether the guest's flushes get to its disk.
    pub(super) flushes: bool,
}

impl Setting {
    /// Whether what the guest was told is at the back end at once.
    pub(super) fn is_synchronous(&self) -> bool {
        self.mode != WRITE_BACK
    }

    fn attach(&self) -> (&'static str, Attach) {
        match self.seed % 2 {
            0 => ("vhost-user", over_vhost_user),
            _ => ("NBD", over_nbd),
        }
    }

    fn config(&self, disk: &Disk) -> Config {
        let mut config = Config::new(CACHE);
        // In write-back, some lag behind.
        let pace = if self.is_synchronous() || self.seed.is_multiple_of(3) { "" } else { SLOW };
        let mut volume = Volume::new(VOLUME, &format!("{pace}nbd:unix:server:{VOLUME}"))
            .key("exclusive = true")
            .key(&format!("mode = \"{}\"", self.mode));
        if self.seed % 4 < 2 {
            config = config.cache_key("shards = 3\nthreads = 2");
        }
        if !self.is_synchronous() {
            config = config.cache_key("write_log = \"wl.img\"\nwrite_log_size = \"64MiB\"");
            volume = volume.key("claim = \"claim\"");
        }
        config.volume(disk.configure(volume))
    }
}

impl Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, seed, commits, kills, flushes } = self;
        let front = self.attach().0;
        write!(formatter, "{mode}, seed {seed}: {commits} commits over {front}, {kills} kills")?;
        if *flushes { Ok(()) } else { write!(formatter, ", without flushes") }
    }
}

/// Commits that the guest knew to be durable when the log had so many entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) commits: u64,
    pub(super) entries: u64,
}

/// What is left of a guest.
#[derive(Debug)]
pub(super) struct History {
    pub(super) setting: Setting,
    pub(super) site: Site,
    pub(super) acks: Vec<Ack>,
    pub(super) took: Duration,
}

impl History {
    /// The log of the back end's writes.
    pub(super) fn log(&self) -> PathBuf {
        self.site.path("disk.log")
    }

    /// The disk before the first of them.
    pub(super) fn before(&self) -> PathBuf {
        self.site.path("before.raw")
    }

    /// The disk after the last one.
    pub(super) fn after(&self) -> PathBuf {
        self.site.path("disk.raw")
    }
}

/// Boots a guest, lets it commit, and shuts everything down, cleanly in the end.
pub(super) fn record(setting: Setting) -> Result<History> {
    let start = Instant::now();
    let site = Site::within(&ram())?;
    let mut history = History { setting, site, acks: Vec::new(), took: Duration::ZERO };
    make_disk(&history)?;
    let mut server = start_server(&history)?;
    let disk = history.setting.attach().1(&history.site, VOLUME);
    let config = history.setting.config(&disk);
    let mut daemon = history.site.serve(&config)?;
    let mut plan = Plan::new("guest", &[disk]);
    plan.programs.push(SQLITE);
    let mut guest = plan.boot(&history.site)?;
    let Setting { commits, kills, seed, flushes, .. } = history.setting;
    let discard = if seed % 3 == 0 { "nodiscard" } else { "discard" };
    if !flushes {
        // Its kernel believes it, and flushes no more.
        guest.run("echo write through >/sys/block/vda/queue/write_cache")?;
    }
    guest.run(&format!("mount -t ext4 -o {discard} /dev/vda /mnt"))?;
    guest.run("work churn churn /mnt/churn & churn=$!")?;
    guest.run(&format!("work commits commits /mnt/t.db {commits} {seed} & commits=$!"))?;
    let mut dice = Dice::new(seed);
    for kill in 0..kills {
        history.watch(&guest, commits * (kill + 1) / (kills + 1))?;
        thread::sleep(Duration::from_millis(dice.below(60)));
        daemon.crash()?;
        daemon = history.site.serve(&config).with_context(|| format!("after kill {kill}"))?;
    }
    history.watch(&guest, commits)?;
    guest.run("touch /run/stop && wait $commits && wait $churn && umount /mnt")?;
    guest.check_console()?;
    guest.power_off()?;
    stop(daemon, &history.setting)?;
    server.ask_to_end()?;
    server.wait(READY)?;
    history.took = start.elapsed();
    Ok(history)
}

impl History {
    /// Notes what the guest reports, up to this number of commits.
    fn watch(&mut self, guest: &Guest, goal: u64) -> Result<()> {
        let (start, log) = (Instant::now(), self.log());
        let mut last = self.acks.last().map_or(0, |ack| ack.commits);
        while last < goal {
            let told = guest.told("commit ", "");
            if told > last {
                // Read later than the report: so what it rests on is among these entries.
                let entries = disk_log::entries_so_far(&log)?;
                self.acks.push(Ack { commits: told, entries });
                last = told;
            }
            guest.check_work()?;
            let late = start.elapsed() > COMMITS_LIMIT;
            ensure!(!late, "{last} of {goal} commits after {COMMITS_LIMIT:?}");
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// Stops it with everything at the back end.
fn stop(daemon: Daemon, setting: &Setting) -> Result<()> {
    if !setting.is_synchronous() {
        daemon.command(&["volume", "flush", VOLUME])?;
    }
    daemon.stop()
}

/// Where files are made and thrown away by the hundred.
fn ram() -> PathBuf {
    let ram = Path::new("/dev/shm");
    if ram.is_dir() { ram.into() } else { std::env::temp_dir() }
}

/// A file system with an empty database.
fn make_disk(history: &History) -> Result<()> {
    let root = history.site.path("root");
    std::fs::create_dir(&root)?;
    output(
        Command::new("sqlite3")
            .args(["-batch", "-init", "/dev/null"])
            .arg(root.join("t.db"))
            .arg(SCHEMA),
    )?;
    let before = history.site.sparse("before.raw", DISK)?;
    let mut make = Command::new("mke2fs");
    // Few inodes, for they are all looked at.
    make.args(["-q", "-t", "ext4", "-b", "4096", "-N", "512", "-J", "size=4", "-d"])
        .args([&root, &before]);
    output(&mut make)?;
    disk_log::copy_sparse(&File::open(&before)?, &history.after())?;
    File::create(history.log())?;
    Ok(())
}

/// Starts the back end, and sees that it logs what durable writes promise.
fn start_server(history: &History) -> Result<Running> {
    let socket = history.site.path("server");
    let (disk, log) = (history.after(), history.log());
    // With the logging driver on top, the flush that stands for FUA would not be in the log: QEMU
    // flushes what is below a layer that has seen no write since its last flush, and counts the write
    // later.
    let options = format!(
        "driver=raw,file.driver=blklogwrites,file.log-sector-size=512,\
         file.file.driver=file,file.file.filename={},file.log.driver=file,file.log.filename={}",
        disk.display(),
        log.display()
    );
    let mut command = Command::new("qemu-nbd");
    command.args(["-t", "-e", "8", "-x", VOLUME, "--discard=unmap", "-k"]).arg(&socket);
    command.args(["--image-opts", &options]);
    let mut server = Running::start(&mut command, &history.site.path("server.log"))?;
    server.wait_until(READY, || e2e::nbd::listens(&socket))?;
    check_log(&socket, &log)?;
    Ok(server)
}

/// Writes durably behind a flush, which is the hard case, and looks for the flush. What is written is
/// what is there.
fn check_log(socket: &Path, log: &Path) -> Result<()> {
    let mut client = Client::connect(socket, VOLUME)?;
    let data = client.read(0, 4096)?;
    for _ in 0..2 {
        client.write_durably(0, &data)?;
    }
    let entries = DiskLog::open(log, DISK)?.entries().to_vec();
    let promised = entries.iter().filter(|entry| entry.flushes || entry.durable).count();
    ensure!(promised == 2, "two durable writes, in the log: {entries:?}");
    Ok(())
}
