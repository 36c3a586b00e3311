//! One guest from boot to end, with three disks: a file system, a disk under constant random
//! writes, and one that is plugged and unplugged.

use super::disk::{Attach, over_nbd, over_vhost_user};
use super::machine::{Guest, Plan, wait_for};
use super::pound::Pounding;
use anyhow::{Context, Result, ensure};
use e2e::rng::Rng;
use e2e::{Config, Daemon, MIB, Site, Volume, output};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The file system's disk.
const FILES: &str = "files";
/// The disk of stamps.
const POUND: &str = "pound";
/// The disk that comes and goes.
const PLUGGED: &str = "plugged";
const DISKS: [&str; 3] = [FILES, POUND, PLUGGED];
const DISK: u64 = 192 * MIB;
const SHARDS: u64 = 3;
/// As little as so many shards can have.
const CACHE: u64 = SHARDS * 20 * MIB;
const KILLS: u32 = 10;

/// Over NBD.
pub(super) fn nbd() -> Result<()> {
    whole_life(over_nbd)
}

/// Over vhost-user.
pub(super) fn vhost_user() -> Result<()> {
    whole_life(over_vhost_user)
}

fn whole_life(attach: Attach) -> Result<()> {
    let mut life = Life::new(attach, 1)?;
    let mut guest = life.boot()?;
    for name in [FILES, POUND] {
        // Of a disk without a write cache a guest would think that it need not flush.
        let line = format!("disk=$(disk {name}); cat /sys/block/${{disk##*/}}/queue/write_cache");
        let cache = guest.run(&line)?;
        ensure!(cache.trim() == "write back", "{name}: {cache:?}");
    }
    guest.run("/sbin/mke2fs -q -t ext4 $(disk files) && mount -t ext4 $(disk files) /mnt")?;
    life.start_work(&mut guest)?;
    for kill in 0..KILLS {
        life.kill_daemon(&guest).with_context(|| format!("kill {kill}"))?;
    }
    life.restart_daemon(&guest).context("a clean restart of the daemon")?;
    life.stop_work(&mut guest)?;
    guest.run("umount /mnt && echo 3 >/proc/sys/vm/drop_caches")?;
    life.check(&mut guest).context("after all the kills")?;

    life.plug_and_unplug(&mut guest).context("plugging")?;

    life.start_work(&mut guest)?;
    life.wait_for_progress(&guest)?;
    guest.reset()?;
    life.look(&guest);
    life.check(&mut guest).context("after the guest's reset")?;

    life.start_work(&mut guest)?;
    life.wait_for_progress(&guest)?;
    guest.check_console()?;
    guest.crash()?;
    life.look(&guest);
    let mut guest = life.boot()?;
    life.check(&mut guest).context("after QEMU was killed")?;

    // And goes on as if nothing had been.
    life.start_work(&mut guest)?;
    life.wait_for_progress(&guest)?;
    life.stop_work(&mut guest)?;
    guest.run("fstrim /mnt && umount /mnt")?;
    life.check(&mut guest).context("at the end")?;
    guest.run("umount /mnt")?;
    guest.check_console()?;
    guest.power_off()?;
    life.end()
}

/// A daemon, its disks, and what must be on them.
struct Life {
    site: Site,
    config: Config,
    attach: Attach,
    daemon: Option<Daemon>,
    rng: Rng,
    /// Files that are safe on the disk.
    files: u64,
    pound: Pounding,
}

impl Life {
    fn new(attach: Attach, seed: u64) -> Result<Self> {
        let site = Site::new()?;
        let mut config = Config::new(CACHE).cache_key(&format!("shards = {SHARDS}"));
        for name in DISKS {
            site.sparse(&format!("{name}.raw"), DISK)?;
            let volume = Volume::new(name, &format!("file:{name}.raw"));
            config = config.volume(attach(&site, name).configure(volume));
        }
        let pound = Pounding::new(POUND, 1);
        let rng = Rng::new(seed);
        let mut life = Self { site, config, attach, daemon: None, rng, files: 0, pound };
        life.start_daemon()?;
        Ok(life)
    }

    fn boot(&self) -> Result<Guest> {
        let disks = [FILES, POUND].map(|name| (self.attach)(&self.site, name));
        Plan::new("guest", &disks).boot(&self.site)
    }

    /// Starts writing files, and rounds of stamps.
    fn start_work(&mut self, guest: &mut Guest) -> Result<()> {
        self.pound.start(guest)?;
        guest.run("work files files /mnt & files=$!").map(drop)
    }

