//! Python packages that tests use: in an environment of their own below the target folder.

use crate::binary;
use crate::process::outcome;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Time for the download of all packages of an environment.
const FETCH_LIMIT: Duration = Duration::from_mins(10);
/// Says what was installed, as the last thing that is written.
const DONE: &str = "installed.txt";

/// Packages, each with its version.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// Its folder.
    pub name: &'static str,
    /// What `pip install --requirement` reads.
    pub requirements: &'static str,
    /// What we use it for.
    pub purpose: &'static str,
}

/// Checks the description of the control API, and makes a client of it.
pub const API_CLIENT: Environment = Environment {
    name: "api-client",
    requirements: include_str!("../clients/api/requirements.txt"),
    purpose: "a validator of OpenAPI, and a generator of clients, from PyPI",
};

/// Checks the accessibility of pages. Only its script for browsers is used, and that runs in one.
pub const AXE: Environment = Environment {
    name: "axe",
    requirements: include_str!("../clients/page/requirements.txt"),
    purpose: "axe-core, which checks the accessibility of the page, from PyPI",
};

impl Environment {
    /// The folder of its programs, if all of it was fetched.
    pub fn find(&self) -> Option<PathBuf> {
        let folder = self.folder().ok()?;
        let installed = fs::read_to_string(folder.join(DONE)).ok()?;
        (installed == self.requirements).then(|| folder.join("bin"))
    }

    /// Fetches it, unless it is there.
    pub fn fetch(&self) -> Result<()> {
        if self.find().is_some() {
            return Ok(());
        }
        let folder = self.folder()?;
        println!("missing: {}; into {}", self.purpose, folder.display());
        let run = |command: &mut Command| -> Result<()> {
            let done = outcome(command, FETCH_LIMIT)?;
            let errors = String::from_utf8_lossy(&done.stderr);
            ensure!(done.status.success(), "{command:?} ended with {}: {errors}", done.status);
            Ok(())
        };
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
            .context("making an environment for Python (Debian: python3-venv)")?;
        let list = folder.join("requirements.txt");
        fs::write(&list, self.requirements)?;
        let mut pip = Command::new(folder.join("bin/python3"));
        // The list is complete: nothing else is fetched.
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--requirement"]).arg(&list);
        run(&mut pip)?;
        fs::write(folder.join(DONE), self.requirements)?;
        Ok(())
    }

    fn folder(&self) -> Result<PathBuf> {
        Ok(binary::target_folder()?.join("python").join(self.name))
    }
}
