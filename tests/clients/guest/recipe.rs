//! The recipes of the guide, run as they stand there.
//!
//! Of a page, or one section of it, the blocks marked `toml` and `xml` are files, named by their first line, and of
//! those marked `console` the lines after `$` are commands. All are run in one folder, in their order.
//! Only what differs from host to host is replaced: addresses, ports, KVM, and the size of a large
//! cache. The binary is there already, so `cargo install` only has to name it. Each guest that a page
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
    -kernel "$KERNEL" -initrd "$SITE/guest.cpio" -append "console=ttyS0 loglevel=5 selftest" \
    -serial "file:$$.console" && grep '^tested' "$$.console" && exit
cat "$$.console"
exit 1
"#;
/// What stands in for cargo: it is to install the programs that are there, from where their sources are.
const CARGO: &str = r#"#!/bin/sh
[ "$1 $2 $3" = "install --locked --path" ] && grep -qE '^name = "cinnabar(-lab)?"' "$SOURCES/$4/Cargo.toml"
"#;
/// What is run before a page's own commands.
const PROLOGUE: &str = r#"
set -eu
export PATH="$PWD/bin:$PATH"
ended() {
    for file in *.pid; do [ ! -e "$file" ] || kill "$(cat "$file")"; done
    [ -z "$daemon" ] || kill "$daemon"
}
trap ended EXIT
daemon=
"#;
/// The daemon must end well.
const EPILOGUE: &str = r#"
[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; daemon=; }
"#;

pub(super) fn five_minutes() -> Result<()> {
    let text = run_section("README.md", Some("## Five minutes"))?;
    ensure!(text.contains("tested 1 disks") && text.contains("serving"), "{text}");
    Ok(())
}

pub(super) fn getting_started() -> Result<()> {
    let text = run("getting-started")?;
    ensure!(text.contains("tested 1 disks"), "{text}");
    ensure!(text.contains("cinnabar_volume_reads_total{volume=\"vm1\"}"), "{text}");
    Ok(())
}

pub(super) fn qemu() -> Result<()> {
    let text = run("qemu")?;
    ensure!(text.contains("tested 2 disks"), "{text}");
    Ok(())
}

pub(super) fn golden_image() -> Result<()> {
    let text = run_section("docs/guide/golden-image.md", Some("## Overlays"))?;
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

/// Runs a page of the guide and hands back what its commands printed.
fn run(page: &str) -> Result<String> {
    run_section(&format!("docs/guide/{page}.md"), None)
}

/// Runs a document of the tree, or what stands in it below a heading.
fn run_section(page: &str, heading: Option<&str>) -> Result<String> {
    let site = Site::new()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests lie in the tree")?;
    let path = root.join(page);
    let text = localize(section(&fs::read_to_string(&path)?, heading)?)?;
    let commands = unfold(&text)?;
    ensure!(!commands.is_empty(), "no commands in {}", path.display());
    let kernel = e2e::kernel::find().context("no kernel for guests")?;
    initramfs::pack(&initramfs::tree(&kernel)?, &site.path("guest.cpio"))?;
    fs::create_dir(site.path("bin"))?;
    symlink(e2e::binary::cinnabar()?, site.path("bin/cinnabar"))?;
    for (name, script) in [("qemu-system-x86_64", QEMU), ("cargo", CARGO)] {
        let path = site.path("bin").join(name);
        fs::write(&path, script)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{PROLOGUE}{commands}{EPILOGUE}")])
        .current_dir(site.path(""))
        .env("HOME", site.path(""))
        .env("SITE", site.path(""))
        .env("SOURCES", root)
        .env_remove("CINNABAR_SOCKET")
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

/// What stands below a heading, up to the next one.
fn section<'t>(text: &'t str, heading: Option<&str>) -> Result<&'t str> {
    let Some(heading) = heading else { return Ok(text) };
    let (_, below) =
        text.split_once(&format!("\n{heading}\n")).with_context(|| format!("no {heading:?}"))?;
    Ok(below.split("\n## ").next().unwrap_or(below))
}

/// Replaces what differs from host to host.
fn localize(page: &str) -> Result<String> {
    let mut page = page.replace("192.0.2.7", "127.0.0.1").replace("192.0.2.8", "127.0.0.1");
    for port in ["10809", "10810", "3260", "9320"] {
        page = page.replace(port, &free_port()?.to_string());
    }
    Ok(page.replace("-accel kvm", "-accel tcg").replace("4GiB", "256MiB"))
}

/// A page's files and commands, in their order, as a script.
fn unfold(page: &str) -> Result<String> {
    let mut commands = String::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (kind, body) = block.split_once('\n').unwrap_or((block, ""));
        match kind {
            "toml" | "xml" => {
                let first = body.lines().next().unwrap_or_default();
                let name = first.trim_matches(|sign: char| "#<>!- ".contains(sign));
                // Where the commands before it have gone.
                let end = format!("END OF {name}");
                writeln!(commands, "cat > '{name}' <<'{end}'\n{body}\n{end}")?;
            }
            "console" => body.lines().try_for_each(|line| shell_line(line, &mut commands))?,
            _ => {}
        }
    }
    Ok(commands)
}

/// A line as it is typed. What goes to the background is the daemon.
fn shell_line(line: &str, commands: &mut String) -> Result<()> {
    let typed = line.strip_prefix("$ ").unwrap_or(line);
    writeln!(commands, "{typed}")?;
    if typed.starts_with("cinnabar serve") && typed.ends_with('&') {
        writeln!(commands, "daemon=$!")?;
    }
    Ok(())
}
