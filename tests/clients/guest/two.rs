//! Two guests on one daemon: it dies under both, then one of them dies, and the other goes on, with
//! a disk beside its own that it may not write.

use super::disk::{Attach, over_nbd, over_vhost_user};
use super::machine::{Guest, Plan, wait_for};
use super::pound::Pounding;
use anyhow::{Context, Result, ensure};
use e2e::{Config, MIB, Site, Volume, output};
use std::path::Path;
use std::process::Command;

const CACHE: u64 = 32 * MIB;
const DISK: u64 = 32 * MIB;
const KILLS: u32 = 3;
/// The disk that may only be read.
const FROZEN: &str = "frozen";
/// What each guest's disk is called, and how it is attached.
const GUESTS: [(&str, Attach); 2] = [("first", over_nbd), ("second", over_vhost_user)];

/// Runs them.
pub(super) fn guests() -> Result<()> {
    let site = Site::new()?;
    let mut config = Config::new(CACHE);
    for (name, attach) in GUESTS {
        site.sparse(&format!("{name}.raw"), DISK)?;
        let volume = Volume::new(name, &format!("file:{name}.raw"));
        config = config.volume(attach(&site, name).configure(volume));
    }
    let file = site.filled(&format!("{FROZEN}.raw"), MIB, 1)?;
    let frozen = over_vhost_user(&site, FROZEN);
    let volume = Volume::new(FROZEN, &format!("file:{FROZEN}.raw")).key("read_only = true");
    let config = config.volume(frozen.configure(volume));
    let mut daemon = site.serve(&config)?;
    let boot = |(name, attach): (&str, Attach)| Plan::new(name, &[attach(&site, name)]).boot(&site);
    let mut pair = Pair {
        guests: [boot(GUESTS[0])?, boot(GUESTS[1])?],
        pounds: [Pounding::new(GUESTS[0].0, 1), Pounding::new(GUESTS[1].0, 2)],
    };
    pair.guests[1].plug(&frozen)?;
    check_frozen(&mut pair.guests[1], &file)?;
    pair.start(0)?;
    pair.start(1)?;
    for kill in 0..KILLS {
        pair.progress(&[0, 1]).with_context(|| format!("before kill {kill}"))?;
        daemon.crash()?;
        daemon = site.serve(&config)?;
    }
    pair.progress(&[0, 1])?;
    check_frozen(&mut pair.guests[1], &file).context("after the kills")?;

    pair.guests[0].crash()?;
    pair.pounds[0].look(&pair.guests[0]);
    pair.progress(&[1]).context("beside the one that died")?;
    pair.guests[0] = boot(GUESTS[0])?;
    pair.pounds[0].check(&mut pair.guests[0])?;
    pair.start(0)?;
    pair.progress(&[0, 1])?;

    let Pair { guests, mut pounds } = pair;
    for ((mut guest, pound), (name, _)) in guests.into_iter().zip(&mut pounds).zip(GUESTS) {
        pound.stop(&mut guest)?;
        guest.check_console()?;
        guest.power_off()?;
        let errors = daemon.status()?.count(name, "backend_errors")?;
        ensure!(errors == 0, "{name}: {errors} errors");
    }
    daemon.stop()?;
    pounds
        .iter()
        .zip(GUESTS)
        .try_for_each(|(pound, (name, _))| pound.check_file(&site.path(&format!("{name}.raw"))))
}

/// The disk says that it is read-only, and reads as its file.
fn check_frozen(guest: &mut Guest, file: &Path) -> Result<()> {
    wait_for("the read-only disk", || {
        Ok(guest.run(&format!("disk {FROZEN} || echo none"))?.contains("/dev/"))
    })?;
    let line = format!(
        "echo 3 >/proc/sys/vm/drop_caches; disk=$(disk {FROZEN}) && cat /sys/block/${{disk##*/}}/ro && \
         md5sum <$disk"
    );
    let text = guest.run(&line)?;
    let right = output(Command::new("md5sum").arg(file))?;
    let sum = right.split(' ').next().context("no checksum")?;
    ensure!(text.starts_with(&format!("1\n{sum} ")), "{text}, not 1 and {sum}");
    Ok(())
}

/// The guests, and what is known of their disks.
struct Pair {
    guests: [Guest; 2],
    pounds: [Pounding; 2],
}

impl Pair {
    fn start(&mut self, guest: usize) -> Result<()> {
        self.pounds[guest].start(&mut self.guests[guest])
    }

    /// Waits until each of these guests has finished a round more, while the others do what they do.
    fn progress(&mut self, which: &[usize]) -> Result<()> {
        for &guest in which {
            self.pounds[guest].next_round(&self.guests[guest])?;
        }
        Ok(())
    }
}
