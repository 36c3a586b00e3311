//! libnbd's tools as clients: what an export says of itself, copies.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::tools::{NBDCOPY, NBDINFO};
use e2e::{Config, Daemon, MIB, Site, Volume, daemon::noise, nbd::Client, output};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

pub(crate) const CASES: [Case; 5] = [
    Case::new("nbdinfo_flags_and_sizes", &[NBDINFO], flags_and_sizes).ci(),
    Case::new("nbdinfo_sparse_map", &[NBDINFO], sparse_map),
    Case::new("nbdinfo_list", &[NBDINFO], list),
    Case::new("nbdcopy_round_trip", &[NBDCOPY], copy).ci(),
    Case::new("second_client_is_refused", &[NBDINFO], second_client),
];

const DISK: u64 = 32 * MIB;

fn serve(site: &Site, key: &str) -> Result<Daemon> {
    site.serve(&Config::new(24 * MIB).volume(Volume::new("vm1", "file:disk.raw").key(key)))
}

fn nbdinfo(args: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&output(Command::new("nbdinfo").arg("--json").args(args))?)?)
}

fn flags_and_sizes() -> Result<()> {
    let site = Site::new()?;
    site.sparse("disk.raw", DISK)?;
    let daemon = serve(&site, "")?;
    let info = nbdinfo(&[&site.uri("vm1")])?;
    ensure!(info["protocol"] == "newstyle-fixed" && info["structured"] == true, "{info}");
    let export = &info["exports"][0];
    ensure!(export["export-size"] == DISK, "{export}");
    ensure!(export["is_read_only"] == false, "{export}");
    for flag in ["can_multi_conn", "can_flush", "can_fua", "can_trim", "can_zero", "can_cache"] {
        ensure!(export[flag] == true, "{flag}: {export}");
    }
    let sizes = [
        &export["block_size_minimum"],
        &export["block_size_preferred"],
        &export["block_size_maximum"],
    ];
    let [least, preferred, most] = sizes.map(|size| size.as_u64().unwrap_or_default());
    ensure!(least > 0 && least <= 512, "least block size {least}");
    ensure!(preferred >= 4096 && preferred.is_power_of_two(), "preferred block size {preferred}");
    ensure!(most == 32 * MIB, "largest request {most}");
    let contexts = export["contexts"].as_array().context("no contexts")?;
    ensure!(contexts.iter().any(|name| name == "base:allocation"), "{export}");
    daemon.stop()?;

    let daemon = serve(&site, "read_only = true")?;
    let info = nbdinfo(&[&site.uri("vm1")])?;
    ensure!(info["exports"][0]["is_read_only"] == true, "{info}");
    daemon.stop()
}

/// Two MiB of data in a sparse file, one of them written through us.
fn sparse_map() -> Result<()> {
    let site = Site::new()?;
    let disk = site.sparse("disk.raw", DISK)?;
    File::options().write(true).open(&disk)?.write_all_at(&noise(MIB, 1), 4 * MIB)?;
    let daemon = serve(&site, "")?;
    Client::connect(&site.path("vm1.sock"), "vm1")?.write(9 * MIB, &noise(MIB, 2))?;
    let map = nbdinfo(&["--map", &site.uri("vm1")])?;
    let extents = map.as_array().context("no list of extents")?;
    let number = |extent: &Value, key: &str| extent[key].as_u64().context("no number");
    let mut end = 0;
    let mut data = Vec::new();
    for extent in extents {
        let (offset, length) = (number(extent, "offset")?, number(extent, "length")?);
        ensure!(offset == end, "a gap or overlap at {end}: {map}");
        end = offset + length;
        // 3 is a hole that reads as zeros, 0 is data.
        match number(extent, "type")? {
            0 => data.push((offset, end)),
            3 => {}
            other => anyhow::bail!("type {other} in {map}"),
        }
    }
    ensure!(end == DISK, "the map ends at {end}");
    ensure!(data == [(4 * MIB, 5 * MIB), (9 * MIB, 10 * MIB)], "data at {data:?}");
    daemon.stop()
}

fn list() -> Result<()> {
    let site = Site::new()?;
    site.sparse("disk.raw", DISK)?;
    let daemon = serve(&site, "")?;
    let uri = format!("nbd+unix://?socket={}", site.path("vm1.sock").display());
    let info = nbdinfo(&["--list", &uri])?;
    let exports = info["exports"].as_array().context("no list of exports")?;
    ensure!(exports.len() == 1 && exports[0]["export-name"] == "vm1", "{info}");
    daemon.stop()
}

fn copy() -> Result<()> {
    let site = Site::new()?;
    let source = site.filled("source.raw", DISK, 3)?;
    site.sparse("disk.raw", DISK)?;
    let daemon = serve(&site, "")?;
    let (uri, back) = (site.uri("vm1"), site.path("back.raw"));
    let nbdcopy = || {
        let mut command = Command::new("nbdcopy");
        // Many requests at a time over several connections.
        command.args(["--connections=4", "--requests=64", "--flush"]);
        command
    };
    output(nbdcopy().arg(&source).arg(&uri))?;
    output(nbdcopy().arg(&uri).arg(&back))?;
    let source = std::fs::read(source)?;
    ensure!(source == std::fs::read(back)?, "what came back differs");
    daemon.stop()?;
    ensure!(source == std::fs::read(site.path("disk.raw"))?, "the disk itself differs");
    Ok(())
}

fn second_client() -> Result<()> {
    let site = Site::new()?;
    site.sparse("disk.raw", DISK)?;
    let uri = site.uri("vm1");
    let daemon = serve(&site, "")?;
    let mut first = Client::connect(&site.path("vm1.sock"), "vm1")?;
    first.write(0, &[7; 4096])?;
    ensure!(nbdinfo(&[&uri]).is_err(), "a second client was let in");
    // nbdinfo keeps the server's reason to itself.
    let log = daemon.running.log();
    ensure!(log.contains("in use by another client"), "no reason given: {log}");
    // The same process may open another connection, and the first one did not notice anything.
    let mut another = Client::connect(&site.path("vm1.sock"), "vm1")?;
    ensure!(another.read(0, 4096)? == [7; 4096], "connections of one client differ");
    first.write(4096, &[8; 4096])?;
    drop((first, another));
    // Their end may take a moment to be noticed.
    for _ in 0..100 {
        if daemon.status()?.count("vm1", "connections")? == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    nbdinfo(&[&uri]).context("once the first client has gone")?;
    daemon.stop()?;

    let daemon = serve(&site, "shared = true")?;
    let first = Client::connect(&site.path("vm1.sock"), "vm1")?;
    nbdinfo(&[&uri]).context("a second client of a shared volume")?;
    drop(first);
    daemon.stop()
}
