//! Clean restarts, and disks that another process wrote meanwhile.

use crate::Case;
use anyhow::{Result, ensure};
use e2e::tools::FIO;
use e2e::{Config, Fio, MIB, Site, Status, Volume, daemon::noise, nbd::Client};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(crate) const CASES: [Case; 4] = [
    Case::new("restart_amid_fio_verify", &[FIO], amid_fio_verify).ci(),
    Case::new("restart_is_warm", &[], is_warm).quick(),
    Case::new("restart_after_foreign_write", &[], foreign_write),
    Case::new("restart_after_replaced_disk", &[], replaced_disk),
];

const DISK: u64 = 32 * MIB;
const BLOCKS: u64 = DISK / 4096;
/// Everything fits.
const CACHE: u64 = 96 * MIB;

fn config() -> Config {
    // Reading a disk from end to end must not count as a scan that bypasses the cache.
    let volume = Volume::new("vm1", "file:disk.raw")
        .key("bypass_sequential = \"0\"")
        .key("bypass_large = \"0\"");
    Config::new(CACHE).volume(volume)
}

fn client(site: &Site) -> Result<Client> {
    Client::connect(&site.path("vm1.sock"), "vm1")
}

/// Reads the whole disk and compares it.
fn read_all(site: &Site, expected: &[u8]) -> Result<()> {
    let mut client = client(site)?;
    ensure!(client.size() == DISK, "size {}", client.size());
    for (offset, expected) in (0..).step_by(MIB as usize).zip(expected.chunks(MIB as usize)) {
        ensure!(client.read(offset, expected.len())? == expected, "differs near byte {offset}");
    }
    Ok(())
}

/// What the status says about the blocks of the earlier run, as text.
fn warmth(status: &Status) -> Result<String> {
    Ok(status.volume("vm1")?["warmth"].to_string())
}

fn amid_fio_verify() -> Result<()> {
    let site = Site::new()?;
    site.sparse("disk.raw", DISK)?;
    let job = || {
        Fio::nbd(&site.uri("vm1"))
            .arg("rw", "randwrite")
            .arg("bsrange", "512-32k")
            .arg("size", DISK)
            .arg("iodepth", 16)
            .arg("randseed", 11)
            .arg("verify", "crc32c")
            .arg("verify_fatal", 1)
    };
    let daemon = site.serve(&config())?;
    job().arg("do_verify", 0).run()?;
    daemon.stop()?;
    let daemon = site.serve(&config())?;
    job().flag("verify_only").run()?;
    let read = daemon.status()?.count("vm1", "blocks_read")?;
    ensure!(read >= BLOCKS, "only {read} blocks were verified");
    daemon.stop()
}

fn is_warm() -> Result<()> {
    let site = Site::new()?;
    let disk = std::fs::read(site.filled("disk.raw", DISK, 1)?)?;
    let daemon = site.serve(&config())?;
    daemon.warm_up("vm1", BLOCKS * 95 / 100, || read_all(&site, &disk))?;
    let cached = daemon.status()?.count("vm1", "cached_blocks")?;
    ensure!(cached * 100 >= BLOCKS * 95, "only {cached} of {BLOCKS} blocks are cached");
    daemon.stop()?;

    let daemon = site.serve(&config())?;
    let status = daemon.loaded()?;
    ensure!(warmth(&status)?.contains("kept"), "warmth: {}", warmth(&status)?);
    read_all(&site, &disk)?;
    let status = daemon.status()?;
    let hits = status.count("vm1", "read_hits")?;
    ensure!(hits * 100 >= cached * 95, "{hits} hits on {cached} blocks that were cached before");
    daemon.stop()
}

/// Fills the cache, stops, lets `meddle` change the disk, and expects the disk as it is then.
fn expect_dropped(meddle: fn(&Path) -> Result<()>) -> Result<()> {
    let site = Site::new()?;
    let path = site.filled("disk.raw", DISK, 2)?;
    let daemon = site.serve(&config())?;
    let before = std::fs::read(&path)?;
    read_all(&site, &before)?;
    read_all(&site, &before)?;
    daemon.stop()?;

    meddle(&path)?;
    let after = std::fs::read(&path)?;
    ensure!(before != after, "the test changed nothing");
    let daemon = site.serve(&config())?;
    let status = daemon.loaded()?;
    ensure!(warmth(&status)?.contains("dropped"), "warmth: {}", warmth(&status)?);
    ensure!(warmth(&status)?.contains("changed"), "no reason shown: {}", warmth(&status)?);
    ensure!(status.count("vm1", "cached_blocks")? == 0, "blocks are still there: {}", status.0);
    read_all(&site, &after)?;
    read_all(&site, &after)?;
    daemon.stop()
}

fn foreign_write() -> Result<()> {
    expect_dropped(|disk| {
        File::options().write(true).open(disk)?.write_all_at(&noise(4096, 9), 5 * MIB)?;
        Ok(())
    })
}

/// Same name, same size, another file.
fn replaced_disk() -> Result<()> {
    expect_dropped(|disk| {
        let other = disk.with_extension("new");
        std::fs::write(&other, noise(DISK, 10))?;
        std::fs::rename(&other, disk)?;
        Ok(())
    })
}
