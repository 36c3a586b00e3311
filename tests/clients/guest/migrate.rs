//! A guest that writes all the time is migrated live between two daemons with one image, to and fro: at each
//! moment its disk holds what it was told, on both hosts.

use super::disk::over_nbd;
use super::machine::{Plan, wait_for};
use super::pound::Pounding;
use crate::migration;
use anyhow::{Context, Result, ensure};
use e2e::{Daemon, MIB, Site, Volume, daemon::free_port};
use std::path::Path;

const NAME: &str = "pound";
const DISK: u64 = 64 * MIB;
const CACHE: u64 = 32 * MIB;
const MIGRATIONS: usize = 6;
const VOLUME: u64 = 1;

/// A host: its folder, its daemon, and the port where that is asked.
struct Host {
    site: Site,
    daemon: Daemon,
}

impl Host {
    fn new(image: &Path, (own, other): (u16, u16), token: &Path) -> Result<Self> {
        let site = Site::new()?;
        let volume = Volume::new(NAME, &format!("file:{}", image.display()));
        let volume = over_nbd(&site, NAME).configure(volume);
        let config = migration::config(CACHE, volume, (own, other), token);
        let daemon = site.serve(&config)?;
        Ok(Self { site, daemon })
    }

    fn role(&self) -> Result<String> {
        migration::role(&self.daemon, NAME)
    }
}

/// Over NBD.
pub(super) fn nbd() -> Result<()> {
    let shared = Site::new()?;
    let image = shared.sparse("image.raw", DISK)?;
    let token = migration::token(&shared)?;
    let ports = (free_port()?, free_port()?);
    let hosts = [Host::new(&image, ports, &token)?, Host::new(&image, (ports.1, ports.0), &token)?];
    for host in &hosts {
        ensure!(host.role()? == "standby", "both begin as standbys");
    }
    let plan = |host: &Host| Plan::new("vm", &[over_nbd(&host.site, NAME)]);
    let mut guest = plan(&hosts[0]).boot(&hosts[0].site)?;
    let mut pound = Pounding::new(NAME, VOLUME);
    pound.start(&mut guest)?;
    let socket = shared.path("migration.sock");
    for round in 0..MIGRATIONS {
        let (from, to) = (&hosts[round % 2], &hosts[(round + 1) % 2]);
        let begun = pound.rounds();
        wait_for("rounds of writes", || {
            pound.look(&guest);
            guest.check_work()?;
            Ok(pound.rounds() >= begun + 2)
        })?;
        ensure!(from.role()? == "owner" && to.role()? == "standby", "round {round}");
        let mut received = plan(to).receive(&to.site, &socket)?;
        let still_ms = guest.migrate(&socket).with_context(|| format!("migration {round}"))?;
        received.runs()?;
        pound.look(&guest);
        guest.crash()?;
        guest = received;
        wait_for("the volume to follow its guest", || Ok(to.role()? == "owner"))?;
        ensure!(from.role()? == "standby", "round {round}");
        let status = to.daemon.status()?;
        let waited = status.volume(NAME)?["migration"]["last_take_s"].as_f64();
        println!(
            "migration {round}: the guest stood still for {still_ms} ms, its writes for {waited:?} s"
        );
    }
    pound.stop(&mut guest)?;
    pound.check(&mut guest)?;
    guest.check_console()?;
    pound.check_file(&image).context("at the back end")?;
    guest.power_off()?;
    for Host { daemon, .. } in hosts {
        daemon.stop()?;
    }
    Ok(())
}
