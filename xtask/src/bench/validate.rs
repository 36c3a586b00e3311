//! The timed simulator against the real thing: the same trace through the cache over modelled storage
//! by the real clock, and through the production engine by virtual time.
//!
//! The storage is `sim:filer`, whose times are the simulator's defaults; the cache device is a file,
//! whose own times are measured first and given to the simulator. A baseline says what the machine
//! adds by itself: how long an operation takes that the model lets take exactly a millisecond.

use crate::bench::{heading, publish};
use crate::table::Table;
use crate::traces;
use anyhow::{Context, Result, bail, ensure};
use e2e::{MIB, Site};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// A trace [default: `cp_vscsi`, and the part of `self_loop4` that the project carries]
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Requests under way at a time
    #[arg(long = "depth", value_name = "N", default_values_t = [1, 8])]
    depths: Vec<u32>,
    /// Size of the cache, in MiB
    #[arg(long, default_value_t = 256)]
    cache_mib: u64,
    /// Leave the replays on their own against other work on this machine: real-time priority, as root
    #[arg(long)]
    realtime: bool,
    /// Write the table to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

/// What misses may differ by: they depend on the name of the cache device, which is random, and on
/// the clock, by which chunks are written that are not full.
const MISSES_BAR: f64 = 0.03;
/// What a mean may differ by.
const MEAN_BAR: f64 = 0.10;
/// Writes of the measurement of the cache device, and as many reads.
const DEVICE_REQUESTS: u64 = 20_000;
/// Requests of the baseline, and what the model takes for each, in microseconds.
const BASELINE: (u64, f64) = (500, 1000.0);

#[derive(Clone, Copy, Debug)]
struct Found {
    /// Share of blocks read that were cached.
    hit_share: f64,
    /// Blocks read from the back end: those that were not, counted.
    misses: u64,
    read_us: f64,
    write_us: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let traces = if args.traces.is_empty() { usual_traces()? } else { args.traces.clone() };
    for trace in &traces {
        ensure!(trace.exists(), "no trace {}\nhint: --trace FILE names one", trace.display());
    }
    let site = Site::new()?;
    let bench = Bench { site: &site, realtime: args.realtime, cache_mib: args.cache_mib };
    let (read_us, write_us) = bench.device()?;
    let added_us = bench.baseline()? - BASELINE.1;
    let mut table = Table::new(&[
        "trace",
        "depth",
        "hits",
        "blocks missed",
        "simulated",
        "read, us",
        "simulated",
        "apart",
        "write, us",
        "simulated",
        "apart",
    ]);
    let mut failed = Vec::new();
    for trace in &traces {
        for depth in &args.depths {
            let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
            eprintln!("{name} at depth {depth}");
            let real = bench.replay(trace, *depth)?;
            let simulated = bench.simulate(trace, *depth, (read_us, write_us))?;
            let apart = [(real.read_us, simulated.read_us), (real.write_us, simulated.write_us)]
                .map(|(real, simulated)| real / simulated - 1.0);
            table.row(vec![
                name.clone(),
                depth.to_string(),
                format!("{:.3} %", real.hit_share * 100.0),
                real.misses.to_string(),
                simulated.misses.to_string(),
                format!("{:.1}", real.read_us),
                format!("{:.1}", simulated.read_us),
                format!("{:+.1} %", apart[0] * 100.0),
                format!("{:.1}", real.write_us),
                format!("{:.1}", simulated.write_us),
                format!("{:+.1} %", apart[1] * 100.0),
            ]);
            let missed = real.misses as f64 / simulated.misses as f64 - 1.0;
            if missed.abs() > MISSES_BAR {
                failed.push(format!("{name}, depth {depth}: misses are more than 3 % apart"));
            }
            if apart.iter().any(|apart| apart.abs() > MEAN_BAR) {
                failed.push(format!("{name}, depth {depth}: a mean is more than 10 % apart"));
            }
        }
    }
    let mut text = heading("`cargo xtask bench validate`")?;
    writeln!(
        text,
        "cache device: 4 KiB read in {read_us:.1} us, written in {write_us:.1} us; \
         this machine adds {added_us:.1} us to a millisecond\n\n{}",
        table.render()
    )?;
    publish(&text, args.output.as_deref())?;
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("; ")) }
}

fn usual_traces() -> Result<Vec<PathBuf>> {
    let found = traces::find_some(&["cp_vscsi", "self_loop4_first100k"], None)?;
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

struct Bench<'a> {
    site: &'a Site,
    realtime: bool,
    cache_mib: u64,
}

