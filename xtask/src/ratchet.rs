//! Sizes that may only fall. A change that needs more says so by raising a number here, for a reviewer
//! to see; one that takes away lowers it, so that nothing grows into what was won.

use crate::shell::root;
use crate::tidy::collect;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

struct Ratchet {
    what: &'static str,
    max: usize,
    now: usize,
}

/// Crates of the workspace, the tools beside them included.
const CRATES: usize = 25;
/// Lines of Rust that production compiles, tests left out.
const LINES: usize = 203_520;
/// Part of a maximum that may lie idle, in percent, before it must be lowered.
const SLACK_PERCENT: usize = 1;

/// What has grown, or has fallen without its maximum.
pub(crate) fn check() -> Result<Vec<String>> {
    let folders = crates()?;
    let mut lines = 0;
    for folder in &folders {
        lines += own_lines(&folder.join("src"))?;
    }
    println!("{} crates, {lines} lines without tests", folders.len());
    let all = [
        Ratchet { what: "CRATES", max: CRATES, now: folders.len() },
        Ratchet { what: "LINES", max: LINES, now: lines },
    ];
    Ok(all.iter().filter_map(Ratchet::complaint).collect())
}

/// Folders with a crate: below `crates/`, and the tools beside it.
fn crates() -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(root().join("crates")).context("crates")? {
        folders.push(entry?.path());
    }
    folders.extend(["xtask", "tests", "tests/loadgen"].map(|name| root().join(name)));
    folders.retain(|folder| folder.join("src").is_dir());
    Ok(folders)
}

/// Lines below a folder that production compiles: files and folders of tests are named so.
fn own_lines(folder: &Path) -> Result<usize> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.retain(|file| file.extension().is_some_and(|end| end == "rs"));
    let is_test = |file: &Path| {
        let within = file.strip_prefix(folder).unwrap_or(file).with_extension("");
        within.iter().any(|part| {
            part == "tests" || part.to_str().is_some_and(|part| part.ends_with("_tests"))
        })
    };
    let mut lines = 0;
    for file in files.iter().filter(|file| !is_test(file)) {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        lines += count(&text);
    }
    Ok(lines)
}

/// Lines of a formatted source without its items for tests.
fn count(text: &str) -> usize {
    let (mut lines, mut all) = (0, text.lines());
    while let Some(line) = all.next() {
        let Some(indent) = line.strip_suffix("#[cfg(test)]") else {
            lines += 1;
            continue;
        };
        // An item ends where a line ends it at its own depth.
        let ends = |line: &str| {
            let item = line.strip_prefix(indent).unwrap_or_default();
            item.ends_with([';', '}']) && !item.starts_with([' ', '#'])
        };
        all.by_ref().find(|line| ends(line));
    }
    lines
}

impl Ratchet {
    fn complaint(&self) -> Option<String> {
        let Self { what, max, now } = self;
        if now > max {
            return Some(format!("{what} is {now}, more than {max} (xtask/src/ratchet.rs)"));
        }
        let idle = max - now > max * SLACK_PERCENT / 100;
        idle.then(|| {
            format!("{what} is {now}: lower its maximum from {max} (xtask/src/ratchet.rs)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Ratchet, count};

    #[test]
    fn it_holds_both_ways() {
        let complaint = |now, max| Ratchet { what: "LINES", max, now }.complaint();
        assert!(complaint(1001, 1000).expect("it has grown").contains("more than 1000"));
        assert!(complaint(989, 1000).expect("it has fallen").contains("lower"));
        assert_eq!(complaint(1000, 1000).or(complaint(990, 1000)), None);
        assert_eq!(complaint(36, 36), None);
        assert!(complaint(35, 36).is_some(), "a crate less is a crate less");
    }

    #[test]
    fn what_only_tests_compile_is_left_out() {
        let text = "fn one() {}\n    #[cfg(test)]\n    fn two() {\n        if x {\n        }\n    }\n\
            fn three() {}\n#[cfg(test)]\n#[path = \"x_tests.rs\"]\nmod tests;\nfn four() {}\n";
        assert_eq!(count(text), 3);
    }
}
