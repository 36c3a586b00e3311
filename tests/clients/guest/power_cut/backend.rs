//! The back end: an NBD server that logs every write of its disk.

use anyhow::{Result, ensure};
use e2e::disk_log::{self, DiskLog, Replay};
use e2e::nbd::Client;
use e2e::{MIB, Running, Site, output};
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Bytes of the disk. Few, for it is copied for each image.
pub(super) const DISK: u64 = 64 * MIB;
/// The disk's name at the server.
pub(super) const EXPORT: &str = "disk";
const READY: Duration = Duration::from_secs(10);
const SCHEMA: &str = "CREATE TABLE commits(id INTEGER PRIMARY KEY, hash INTEGER, size INTEGER, \
    body TEXT); CREATE INDEX by_hash ON commits(hash); CREATE TABLE total(n INTEGER); \
    INSERT INTO total VALUES(0);";

/// The log of the server's writes.
pub(super) fn log(site: &Site) -> PathBuf {
    site.path("disk.log")
}

/// The disk before the first of them.
pub(super) fn before(site: &Site) -> PathBuf {
    site.path("before.raw")
}

/// The disk after the last one.
pub(super) fn after(site: &Site) -> PathBuf {
    site.path("disk.raw")
}

/// A file system with an empty database.
pub(super) fn make_disk(site: &Site) -> Result<()> {
    let root = site.path("root");
    std::fs::create_dir(&root)?;
    output(
        Command::new("sqlite3")
            .args(["-batch", "-init", "/dev/null"])
            .arg(root.join("t.db"))
            .arg(SCHEMA),
    )?;
    let before = site.sparse("before.raw", DISK)?;
    let mut make = Command::new("mke2fs");
    // Few inodes, for they are all looked at.
    make.args(["-q", "-t", "ext4", "-b", "4096", "-N", "512", "-J", "size=4", "-d"])
        .args([&root, &before]);
    output(&mut make)?;
    disk_log::copy_sparse(&File::open(&before)?, &after(site))?;
    File::create(log(site))?;
    Ok(())
}

/// A log of its own for each history, which goes on when a server is started again.
pub(super) const NEW_LOG: &str = "log-sector-size=512";
pub(super) const SAME_LOG: &str = "log-append=on";

/// Starts the back end.
pub(super) fn start_server(site: &Site, how: &str) -> Result<Running> {
    let socket = site.path("server");
    // Left by one that was killed: nothing listens there.
    let _ = std::fs::remove_file(&socket);
    let (disk, log) = (after(site), log(site));
    // With the logging driver on top, the flush that stands for FUA would not be in the log: QEMU
    // flushes what is below a layer that has seen no write since its last flush, and counts the write
    // later.
    let options = format!(
        "driver=raw,file.driver=blklogwrites,file.{how},\
         file.file.driver=file,file.file.filename={},file.log.driver=file,file.log.filename={}",
        disk.display(),
        log.display()
    );
    let mut command = Command::new("qemu-nbd");
    command.args(["-t", "-e", "8", "-x", EXPORT, "--discard=unmap", "-k"]).arg(&socket);
    command.args(["--image-opts", &options]);
    let mut server = Running::start(&mut command, &site.path("server.log"))?;
    server.wait_until(READY, || e2e::nbd::listens(&socket))?;
    Ok(server)
}

/// Sees that the log has what durable writes promise, also right behind a flush, which is the hard
/// case. What is written is what is there.
pub(super) fn check_log(site: &Site) -> Result<()> {
    let mut client = Client::connect(&site.path("server"), EXPORT)?;
    let data = client.read(0, 4096)?;
    for _ in 0..2 {
        client.write_durably(0, &data)?;
    }
    let entries = DiskLog::open(&log(site), DISK)?.entries().to_vec();
    let promised = entries.iter().filter(|entry| entry.flushes || entry.durable).count();
    ensure!(promised == 2, "two durable writes, in the log: {entries:?}");
    Ok(())
}

/// Brings the disk to its last flush. The log's superblock counts what stands before that.
pub(super) fn forget_unflushed(site: &Site) -> Result<()> {
    let before = File::open(before(site))?;
    let disk = disk_log::copy_sparse(&before, &after(site))?;
    let log = DiskLog::open(&log(site), DISK)?;
    let entries = log.entries().len();
    Replay::new(log, disk).advance(entries)
}
