//! The recipes of the guide, run as they stand there.
//!
//! Called by `main`. Of a page the blocks marked `toml` and `xml` are files, named by their first line, and of
//! those marked `console` the lines after `$` are commands. All are run in one folder, in their order.
//! Only what differs from host to host is replaced: addresses, ports, and KVM. Each guest that a page
//! starts is given a kernel; it writes and reads its disks, all that it finds, and switches itself off.

use super::initramfs;
use anyhow::{Context, Result, ensure};
use e2e::daemon::free_port;
use e2e::process::outcome;
use e2e::{Site, tools};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A page, all its guests included.
const LIMIT: Duration = Duration::from_mins(5);
/// A guest or another program.
const GUEST_LIMIT_S: u32 = 180;
/// What stands in for QEMU: QEMU with a kernel, whose guest must have tried its disks.
const QEMU: &str = r#"#!/bin/sh
timeout "$GUEST_LIMIT_S" "$QEMU" "$@" -nodefaults -no-user-config -display none \
    -kernel "$KERNEL" -initrd guest.cpio -append "console=ttyS0 loglevel=5 selftest" \
    -serial "file:$$.console" && grep '^tested' "$$.console" && exit
cat "$$.console"
exit 1
"#;
/// What is run before a page's own commands.
const PROLOGUE: &str = r#"
set -eu
export PATH="$PWD/bin:$PATH"
ended() {
    for file in *.pid; do [ ! -e "$file" ] || kill "$(cat "$file")"; done
}
trap ended EXIT
daemon=
"#;
/// The daemon must end well.
const EPILOGUE: &str = r#"
[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; }
"#;

pub(super) fn qemu() -> Result<()> {
    let text = run("qemu")?;
    ensure!(text.contains("tested 2 disks"), "{text}");
    Ok(())
}

pub(super) fn golden_image() -> Result<()> {
    let text = run("golden-image")?;
    ensure!(text.matches("tested 1 disks").count() == 2, "{text}");
    Ok(())
}

pub(super) fn proxy() -> Result<()> {
    let text = run("proxy")?;
    ensure!(text.contains("tested 1 disks"), "{text}");
    Ok(())
}

pub(super) fn iscsi() -> Result<()> {
    let text = run("iscsi")?;
    ensure!(text.contains("tested 1 disks"), "{text}");
    Ok(())
}

pub(super) fn libvirt() -> Result<()> {
    run("libvirt").map(drop)
}

/// Runs a page and hands back what its commands printed.
fn run(page: &str) -> Result<String> {
    let site = Site::new()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/guide/{page}.md"));
    let text = localize(&fs::read_to_string(&path)?)?;
    let commands = unfold(&text, &site)?;
    ensure!(!commands.is_empty(), "no commands in {}", path.display());
    let kernel = e2e::kernel::find().context("no kernel for guests")?;
    initramfs::pack(&initramfs::tree(&kernel)?, &site.path("guest.cpio"))?;
    fs::create_dir(site.path("bin"))?;
    symlink(e2e::binary::cinnabar()?, site.path("bin/cinnabar"))?;
    fs::write(site.path("bin/qemu-system-x86_64"), QEMU)?;
    fs::set_permissions(site.path("bin/qemu-system-x86_64"), Permissions::from_mode(0o755))?;
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{PROLOGUE}{commands}{EPILOGUE}")])
        .current_dir(site.path(""))
        .env("QEMU", tools::find(tools::QEMU.command).unwrap_or_default())
        .env("KERNEL", kernel.image)
        .env("GUEST_LIMIT_S", GUEST_LIMIT_S.to_string())
        // The target's own control socket, beside any other that runs here.
        .env("TGT_IPC_SOCKET", site.path("tgt.ipc"));
    let done = outcome(&mut command, LIMIT)?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{page}: {}\n{commands}\n{text}{errors}", done.status);
    Ok(text)
}

/// Replaces what differs from host to host.
fn localize(page: &str) -> Result<String> {
    let mut page = page.replace("192.0.2.7", "127.0.0.1").replace("192.0.2.8", "127.0.0.1");
    for port in ["10809", "10810", "3260"] {
        page = page.replace(port, &free_port()?.to_string());
    }
    Ok(page.replace("-accel kvm", "-accel tcg"))
}

/// Writes a page's files, and hands back its commands.
fn unfold(page: &str, site: &Site) -> Result<String> {
    let mut commands = String::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (kind, body) = block.split_once('\n').unwrap_or((block, ""));
        match kind {
            "toml" | "xml" => {
                let first = body.lines().next().unwrap_or_default();
                let name = first.trim_matches(|sign: char| "#<>!- ".contains(sign));
                fs::write(site.path(name), body)?;
            }
            "console" => body.lines().try_for_each(|line| shell_line(line, &mut commands))?,
            _ => {}
        }
    }
    Ok(commands)
}

/// A line as it is typed. The daemon goes to the background: what follows waits until it is ready.
fn shell_line(line: &str, commands: &mut String) -> Result<()> {
    let typed = line.strip_prefix("$ ").unwrap_or(line);
    writeln!(commands, "{typed}")?;
    if typed.starts_with("cinnabar serve") && typed.ends_with('&') {
        writeln!(
            commands,
            "daemon=$!\n\
             until cinnabar status --socket control.sock >/dev/null 2>&1; do\n\
             kill -0 $daemon && sleep 0.1; done"
        )?;
    }
    Ok(())
}
