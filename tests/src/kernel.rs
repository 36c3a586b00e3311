//! Debian's kernel for guests.

use crate::process::output;
use crate::unpacked::{self, only};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the newest kernel for virtual machines.
pub const PACKAGE: &str = "linux-image-cloud-amd64";

/// Where it is unpacked, below the target folder.
const FOLDER: &str = "guest-kernel";

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
    let root = unpacked::folder(FOLDER).ok()?;
    let image = only(&root.join("boot"), "vmlinuz-")?;
    let modules = only(&root.join("lib/modules"), "")?;
    Some(Kernel { image, modules })
}

/// Downloads and unpacks it.
pub fn fetch() -> Result<()> {
    let depends = output(Command::new("apt-cache").args(["depends", PACKAGE]))?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .with_context(|| format!("{PACKAGE} depends on no kernel"))?;
    unpacked::fetch(package, FOLDER)?;
    ensure!(find().is_some(), "{package} holds no kernel");
    Ok(())
}

impl Kernel {
    /// The file of a module, for example `virtio_blk`.
    pub fn module(&self, name: &str) -> Result<PathBuf> {
        let file = format!("{name}.ko");
        search(&self.modules.join("kernel"), &file)?
            .with_context(|| format!("no module {name} in {}", self.modules.display()))
    }
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
