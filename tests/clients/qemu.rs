//! QEMU's tools as clients.

use crate::Case;
use anyhow::{Result, ensure};
use e2e::tools::{QEMU_IMG, QEMU_IO, QEMU_NBD};
use e2e::{Config, MIB, Running, Site, Volume, output};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const CASES: [Case; 5] = [
    Case::new("qemu_io_patterns", &[QEMU_IO], patterns).ci(),
    Case::new("qemu_locks", &[QEMU_NBD], locks).ci(),
    Case::new("qemu_img_raw", &[QEMU_IMG], raw_round_trip),
    Case::new("qemu_img_qcow2", &[QEMU_IMG, QEMU_IO], qcow2_round_trip),
    Case::new("qemu_golden_image", &[QEMU_IMG, QEMU_IO], golden_image),
];

/// Runs qemu-io commands; a pattern that does not match is an error.
fn qemu_io(format: &str, image: &str, commands: &[&str]) -> Result<()> {
    let mut command = Command::new("qemu-io");
    command.args(["-f", format]);
    for line in commands {
        command.args(["-c", line]);
    }
    let text = output(command.arg(image))?;
    ensure!(!text.contains("failed"), "{text}");
    Ok(())
}

fn qemu_img(args: &[&str]) -> Result<String> {
    output(Command::new("qemu-img").args(args))
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

fn patterns() -> Result<()> {
    let site = Site::new()?;
    site.filled("disk.raw", 16 * MIB, 1)?;
    let daemon = site.serve(&Config::new(24 * MIB).volume(Volume::new("vm1", "file:disk.raw")))?;
    let uri = site.uri("vm1");
    qemu_io(
        "raw",
        &uri,
        &[
            "write -P 0xaa 0 64k",
            "read -P 0xaa 0 64k",
            // Parts of blocks over cached ones, to either side and across.
            "write -P 0x55 512 1024",
            "write -P 0x66 4608 8192",
            "read -P 0xaa 0 512",
            "read -P 0x55 512 1024",
            "read -P 0xaa 1536 3072",
            "read -P 0x66 4608 8192",
            "read -P 0xaa 12800 52736",
            // Parts of blocks that are not cached.
            "write -P 0x77 1049088 512",
            "read -P 0x77 1049088 512",
            // Zeroes with and without leave to punch, discard, FUA, flush.
            "write -z 8k 16k",
            "read -P 0 8k 16k",
            "write -z -u 32k 16k",
            "read -P 0 32k 16k",
            "read -P 0xaa 48k 16k",
            "discard 2M 1M",
            "write -f -P 0x11 2M 4k",
            "read -P 0x11 2M 4k",
            "flush",
            // Several at a time, and a large one.
            "aio_write -P 0x22 4M 1M",
            "aio_write -P 0x33 5M 1M",
            "aio_flush",
            "read -P 0x22 4M 1M",
            "read -P 0x33 5M 1M",
            "write -P 0x44 8M 8M",
            "read -P 0x44 8M 8M",
        ],
    )?;
    daemon.stop()?;
    qemu_io(
        "raw",
        &show(&site.path("disk.raw")),
        &["read -P 0x55 512 1024", "read -P 0 8k 16k", "read -P 0x44 8M 8M"],
    )
}

/// What QEMU's tools have open is not served, and they do not open what is.
fn locks() -> Result<()> {
    let site = Site::new()?;
    let disk = site.filled("disk.raw", 16 * MIB, 1)?;
    let config = Config::new(24 * MIB).volume(Volume::new("vm1", "file:disk.raw"));
    let mut command = Command::new("qemu-nbd");
    command.args(["-t", "-f", "raw", "-k"]).arg(site.path("server")).arg(&disk);
    let mut theirs = Running::start(&mut command, &site.path("qemu-nbd.log"))?;
    theirs.wait_until(Duration::from_secs(10), || site.path("server").exists())?;
    let daemon = site.launch(&config)?;
    let refused = || daemon.running.log().contains("in use by QEMU");
    ensure!(
        (0..100).any(|_| {
            sleep(Duration::from_millis(100));
            refused()
        }),
        "it is served beside qemu-nbd"
    );
    theirs.kill()?;
    let daemon = daemon.ready()?;
    let mut again = Running::start(&mut command, &site.path("qemu-nbd.log"))?;
    ensure!(!again.wait(Duration::from_secs(10))?.success(), "qemu-nbd opens what is served");
    ensure!(again.log().contains("lock"), "{}", again.log());
    daemon.stop()
}

fn raw_round_trip() -> Result<()> {
    let site = Site::new()?;
    let source = show(&site.filled("source.raw", 48 * MIB, 2)?);
    site.sparse("disk.raw", 48 * MIB)?;
    let daemon = site.serve(&Config::new(24 * MIB).volume(Volume::new("vm1", "file:disk.raw")))?;
    let (uri, back) = (site.uri("vm1"), show(&site.path("back.raw")));
    let compare = |a: &str, b: &str| qemu_img(&["compare", "-f", "raw", "-F", "raw", a, b]);
    ensure!(compare(&source, &uri).is_err(), "an empty disk equals a full one");
    qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", &source, &uri])?;
    compare(&source, &uri)?;
    // Out of order, several at a time.
    qemu_img(&["convert", "-W", "-m", "8", "-f", "raw", "-O", "raw", &uri, &back])?;
    compare(&source, &back)?;
    daemon.stop()?;
    compare(&source, &show(&site.path("disk.raw"))).map(|_| ())
}

fn qcow2_round_trip() -> Result<()> {
    let site = Site::new()?;
    let source = show(&site.path("source.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", &source, "32M"])?;
    qemu_io("qcow2", &source, &["write -P 0x5a 1M 9M", "write -P 0xa5 20M 64k"])?;
    site.filled("disk.raw", 32 * MIB, 3)?;
    let daemon = site.serve(&Config::new(24 * MIB).volume(Volume::new("vm1", "file:disk.raw")))?;
    let (uri, back) = (site.uri("vm1"), show(&site.path("back.qcow2")));
    qemu_img(&["convert", "-n", "-f", "qcow2", "-O", "raw", &source, &uri])?;
    qemu_img(&["compare", "-f", "qcow2", "-F", "raw", &source, &uri])?;
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &uri, &back])?;
    qemu_img(&["compare", "-f", "qcow2", "-F", "qcow2", &source, &back])?;
    daemon.stop()
}

