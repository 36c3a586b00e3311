//! Where the time of a read over NBD goes, in the server and in its client: a profile of both while
//! everything is a hit.
//!
//! Needs `perf`, and the right to use it; without, it says so.

use super::Plan;
use super::clients::Load;
use super::servers::Server;
use anyhow::{Result, ensure};
use e2e::process::outcome;
use e2e::{Fio, Running, Site};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const DEPTH: u32 = 32;
/// Symbols shown of each.
const LINES: usize = 12;
const PERF_LIMIT: Duration = Duration::from_mins(1);

/// The profile, as text.
pub(super) fn measure(folder: &Path, plan: Plan) -> Result<String> {
    let mut text = format!("\nNBD, one connection at QD{DEPTH}, where the CPU time goes:\n");
    if Command::new("perf").arg("--version").output().is_err() {
        text.push_str("no perf here (Debian: linux-perf)\n");
        return Ok(text);
    }
    let site = Site::within(folder)?;
    let disk = site.filled("disk.raw", plan.size, 1)?;
    let server = Server::ours(&site, &disk, plan.size, 1)?;
    // Longer than both profiles.
    let load = Load::new(DEPTH, plan.seconds * 2 + 4);
    let super::clients::Target::Nbd(uri) = server.nbd()? else { unreachable!("it is NBD") };
    let mut fio = Running::start(&mut load.job(Fio::nbd(&uri)).command(), &site.path("fio.log"))?;
    std::thread::sleep(Duration::from_secs(1));
    for (who, pid) in [("the server", server.running().pid()), ("the client (fio)", fio.pid())] {
        match profile(&site, pid, plan.seconds) {
            Ok(lines) => write!(text, "\n{who}:\n\n{lines}")?,
            Err(error) => writeln!(text, "\n{who}: no profile: {error:#}")?,
        }
    }
    fio.wait(Duration::from_secs(load.seconds + 20))?;
    server.stop()?;
    Ok(text)
}

/// The largest shares of a process's CPU time.
fn profile(site: &Site, pid: u32, seconds: u64) -> Result<String> {
    let data = site.path(&format!("perf.{pid}"));
    let mut record = Command::new("perf");
    record.args(["record", "--event", "cpu-clock", "--freq", "2000", "--output"]).arg(&data);
    record.args(["--pid", &pid.to_string(), "--", "sleep", &seconds.to_string()]);
    let done = outcome(&mut record, PERF_LIMIT)?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr).trim());
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--sort", "symbol", "--input"]).arg(&data);
    let done = outcome(&mut report, PERF_LIMIT)?;
    let said = String::from_utf8_lossy(&done.stdout);
    let lines: Vec<&str> =
        said.lines().filter(|line| line.contains('%') && !line.starts_with('#')).collect();
    ensure!(!lines.is_empty(), "perf saw nothing");
    let mut text = String::new();
    for line in lines.iter().take(LINES) {
        // perf ends its lines with columns that it has nothing to say in.
        writeln!(text, "    {}", line.trim_matches([' ', '-']))?;
    }
    Ok(text)
}
