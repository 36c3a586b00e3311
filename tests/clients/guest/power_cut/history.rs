//! A guest's life, recorded behind the daemon.

use super::super::machine::{Guest, Plan};
use super::backend::log;
use super::host::Host;
use super::setting::{Setting, VOLUME};
use anyhow::{Context, Result, ensure};
use e2e::Site;
use e2e::disk_log;
use e2e::rng::Rng;
use e2e::tools::SQLITE;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// All commits, on a busy machine.
const COMMITS_LIMIT: Duration = Duration::from_mins(5);

/// Commits that the guest knew to be durable when the log had so many entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) commits: u64,
    pub(super) entries: u64,
}

impl Ack {
    /// The flush on which it rests, at the latest: its entry is the last one of them.
    pub(super) fn point(&self) -> usize {
        self.entries.saturating_sub(1) as usize
    }
}

/// What is left of a guest.
#[derive(Debug)]
pub(super) struct History {
    pub(super) setting: Setting,
    pub(super) site: Site,
    pub(super) acks: Vec<Ack>,
    pub(super) took: Duration,
}

/// Boots a guest, lets it commit, and shuts everything down, cleanly in the end.
///
/// # Errors
/// When the guest notices anything; the daemon's log is part of the error.
pub(super) fn record(setting: Setting) -> Result<History> {
    let start = Instant::now();
    let site = Site::within(&ram())?;
    match live(&site, &setting) {
        Ok(acks) => Ok(History { setting, site, acks, took: start.elapsed() }),
        Err(error) => {
            let log = std::fs::read(site.path("cinnabar.log")).unwrap_or_default();
            Err(error.context(format!("{setting}:\n{}", String::from_utf8_lossy(&log))))
        }
    }
}

fn live(site: &Site, setting: &Setting) -> Result<Vec<Ack>> {
    let disk = setting.attach().1(site, VOLUME);
    let mut host = Host::start(site, setting, setting.config(&disk))?;
    let mut plan = Plan::new("guest", &[disk]);
    plan.programs.push(SQLITE);
    let mut guest = plan.boot(site)?;
    start_work(&mut guest, setting)?;
    let (mut acks, mut rng) = (Vec::new(), Rng::new(setting.seed));
    let Setting { commits, incidents, .. } = setting;
    for (number, incident) in (1..).zip(incidents) {
        watch(&mut acks, site, &guest, commits * number / (incidents.len() as u64 + 1))?;
        thread::sleep(Duration::from_millis(rng.below(60)));
        host = host.meet(*incident).with_context(|| format!("incident {number}"))?;
    }
    watch(&mut acks, site, &guest, *commits)?;
    guest.run("touch /run/stop && wait $commits && wait $churn && umount /mnt")?;
    guest.check_console()?;
    guest.power_off()?;
    host.stop()?;
    Ok(acks)
}

fn start_work(guest: &mut Guest, setting: &Setting) -> Result<()> {
    let Setting { commits, seed, flushes, .. } = setting;
    if !flushes {
        // Its kernel believes it, and flushes no more.
        guest.run("echo write through >/sys/block/vda/queue/write_cache")?;
    }
    let discard = if seed % 3 == 0 { "nodiscard" } else { "discard" };
    guest.run(&format!("mount -t ext4 -o {discard} /dev/vda /mnt"))?;
    guest.run("work churn churn /mnt/churn & churn=$!")?;
    guest.run(&format!("work commits commits /mnt/t.db {commits} {seed} & commits=$!"))?;
    Ok(())
}

/// Notes what the guest reports, up to this number of commits.
fn watch(acks: &mut Vec<Ack>, site: &Site, guest: &Guest, goal: u64) -> Result<()> {
    let start = Instant::now();
    let mut last = acks.last().map_or(0, |ack| ack.commits);
    while last < goal {
        let told = guest.told("commit ", "");
        if told > last {
            // Read later than the report: so what it rests on is among these entries.
            let entries = disk_log::entries_so_far(&log(site))?;
            acks.push(Ack { commits: told, entries });
            last = told;
        }
        guest.check_work()?;
        let late = start.elapsed() > COMMITS_LIMIT;
        ensure!(!late, "{last} of {goal} commits after {COMMITS_LIMIT:?}");
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Where files are made and thrown away by the hundred.
fn ram() -> PathBuf {
    let ram = Path::new("/dev/shm");
    if ram.is_dir() { ram.into() } else { std::env::temp_dir() }
}
