//! One build of all that a run needs, which gives out each program as soon as it is linked.
//!
//! Every tier builds the same: all test programs, the daemon and the laboratory, in one profile and
//! with one set of features. Another set would compile most crates a second time.

use crate::shell::{cargo, words};
use crate::tier::Tier;
use anyhow::{Context, Result, bail};
use e2e::binary;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Features of all that is only built with the libraries of Ceph.
const WITH_CEPH: &str = "cinnabar/ceph,cinnabar-backend/ceph,cinnabar-hybrid/ceph";

/// What cargo has linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// `PACKAGE` for a crate's unit tests, `PACKAGE/TARGET` for its other test programs, the name of any other program.
    pub(crate) name: String,
    /// Whether it runs tests.
    pub(crate) tests: bool,
    pub(crate) path: PathBuf,
    /// The folder of its package, in which cargo runs tests.
    pub(crate) folder: PathBuf,
}

impl Program {
    /// Whether its tests may start programs of its package, which has some.
    pub(crate) fn starts_others(&self) -> bool {
        let has = |path| self.folder.join(path).exists();
        self.name.contains('/') && (has("src/main.rs") || has("src/bin"))
    }
}

/// Builds everything and hands over each program when it is there.
///
/// # Errors
/// When something does not build, of which cargo has said what; those of `linked`.
pub(crate) fn build(mut linked: impl FnMut(Program) -> Result<()>) -> Result<()> {
    let mut build =
        cargo(&["test", "--workspace", "--lib", "--bins", "--tests", "--no-run", "--locked"]);
    if binary::with_ceph() {
        build.args(["--features", WITH_CEPH]);
    }
    build.args(["--message-format", "json-render-diagnostics"]);
    let mut child = build
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("starting cargo")?;
    let messages = child.stdout.take().context("cargo has a standard output")?;
    for line in BufReader::new(messages).lines() {
        let line = line.context("reading cargo's messages")?;
        if let Some(program) = serde_json::from_str(&line).ok().as_ref().and_then(program) {
            linked(program)?;
        }
    }
    if !child.wait()?.success() {
        bail!("the tests do not build");
    }
    Ok(())
}

/// The tests of a program, of a tier if it knows tiers itself.
pub(crate) fn list(program: &Program, tier: Option<Tier>) -> Result<Vec<String>> {
    let mut list = Command::new(&program.path);
    list.arg("--list").current_dir(&program.folder).stdin(Stdio::null());
    if let Some(tier) = tier {
        list.env("CINNABAR_TIER", tier.name());
    }
    let done = list.output().with_context(|| format!("starting {}", words(&list)))?;
    let text = String::from_utf8_lossy(&done.stdout);
    Ok(text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
}

/// The program that a message of cargo tells of.
fn program(message: &Value) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = message["package_id"].as_str().map(package)?;
    let (kind, target) =
        (message["target"]["kind"][0].as_str()?, message["target"]["name"].as_str()?);
    let tests = message["profile"]["test"].as_bool()?;
    let name = match (tests, kind) {
        (true, "lib") => package,
        (true, _) => format!("{package}/{target}"),
        (false, "bin") => target.to_owned(),
        (false, _) => return None,
    };
    Some(Program { name, tests, path, folder })
}

/// The name in `path+file:///tree/crates/cinnabar-text#0.1.0` or `path+file:///tree/tests#e2e@0.1.0`.
fn package(id: &str) -> String {
    let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Program, program};
    use serde_json::json;

    #[test]
    fn test_programs_beside_a_main_wait_for_what_they_start() {
        let starts = |name: &str, folder: &str| {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            Program { name: name.into(), tests: true, path: folder.clone(), folder }.starts_others()
        };
        assert!(starts("cinnabar-lab/it", "../crates/cinnabar-lab"));
        assert!(starts("e2e/clients", "../tests"));
        assert!(!starts("cinnabar-engine/it", "../crates/cinnabar-engine"));
        assert!(!starts("cinnabar-engine", "../crates/cinnabar-engine"));
    }

    #[test]
    fn programs_are_named_by_package_and_target() {
        let message = |id: &str, kind: &str, target: &str, test: bool| {
            json!({"reason": "compiler-artifact", "package_id": id, "manifest_path": "/w/p/Cargo.toml",
                "target": {"kind": [kind], "name": target}, "profile": {"test": test}, "executable": "/w/x"})
        };
        let name = |message| program(&message).map(|program| program.name);
        let engine = "path+file:///w/crates/cinnabar-engine#0.1.0";
        assert_eq!(
            name(message(engine, "lib", "cinnabar_engine", true)).as_deref(),
            Some("cinnabar-engine")
        );
        assert_eq!(
            name(message(engine, "test", "it", true)).as_deref(),
            Some("cinnabar-engine/it")
        );
        let e2e = "path+file:///w/tests#e2e@0.1.0";
        assert_eq!(name(message(e2e, "test", "clients", true)).as_deref(), Some("e2e/clients"));
        let daemon = "path+file:///w/crates/cinnabar#0.1.0";
        assert_eq!(name(message(daemon, "bin", "cinnabar", false)).as_deref(), Some("cinnabar"));
        assert_eq!(
            name(message(daemon, "bin", "cinnabar", true)).as_deref(),
            Some("cinnabar/cinnabar")
        );
        assert_eq!(name(message(engine, "example", "engine_bench", false)), None);
        let mut library = message(engine, "lib", "cinnabar_engine", false);
        library["executable"] = serde_json::Value::Null;
        assert_eq!(program(&library), None, "a library is no program");
    }
}
