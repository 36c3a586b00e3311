//! A write log on two devices, of which one is lost under guests or between two starts: nothing that was
//! answered is.

use super::device::{Device, LOG, Loss, claimed, crash};
use super::{Case, PATIENCE, World, client};
use crate::write_back::chain::Chain;
use anyhow::{Context, Result, bail, ensure};
use e2e::Daemon;
use e2e::process::{outcome, output};
use e2e::tools::{FUSE, NBDFUSE, NBDKIT};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const LOST: Case =
    Case::new("write_back_mirror_half_is_lost", &[NBDKIT, NBDFUSE, FUSE], halves_are_lost);

/// Losses, unless the environment says how many: each kind at each half.
const LOSSES: u64 = 6;
const VARIABLE: &str = "CINNABAR_MIRROR_LOSSES";
const HALVES: [&str; 2] = ["writes.img", "mirror.img"];

fn halves_are_lost() -> Result<()> {
    let losses = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE} = {text:?}"))?,
        Err(_) => LOSSES,
    };
    for round in 0..losses {
        let half = (round % 2) as usize;
        let loss = [None, Some(Loss::Errors), Some(Loss::Silence)][(round / 2 % 3) as usize];
        let context = || format!("round {round}: half {half}, {loss:?}");
        let mut test = Mirrored::new(80 + round, half, loss).with_context(context)?;
        match loss {
            None => test.cut_short(),
            Some(loss) => test.fails(loss),
        }
        .and_then(|()| test.other_is_lost())
        .and_then(|()| test.rescue())
        .with_context(context)?;
    }
    Ok(())
}

struct Mirrored {
    world: World,
    /// The half that is lost first.
    half: usize,
    /// It, if it fails while it is in use. Let go of when no daemon runs any more.
    device: Option<Device>,
}

impl Mirrored {
    /// Guests have written to both halves, and their daemon was killed.
    fn new(seed: u64, half: usize, loss: Option<Loss>) -> Result<Self> {
        let lines = ["write_log_mirror = \"mirror.img\"", "device_timeout_s = 5"];
        let world = World::new(seed, &lines)?;
        let device = loss.map(|_| Device::mount(&world.site, HALVES[half])).transpose()?;
        let mut this = Self { world, half, device };
        let daemon = this.serve()?;
        until(&daemon, ["both"; 2])?;
        this.world.work(daemon, Daemon::crash)?;
        this.world.check_images()?;
        Ok(this)
    }

    fn path(&self, half: usize) -> PathBuf {
        self.world.site.path(HALVES[half])
    }

    /// A start finds everything that was answered.
    fn serve(&mut self) -> Result<Daemon> {
        let daemon = self.world.site.serve(&self.world.config)?;
        self.world.check_found().with_context(|| daemon.running.log())?;
        Ok(daemon)
    }

    /// The log is not used: one line says why and what helps, and no volume of it is served.
    fn refused(&self) -> Result<()> {
        let daemon = self.world.site.launch(&self.world.config)?.ready()?;
        let status = daemon.status()?;
        let reason = status.0["cache"]["write_log"]["reason"].as_str().unwrap_or_default();
        let is_clear = reason.contains("its other half") && reason.contains("hint: ");
        ensure!(is_clear && !reason.contains('\n'), "{reason:?}");
        for (name, path, _) in &self.world.chains {
            let volume = status.volume(name)?;
            ensure!(volume["state"] == "waiting" && claimed(path), "{volume}");
            ensure!(client(&self.world.site, name).is_err(), "{name} is served");
        }
        daemon.stop()
    }

    /// The operator's word that the other half of this one is lost.
    fn say_alone(&self, half: usize) -> Result<()> {
        let path = self.path(half).display().to_string();
        let said = cache(&["mirror", &path, "--alone"])?;
        ensure!(said.contains("counts alone now"), "{said}");
        Ok(())
    }

    /// Waits until both halves hold everything.
    fn fill(&self, daemon: &Daemon) -> Result<()> {
        for (name, ..) in &self.world.chains {
            daemon.command(&["volume", "flush", name])?;
        }
        until(daemon, ["both"; 2])
    }

    /// A half is shorter than it was after a crash.
    fn cut_short(&mut self) -> Result<()> {
        let (half, other) = (self.half, 1 - self.half);
        let path = self.path(half);
        std::fs::OpenOptions::new().write(true).open(&path)?.set_len(LOG / 2)?;
        self.refused()?;
        self.say_alone(other)?;
        let daemon = self.serve()?;
        let reason = half_of(&daemon, half, "reason")?;
        ensure!(half_of(&daemon, half, "state")? == "missing", "it is cut short");
        ensure!(reason.contains("bytes"), "{reason}");
        self.world.work(daemon, Daemon::crash)?;
        self.world.check_images()?;
        // An empty one in its place is filled.
        std::fs::remove_file(&path)?;
        let daemon = self.serve()?;
        self.world.work(daemon, Daemon::crash)?;
        let daemon = self.serve()?;
        self.fill(&daemon)?;
        self.world.work(daemon, Daemon::crash)
    }

