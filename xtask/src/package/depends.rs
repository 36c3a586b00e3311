//! Which packages the programs need: those of the libraries that they are linked with.

use super::order::said;
use super::tree;
use anyhow::{Context, Result, ensure};
use e2e::tools::find;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The value of the field `Depends`. `work` is a folder for what the tool needs beside it.
pub(super) fn of(programs: &[PathBuf], work: &Path) -> Result<String> {
    if find("dpkg-shlibdeps").is_none() {
        println!(
            "no dpkg-shlibdeps (package dpkg-dev): the packages of the libraries, of any version"
        );
        return by_name(programs);
    }
    // It refuses to work without this file.
    tree::folder(&work.join("debian"))?;
    tree::write(
        &work.join("debian/control"),
        "Source: cinnabar\n\nPackage: cinnabar\nArchitecture: any\n",
        0o644,
    )?;
    let mut command = Command::new("dpkg-shlibdeps");
    for program in programs {
        command.arg("-e").arg(program);
    }
    let text = said(command.arg("-O").current_dir(work))?;
    let line = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let depends = line.with_context(|| format!("dpkg-shlibdeps says {text:?}"))?;
    ensure!(depends.contains("libc6"), "a program without a C library? {depends:?}");
    Ok(depends.to_owned())
}

/// The packages of the libraries, whatever their versions.
fn by_name(programs: &[PathBuf]) -> Result<String> {
    let text = said(Command::new("readelf").arg("-d").args(programs))?;
    let mut packages = BTreeSet::new();
    for library in needed(&text) {
        let owner = said(Command::new("dpkg").args(["-S", &format!("*/{library}")]))
            .with_context(|| format!("{library} belongs to no package"))?;
        let owner = owner.lines().find_map(owner_of).context("dpkg -S names no package")?;
        packages.insert(owner.to_owned());
    }
    Ok(packages.into_iter().collect::<Vec<_>>().join(", "))
}

/// The libraries of `readelf -d`.
fn needed(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split(']').next())
}

/// The package of a line of `dpkg -S`.
fn owner_of(line: &str) -> Option<&str> {
    line.split([':', ',']).next().filter(|name| !name.is_empty() && !name.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_their_packages_are_found() {
        let text = " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n \
                    0x000000000000000c (INIT)               0x1000\n";
        assert_eq!(needed(text).collect::<Vec<_>>(), ["libc.so.6"]);
        let line = "libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6";
        assert_eq!(owner_of(line), Some("libc6"));
        assert_eq!(owner_of("diversion by x from: /y"), None);
    }
}
