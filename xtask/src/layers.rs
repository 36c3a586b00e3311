//! Dependencies point one way: the programs see the edges, the fault simulation and the laboratory's
//! crates, these see the pure crates, siblings never see each other. Compared with what cargo knows.
//! What a program must not link at all is looked for in its whole tree of dependencies.

use crate::shell::cargo;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;

/// Each crate and the workspace's crates it may name, in whatever kind of dependency.
const MAY_SEE: &[(&str, &[&str])] = &[
    // What serves and operates.
    (
        "cinnabar",
        &[DAEMON, CONTROL, MANAGER, CONFIG, BACKEND, WRITEBACK, ENGINE, POLICY, TRACE, TEXT],
    ),
    // What reads traces, simulates and measures. An example tells what the manager costs.
    (LAB, &[BENCH, STUDY, SIM, EMBED, BACKEND, ENGINE, POLICY, TRACE, TEXT, MANAGER, CONFIG]),
    // What serves; the command line starts it and talks to it.
    (
        DAEMON,
        &[CONTROL, MANAGER, CONFIG, WRITEBACK, FRONTEND, BACKEND, DRIVER, ENGINE, POLICY, TRACE],
    ),
    // What operators ask, and who may: knows the data plane by its messages.
    (CONTROL, &[PAGE, MANAGER, CONFIG, FRONTEND, ENGINE, FORMAT, POLICY, TRACE]),
    // What people look at: reports in, HTML out; pure.
    (PAGE, &[MANAGER, CONFIG, ENGINE, POLICY, TEXT]),
    // Who divides the cache among volumes: knows the data plane by its messages.
    (MANAGER, &[CONFIG, ENGINE, POLICY]),
    // What the operator asks for, checked before anything is opened; what a daemon counts, and what has been;
    // what the control plane and the data plane say to each other.
    (CONFIG, &[WRITEBACK, FRONTEND, BACKEND, DRIVER, ENGINE, FORMAT, POLICY, TRACE, TEXT]),
    // A program of `embed`'s: its storage with the cache in front of it. Shows what it found.
    (BENCH, &[STUDY, EMBED, BACKEND, DRIVER, ENGINE, POLICY, TRACE, TEXT]),
    // A library for other programs, which take the place of the `cinnabar` binary; `bench` is such
    // a program.
    (EMBED, &[DRIVER, BACKEND, ENGINE]),
    // The servers, certificates, and the end of TLS for the clients of both.
    (FRONTEND, &[ENGINE]),
    (BACKEND, &[DRIVER, WRITEBACK, HYBRID, PLACEMENT, ENGINE, POLICY, TRACE]),
    // Faults are those of the engine; nothing that reads a trace or makes a plan is among them.
    (SIM, &[DRIVER, ENGINE]),
    (STUDY, &[ENGINE, POLICY, TRACE, TEXT]),
    // Pure: its doors are traits, which the edges and the simulator open. Who goes to a back end next is in it.
    (DRIVER, &[WRITEBACK, ENGINE]),
    // The write log above the engine: pure as well. Its tests run the engine in the driver's pool.
    (WRITEBACK, &[DRIVER, ENGINE]),
    // With what goes in and out of it, and several of them as one cache; below it the bytes on disk.
    (ENGINE, &[FORMAT]),
    (FORMAT, &[]),
    (POLICY, &[]),
    // Where extents of a hybrid volume lie; knows objects by name and requests by token.
    (PLACEMENT, &[]),
    // Pairs of pools, and the thread of a volume; objects of a Ceph cluster. Knows no guest and no cache. Its
    // tests have a cluster of the end-to-end tests.
    (HYBRID, &[PLACEMENT, E2E]),
    (TRACE, &[]),
    // Commands, tables, charts: knows nothing of caches.
    (TEXT, &[]),
    // Whatever reads bytes that nobody has checked.
    ("cinnabar-fuzz", &[CONTROL, CONFIG, SIM, WRITEBACK, FRONTEND, BACKEND, ENGINE, POLICY, TRACE]),
    // The end-to-end tests know processes and sockets only.
    (E2E, &[]),
    // A tool for tests and benchmarks, started as a process.
    ("loadgen", &[]),
    ("xtask", &[E2E]),
];
const LAB: &str = "cinnabar-lab";
const DAEMON: &str = "cinnabar-daemon";
const CONTROL: &str = "cinnabar-control";
const MANAGER: &str = "cinnabar-manager";
const CONFIG: &str = "cinnabar-config";
const BENCH: &str = "cinnabar-bench";
const PAGE: &str = "cinnabar-page";
const TEXT: &str = "cinnabar-text";
const EMBED: &str = "cinnabar-embed";
const DRIVER: &str = "cinnabar-driver";
const FRONTEND: &str = "cinnabar-frontend";
const BACKEND: &str = "cinnabar-backend";
const SIM: &str = "cinnabar-sim";
const STUDY: &str = "cinnabar-study";
const WRITEBACK: &str = "cinnabar-writeback";
const E2E: &str = "e2e";
const ENGINE: &str = "cinnabar-engine";
const FORMAT: &str = "cinnabar-format";
const POLICY: &str = "cinnabar-policy";
const HYBRID: &str = "cinnabar-hybrid";
const PLACEMENT: &str = "cinnabar-placement";
const TRACE: &str = "cinnabar-trace";

