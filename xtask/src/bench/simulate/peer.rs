//! libCacheSim from `PyPI`, in an environment of its own below the target folder.

use super::Measured;
use crate::install;
use crate::shell::{root, show, succeeds};
use anyhow::{Context, Result};
use e2e::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release whose golden counts our tests have.
pub(super) const VERSION: &str = "0.3.5";
const SCRIPT: &str = "xtask/src/bench/simulate/peer.py";

/// Its Python.
pub(super) struct Peer {
    python: PathBuf,
}

impl Peer {
    /// Installs it below `folder` unless it is there.
    pub(super) fn install(folder: &Path) -> Result<Self> {
        install::debian(&[tools::PYTHON])?;
        let home = folder.join(format!("libcachesim-{VERSION}"));
        let python = home.join("bin/python3");
        if !succeeds(Command::new(&python).args(["-c", "import libcachesim"])) {
            println!("missing: libcachesim {VERSION} (to compare with); into {}", home.display());
            show(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))
                .context("making an environment for Python (Debian: python3-venv)")?;
            let package = format!("libcachesim=={VERSION}");
            show(Command::new(&python).args(["-m", "pip", "install", "--quiet", &package]))?;
        }
        Ok(Self { python })
    }

    /// One run in a process of its own.
    pub(super) fn measure(&self, policy: &str, file: &Path, blocks: u32) -> Result<Measured> {
        let mut command = Command::new(&self.python);
        command.arg(root().join(SCRIPT)).arg(policy).arg(file).arg(blocks.to_string());
        Measured::of(&mut command)
    }
}
