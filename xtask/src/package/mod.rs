//! `cargo xtask package`: a Debian package of the daemon and the laboratory.
//!
//! The same tree and time give the same bytes, if the program is the same: all files bear the time of
//! `SOURCE_DATE_EPOCH` or of the last commit.

mod depends;
mod order;
mod tree;

pub(crate) use order::Args;

use crate::shell::root;
use anyhow::{Context, Result, ensure};
use order::{Package, said};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds it and prints its path.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        args.version.starts_with(|first: char| first.is_ascii_digit())
            && args.version.chars().all(|c| c.is_ascii_alphanumeric() || ".+~".contains(c)),
        "{:?} is no version of a package\nhint: a digit first, then letters, digits, and . + ~",
        args.version
    );
    let output = args.output.clone().unwrap_or_else(|| root().join("target/debian"));
    fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let package = Package {
        args,
        binary: match &args.binary {
            Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
            None => release("cinnabar", args.ceph)?,
        },
        lab: match &args.lab {
            Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
            None => release("cinnabar-lab", false)?,
        },
        epoch: epoch()?,
        architecture: said(Command::new("dpkg").arg("--print-architecture"))?,
    };
    let stage = output.join(format!(".stage-{}", std::process::id()));
    let built = package.build(&stage, &output);
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| stage.display().to_string())?;
    }
    println!("{}", built?.display());
    Ok(())
}

impl Package<'_> {
    /// Lays out the files below `stage`, and packs them.
    fn build(&self, stage: &Path, output: &Path) -> Result<PathBuf> {
        let files = stage.join("root");
        tree::fill(self, &files)?;
        let programs = self.programs().map(|(name, _)| files.join("usr/bin").join(name));
        let depends = depends::of(&programs, stage)?;
        self.control(&files, &depends)?;
        let name = format!("cinnabar_{}_{}.deb", self.args.version, self.architecture);
        let path = output.join(name);
        said(
            Command::new("dpkg-deb")
                .args([
                    "--root-owner-group",
                    "-Zxz",
                    &format!("-z{}", self.args.compress),
                    "--build",
                ])
                .args([&files, &path])
                .env("SOURCE_DATE_EPOCH", &self.epoch),
        )?;
        Ok(path)
    }

    /// The folder that dpkg reads.
    fn control(&self, files: &Path, depends: &str) -> Result<()> {
        let folder = files.join("DEBIAN");
        let (sums, bytes) = tree::sums(files)?;
        tree::folder(&folder)?;
        let text = format!(
            "Package: cinnabar\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {}\n\
             Depends: {depends}\nSuggests: libnbd-bin, prometheus, qemu-system-x86\nSection: admin\n\
             Priority: optional\nDescription: persistent SSD cache for virtual-machine disks\n \
             A daemon that serves disks on shared storage to virtual machines, over NBD and\n \
             vhost-user, and keeps on a local SSD what they read. The cache is still warm\n \
             after a restart or a crash, and the SSD is divided among guests by what each\n \
             of them gains.\n .\n \
             Its laboratory, cinnabar-lab, analyses and converts block traces, simulates\n \
             caches and measures storage.\n .\n \
             The service is not started before it is configured.\n",
            self.args.version,
            self.architecture,
            self.args.maintainer,
            bytes.div_ceil(1024),
        );
        tree::write(&folder.join("control"), &text, 0o644)?;
        tree::write(&folder.join("md5sums"), &sums, 0o644)?;
        tree::write(&folder.join("conffiles"), "/etc/cinnabar/cinnabar.toml\n", 0o644)?;
        for script in ["postinst", "prerm", "postrm"] {
            tree::copy(&root().join("packaging/debian").join(script), &folder.join(script), 0o755)?;
        }
        Ok(())
    }
}

/// A release build of a program, and of nothing else: built together, each would get what the other needs.
fn release(program: &str, ceph: bool) -> Result<PathBuf> {
    let mut command =
        crate::shell::cargo(&["build", "--profile", "dist", "--locked", "--package", program]);
    if ceph {
        command.args(["--features", "ceph"]);
    }
    command.args(["--message-format", "json-render-diagnostics"]);
    let done = command.stderr(std::process::Stdio::inherit()).output().context("starting cargo")?;
    ensure!(done.status.success(), "the program does not build");
    e2e::binary::named(&done.stdout, |_| true).context("cargo named no executable")
}

/// The time that files bear.
fn epoch() -> Result<String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        ensure!(epoch.parse::<u64>().is_ok(), "SOURCE_DATE_EPOCH={epoch}: no seconds since 1970");
        return Ok(epoch);
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(root());
    said(&mut git).context("no time of the last commit\nhint: set SOURCE_DATE_EPOCH")
}
