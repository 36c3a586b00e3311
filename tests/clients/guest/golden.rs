//! Four guests that boot at once from overlays of one golden image, with the cache and without.
//!
//! The image is a small system on ext4; each guest mounts it as its root, reads and verifies all its
//! files, and writes a file of its own.

use super::disk::overlay;
use super::initramfs;
use super::machine::{Guest, Plan};
use anyhow::{Context, Result, ensure};
use e2e::{Config, MIB, Site, Status, Volume, output};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

const GUESTS: usize = 4;
const GOLDEN: &str = "golden";
const CACHE: u64 = 128 * MIB;

/// Boots four times four guests' worth of reads, and counts what is left for the back end.
pub(super) fn four_overlays() -> Result<()> {
    let site = Site::new()?;
    let image = make_image(&site)?;
    let before = std::fs::read(&image)?;

    let daemon = site.serve(&config("pass-through"))?;
    boot_all(&site, GUESTS)?;
    let without = Reads::of(&daemon.status()?)?;
    daemon.stop()?;

    let daemon = site.serve(&config("write-through"))?;
    boot_all(&site, GUESTS)?;
    let with = Reads::of(&daemon.status()?)?;
    daemon.stop()?;

    let daemon = site.serve(&config("write-through"))?;
    boot_all(&site, 1)?;
    let warm = Reads::of(&daemon.status()?)?;
    daemon.stop()?;

    println!("{GUESTS} guests without the cache: {without}");
    println!("{GUESTS} guests with it: {with}");
    println!("one guest after a restart: {warm}");
    // A quarter is the ideal: guests that read side by side miss side by side, too.
    ensure!(with.bytes * 2 < without.bytes, "{with} with the cache, {without} without");
    ensure!(warm.bytes * 20 < without.bytes, "{warm} after a restart, {without} without a cache");
    ensure!(std::fs::read(&image)? == before, "the golden image was written");
    Ok(())
}

fn config(mode: &str) -> Config {
    let volume = Volume::new(GOLDEN, &format!("file:{GOLDEN}.raw"))
        .key("read_only = true")
        .key(&format!("mode = \"{mode}\""));
    Config::new(CACHE).volume(volume)
}

/// A system with some twenty megabytes of files and their checksums.
fn make_image(site: &Site) -> Result<PathBuf> {
    let kernel = e2e::kernel::find().context("no kernel for guests")?;
    let root = site.path("root");
    let mut tree = initramfs::tree(&kernel)?;
    tree.insert("golden".into(), Vec::new());
    for folder in ["mnt", "proc", "sys", "dev", "run", "tmp", "etc"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    initramfs::unfold(&tree, &root)?;
    output(Command::new("cp").arg("-r").arg(kernel.modules.join("kernel/fs")).arg(&root))?;
    let script = "find . -type f -print0 | xargs -0 md5sum >../sums && mv ../sums .";
    output(Command::new("sh").args(["-ec", script]).current_dir(&root))?;
    let image = site.sparse(&format!("{GOLDEN}.raw"), 96 * MIB)?;
    output(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).args([&root, &image]))?;
    Ok(image)
}

/// Boots so many guests at once, each to its end.
fn boot_all(site: &Site, guests: usize) -> Result<()> {
    thread::scope(|scope| {
        let all: Vec<_> =
            (0..guests).map(|number| scope.spawn(move || boot(site, number))).collect();
        all.into_iter().try_for_each(|guest| guest.join().expect("no guest panics"))
    })
}

fn boot(site: &Site, number: usize) -> Result<()> {
    let name = format!("guest{number}");
    let file = site.path(&format!("{name}.qcow2"));
    make_overlay(site, &file)?;
    let mut plan = Plan::new(&name, &[overlay(site, GOLDEN, &file)]);
    plan.boots_disk = true;
    plan.cpus = 1;
    let mut guest = plan.boot(site)?;
    verify(&mut guest, number)?;
    guest.check_console()?;
    guest.power_off()
}

fn make_overlay(site: &Site, file: &Path) -> Result<()> {
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &site.uri(GOLDEN)]);
    output(command.arg(file)).map(drop)
}

/// Everything is as in the image, and what this guest writes is its own.
fn verify(guest: &mut Guest, number: usize) -> Result<()> {
    guest.run("[ -e /golden ] && cd / && md5sum -c -s sums")?;
    guest.run(&format!("echo {number} >/number && sync && echo 3 >/proc/sys/vm/drop_caches"))?;
    let text = guest.run("cat /number")?;
    ensure!(text.trim() == number.to_string(), "guest {number} reads {text:?}");
    Ok(())
}

/// Reads of the back end.
#[derive(Clone, Copy, Debug)]
struct Reads {
    requests: u64,
    bytes: u64,
}

impl Reads {
    fn of(status: &Status) -> Result<Self> {
        Ok(Self {
            requests: status.count(GOLDEN, "backend_reads")?,
            bytes: status.count(GOLDEN, "backend_read_bytes")?,
        })
    }
}

impl std::fmt::Display for Reads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { requests, bytes } = self;
        write!(formatter, "{:.1} MiB in {requests} reads", *bytes as f64 / MIB as f64)
    }
}
