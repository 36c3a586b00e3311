//! Volumes on RBD images of a throw-away cluster, which all cases share, one at a time.

mod claims;
mod clones;
mod cut_off;
mod fenced;
mod hybrid;
mod lives;
mod load;
mod moves;
mod refusals;
mod returns;
mod snapshots;
mod warm;

use crate::Case;
use anyhow::{Context, Result, bail, ensure};
use e2e::ceph::{Cluster, TOOLS};
use e2e::nbd::Client;
use e2e::tools::{CEPH, CEPH_MON, CEPH_OSD, FIO, LIBRADOS, LIBRADOSPP, LIBRBD, NFT, QEMU_IMG};
use e2e::{Config, Daemon, MIB, Site, Volume};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const WITH_FIO: &[e2e::tools::Tool] =
    &[FIO, CEPH_MON, CEPH_OSD, CEPH, LIBRBD, LIBRADOS, LIBRADOSPP];

const WITH_NFT: &[e2e::tools::Tool] =
    &[NFT, CEPH_MON, CEPH_OSD, CEPH, LIBRBD, LIBRADOS, LIBRADOSPP];

const WITH_QEMU_IMG: &[e2e::tools::Tool] =
    &[QEMU_IMG, CEPH_MON, CEPH_OSD, CEPH, LIBRBD, LIBRADOS, LIBRADOSPP];

pub(crate) const CASES: [Case; 28] = [
    Case::new("ceph_osd_killed_under_fio", WITH_FIO, load::osd_killed_under_fio).ci(),
    Case::new("ceph_monitor_restarted_under_fio", WITH_FIO, load::monitor_restarted_under_fio),
    Case::new("ceph_every_operation", TOOLS, load::every_operation).ci(),
    Case::new("ceph_silent_cluster", TOOLS, load::silent_cluster).ci(),
    Case::new("ceph_warm_after_kill_and_stop", TOOLS, warm::after_kill_and_stop).ci(),
    Case::new("ceph_cold_after_another_writer", TOOLS, warm::cold_after_another_writer),
    Case::new("ceph_return_after_changes", TOOLS, returns::only_changes_are_dropped).ci(),
    Case::new("ceph_return_in_doubt", TOOLS, returns::in_doubt_all_is_dropped),
    Case::new("ceph_return_beside_another", TOOLS, returns::none_is_left_beside_another_client)
        .ci(),
    Case::new("ceph_mistakes", TOOLS, refusals::mistakes).ci(),
    Case::new("ceph_one_host_writes", TOOLS, refusals::one_host_writes),
    Case::new("ceph_snapshots_and_growth", TOOLS, snapshots::snapshots_and_growth),
    Case::new("ceph_golden_clones", WITH_QEMU_IMG, clones::golden_clones).ci(),
    Case::new("ceph_cloned_rolled_back_deleted", TOOLS, lives::cloned_rolled_back_deleted),
    Case::new("ceph_fenced_off", TOOLS, fenced::fenced_off).ci(),
    Case::new("ceph_fenced_off_with_hits_only", TOOLS, fenced::with_hits_only),
    Case::new("ceph_lock_broken_without_fence", TOOLS, fenced::lock_broken),
    Case::new("ceph_write_back_claim", TOOLS, claims::lost_host).ci(),
    Case::new("ceph_hand_over", TOOLS, moves::hand_over).ci(),
    Case::new("ceph_standby_of_a_clone", TOOLS, moves::standby_of_a_clone),
    Case::new("ceph_fail_over", TOOLS, moves::fail_over),
    Case::new("ceph_frozen_owner", TOOLS, moves::frozen_owner).ci(),
    Case::new("ceph_hybrid_osds_killed_under_fio", WITH_FIO, hybrid::osds_killed_under_fio),
    Case::new("ceph_hybrid_kills_while_extents_move", TOOLS, hybrid::kills_while_extents_move).ci(),
    Case::new("ceph_hybrid_mistakes", TOOLS, hybrid::mistakes),
    Case::new("ceph_hybrid_frozen_owner", TOOLS, hybrid::frozen_owner),
    Case::new("ceph_cut_off_owner", WITH_NFT, cut_off::owner),
    Case::new("ceph_caches_of_librbd", TOOLS, refusals::caches_of_librbd),
];

const DISK: u64 = 32 * MIB;
const CACHE: u64 = 96 * MIB;
/// How long anything may take to show.
const PATIENCE: Duration = Duration::from_mins(1);

/// The cluster; it ends with this process.
fn cluster() -> Result<MutexGuard<'static, Option<Cluster>>> {
    static CLUSTER: Mutex<Option<Cluster>> = Mutex::new(None);
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = &mut *cluster {
        cluster.restore().context("after an earlier case")?;
    } else {
        // What kept it from starting once would do so for each case, after minutes.
        static FAILED: Mutex<Option<String>> = Mutex::new(None);
        let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failed) = &*failed {
            bail!("the cluster did not start for an earlier case: {failed}");
        }
        let started = Cluster::start().inspect_err(|error| *failed = Some(format!("{error:#}")));
        *cluster = Some(started?);
    }
    Ok(cluster)
}

fn started<'a>(cluster: &'a mut MutexGuard<'static, Option<Cluster>>) -> &'a mut Cluster {
    cluster.as_mut().expect("it was started")
}

/// Makes an image of `size` bytes.
fn image(cluster: &Cluster, name: &str, size: u64) -> Result<()> {
    cluster.rbd(&["create", name, "--size", &format!("{size}B")]).map(drop)
}

/// Reading a disk from end to end must not count as a scan that bypasses the cache.
fn volume(name: &str, backend: &str) -> Volume {
    Volume::new(name, backend).key("bypass_sequential = \"0\"").key("bypass_large = \"0\"")
}

fn config(cluster: &Cluster, image: &str) -> Config {
    Config::new(CACHE).volume(volume("vm1", &cluster.backend(image)))
}

fn client(site: &Site, name: &str) -> Result<Client> {
    Client::connect(&site.path(&format!("{name}.sock")), name)
}

/// Reads a whole volume and compares it.
fn check(site: &Site, name: &str, expected: &[u8]) -> Result<()> {
    let mut client = client(site, name)?;
    for (offset, expected) in (0..).step_by(MIB as usize).zip(expected.chunks(MIB as usize)) {
        let found = client.read(offset, expected.len())?;
        let wrong = found.chunks(512).zip(expected.chunks(512)).position(|(a, b)| a != b);
        ensure!(wrong.is_none(), "{name} differs, first in sector {wrong:?} behind byte {offset}");
    }
    Ok(())
}

/// What the image holds, as another client of the cluster sees it.
fn contents(cluster: &Cluster, image: &str) -> Result<Vec<u8>> {
    let path = cluster.folder().join("export");
    let _none = std::fs::remove_file(&path);
    let to = path.to_str().context("its path is text")?;
    cluster.rbd(&["export", "--no-progress", image, to])?;
    Ok(std::fs::read(path)?)
}

/// Waits until the status of `vm1` says why it does not serve as it should.
fn reason(daemon: &Daemon, part: &str) -> Result<String> {
    let begun = Instant::now();
    loop {
        let status = daemon.glance()?;
        let text = status.volume("vm1")?["reason"].as_str().unwrap_or_default().to_owned();
        if text.contains(part) {
            ensure!(!text.contains('\n'), "more than a line: {text}");
            return Ok(text);
        }
        if begun.elapsed() > PATIENCE {
            bail!("no {part:?} in {}\n{}", status.0, daemon.running.log());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