impl Bench<'_> {
    /// Runs `cinnabar-lab` and reads its JSON.
    fn ask(&self, alone: bool, args: &[&str]) -> Result<Value> {
        let binary = e2e::binary::lab()?;
        let mut command = if alone && self.realtime {
            let mut command = Command::new("chrt");
            command.args(["-f", "1"]).arg(binary);
            command
        } else {
            Command::new(binary)
        };
        let command = command.args(args).arg("--json").stderr(Stdio::piped());
        let done = command.output().context("starting cinnabar-lab")?;
        let told = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "cinnabar-lab {}: {told}", args.join(" "));
        serde_json::from_slice(&done.stdout).context("reading its JSON")
    }

    /// Mean times of the cache device for a read and a write of 4 KiB, in microseconds.
    fn device(&self) -> Result<(f64, f64)> {
        let device = self.site.filled("device.img", self.cache_mib * MIB, 1)?;
        let trace = self.site.path("device.csv");
        let blocks = self.cache_mib * MIB / 4096;
        // All over the file: the factor is a prime.
        let lines = (0..2 * DEVICE_REQUESTS).map(|at| {
            let (op, block) = (if at % 2 == 0 { 'W' } else { 'R' }, at * 7_368_787 % blocks);
            format!("{at},0,{op},{},4096\n", block * 4096)
        });
        std::fs::write(&trace, lines.collect::<String>())?;
        let (trace, target) = (text(&trace)?, text(&device)?);
        let replay = ["bench", "replay", trace, "--target", target, "--closed", "--overwrite"];
        let found = self.ask(true, &replay)?;
        std::fs::remove_file(&device)?;
        let run = &found["runs"][0];
        Ok((mean_us(&run["latency_reads"])?, mean_us(&run["latency_writes"])?))
    }

    /// What an operation of a millisecond takes, in microseconds.
    fn baseline(&self) -> Result<f64> {
        let trace = self.site.path("baseline.csv");
        let lines = (0..BASELINE.0).map(|at| format!("{at},0,R,{},4096\n", at * 4096));
        std::fs::write(&trace, lines.collect::<String>())?;
        let target = self.target(0, BASELINE.0 * 4096, "network,packet=0,link=0,read=1ms")?;
        let found =
            self.ask(true, &["bench", "replay", text(&trace)?, "--target", &target, "--closed"])?;
        mean_us(&found["runs"][0]["latency_reads"])
    }

    /// A file of zeros behind a model.
    fn target(&self, volume: usize, bytes: u64, model: &str) -> Result<String> {
        let path = self.site.path(&format!("volume{volume}.raw"));
        std::fs::File::create(&path)?.set_len(bytes.next_multiple_of(4096))?;
        Ok(format!("sim:{model}:file:{}", text(&path)?))
    }

    /// Volumes of a trace: what size they need, in bytes.
    fn ends(&self, trace: &Path) -> Result<Vec<u64>> {
        let found = self.ask(false, &["trace", "info", text(trace)?])?;
        let volumes = found["volumes"].as_array().context("no volumes")?;
        let field = |volume: &Value, key: &str| {
            volume[key].as_u64().with_context(|| format!("a volume without {key}"))
        };
        // `trace info` lists the busiest volume first; targets are given in the order of numbers.
        let both = |volume| Ok((field(volume, "number")?, field(volume, "size_bytes")?));
        let mut numbered = volumes.iter().map(both).collect::<Result<Vec<_>>>()?;
        numbered.sort_unstable();
        Ok(numbered.into_iter().map(|(_, bytes)| bytes).collect())
    }

    fn replay(&self, trace: &Path, depth: u32) -> Result<Found> {
        let (depth, size) = (depth.to_string(), format!("{}MiB", self.cache_mib));
        let device = self.site.path("cache.img");
        let mut args = vec![
            "bench",
            "replay",
            text(trace)?,
            "--closed",
            "--depth",
            &depth,
            "--cache",
            text(&device)?,
            "--cache-size",
            &size,
            "--cache-fresh",
        ];
        let ends = self.ends(trace)?;
        let targets: Vec<String> = (0..)
            .zip(&ends)
            .map(|(volume, end)| self.target(volume, *end, &format!("filer,seed={volume}")))
            .collect::<Result<_>>()?;
        for target in &targets {
            args.extend(["--target", target]);
        }
        let found = self.ask(true, &args)?;
        let run = &found["runs"][0];
        let bytes = run["server"]["read_bytes"].as_u64().context("no bytes read")?;
        Ok(Found {
            hit_share: run["hit_ratio"].as_f64().context("no hit ratio")?,
            misses: bytes / 4096,
            read_us: mean_us(&run["latency_reads"])?,
            write_us: mean_us(&run["latency_writes"])?,
        })
    }

    fn simulate(&self, trace: &Path, depth: u32, device_us: (f64, f64)) -> Result<Found> {
        let plan = self.site.path("plan.toml");
        let trace = trace.canonicalize()?;
        let lines = format!(
            "title = \"validation\"\n[hosts]\narchitecture = \"cinnabar\"\nthreads = {depth}\n\
             [ram]\nsize = \"0\"\n[flash]\nsize = \"{}MiB\"\nread = \"{:.0}ns\"\nwrite = \"{:.0}ns\"\n\
             [link]\npacket_holds = false\n[workload]\ntrace = \"{}\"\nwarm_up = 0\n",
            self.cache_mib,
            device_us.0 * 1e3,
            device_us.1 * 1e3,
            text(&trace)?,
        );
        std::fs::write(&plan, lines)?;
        let found = self.ask(false, &["simulate", "timed", text(&plan)?])?;
        let outcome = &found["points"][0]["outcome"];
        let mean = |key: &str| outcome[key]["mean_us"].as_f64().context("no mean");
        Ok(Found {
            hit_share: outcome["flash_share"].as_f64().context("no share of hits")?,
            misses: outcome["filer_reads"].as_u64().context("no count of reads")?,
            read_us: mean("reads")?,
            write_us: mean("writes")?,
        })
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: not UTF-8", path.display()))
}

fn mean_us(latency: &Value) -> Result<f64> {
    Ok(latency["mean_ms"].as_f64().context("no mean")? * 1e3)
}
