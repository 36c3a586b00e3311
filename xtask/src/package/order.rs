//! What is asked for, and what all parts of a package need.

use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to build.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The program to put in [default: a release build, made now]
    #[arg(long, value_name = "PATH")]
    pub(super) binary: Option<PathBuf>,
    /// The laboratory, cinnabar-lab, to put in [default: a release build, made now]
    #[arg(long, value_name = "PATH")]
    pub(super) lab: Option<PathBuf>,
    /// Build the program with RBD images and hybrid volumes on Ceph [default: without]
    #[arg(long, conflicts_with = "binary")]
    pub(super) ceph: bool,
    /// The package's version [default: the workspace's]
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    pub(super) version: String,
    /// How hard to compress: 0 to 9
    #[arg(long, value_name = "LEVEL", default_value_t = 6, value_parser = clap::value_parser!(u8).range(..=9))]
    pub(super) compress: u8,
    /// Who answers for the package
    #[arg(
        long,
        value_name = "NAME <MAIL>",
        default_value = "The Cinnabar authors <cinnabar@packages.invalid>"
    )]
    pub(super) maintainer: String,
    /// The folder that gets it [default: target/debian]
    #[arg(long, value_name = "FOLDER")]
    pub(super) output: Option<PathBuf>,
}

/// What all parts of a package need to know.
pub(super) struct Package<'a> {
    pub(super) args: &'a Args,
    /// The program, not stripped.
    pub(super) binary: PathBuf,
    /// The laboratory, not stripped.
    pub(super) lab: PathBuf,
    /// Seconds since 1970 that all files bear.
    pub(super) epoch: String,
    pub(super) architecture: String,
}

impl Package<'_> {
    /// What is installed, by name.
    pub(super) fn programs(&self) -> [(&'static str, &Path); 2] {
        [("cinnabar", &self.binary), ("cinnabar-lab", &self.lab)]
    }
}

/// What a program prints, without the last end of line.
pub(super) fn said(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("starting {command:?}"))?;
    if !done.status.success() {
        bail!("{command:?} failed ({}):\n{}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8(done.stdout)?.trim_end().to_owned())
}

/// Makes a file's mode what it should be, whatever the file mode mask is.
pub(super) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| path.display().to_string())
}
