//! A guest that writes all the time is migrated live between two daemons with one image, to and fro: at each
//! moment its disk holds what it was told, on both hosts, and its memory arrives.
//!
//! `CINNABAR_MIGRATIONS` makes it more migrations than CI's.

use super::disk::{Attach, over_nbd, over_vhost_user};
use super::machine::{Plan, wait_for};
use super::migrate::{BOOK, BOOK_BYTES, Left, POUND, check_memory, leave};
use super::pound::Pounding;
use crate::migration;
use anyhow::{Context, Result, ensure};
use e2e::{Daemon, MIB, Site, Volume, daemon::free_port, output};
use std::path::Path;
use std::process::Command;

const DISK: u64 = 64 * MIB;
const CACHE: u64 = 64 * MIB;
const MIGRATIONS: usize = 2;
const VARIABLE: &str = "CINNABAR_MIGRATIONS";
const VOLUME: u64 = 1;

/// Over NBD.
pub(super) fn nbd() -> Result<()> {
    to_and_fro(over_nbd)
}

/// Over vhost-user: both daemons write into the guest's memory.
pub(super) fn vhost_user() -> Result<()> {
    to_and_fro(over_vhost_user)
}

/// A host: its folder and its daemon.
struct Host {
    site: Site,
    daemon: Daemon,
}

impl Host {
    fn new(images: &Site, attach: Attach, ports: (u16, u16), token: &Path) -> Result<Self> {
        let site = Site::new()?;
        let volumes = [POUND, BOOK].map(|name| {
            let image = images.path(&format!("{name}.raw"));
            let volume = Volume::new(name, &format!("file:{}", image.display()));
            attach(&site, name).configure(volume)
        });
        let daemon = site.serve(&migration::config(CACHE, volumes, ports, token))?;
        Ok(Self { site, daemon })
    }

    fn role(&self) -> Result<String> {
        migration::role(&self.daemon, POUND)
    }
}

fn to_and_fro(attach: Attach) -> Result<()> {
    let migrations =
        std::env::var(VARIABLE).ok().map(|number| number.parse::<usize>()).transpose()?;
    let shared = Site::new()?;
    let image = shared.sparse(&format!("{POUND}.raw"), DISK)?;
    let book = shared.filled(&format!("{BOOK}.raw"), BOOK_BYTES, 1)?;
    let sum = output(Command::new("md5sum").arg(book))?;
    let sum = sum.split(' ').next().context("no checksum")?;
    let token = migration::token(&shared)?;
    let (a, b) = (free_port()?, free_port()?);
    let hosts =
        [Host::new(&shared, attach, (a, b), &token)?, Host::new(&shared, attach, (b, a), &token)?];
    for host in &hosts {
        ensure!(host.role()? == "standby", "both begin as standbys");
    }
    let plan = |host: &Host| Plan::new("vm", &[POUND, BOOK].map(|name| attach(&host.site, name)));
    let mut guest = plan(&hosts[0]).boot(&hosts[0].site)?;
    // A disk that nobody has open is not cached.
    guest.run(&format!("sleep 100000 <$(disk {BOOK}) >/dev/null 2>&1 &"))?;
    let mut pound = Pounding::new(POUND, VOLUME);
    pound.start(&mut guest)?;
    let socket = shared.path("migration.sock");
    for round in 0..migrations.unwrap_or(MIGRATIONS) {
        let (from, to) = (&hosts[round % 2], &hosts[(round + 1) % 2]);
        pound.next_round(&guest)?;
        ensure!(from.role()? == "owner" && to.role()? == "standby", "round {round}");
        let mut received = plan(to).receive(&to.site, &socket)?;
        let left = leave(&mut guest, &format!("unix:{}", socket.display()));
        let Left { passes, still_ms } = left.with_context(|| format!("migration {round}"))?;
        received.runs()?;
        pound.look(&guest);
        guest.crash()?;
        guest = received;
        check_memory(&mut guest, sum)?;
        wait_for("the volume to follow its guest", || Ok(to.role()? == "owner"))?;
        wait_for("its old owner to stand by", || Ok(from.role()? == "standby"))?;
        let status = to.daemon.status()?;
        let waited = status.volume(POUND)?["migration"]["last_take_s"].as_f64();
        println!(
            "migration {round}: {passes} passes over the memory, the guest stood still for \
             {still_ms} ms, its writes for {waited:?} s"
        );
        guest.check_console()?;
    }
    pound.stop(&mut guest)?;
    pound.check(&mut guest)?;
    guest.run("echo 3 >/proc/sys/vm/drop_caches")?;
    ensure!(guest.run(&format!("md5sum <$(disk {BOOK})"))?.starts_with(sum), "the disk differs");
    guest.check_console()?;
    pound.check_file(&image).context("at the back end")?;
    guest.power_off()?;
    for Host { daemon, .. } in hosts {
        daemon.stop()?;
    }
    Ok(())
}
