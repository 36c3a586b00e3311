//! The guest's first file system: an archive that holds its few programs.

use anyhow::{Context, Result, ensure};
use e2e::kernel::Kernel;
use e2e::output;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In the order in which they can be loaded.
const MODULES: [&str; 6] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
];
const INIT: &str = include_str!("init.sh");
const FILE: u32 = 0o100_755;
const FOLDER: u32 = 0o040_755;
/// Name of the archive's last, empty member.
const TRAILER: &str = "TRAILER!!!";

/// Files of a guest: where they lie there, and what is in them.
pub(super) type Tree = BTreeMap<String, Vec<u8>>;

/// Everything that a guest needs to run commands.
///
/// # Errors
/// When a program or a module is missing.
pub(super) fn tree(kernel: &Kernel) -> Result<Tree> {
    let mut tree = Tree::new();
    tree.insert("init".into(), INIT.into());
    let busybox = e2e::tools::find("busybox").context("no busybox")?;
    tree.insert("bin/busybox".into(), fs::read(busybox)?);
    for name in MODULES {
        let module = kernel.module(name)?;
        tree.insert(format!("modules/{name}.ko"), fs::read(module)?);
    }
    tree.insert("modules/order".into(), (MODULES.join("\n") + "\n").into());
    let mke2fs = e2e::tools::find("mke2fs").context("no mke2fs")?;
    add_program(&mut tree, "sbin/mke2fs", &mke2fs)?;
    add_program(&mut tree, "sbin/guest-io", Path::new(env!("CARGO_BIN_EXE_guest-io")))?;
    Ok(tree)
}

/// Writes the files below `folder`.
pub(super) fn unfold(tree: &Tree, folder: &Path) -> Result<()> {
    for (name, data) in tree {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(&path, data)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(FILE & 0o777))?;
    }
    Ok(())
}

/// Writes an archive that the kernel unpacks.
pub(super) fn pack(tree: &Tree, path: &Path) -> Result<()> {
    let mut archive = Vec::new();
    let mut folders = Vec::new();
    for (name, data) in tree {
        for (slash, _) in name.match_indices('/') {
            let folder = &name[..slash];
            if !folders.contains(&folder) {
                folders.push(folder);
                member(&mut archive, folder, FOLDER, &[])?;
            }
        }
        member(&mut archive, name, FILE, data)?;
    }
    member(&mut archive, TRAILER, 0, &[])?;
    fs::write(path, archive)?;
    Ok(())
}

/// A program and the libraries that it loads, under the names by which it finds them.
pub(super) fn add_program(tree: &mut Tree, name: &str, program: &Path) -> Result<()> {
    tree.insert(name.into(), fs::read(program)?);
    // A line is `libc.so.6 => /lib/.../libc.so.6 (0x...)`, or, of the loader, `/lib64/... (0x...)`.
    let listed = output(Command::new("ldd").arg(program))?;
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths.map(PathBuf::from) {
        let name = path.to_string_lossy().trim_start_matches('/').to_owned();
        tree.insert(name, fs::read(&path)?);
    }
    Ok(())
}

/// One member in the format that cpio calls newc: 13 numbers of 8 hexadecimal digits, the name, the
/// data, each padded to 4 bytes.
fn member(archive: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) -> Result<()> {
    ensure!(archive.len().is_multiple_of(4), "padded");
    let name_size = name.len() + 1;
    let size = u32::try_from(data.len())?;
    write!(archive, "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}", 0, 0, 0, 1)?;
    write!(archive, "{:08x}{size:08x}{:032x}{name_size:08x}{:08x}", 0, 0, 0)?;
    archive.extend(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend(data);
    pad(archive);
    Ok(())
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}
