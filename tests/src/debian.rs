//! A bare Debian 12 in a folder: fetched once below the target folder, copied for each test.
//!
//! There is no systemd in it. A stand-in for `systemctl` writes down what maintainer scripts ask for.

use crate::binary;
use crate::process::{Running, output};
use crate::tools::MMDEBSTRAP;
use anyhow::{Context, Result, ensure};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null;
use tempfile::TempDir;

const RELEASE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// Packages that were fetched before.
const ARCHIVES: &str = "var/cache/apt/archives";
/// What maintainer scripts have asked systemd for.
const ASKED: &str = "run/systemctl.log";
/// There while the daemon runs; the stand-in ends it and waits until this has gone.
const PID: &str = "run/daemon.pid";

const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$@" >> /run/systemctl.log
for word; do
    case $word in
    is-active) test -e /run/daemon.pid; exit ;;
    stop)
        test -e /run/daemon.pid || exit 0
        kill -TERM "$(cat /run/daemon.pid)"
        while test -e /run/daemon.pid; do sleep 0.1; done
        ;;
    esac
done
"#;

/// A Debian of a test's own, removed when dropped.
#[derive(Debug)]
pub struct Root {
    dir: TempDir,
}

/// Why there can be none here, if there can't.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root, to change into another root folder".into());
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.contains(&format!("VERSION_CODENAME={RELEASE}")) {
        return Some(format!("needs a program that is built on Debian's {RELEASE}"));
    }
    fetched().err().map(|error| format!("can't fetch Debian: {error:#}"))
}

/// The folder with the bare system, fetched now if need be.
fn fetched() -> Result<PathBuf> {
    let target = binary::target_folder()?;
    let base = target.join(format!("debian-{RELEASE}"));
    if base.is_dir() {
        return Ok(base);
    }
    ensure!(MMDEBSTRAP.is_present(), "{} (package {})", MMDEBSTRAP.command, MMDEBSTRAP.package);
    // What an earlier try left half done is not `base`, and is removed when dropped.
    let work = tempfile::Builder::new().prefix("debian-").tempdir_in(&target)?;
    let tree = work.path().join("tree");
    // The lists of packages stay: with them and the archives nothing is fetched a second time.
    let mut command = Command::new(MMDEBSTRAP.command);
    command.args(["--variant=minbase", "--skip=cleanup/apt", RELEASE]).arg(&tree).arg(MIRROR);
    output(&mut command)?;
    fs::rename(&tree, &base)?;
    Ok(base)
}

impl Root {
    /// A copy of the bare system.
    pub fn new() -> Result<Self> {
        let base = fetched()?;
        // Short, for the path of a unix socket may have 107 bytes only.
        let root = Self { dir: tempfile::Builder::new().prefix("cinnabar-").tempdir()? };
        output(
            Command::new("cp").args(["-a", "--reflink=auto"]).arg(base.join(".")).arg(root.path()),
        )?;
        set_mode(root.path(), 0o755)?;
        // As systemd's package has it, and where scripts look whether it runs.
        fs::create_dir_all(root.at("run/systemd/system"))?;
        fs::write(root.at("usr/bin/systemctl"), SYSTEMCTL)?;
        set_mode(&root.at("usr/bin/systemctl"), 0o755)?;
        Ok(root)
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path within, from outside.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path().join(path.trim_start_matches('/'))
    }

    /// Has a command run within, where `/proc` is, too, as long as it runs.
    ///
    /// # Panics
    /// When the folder's path has a NUL.
    pub fn enter(&self, command: &mut Command) {
        let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no NUL in it");
        let (root, proc) = (path(self.path()), path(&self.at("proc")));
        let change = move || {
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            let (top, kind) = (c"/".as_ptr(), c"proc".as_ptr());
            // SAFETY: system calls, on strings that live as long as this closure. What is mounted is
            // seen by this process and those it starts only, and goes with them.
            let done = unsafe {
                libc::unshare(libc::CLONE_NEWNS) == 0
                    && libc::mount(null(), top, null(), flags, null()) == 0
                    && libc::mount(kind, proc.as_ptr(), kind, 0, null()) == 0
                    && libc::chroot(root.as_ptr()) == 0
                    && libc::chdir(top) == 0
            };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(change) };
    }

    /// A command within.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive");
        self.enter(&mut command);
        command
    }

    /// Runs a command within, and hands back what it prints.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        output(&mut self.command(words))
    }

    /// Installs a package from a file outside, with what it depends on.
    pub fn install(&self, package: &Path) -> Result<String> {
        fs::copy(package, self.at("tmp/package.deb"))?;
        let words =
            ["apt-get", "install", "-q", "-y", "--no-install-recommends", "/tmp/package.deb"];
        let said = self.run(&words).or_else(|_| {
            // The lists may be older than what the mirror has.
            self.run(&["apt-get", "update", "-q"])?;
            self.run(&words)
        })?;
        self.keep_archives()?;
        Ok(said)
    }

    /// What was fetched is there the next time.
    fn keep_archives(&self) -> Result<()> {
        let base = fetched()?.join(ARCHIVES);
        for entry in fs::read_dir(self.at(ARCHIVES))? {
            let path = entry?.path();
            let kept = base.join(path.file_name().context("an entry has a name")?);
            if path.extension().is_some_and(|end| end == "deb") && !kept.exists() {
                fs::copy(&path, &kept)?;
            }
        }
        Ok(())
    }

    /// Says that the daemon runs, or that it has ended.
    pub fn set_daemon(&self, running: Option<&Running>) -> Result<()> {
        match running {
            Some(running) => fs::write(self.at(PID), running.pid().to_string())?,
            None => fs::remove_file(self.at(PID))?,
        }
        Ok(())
    }

    /// What systemd was asked for since the last time.
    pub fn asked_of_systemd(&self) -> Result<Vec<String>> {
        let Ok(text) = fs::read_to_string(self.at(ASKED)) else { return Ok(Vec::new()) };
        fs::remove_file(self.at(ASKED))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Every file and folder within, but for those of the package manager and of the run.
    pub fn files(&self) -> Result<Vec<String>> {
        let own = [
            "./var/lib/dpkg",
            "./var/lib/apt",
            "./var/cache",
            "./var/log",
            "./run",
            "./tmp",
            "./dev",
        ];
        let mut command = Command::new("find");
        command.arg(".").current_dir(self.path());
        for path in own {
            command.args(["-path", path, "-prune", "-o"]);
        }
        command.arg("-print");
        let mut files: Vec<String> = output(&mut command)?.lines().map(str::to_owned).collect();
        files.sort_unstable();
        Ok(files)
    }
}

/// Makes a file's mode this.
fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}
