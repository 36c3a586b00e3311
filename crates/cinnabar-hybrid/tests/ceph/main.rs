//! Volumes on the two pools of a throw-away cluster, which all tests share, one at a time. Without Ceph's programs
//! each prints that it is skipped.

mod driver;
mod faults;
mod moves;
mod owners;
mod refusals;
mod runtime;

use anyhow::{Result, ensure};
use cinnabar_hybrid::librados::target::Target;
use cinnabar_hybrid::pools::Place;
use cinnabar_hybrid::rados::{RadosPlace, RadosSpec};
use cinnabar_placement::{Geometry, Header};
use e2e::ceph::{Cluster, FAST, SLOW, TOOLS};
use std::sync::{Mutex, MutexGuard, PoisonError};

const EXTENT_LOG2: u8 = 22;
const EXTENT: u64 = 1 << EXTENT_LOG2;
/// Extents of the tests' volumes.
const EXTENTS: u32 = 12;

/// The cluster, which ends with this process; `None`: there is no Ceph.
fn cluster() -> Option<MutexGuard<'static, Option<Cluster>>> {
    static CLUSTER: Mutex<Option<Cluster>> = Mutex::new(None);
    if let Some(missing) = TOOLS.iter().find(|tool| !tool.is_present()) {
        println!("skipped: {} is not installed (package {})", missing.command, missing.package);
        return None;
    }
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    if cluster.is_none() {
        *cluster = Some(Cluster::start().expect("a cluster starts"));
    }
    Some(cluster)
}

/// Runs a test on the cluster, if there is one.
fn on_cluster(test: impl FnOnce(&mut Cluster) -> Result<()>) {
    let Some(mut guard) = cluster() else { return };
    let cluster = guard.as_mut().expect("it was started");
    if let Err(error) = test(cluster) {
        panic!("{error:#}");
    }
}

fn spec(conf: &std::path::Path, name: &str) -> RadosSpec {
    RadosSpec {
        target: Target { conf: conf.to_owned(), ..Target::default() },
        fast: FAST.into(),
        slow: SLOW.into(),
        table: None,
        namespace: String::new(),
        name: name.into(),
        by_force: false,
    }
}

fn header(seed: u8) -> Header {
    let geometry = Geometry::new(u64::from(EXTENTS) * EXTENT, EXTENT_LOG2).expect("a size");
    Header::new([seed; 16], geometry, 6 * EXTENT)
}

/// Makes a volume.
fn made(cluster: &Cluster, name: &str, seed: u8) -> Result<RadosPlace> {
    let mut place = RadosPlace::new(spec(&cluster.conf(), name));
    place.create(&header(seed))?;
    Ok(place)
}

/// One line that says this.
fn says(error: &impl ToString, part: &str) -> Result<()> {
    let text = error.to_string();
    ensure!(text.contains(part), "no {part:?} in {text:?}");
    ensure!(!text.contains('\n') && text.len() < 400, "not one line: {text:?}");
    Ok(())
}