/// What neither program may link, by whatever way and with whatever features: the one that serves knows no
/// laboratory, the laboratory no daemon.
const MUST_NOT_LINK: &[(&str, &[&str])] = &[
    ("cinnabar", &[LAB, BENCH, STUDY, SIM, EMBED, "lzma-rust2", "rand_distr"]),
    (LAB, &["cinnabar", DAEMON, CONTROL, PAGE, "axum", "hyper", "tokio"]),
];

/// Checks the whole workspace.
///
/// # Errors
/// Lists every dependency that points the wrong way, and every crate without a place.
pub(crate) fn check() -> Result<()> {
    let done = cargo(&["metadata", "--format-version=1", "--no-deps", "--locked"])
        .output()
        .context("starting cargo metadata")?;
    if !done.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&done.stderr));
    }
    let metadata = serde_json::from_slice(&done.stdout).context("reading cargo's metadata")?;
    let mut wrong = violations(&metadata)?;
    for (program, banned) in MUST_NOT_LINK {
        wrong.extend(linked(&tree(program)?, program, banned));
    }
    if !wrong.is_empty() {
        bail!("{}\nhint: the layers are in xtask/src/layers.rs", wrong.join("\n"));
    }
    Ok(())
}

/// What a program links with all its features: a package a line, its name first.
fn tree(program: &str) -> Result<String> {
    let args = ["tree", "--package", program, "--edges", "normal", "--prefix", "none"];
    let mut tree = cargo(&args);
    let done = tree.args(["--all-features", "--locked"]).output().context("starting cargo tree")?;
    if !done.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8(done.stdout)?)
}

/// What a program links of what it must not.
fn linked(tree: &str, program: &str, banned: &[&str]) -> Vec<String> {
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let found = banned.iter().filter(|name| names.contains(*name));
    found.map(|name| format!("{program} must not link {name}: cargo tree -i {name}")).collect()
}

/// The members of the workspace, by name.
pub(crate) fn violations(metadata: &Value) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().context("no list of packages")? {
        let name = package["name"].as_str().context("a package without a name")?;
        let Some((_, allowed)) = MAY_SEE.iter().find(|(member, _)| *member == name) else {
            wrong.push(format!("{name} has no layer"));
            continue;
        };
        for dependency in package["dependencies"].as_array().context("no dependencies")? {
            let seen = dependency["name"].as_str().context("a dependency without a name")?;
            // Its own library, for tests with features, is no other crate.
            let ours = MAY_SEE.iter().any(|(member, _)| *member == seen) && seen != name;
            if ours && !allowed.contains(&seen) {
                wrong.push(format!("{name} must not depend on {seen}"));
            }
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::{linked, violations};
    use serde_json::json;

    #[test]
    fn finds_siblings_and_strangers() {
        let metadata = json!({"packages": [
            {"name": "cinnabar-sim", "dependencies": [{"name": "cinnabar-engine"}, {"name": "cinnabar-backend"}]},
            {"name": "cinnabar-engine", "dependencies": [{"name": "slab"}]},
            {"name": "newcomer", "dependencies": []},
        ]});
        assert_eq!(
            violations(&metadata).expect("the form is cargo's"),
            ["cinnabar-sim must not depend on cinnabar-backend", "newcomer has no layer"]
        );
    }

    #[test]
    fn finds_what_must_not_be_linked() {
        let tree = "cinnabar v0.1.0 (/x/crates/cinnabar)\ntokio-rustls v0.26.6\n\
            cinnabar-text v0.1.0 (/x/crates/cinnabar-text)\ntokio v1.54.1 (*)\n";
        let wrong = linked(tree, "cinnabar", &["cinnabar-bench", "tokio", "cinnabar-tex"]);
        assert_eq!(wrong, ["cinnabar must not link tokio: cargo tree -i tokio"]);
    }
}