/// Many guests write into overlays of their own over one image, which is cached once.
fn golden_image() -> Result<()> {
    const GUESTS: usize = 4;
    let site = Site::new()?;
    let golden = show(&site.filled("golden.raw", 32 * MIB, 4)?);
    let volume = Volume::new("golden", "file:golden.raw")
        .key("read_only = true")
        .key("bypass_sequential = \"0\"");
    let daemon = site.serve(&Config::new(96 * MIB).volume(volume))?;
    let uri = site.uri("golden");
    ensure!(qemu_io("raw", &uri, &["write 0 4k"]).is_err(), "a read-only volume was written");
    let overlays: Vec<String> =
        (0..GUESTS).map(|guest| show(&site.path(&format!("{guest}.qcow2")))).collect();
    for overlay in &overlays {
        qemu_img(&["create", "-q", "-f", "qcow2", "-b", &uri, "-F", "raw", overlay])?;
    }
    let boot = |overlay: &str| -> Result<()> {
        qemu_io("qcow2", overlay, &["write -P 0x99 1M 64k", "read 0 32M", "read -P 0x99 1M 64k"])
    };
    // The first one may miss once or twice a block, later ones must not.
    boot(&overlays[0])?;
    qemu_img(&["compare", "-f", "raw", "-F", "raw", &golden, &uri])?;
    let misses = daemon.status()?.count("golden", "misses")?;
    std::thread::scope(|scope| -> Result<()> {
        let guests: Vec<_> =
            overlays[1..].iter().map(|overlay| scope.spawn(|| boot(overlay))).collect();
        for guest in guests {
            guest.join().expect("the client does not panic")?;
        }
        Ok(())
    })?;
    let status = daemon.status()?;
    let (now, blocks) = (status.count("golden", "misses")?, 32 * MIB / 4096);
    ensure!(now == misses, "{} misses by guests that came later", now - misses);
    let cached = status.count("golden", "cached_blocks")?;
    ensure!(cached <= blocks, "{cached} blocks cached of a disk of {blocks}");
    daemon.stop()
}
