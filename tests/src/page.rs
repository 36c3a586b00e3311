//! The daemon's page in a browser: scripts in Python that speak to Chromium over a pipe.

use crate::python::AXE;
use crate::{Daemon, Site, binary, process};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Longest run of a script. A machine that does other things as well draws a page in seconds.
const SCRIPT_LIMIT: Duration = Duration::from_mins(5);
/// Until a demonstration that is ready has said where its page is.
const WELCOME_LIMIT: Duration = Duration::from_secs(10);
/// Names a folder for pictures, or is set to anything to have them below the target folder.
pub const SHOTS: &str = "CINNABAR_PAGE_SHOTS";

/// Runs the script `clients/page/NAME.py`, with a folder of its own below the site's for the browser, and gives what
/// it prints.
///
/// # Errors
/// When it fails or hangs; what it printed is part of the error.
pub fn run(site: &Site, name: &str, args: &[&str]) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("clients/page/{name}.py"));
    let folder = site.path(&format!("browser-{name}"));
    std::fs::create_dir_all(&folder)?;
    let mut command = Command::new("python3");
    command.arg("-B").arg(script).arg(&folder).args(args);
    if let Some(axe) = axe() {
        command.env("AXE", axe);
    }
    let done = process::outcome(&mut command, SCRIPT_LIMIT)?;
    let [stdout, stderr] =
        [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(done.status.success(), "{name} ({}):\n{stdout}{stderr}", done.status);
    Ok(stdout)
}

/// The checker of accessibility, if it was fetched.
pub fn axe() -> Option<PathBuf> {
    let programs = AXE.find()?;
    let lib = programs.parent()?.join("lib");
    let pythons = std::fs::read_dir(lib).ok()?;
    pythons
        .filter_map(Result::ok)
        .map(|python| python.path().join("site-packages/axe_playwright_python/axe.min.js"))
        .find(|file| file.exists())
}

/// Where the page of a daemon's own demonstration is, as it has printed it.
pub fn demo_address(daemon: &Daemon) -> Result<String> {
    let start = Instant::now();
    loop {
        let log = daemon.running.log();
        let line = log.lines().find_map(|line| line.strip_prefix("page "));
        if let Some(address) = line {
            return Ok(address.trim().trim_end_matches("/ui/").to_owned());
        }
        ensure!(start.elapsed() < WELCOME_LIMIT, "it does not say where its page is:\n{log}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Takes pictures of all views at an address, with this volume, and says where they are: narrow, usual and wide, dark
/// and light.
pub fn shots(site: &Site, address: &str, volume: &str) -> Result<PathBuf> {
    let folder = match std::env::var_os(SHOTS) {
        Some(folder) if Path::new(&folder).is_absolute() => PathBuf::from(folder),
        _ => binary::target_folder()?.join("page-shots"),
    };
    std::fs::create_dir_all(&folder)?;
    let to = folder.to_str().context("a path in plain text")?;
    run(site, "shots", &[address, volume, to])?;
    Ok(folder)
}
