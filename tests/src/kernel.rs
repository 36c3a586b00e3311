//! Debian's kernel for guests: unpacked below the target folder, never installed.
//!
//! Installing the package would bring a boot loader's worth of scripts with it; its files are all
//! that is needed.

use crate::binary;
use crate::process::output;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the newest kernel for virtual machines.
pub const PACKAGE: &str = "linux-image-cloud-amd64";

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The image that QEMU starts.
    pub image: PathBuf,
    /// The folder with its modules.
    pub modules: PathBuf,
}

/// The kernel, if it was fetched.
pub fn find() -> Option<Kernel> {
    let root = folder().ok()?;
    let image = only(&root.join("boot"), "vmlinuz-")?;
    let modules = only(&root.join("lib/modules"), "")?;
    Some(Kernel { image, modules })
}

/// Downloads and unpacks it, as any user: root is not needed.
///
/// # Errors
/// When this is no Debian for amd64, or the package can't be had.
pub fn fetch() -> Result<()> {
    let root = folder()?;
    // A folder that was left half done by an earlier try is not `root` and is removed when dropped.
    fs::create_dir_all(root.parent().context("the target folder has a parent")?)?;
    let work = tempfile::Builder::new()
        .prefix("guest-kernel-")
        .tempdir_in(root.parent().context("the target folder has a parent")?)?;
    let depends = output(Command::new("apt-cache").args(["depends", PACKAGE]))?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .with_context(|| format!("{PACKAGE} depends on no kernel"))?;
    output(Command::new("apt-get").args(["download", package]).current_dir(work.path()))?;
    let archive = only(work.path(), package).context("apt-get left no package")?;
    let tree = work.path().join("tree");
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&tree))?;
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::rename(&tree, &root)?;
    ensure!(find().is_some(), "{package} holds no kernel");
    Ok(())
}

impl Kernel {
    /// The file of a module, for example `virtio_blk`.
    ///
    /// # Errors
    /// When the kernel has no such module.
    pub fn module(&self, name: &str) -> Result<PathBuf> {
        let file = format!("{name}.ko");
        search(&self.modules.join("kernel"), &file)?
            .with_context(|| format!("no module {name} in {}", self.modules.display()))
    }
}

/// Where it is unpacked.
fn folder() -> Result<PathBuf> {
    Ok(binary::target_folder()?.join("guest-kernel"))
}

/// The first entry whose name begins with `prefix`.
fn only(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    })
}

fn search(folder: &Path, file: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if let Some(found) = search(&path, file)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|name| name == file) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
