//! Where the volumes of the benchmark lie: on a throw-away Ceph cluster, or in folders for a quick run.

use anyhow::{Context, Result};
use e2e::ceph::{self, Cluster, HDD_OSDS};
use e2e::{MIB, Site, output};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// What an HDD OSD spends on each message, one at a time. A write of two replicas then takes some 12 ms,
/// and both OSDs together serve some 400 a second, as the three disks of 140 writes that MOBBS counts with.
const DISK_S: f64 = 0.001;
const TELL_LIMIT: Duration = Duration::from_secs(30);

pub(super) enum Place {
    /// Pools of a cluster.
    Ceph(Box<Cluster>),
    /// Folders: both pools are as fast as this machine's disk.
    Local(Site),
}

/// How large a volume is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) bytes: u64,
    pub(super) extent_bytes: u64,
}

impl Size {
    pub(super) fn extents(self) -> u64 {
        self.bytes.div_ceil(self.extent_bytes)
    }
}

impl Place {
    /// Starts the cluster, and makes its HDDs as slow as disks.
    pub(super) fn start(local: bool) -> Result<Self> {
        if local {
            return Ok(Self::Local(Site::new()?));
        }
        let cluster = Cluster::start()?;
        for osd in HDD_OSDS {
            // The fixture delays messages side by side: then any number of them takes as long as one, which
            // no disk does. Here each waits for the one before.
            let osd = format!("osd.{osd}");
            let set = |key: &str, value: &str| told(&cluster, &osd, key, value);
            set("ms_inject_delay_probability", "0")?;
            set("osd_debug_inject_dispatch_delay_duration", &DISK_S.to_string())?;
            set("osd_debug_inject_dispatch_delay_probability", "1")?;
        }
        Ok(Self::Ceph(Box::new(cluster)))
    }

    /// What it is, for a report.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Ceph(_) => "two SSD and two HDD OSDs of a throw-away cluster",
            Self::Local(_) => "two folders of one disk",
        }
    }

    /// Makes a volume. `swapped`: the fast pool has the slow one's part, so that all of it lies on SSD.
    /// `probed`: pools on Ceph are measured for the planner.
    pub(super) fn create(&self, name: &str, swapped: bool, probed: bool, size: Size) -> Result<()> {
        let mut command = Command::new(e2e::binary::cinnabar()?);
        command.args(["hybrid", "create"]);
        match self {
            Self::Ceph(cluster) => {
                let [fast, slow] = pools(swapped);
                command.args(["--ceph", name, "--fast", fast, "--slow", slow]);
                command.arg("--conf").arg(cluster.conf());
                if !probed {
                    command.arg("--no-probe");
                }
            }
            Self::Local(_) => {
                let [fast, slow] = self.folders(name, swapped);
                command.arg("--fast").arg(fast).arg("--slow").arg(slow);
            }
        }
        let mib = |bytes: u64| format!("{}MiB", bytes / MIB);
        command.args(["--size", &mib(size.bytes), "--budget", &mib(size.bytes)]);
        command.args(["--extent", &format!("{}KiB", size.extent_bytes / 1024)]);
        output(&mut command).with_context(|| format!("making {name}")).map(drop)
    }

    /// The back end of a volume, with these options.
    pub(super) fn backend(&self, name: &str, swapped: bool, options: &[String]) -> String {
        let mut text = "hybrid".to_owned();
        for option in options {
            let _ok = write!(text, ",{option}");
        }
        let _ok = match self {
            Self::Ceph(cluster) => {
                let ([fast, slow], conf) = (pools(swapped), cluster.conf());
                let conf = conf.display();
                write!(text, ":ceph,fast={fast},slow={slow},name={name},conf={conf}")
            }
            Self::Local(_) => {
                let [fast, slow] =
                    self.folders(name, swapped).map(|path| path.display().to_string());
                write!(text, ":fast={fast},slow={slow}")
            }
        };
        text
    }

    fn folders(&self, name: &str, swapped: bool) -> [PathBuf; 2] {
        let Self::Local(site) = self else { unreachable!("pools of a cluster are no folders") };
        pools(swapped).map(|pool| site.path(&format!("{name}-{pool}")))
    }
}

/// Sets an option of an OSD; for a moment after its start it may not answer.
fn told(cluster: &Cluster, osd: &str, key: &str, value: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        match cluster.ceph(&["tell", osd, "config", "set", key, value]) {
            Err(_) if begun.elapsed() < TELL_LIMIT => thread::sleep(Duration::from_millis(500)),
            outcome => return outcome.map(drop),
        }
    }
}

/// Which pool is fast, and which is slow.
const fn pools(swapped: bool) -> [&'static str; 2] {
    if swapped { [ceph::SLOW, ceph::FAST] } else { [ceph::FAST, ceph::SLOW] }
}