    /// Ends the work, which must not have met an error.
    fn stop_work(&mut self, guest: &mut Guest) -> Result<()> {
        self.pound.stop(guest)?;
        guest.run("wait $files; ended=$?; cat /run/files.log; [ $ended = 0 ]")?;
        self.look(guest);
        Ok(())
    }

    /// Records what the guest has reported.
    fn look(&mut self, guest: &Guest) {
        self.files = self.files.max(guest.told("file ", ""));
        self.pound.look(guest);
    }

    /// Waits until there are a file and a round more.
    fn wait_for_progress(&mut self, guest: &Guest) -> Result<()> {
        self.look(guest);
        let (files, rounds) = (self.files, self.pound.rounds());
        wait_for("progress of the guest", || {
            self.look(guest);
            guest.check_work()?;
            Ok(self.files > files && self.pound.rounds() > rounds)
        })
    }

    /// With as many threads as it happens to get this time.
    fn start_daemon(&mut self) -> Result<()> {
        let config = self.next_config();
        self.daemon = Some(self.site.serve(&config)?);
        Ok(())
    }

    fn next_config(&mut self) -> Config {
        let threads = 1 + self.rng.below(SHARDS);
        self.config.clone().cache_key(&format!("threads = {threads}"))
    }

    /// Kills the daemon amid work, and starts it again a little later; now and then the new one is
    /// killed, too, wherever it has got to.
    fn kill_daemon(&mut self, guest: &Guest) -> Result<()> {
        self.wait_for_progress(guest)?;
        thread::sleep(Duration::from_millis(self.rng.below(300)));
        self.daemon.take().context("a daemon")?.crash()?;
        thread::sleep(Duration::from_millis(self.rng.below(700)));
        for _ in 0..self.rng.below(3) {
            let config = self.next_config();
            let daemon = self.site.launch(&config)?;
            thread::sleep(Duration::from_millis(self.rng.below(120)));
            daemon.crash()?;
        }
        self.start_daemon()?;
        self.wait_for_progress(guest)
    }

    /// As for an upgrade.
    fn restart_daemon(&mut self, guest: &Guest) -> Result<()> {
        self.daemon.take().context("a daemon")?.stop()?;
        self.start_daemon()?;
        self.wait_for_progress(guest)
    }

    /// Mounts the file system and looks at everything that must be there.
    fn check(&mut self, guest: &mut Guest) -> Result<()> {
        guest.check_console()?;
        guest.run("mount -t ext4 $(disk files) /mnt")?;
        guest.run(&format!("intact /mnt {}", self.files))?;
        self.pound.check(guest)?;
        guest.check_console()
    }

    /// A disk is brought, used, and taken away, twice; what was written stays.
    fn plug_and_unplug(&self, guest: &mut Guest) -> Result<()> {
        let disk = (self.attach)(&self.site, PLUGGED);
        let mut pound = Pounding::new(PLUGGED, 2);
        for _ in 0..2 {
            guest.plug(&disk)?;
            let listed = |guest: &mut Guest| guest.run("disk plugged || echo none");
            wait_for("the new disk", || Ok(listed(guest)?.contains("/dev/")))?;
            pound.check(guest)?;
            let before = pound.rounds();
            pound.start(guest)?;
            wait_for("a round", || {
                pound.look(guest);
                guest.check_work()?;
                Ok(pound.rounds() > before)
            })?;
            pound.stop(guest)?;
            guest.unplug(&disk)?;
            wait_for("the disk's end", || Ok(listed(guest)?.contains("none")))?;
            let daemon = self.daemon.as_ref().context("a daemon")?;
            wait_for("its client's end", || {
                Ok(daemon.glance()?.count(PLUGGED, "connections")? == 0)
            })?;
        }
        pound.check_file(&self.site.path("plugged.raw"))
    }

    /// Stops the daemon and looks at the disks behind it.
    fn end(mut self) -> Result<()> {
        let daemon = self.daemon.take().context("a daemon")?;
        let status = daemon.status()?;
        for name in DISKS {
            ensure!(status.count(name, "backend_errors")? == 0, "{}", status.0);
            ensure!(status.count(name, "refused")? == 0, "{}", status.0);
        }
        ensure!(status.count(FILES, "trims")? > 0, "fstrim reached nothing: {}", status.0);
        daemon.stop()?;
        output(Command::new("e2fsck").arg("-fn").arg(self.site.path("files.raw")))?;
        self.pound.check_file(&self.site.path("pound.raw"))?;
        println!("{} files and {} rounds were safe", self.files, self.pound.rounds());
        Ok(())
    }
}