    /// A half fails under guests, who go on.
    fn fails(&mut self, loss: Loss) -> Result<()> {
        let half = self.half;
        let device = self.device.take().context("it is mounted")?;
        let daemon = self.serve()?;
        ensure!(states(&daemon)? == ["both"; 2], "a kill costs no half");
        let mut kept = None;
        self.world.work(daemon, |daemon| {
            device.lose(loss)?;
            until_half(&daemon, half, "missing")?;
            let log = &daemon.status()?.0["cache"]["write_log"];
            ensure!(log["reason"] == "", "the log goes on: {log}");
            kept = Some(daemon);
            Ok(())
        })?;
        let daemon = kept.context("it runs")?;
        self.world.check_found().with_context(|| daemon.running.log())?;
        self.goes_on(daemon, &device, loss)?;
        // At the next start it is away as well.
        device.lose(loss)?;
        let daemon = self.serve()?;
        ensure!(half_of(&daemon, half, "state")? == "missing", "it is away");
        self.goes_on(daemon, &device, loss)?;
        // It comes back, and is filled.
        let daemon = self.serve()?;
        ensure!(half_of(&daemon, half, "state")? != "missing", "{}", daemon.running.log());
        self.fill(&daemon)?;
        self.world.work(daemon, Daemon::crash)?;
        self.device = Some(device);
        self.world.check_images().map(drop)
    }

    /// Guests' flushes are answered with one half; then the daemon is killed.
    fn goes_on(&mut self, daemon: Daemon, device: &Device, loss: Loss) -> Result<()> {
        let flushed = |world: &World| -> Vec<u64> {
            world.chains.iter().map(|(_, _, chain)| chain.flushed()).collect()
        };
        let before = flushed(&self.world);
        self.world.work(daemon, |daemon| crash(daemon, device, loss))?;
        let goes_on = before.iter().zip(flushed(&self.world)).all(|(before, now)| *before < now);
        ensure!(goes_on, "nothing was flushed without the half");
        self.world.check_images().map(drop)
    }

    /// What was filled has everything: the half that it was filled from is lost for good.
    fn other_is_lost(&mut self) -> Result<()> {
        let other = 1 - self.half;
        std::fs::remove_file(self.path(other))?;
        self.refused()?;
        self.say_alone(self.half)?;
        let daemon = self.serve()?;
        self.fill(&daemon)?;
        self.world.work(daemon, Daemon::crash)?;
        self.world.check_images().map(drop)
    }

    /// The daemon never comes back: writes are brought to the disks by hand.
    fn rescue(&mut self) -> Result<()> {
        let [log, mirror] = [0, 1].map(|half| self.path(half).display().to_string());
        let check = cache(&["check", &log, "--mirror", &mirror, "--all"])?;
        ensure!(check.contains("marked both"), "{check}");
        for (name, path, chain) in &self.world.chains {
            let to = format!("file:{}", path.display());
            let one = ["writeback", &log, "--volume", name, "--to", &to];
            let mut alone = Command::new(e2e::binary::cinnabar()?);
            let refused = outcome(alone.arg("cache").args(one), PATIENCE)?;
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            let lines = said.lines().count();
            ensure!(!refused.status.success() && lines == 2 && said.contains("--mirror"), "{said}");
            cache(&[&one[..], &["--mirror", &mirror]].concat())?;
            let mut found = Chain::clone(chain);
            found.check_whole(&std::fs::read(path)?).with_context(|| name.clone())?;
        }
        Ok(())
    }
}

fn cache(args: &[&str]) -> Result<String> {
    output(Command::new(e2e::binary::cinnabar()?).arg("cache").args(args))
}

fn half_of(daemon: &Daemon, half: usize, key: &str) -> Result<String> {
    let status = daemon.status()?.0;
    let found = &status["cache"]["write_log"]["halves"][half][key];
    found.as_str().map(str::to_owned).with_context(|| format!("no {key}: {status}"))
}

fn states(daemon: &Daemon) -> Result<[String; 2]> {
    Ok([half_of(daemon, 0, "state")?, half_of(daemon, 1, "state")?])
}

fn until(daemon: &Daemon, wanted: [&str; 2]) -> Result<()> {
    (0..2).try_for_each(|half| until_half(daemon, half, wanted[half]))
}

fn until_half(daemon: &Daemon, half: usize, wanted: &str) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if half_of(daemon, half, "state")? == wanted {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    bail!("half {half} is never {wanted}: {}", daemon.running.log())
}
