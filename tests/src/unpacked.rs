//! Debian packages that are unpacked below the target folder and never installed: their scripts would
//! bring a boot loader or start a server, and their files are all that is needed.

use crate::binary;
use crate::process::output;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a package is unpacked; `name` is of our choice.
pub fn folder(name: &str) -> Result<PathBuf> {
    Ok(binary::target_folder()?.join(name))
}

/// Downloads and unpacks a package into [`folder`], as any user: root is not needed.
pub fn fetch(package: &str, name: &str) -> Result<()> {
    let root = folder(name)?;
    let parent = root.parent().context("the target folder has a parent")?;
    fs::create_dir_all(parent)?;
    // A folder that was left half done by an earlier try is not `root` and is removed when dropped.
    let work = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(parent)?;
    output(Command::new("apt-get").args(["download", package]).current_dir(work.path()))?;
    let archive = only(work.path(), package).context("apt-get left no package")?;
    let tree = work.path().join("tree");
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&tree))?;
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::rename(&tree, &root)?;
    Ok(())
}

/// The first entry whose name begins with `prefix`.
pub(crate) fn only(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    })
}
