//! Installs what is missing and says what and why.
//!
//! Nothing that is present is touched.

use crate::shell::{cargo, nightly, show, succeeds};
use anyhow::{Result, bail};
use e2e::tools::{self, How, Tool};
use std::process::Command;

/// Installs the Debian packages of those `wanted` tools that are missing.
///
/// # Errors
/// When one is still missing afterwards; the message names the package.
pub(crate) fn debian(wanted: &[Tool]) -> Result<()> {
    let missing: Vec<&Tool> = wanted.iter().filter(|tool| !tool.is_present()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for Tool { command, package, purpose, .. } in &missing {
        println!("missing: {command} ({purpose}); fetching Debian's package {package}");
    }
    let (install, unpack): (Vec<&Tool>, Vec<&Tool>) =
        missing.iter().partition(|tool| tool.how == How::Installed);
    let mut packages: Vec<&str> = install.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    if let Err(error) = apt_get(&packages) {
        println!("{error:#}");
    }
    // After apt-get has the lists of packages.
    for tool in unpack {
        if let Err(error) = tool.unpack() {
            println!("{error:#}");
        }
    }
    let left: Vec<&str> =
        missing.iter().filter(|tool| !tool.is_present()).map(|tool| tool.package).collect();
    if !left.is_empty() {
        bail!("not there: {}\nhint: the output of apt-get above says why", left.join(", "));
    }
    Ok(())
}

/// `apt-get install`, as root or through sudo.
fn apt_get(packages: &[&str]) -> Result<()> {
    if tools::find("apt-get").is_none() {
        bail!("no apt-get here");
    }
    let as_root = |args: &[&str]| {
        if rustix::process::geteuid().is_root() {
            let mut command = Command::new("apt-get");
            command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
            command
        } else {
            let mut command = Command::new("sudo");
            command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(args);
            command
        }
    };
    if !rustix::process::geteuid().is_root() && tools::find("sudo").is_none() {
        bail!("neither root nor sudo");
    }
    let install = |packages: &[&str]| {
        let args = [&["install", "-q", "-y", "--no-install-recommends"], packages].concat();
        show(&mut as_root(&args)).map(drop)
    };
    show(&mut as_root(&["update", "-q"]))?;
    if install(packages).is_ok() {
        return Ok(());
    }
    // One that this release does not have fails all of them: what there is comes one by one.
    for package in packages {
        if let Err(error) = install(&[*package]) {
            println!("{package}: {error:#}");
        }
    }
    Ok(())
}

/// Adds a component of the pinned toolchain if `probe` is missing.
pub(crate) fn component(probe: &str, component: &str) -> Result<()> {
    if succeeds(&mut cargo(&[probe, "--version"])) {
        return Ok(());
    }
    println!("missing: cargo {probe}; adding rustup's component {component}");
    show(Command::new("rustup").args(["component", "add", component]))?;
    Ok(())
}

/// Installs a cargo subcommand if it is missing; the reason why not otherwise.
pub(crate) fn subcommand(name: &str, purpose: &str) -> std::result::Result<(), String> {
    let package = format!("cargo-{name}");
    if succeeds(&mut cargo(&[name, "--version"])) {
        return Ok(());
    }
    println!("missing: {package} ({purpose}); building it takes a minute or two, once");
    // Not optimised: that takes three times as long, and it has little to do.
    let mut install = cargo(&["install", "--locked", "--debug", &package]);
    show(install.env("CARGO_PROFILE_DEV_DEBUG", "false"))
        .map(|_| ())
        .map_err(|error| format!("{package} could not be installed: {error:#}"))
}

/// Installs a nightly toolchain if there is none; the reason why not otherwise.
pub(crate) fn nightly_toolchain(purpose: &str) -> std::result::Result<(), String> {
    if succeeds(&mut nightly(&["--version"])) {
        return Ok(());
    }
    println!("missing: a nightly toolchain ({purpose}); adding one to rustup");
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
    show(&mut rustup).map(|_| ()).map_err(|error| format!("no nightly toolchain: {error:#}"))
}
