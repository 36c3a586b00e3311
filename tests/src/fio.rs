//! Runs fio's nbd engine and reads what it measured.

use crate::process::output;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// One fio job.
#[derive(Clone, Debug)]
pub struct Fio {
    args: Vec<String>,
    ceph_conf: Option<PathBuf>,
}

impl Fio {
    /// A job against an NBD export.
    pub fn nbd(uri: &str) -> Self {
        Self::engine("nbd").arg("uri", uri)
    }

    /// A job of another engine.
    pub fn engine(name: &str) -> Self {
        let job = Self { args: Vec::new(), ceph_conf: None };
        // Threads, not processes: several connections of one client. Each run in an own order.
        job.arg("name", "job")
            .arg("ioengine", name)
            .arg("bs", "4k")
            .arg("randrepeat", 0)
            .flag("thread")
            .flag("group_reporting")
            .arg("output-format", "json")
            // What it knows dies with it; otherwise it leaves a file where it was started.
            .arg("verify_state_save", 0)
    }

    /// Adds `--key=value`.
    #[must_use]
    pub fn arg(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.args.push(format!("--{key}={value}"));
        self
    }

    /// Adds `--key`.
    #[must_use]
    pub fn flag(mut self, key: &str) -> Self {
        self.args.push(format!("--{key}"));
        self
    }

    /// With this configuration of Ceph: the rbd engine has no argument for it.
    #[must_use]
    pub fn ceph_conf(mut self, path: PathBuf) -> Self {
        self.ceph_conf = Some(path);
        self
    }

    /// The command, for who starts it in the background.
    pub fn command(&self) -> Command {
        let mut command = Command::new("fio");
        command.args(&self.args);
        if let Some(conf) = &self.ceph_conf {
            command.env("CEPH_CONF", conf);
        }
        command
    }

    /// Runs it to the end.
    ///
    /// # Errors
    /// When fio fails, which a failed verification is, or reports an error.
    pub fn run(&self) -> Result<Outcome> {
        Outcome::parse(&output(&mut self.command())?)
    }
}

/// What fio measured of reads or of writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direction {
    /// Operations completed.
    pub operations: u64,
    /// Operations a second.
    pub iops: f64,
    /// Mean completion latency, in us.
    pub mean_us: f64,
    /// Median completion latency, in us.
    pub p50_us: f64,
    /// 99th percentile of the completion latency, in us.
    pub p99_us: f64,
    /// Longest completion latency, in us.
    pub max_us: f64,
}

/// What fio measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Results of the reads.
    pub read: Direction,
    /// Results of the writes.
    pub write: Direction,
    /// fio's own CPU time, user and system, in us an operation.
    pub client_us: f64,
}

impl Outcome {
    fn parse(text: &str) -> Result<Self> {
        // fio's nbd engine says hello on standard output, before the JSON.
        let at = text.find('{').with_context(|| format!("no JSON from fio: {text}"))?;
        let report: Value = serde_json::from_str(&text[at..]).context("reading fio's JSON")?;
        let job = &report["jobs"][0];
        ensure!(job["error"] == 0, "fio reports error {} in {job}", job["error"]);
        let (read, write) = (direction(&job["read"])?, direction(&job["write"])?);
        // Percent of the time that all its threads ran, summed up.
        let share = |key: &str| job[key].as_f64().unwrap_or_default() / 100.0;
        let ran_us = job["job_runtime"].as_f64().unwrap_or_default() * 1000.0;
        let operations = (read.operations + write.operations).max(1) as f64;
        let client_us = (share("usr_cpu") + share("sys_cpu")) * ran_us / operations;
        Ok(Self { read, write, client_us })
    }

    /// Reads and writes a second.
    pub fn iops(&self) -> f64 {
        self.read.iops + self.write.iops
    }

    /// Mean completion latency of reads and writes together, in us.
    pub fn mean_us(&self) -> f64 {
        let sum = |direction: &Direction| direction.mean_us * direction.operations as f64;
        let operations = self.read.operations + self.write.operations;
        (sum(&self.read) + sum(&self.write)) / operations.max(1) as f64
    }
}

fn direction(report: &Value) -> Result<Direction> {
    let latency = &report["clat_ns"];
    Ok(Direction {
        operations: report["total_ios"].as_u64().context("no total_ios from fio")?,
        iops: report["iops"].as_f64().context("no iops from fio")?,
        mean_us: latency["mean"].as_f64().unwrap_or_default() / 1000.0,
        p50_us: latency["percentile"]["50.000000"].as_f64().unwrap_or_default() / 1000.0,
        p99_us: latency["percentile"]["99.000000"].as_f64().unwrap_or_default() / 1000.0,
        max_us: latency["max"].as_f64().unwrap_or_default() / 1000.0,
    })
}
