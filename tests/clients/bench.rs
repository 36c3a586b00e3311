//! The SPC-1-like benchmark on NBD exports of real servers: nbdkit's, and our own daemon's.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::process::CLIENT_LIMIT;
use e2e::tools::NBDKIT;
use e2e::{Config, MIB, Running, Site, Volume, output};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub(crate) const CASES: [Case; 3] = [
    Case::new("bench_spc1_on_nbdkit_with_and_without_cache", &[NBDKIT], nbdkit),
    Case::new("bench_spc1_on_our_own_exports", &[], own_exports),
    Case::new("bench_spc1_on_a_server_that_dies", &[NBDKIT], server_dies),
];

const READY: Duration = Duration::from_secs(10);
/// Sizes of ASU1 to ASU3.
const SIZES: [(&str, u64); 3] = [("asu1", 9 * MIB), ("asu2", 9 * MIB), ("asu3", 2 * MIB)];

/// Serves a file on a unix socket.
fn serve(site: &Site, name: &str) -> Result<Running> {
    let socket = site.path(&format!("{name}.sock"));
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-U"]).arg(&socket).args(["-e", name, "file"]).arg(site.path(name));
    let mut server = Running::start(&mut command, &site.path("nbdkit.log"))?;
    server.wait_until(READY, || e2e::nbd::listens(&socket))?;
    Ok(server)
}

/// Serves all of them.
fn serve_all(site: &Site) -> Result<Vec<Running>> {
    let one = |(name, size): (&str, u64)| {
        site.filled(name, size, 1)?;
        serve(site, name)
    };
    SIZES.into_iter().map(one).collect()
}

/// The benchmark, with arguments to run in the site's folder for a second.
fn bench(site: &Site, asus: [&str; 3], flags: &[&str]) -> Result<Command> {
    let folder = site.path("asu1").parent().map(Path::to_owned).context("a folder")?;
    let mut command = Command::new(e2e::binary::lab()?);
    command.args(["bench", "spc1", "--json", "--bsu", "10"]).args(flags).current_dir(folder);
    for (flag, asu) in ["--asu1", "--asu2", "--asu3"].into_iter().zip(asus) {
        command.args([flag, asu]);
    }
    Ok(command)
}

fn report(command: &mut Command) -> Result<Value> {
    let text = output(command)?;
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
}

fn count(report: &Value, group: &str, key: &str) -> Result<u64> {
    report[group][key].as_u64().with_context(|| format!("{group}.{key}: {report}"))
}

fn nbdkit() -> Result<()> {
    let site = Site::new()?;
    let _servers = serve_all(&site)?;
    // Each of the ways to write the name of an export.
    let third = format!("nbd+unix:///asu3?socket={}", site.path("asu3.sock").display());
    let asus = ["nbd+unix:///asu1?socket=asu1.sock", "nbd:unix:asu2.sock:asu2", &third];
    let flags = |seed| ["--runlen", "1", "--seed", seed];
    let direct = report(&mut bench(&site, asus, &flags("1"))?)?;
    for kind in ["reads", "writes"] {
        let asked = count(&direct, "server", &format!("asked_{kind}"))?;
        ensure!(asked > 100 && count(&direct, "server", kind)? == asked, "{direct}");
    }
    let cache = ["--cache", "cache.img", "--cache-size", "20MiB"];
    let with = |seed| [&flags(seed)[..], &cache].concat();
    let first = report(&mut bench(&site, asus, &with("1"))?)?;
    ensure!(first["cache"]["began"] == "New" && first["ios"] == direct["ios"], "{first}");
    ensure!(count(&first, "cache", "insertions")? > 100, "{first}");
    // A server proves nothing, but the benchmark does not use the data that it reads.
    let again = report(&mut bench(&site, asus, &with("2"))?)?;
    ensure!(again["cache"]["began"] == "Loaded", "{again}");
    ensure!(count(&again, "server", "reads")? < count(&again, "server", "asked_reads")?, "{again}");
    let read = count(&again, "server", "read_bytes")? / 4096;
    let missed = count(&again, "cache", "reads")? - count(&again, "cache", "read_hits")?;
    ensure!(read == missed, "{read} blocks read for {missed} missed: {again}");
    Ok(())
}

fn own_exports() -> Result<()> {
    let site = Site::new()?;
    let mut config = Config::new(64 * MIB);
    for (name, size) in SIZES {
        site.filled(name, size, 2)?;
        config = config.volume(Volume::new(name, &format!("file:{name}")));
    }
    let daemon = site.serve(&config)?;
    let uris = SIZES.map(|(name, _)| site.uri(name));
    let asus = [uris[0].as_str(), &uris[1], &uris[2]];
    let ran = report(&mut bench(&site, asus, &["--runlen", "1"])?)?;
    // What the benchmark says it did and what the daemon says it was asked for.
    let status = daemon.status()?;
    for kind in ["reads", "writes"] {
        let mut sum = 0;
        for (name, _) in SIZES {
            sum += status.count(name, kind)?;
        }
        ensure!(count(&ran, "server", kind)? == sum, "{kind}: {sum}: {ran}");
    }
    let hits = status.count("asu1", "read_hits")? + status.count("asu2", "read_hits")?;
    ensure!(hits > 0, "the daemon's cache is below: {}", status.0);
    // The daemon has the file, and keeps it.
    let taken =
        bench(&site, ["asu1", "asu2", "asu3"], &["--runlen", "1", "--overwrite"])?.output()?;
    let said = String::from_utf8_lossy(&taken.stderr);
    ensure!(taken.status.code() == Some(2) && said.contains("in use"), "{said}");
    daemon.stop()
}

/// A server that is killed and comes back: what was under way is repeated, and the run ends well.
fn server_dies() -> Result<()> {
    let site = Site::new()?;
    let mut servers = serve_all(&site)?;
    let asus = ["nbd:unix:asu1.sock:asu1", "nbd:unix:asu2.sock:asu2", "nbd:unix:asu3.sock:asu3"];
    let seed = ["--runlen", "4", "--seed", "1"];
    let undisturbed = report(&mut bench(&site, asus, &seed)?)?;
    let rows = site.path("rows.json");
    let flags = [&seed[..], &["--data", "rows.json", "--dataperiod", "200ms"]].concat();
    let mut command = bench(&site, asus, &flags)?;
    let mut run = Running::start(&mut command, &site.path("bench.log"))?;
    let begun = || std::fs::read_to_string(&rows).is_ok_and(|rows| rows.lines().count() > 2);
    run.wait_until(CLIENT_LIMIT, begun)?;
    servers[0].kill()?;
    std::fs::remove_file(site.path("asu1.sock"))?;
    servers[0] = serve(&site, "asu1")?;
    let status = run.wait(CLIENT_LIMIT)?;
    let log = run.log();
    ensure!(status.success(), "{log}");
    let line = log.lines().find(|line| line.starts_with('{')).context("no report")?;
    let disturbed: Value = serde_json::from_str(line)?;
    ensure!(disturbed["ios"] == undisturbed["ios"], "lost some: {undisturbed} {disturbed}");
    let longest = |report: &Value| report["latency"]["max_ms"].as_f64().unwrap_or(0.0);
    ensure!(longest(&disturbed) > 10.0, "not noticed: {disturbed}");
    Ok(())
}
