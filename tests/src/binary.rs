//! Builds programs of the workspace and finds them.
//!
//! `CINNABAR_BIN` names another daemon to use, `CINNABAR_LAB_BIN` another laboratory, `CINNABAR_PROFILE` another profile of Cargo's than `release`.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Names another daemon to use.
pub const BINARY: &str = "CINNABAR_BIN";
/// Names another laboratory to use.
pub const LAB_BINARY: &str = "CINNABAR_LAB_BIN";
/// Names a folder of programs that are built already.
pub const PROGRAMS: &str = "CINNABAR_PROGRAMS";
/// Names the profile that programs are built with.
pub const PROFILE: &str = "CINNABAR_PROFILE";

/// The profile of packages and benchmarks; `release` is the same without optimisation across crates.
pub const DIST: &str = "dist";

/// The profile unless the environment names one.
static DEFAULT: OnceLock<&str> = OnceLock::new();

/// Builds what is measured: with [`DIST`], unless the environment names another profile.
pub fn build_to_measure() {
    DEFAULT.get_or_init(|| DIST);
}

/// The profile that programs are built with.
pub fn profile() -> String {
    std::env::var(PROFILE).unwrap_or_else(|_| DEFAULT.get_or_init(|| "release").to_string())
}

/// The daemon, built now if need be; with RBD images where their libraries are.
pub fn cinnabar() -> Result<PathBuf> {
    match std::env::var_os(BINARY) {
        Some(path) => Ok(PathBuf::from(path)),
        None if with_ceph() => built(&["--package", "cinnabar", "--features", "ceph"]),
        None => program("cinnabar"),
    }
}

/// The release build of `cinnabar-lab`, built now if need be.
pub fn lab() -> Result<PathBuf> {
    match std::env::var_os(LAB_BINARY) {
        Some(path) => Ok(PathBuf::from(path)),
        None => program("cinnabar-lab"),
    }
}

/// The program of the package of that name, built now if need be. While cargo builds something else, it would wait
/// for that: a caller that has built programs names their folder.
pub fn program(name: &str) -> Result<PathBuf> {
    let there = std::env::var_os(PROGRAMS).map(|folder| Path::new(&folder).join(name));
    match there.filter(|path| path.exists()) {
        Some(path) => Ok(path),
        None => built(&["--package", name]),
    }
}

/// Whether `cinnabar` can be built with RBD images here: Ceph's headers are there, and new enough
/// (16 and later) to declare what is used, and so is a C++ compiler.
pub fn with_ceph() -> bool {
    let compiler = Command::new("c++").arg("--version").output();
    let headers = [
        ("rbd/librbd.h", "rbd_aio_write_zeroes("),
        ("rados/librados.h", "rados_blocklist_add("),
        ("rados/librados.hpp", "copy_from("),
    ]
    .iter()
    .all(|(header, call)| {
        let text = std::fs::read(Path::new("/usr/include").join(header));
        text.is_ok_and(|text| declares(&text, call))
    });
    headers && compiler.is_ok_and(|said| said.status.success())
}

fn declares(header: &[u8], call: &str) -> bool {
    header.windows(call.len()).any(|part| part == call.as_bytes())
}

/// The one program that these arguments of cargo name, built now if need be.
/// Asked again, the first answer holds: cargo would take time from whatever is measured.
pub fn built(what: &[&str]) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    // Held while it builds, so that tests side by side build once.
    let mut all = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let name = what.join(" ");
    if let Some(path) = all.get(&name) {
        return Ok(path.clone());
    }
    let path = build(what)?;
    all.insert(name, path.clone());
    Ok(path)
}

fn build(what: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["build", "--profile", &profile(), "--locked"])
        .args(what)
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    if !done.status.success() {
        bail!("it does not build: {what:?}");
    }
    named(&done.stdout, |_| true).context("cargo named no executable")
}

/// The first program that cargo's messages name, one JSON object a line, of those that pass.
pub fn named(messages: &[u8], passes: impl Fn(&serde_json::Value) -> bool) -> Option<PathBuf> {
    String::from_utf8_lossy(messages)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| passes(message))
        .find_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
}

/// The target folder that this program lies in, whatever it is called. Cargo marks it.
pub fn target_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    match target {
        Some(target) => Ok(target.to_owned()),
        None => bail!("{} does not lie in a target folder", program.display()),
    }
}
