//! A write log whose device fails or falls silent: a file of nbdkit's over FUSE.
//!
//! Guests get errors, the back end stays a disk that lost power, volumes wait while the device is away,
//! and all that was answered is there once it is back.

use super::{Case, PATIENCE, World, claim_of};
use anyhow::{Context, Result, ensure};
use e2e::process::Running;
use e2e::tools::{FUSE, NBDFUSE, NBDKIT};
use e2e::{Daemon, MIB, Site};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const ERRORS: Case =
    Case::new("write_back_log_device_fails", &[NBDKIT, NBDFUSE, FUSE], errors).ci();
pub(super) const SILENCE: Case =
    Case::new("write_back_log_device_is_silent", &[NBDKIT, NBDFUSE, FUSE], silence);

pub(super) const LOG: u64 = 16 * MIB;
/// Losses of each kind.
const LOSSES: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Every I/O ends in an error.
    Errors,
    /// No I/O ends.
    Silence,
}

/// A file whose I/O is carried out by a server that can be told to fail.
pub(super) struct Device {
    path: PathBuf,
    /// I/O fails while this file is there.
    errors: PathBuf,
    server: Running,
    mount: Running,
}

impl Device {
    pub(super) fn mount(site: &Site, name: &str) -> Result<Self> {
        let of = |what: &str| format!("{name}.{what}");
        let disk = site.sparse(&of("device"), LOG)?;
        let (socket, errors, path) =
            (site.path(&of("sock")), site.path(&of("errors")), site.path(name));
        let server = Running::start(
            Command::new(NBDKIT.command)
                .args(["--foreground", "--filter=error", "--unix"])
                .arg(&socket)
                .arg("file")
                .arg(&disk)
                .args(["error=EIO", "error-rate=100%"])
                .arg(format!("error-file={}", errors.display())),
            &site.path(&of("nbdkit.log")),
        );
        let mut server = server?;
        server.wait_until(PATIENCE, || e2e::nbd::listens(&socket))?;
        File::create(&path)?;
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mut mount = Running::start(
            Command::new(NBDFUSE.command).arg(&path).arg(uri),
            &site.path(&of("nbdfuse.log")),
        )?;
        mount.wait_until(PATIENCE, || path.metadata().is_ok_and(|found| found.len() == LOG))?;
        Ok(Self { path, errors, server, mount })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.server.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process id")?, signal).context("a signal to nbdkit")
    }

    pub(super) fn lose(&self, loss: Loss) -> Result<()> {
        match loss {
            Loss::Errors => File::create(&self.errors).map(drop).context("the file of errors"),
            Loss::Silence => self.signal(Signal::STOP),
        }
    }

    fn heal(&self, loss: Loss) -> Result<()> {
        match loss {
            Loss::Errors => std::fs::remove_file(&self.errors).context("the file of errors"),
            Loss::Silence => self.signal(Signal::CONT),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Nothing hangs on it then.
        let _ = self.signal(Signal::CONT);
        let _ = Command::new("fusermount3").arg("-u").arg(&self.path).status();
        let _ = self.mount.wait(Duration::from_secs(5));
    }
}

fn errors() -> Result<()> {
    lose(Loss::Errors, 40)
}

fn silence() -> Result<()> {
    lose(Loss::Silence, 60)
}

fn lose(loss: Loss, seed: u64) -> Result<()> {
    for round in 0..LOSSES {
        let world = World::new(seed + round, &["device_timeout_s = 1"])?;
        lose_once(world, loss).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

fn lose_once(mut world: World, loss: Loss) -> Result<()> {
    let device = Device::mount(&world.site, "writes.img")?;
    let daemon = world.site.serve(&world.config)?;
    world.work(daemon, |daemon| {
        device.lose(loss)?;
        let begun = Instant::now();
        loop {
            let status = daemon.status()?.0;
            let reason = status["cache"]["write_log"]["reason"].as_str().unwrap_or_default();
            if reason.contains("its device has failed") {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "unnoticed: {}", daemon.running.log());
            thread::sleep(Duration::from_millis(20));
        }
        crash(daemon, &device, loss)
    })?;
    world.check_images()?;
    // While it is away its volumes wait, and nobody else takes them.
    device.lose(loss)?;
    let daemon = world.site.serve(&world.config)?;
    let status = daemon.status()?;
    for (name, path, _) in &world.chains {
        let volume = status.volume(name)?;
        ensure!(volume["state"] == "waiting" && claimed(path), "{volume}");
    }
    crash(daemon, &device, loss)?;
    world.check_images()?;
    let daemon = world.site.serve(&world.config)?;
    world.check_found().with_context(|| daemon.running.log())?;
    daemon.stop()?;
    for (name, path, chain) in &world.chains {
        let reached = chain.check_image(&std::fs::read(path)?)?;
        ensure!(reached >= chain.flushed(), "{name}: {reached} of {} are there", chain.flushed());
        ensure!(!claimed(path), "{name}: the stop left a claim");
    }
    Ok(())
}

/// Kills a daemon whose log's device is away, and has that come back. A process whose I/O is in a server's
/// hands ends only when the server has answered it: the silent one must come back first.
pub(super) fn crash(daemon: Daemon, device: &Device, loss: Loss) -> Result<()> {
    thread::scope(|scope| {
        let healed = scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            device.heal(loss)
        });
        let crashed = daemon.crash();
        healed.join().expect("it does not panic").and(crashed)
    })
}

pub(super) fn claimed(path: &Path) -> bool {
    claim_of(path).exists()
}
