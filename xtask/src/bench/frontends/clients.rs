//! The clients that generate the load, and their measurements.

use anyhow::{Context, Result};
use e2e::{Fio, output};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of the next run of our load generator.
static SEED: AtomicU64 = AtomicU64::new(1);

#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The file itself, by fio with `io_uring` past the page cache.
    File(PathBuf),
    /// An NBD export, by fio.
    Nbd(String),
    /// A vhost-user-blk device, by our load generator.
    Vhost(PathBuf),
}

/// The load of one measurement: random reads of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// NBD connections, or readers of a file.
    pub(super) connections: u32,
    /// Reads under way on each.
    pub(super) depth: u32,
    pub(super) seconds: u64,
}

/// What the client saw; latencies and CPU times in us.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) operations: u64,
    pub(super) iops: f64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Its own CPU time an operation.
    pub(super) client_cpu: f64,
}

/// Our load generator, built now if need be.
pub(super) fn loadgen_binary() -> Result<PathBuf> {
    e2e::binary::built(&["--package", "loadgen"])
}

impl Load {
    /// One connection.
    pub(super) fn new(depth: u32, seconds: u64) -> Self {
        Self { connections: 1, depth, seconds }
    }

    /// Puts the load on a target. `check`: what is there is compared with this file first, where
    /// the client can do that.
    pub(super) fn on(self, target: &Target, check: Option<&Path>) -> Result<Seen> {
        match target {
            Target::File(path) => {
                let job = Fio::engine("io_uring").arg("filename", path.display()).arg("direct", 1);
                self.fio(job)
            }
            Target::Nbd(uri) => self.fio(Fio::nbd(uri)),
            Target::Vhost(socket) => self.loadgen(socket, check),
        }
    }

    fn fio(self, job: Fio) -> Result<Seen> {
        let outcome = self.job(job).run()?;
        let read = outcome.read;
        Ok(Seen {
            operations: read.operations,
            iops: read.iops,
            mean: read.mean_us,
            p50: read.p50_us,
            p99: read.p99_us,
            client_cpu: outcome.client_us,
        })
    }

    /// As a job of fio's.
    pub(super) fn job(self, job: Fio) -> Fio {
        job.arg("rw", "randread")
            .arg("numjobs", self.connections)
            .arg("iodepth", self.depth)
            .arg("runtime", self.seconds)
            .flag("time_based")
            .flag("norandommap")
    }

    fn loadgen(self, socket: &Path, check: Option<&Path>) -> Result<Seen> {
        let mut command = Command::new(loadgen_binary()?);
        command.arg("--socket").arg(socket);
        command.args(["--depth", &self.depth.to_string()]);
        command.args(["--seconds", &self.seconds.to_string()]);
        // Other places each time: what one run has read must not be a hit in the next.
        command.args(["--seed", &SEED.fetch_add(1, Relaxed).to_string()]);
        if let Some(file) = check {
            command.arg("--check").arg(file);
        }
        let said = output(&mut command)?;
        let said: serde_json::Value = serde_json::from_str(&said).context("loadgen's JSON")?;
        let number = |key: &str| said[key].as_f64().with_context(|| format!("no {key}: {said}"));
        Ok(Seen {
            operations: said["operations"].as_u64().context("no operations")?,
            iops: number("iops")?,
            mean: number("mean_us")?,
            p50: number("p50_us")?,
            p99: number("p99_us")?,
            client_cpu: number("client_us")?,
        })
    }
}
