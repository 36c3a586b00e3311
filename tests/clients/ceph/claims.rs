//! A host is lost with writes in its write log: another one does not serve the image before they are there.

use super::{CACHE, DISK, check, cluster, contents, image, reason, started, volume};
use anyhow::{Result, ensure};
use e2e::ceph::{Cluster, SLOW};
use e2e::daemon::noise;
use e2e::nbd::Client;
use e2e::{Config, Site};
use std::process::Command;
use std::time::{Duration, Instant};

/// Writes a guest has made when its host is lost, each of a block of its own that no other one follows. Few enough
/// for a busy machine: 10 s after the cluster has frozen the image's lock is in doubt, and requests wait.
const WRITES: u64 = 1000;

pub(super) fn lost_host() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{SLOW}/claimed");
    image(cluster, &name, DISK)?;
    let backend = cluster.backend(&name);
    let host = Site::new()?;
    let settings = Config::new(CACHE)
        .cache_key("write_log = \"writes.img\"")
        .cache_key("write_log_size = \"64MiB\"")
        .volume(volume("vm1", &backend).key("mode = \"write-back\""));
    let daemon = host.serve(&settings)?;
    let mut guest = Client::connect(&host.path("vm1.sock"), "vm1")?;
    let mut expected = vec![0; DISK as usize];
    // What is acknowledged from now on is in the write log only.
    cluster.freeze(true)?;
    let frozen = || -> Result<Option<u64>> {
        for write in 0..WRITES {
            let (offset, data) = (write * 2 * 4096, noise(4096, write));
            guest.write(offset, &data)?;
            expected[offset as usize..][..4096].copy_from_slice(&data);
        }
        guest.flush()?;
        let status = daemon.glance()?;
        daemon.crash()?;
        Ok(status.volume("vm1")?["write_back"]["dirty_bytes"].as_u64())
    };
    let dirty = frozen();
    // Other tests have the cluster, too.
    cluster.freeze(false)?;
    let dirty = dirty?;
    ensure!(dirty > Some(WRITES / 2 * 4096), "the cluster was quicker: {dirty:?}");
    cluster.wait_for(SLOW)?;
    ensure!(claims(cluster)? == 1, "no claim was there before the host was lost");

    // Another host: it has neither the cache nor the write log.
    let other = Site::new()?;
    let daemon = other.serve(&Config::new(CACHE).volume(volume("vm1", &backend)))?;
    let said = reason(&daemon, "it is claimed by")?;
    ensure!(said.contains("volume \"vm1\""), "{said}");
    ensure!(contents(cluster, &name)? != expected, "all writes were there already");

    let log = host.path("writes.img");
    let mut rescue = Command::new(e2e::binary::cinnabar()?);
    rescue.args(["cache", "writeback"]).arg(&log).args(["--volume", "vm1", "--to", &backend]);
    let told = e2e::output(&mut rescue)?;
    ensure!(told.contains("released"), "{told}");
    ensure!(contents(cluster, &name)? == expected, "the rescue has brought something else");

    // The other host tries again by itself.
    let begun = Instant::now();
    while Client::connect(&other.path("vm1.sock"), "vm1").is_err() {
        ensure!(begun.elapsed() < super::PATIENCE, "not served:\n{}", daemon.running.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    check(&other, "vm1", &expected)?;
    ensure!(claims(cluster)? == 0, "the claim stays");
    daemon.stop()?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// Claims in the pool.
fn claims(cluster: &Cluster) -> Result<usize> {
    let objects = e2e::output(&mut cluster.command("rados", &["-p", SLOW, "ls"]))?;
    Ok(objects.lines().filter(|object| object.starts_with("cinnabar_claim.")).count())
}
