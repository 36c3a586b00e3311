//! Builds programs of the workspace and finds them.
//!
//! Called by tests and `xtask` before they start one. `CINNABAR_BIN` names another daemon to use.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The release build of `cinnabar`, built now if need be.
///
/// # Errors
/// When it does not build.
pub fn cinnabar() -> Result<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = BUILT.get() {
        return Ok(path.clone());
    }
    let path = match std::env::var_os("CINNABAR_BIN") {
        Some(path) => PathBuf::from(path),
        None => built(&["--package", "cinnabar"])?,
    };
    Ok(BUILT.get_or_init(|| path).clone())
}

/// The release build of the one program that these arguments of cargo name, built now if need be.
///
/// # Errors
/// When it does not build.
pub fn built(what: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["build", "--release", "--locked"])
        .args(what)
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    if !done.status.success() {
        bail!("it does not build: {what:?}");
    }
    // One JSON object a line; the artifact with an executable is the binary.
    String::from_utf8_lossy(&done.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
        .context("cargo named no executable")
}
