//! The files of the package, as they lie on a machine that has it.

use super::order::{Package, said, set_mode};
use crate::shell::root;
use anyhow::{Context, Result, ensure};
use e2e::tools::find;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the documents lie, in the same order to each other as in the tree, so that links hold.
const DOC: &str = "usr/share/doc/cinnabar";
const MANUAL: &str = "usr/share/man/man1";

/// Lays out all files below `files`.
pub(super) fn fill(package: &Package<'_>, files: &Path) -> Result<()> {
    let packaging = root().join("packaging");
    for (name, binary) in package.programs() {
        program(binary, &files.join("usr/bin").join(name))?;
    }
    let unit = fs::read_to_string(packaging.join("cinnabar.service")).context("the unit")?;
    let unit_folder = files.join("lib/systemd/system");
    folder(&unit_folder)?;
    write(&unit_folder.join("cinnabar.service"), &unit_of_package(&unit)?, 0o644)?;

    folder(&files.join("etc/cinnabar"))?;
    set_mode(&files.join("etc/cinnabar"), 0o750)?;
    let debian = packaging.join("debian");
    copy(&debian.join("cinnabar.toml"), &files.join("etc/cinnabar/cinnabar.toml"), 0o644)?;
    let overrides = files.join("usr/share/lintian/overrides");
    folder(&overrides)?;
    copy(&debian.join("lintian-overrides"), &overrides.join("cinnabar"), 0o644)?;
    let shared = files.join("usr/share/cinnabar");
    folder(&shared)?;
    for name in ["grafana-dashboard.json", "prometheus-rules.yml"] {
        copy(&packaging.join(name), &shared.join(name), 0o644)?;
    }
    for (name, binary) in package.programs() {
        manual(binary, files)?;
        completions(name, binary, files)?;
    }
    for page in entries(&files.join(MANUAL))? {
        compress(&page)?;
    }
    documents(package, &files.join(DOC))
}

/// A program, without symbols, which would be most of it.
fn program(binary: &Path, path: &Path) -> Result<()> {
    folder(path.parent().expect("it lies in a folder"))?;
    copy(binary, path, 0o755)?;
    if find("strip").is_none() {
        println!("no strip (package binutils): the program keeps its symbols");
        return Ok(());
    }
    let sections = ["--remove-section=.comment", "--remove-section=.note"];
    said(Command::new("strip").arg("--strip-unneeded").args(sections).arg(path)).map(drop)
}

/// The unit for the package's paths, without the words on how to install it by hand.
fn unit_of_package(unit: &str) -> Result<String> {
    let at = unit.find("[Unit]").context("the unit has no [Unit]")?;
    let text = unit[at..].replace("/usr/local/bin/", "/usr/bin/").replace(
        "file:///usr/local/share/doc/cinnabar/",
        "man:cinnabar(1) file:///usr/share/doc/cinnabar/docs/guide/",
    );
    ensure!(!text.contains("/usr/local"), "the unit names paths that the package does not have");
    ensure!(text.contains("ExecStart=/usr/bin/cinnabar "), "the unit starts something else");
    Ok(format!(
        "# Cinnabar under systemd. Changes: systemctl edit cinnabar\n#\n\
         # An upgrade of the package leaves the daemon alone: systemctl restart cinnabar changes over.\n\n{text}"
    ))
}

/// One page for the program and one for each command.
fn manual(binary: &Path, files: &Path) -> Result<()> {
    let pages = files.join(MANUAL);
    folder(&pages)?;
    said(Command::new(binary).arg("man").arg(&pages)).map(drop)
}

fn completions(name: &str, binary: &Path, files: &Path) -> Result<()> {
    for (shell, path) in [
        ("bash", format!("usr/share/bash-completion/completions/{name}")),
        ("zsh", format!("usr/share/zsh/vendor-completions/_{name}")),
        ("fish", format!("usr/share/fish/vendor_completions.d/{name}.fish")),
    ] {
        let script = said(Command::new(binary).args(["completions", shell]))?;
        let path = files.join(path);
        folder(path.parent().expect("it lies in a folder"))?;
        write(&path, &(script + "\n"), 0o644)?;
    }
    Ok(())
}

/// The guide, the design pages it names, what changed, and under which licence it is.
fn documents(package: &Package<'_>, doc: &Path) -> Result<()> {
    for part in ["docs/guide", "docs/design"] {
        folder(&doc.join(part))?;
        for page in entries(&root().join(part))? {
            let name = page.file_name().expect("an entry has a name");
            copy(&page, &doc.join(part).join(name), 0o644)?;
        }
    }
    copy(&root().join("CHANGELOG.md"), &doc.join("CHANGELOG.md"), 0o644)?;
    let copyright = fs::read_to_string(root().join("packaging/debian/copyright"))?;
    let mit = fs::read_to_string(root().join("LICENSE-MIT")).context("LICENSE-MIT")?;
    // From the first line behind the copyright on, as a field of several lines.
    let terms = mit.split_once("Permission").context("LICENSE-MIT grants nothing")?.1;
    let terms = format!("Permission{terms}");
    let terms: Vec<String> = terms
        .trim_end()
        .lines()
        .map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") })
        .collect();
    let copyright = format!("{copyright}License: MIT\n{}\n", terms.join("\n"));
    write(&doc.join("copyright"), &copyright, 0o644)?;

    let date = said(Command::new("date").args(["-R", "-u", "-d", &format!("@{}", package.epoch)]))?;
    let (version, maintainer) = (&package.args.version, &package.args.maintainer);
    let text = format!(
        "cinnabar ({version}) unstable; urgency=medium\n\n  * What changed: /usr/share/doc/cinnabar/CHANGELOG.md\n\n \
         -- {maintainer}  {date}\n"
    );
    write(&doc.join("changelog"), &text, 0o644)?;
    compress(&doc.join("changelog"))
}

/// `md5sums` of all files, and how many bytes they take.
pub(super) fn sums(files: &Path) -> Result<(String, u64)> {
    let (mut text, mut bytes) = (String::new(), 0);
    for path in below(files)? {
        bytes += path.metadata()?.len().next_multiple_of(4096);
        let name = path.strip_prefix(files).context("it lies below")?;
        // Configuration files are compared otherwise.
        if !name.starts_with("etc") {
            text += &said(Command::new("md5sum").arg(name).current_dir(files))?;
            text.push('\n');
        }
    }
    Ok((text, bytes))
}

/// All files below a folder, by name.
fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            files.extend(below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// What is in a folder, by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = read.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Compresses a file in its place, without its name and time.
fn compress(path: &Path) -> Result<()> {
    said(Command::new("gzip").args(["-9", "-n", "-f"]).arg(path))?;
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    set_mode(Path::new(&packed), 0o644)
}

/// Makes a folder that all may enter, and those above it.
pub(super) fn folder(path: &Path) -> Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    fs::create_dir_all(path).with_context(|| path.display().to_string())?;
    missing.into_iter().try_for_each(|path| set_mode(path, 0o755))
}

pub(super) fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())?;
    set_mode(path, mode)
}

pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    set_mode(to, mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_unit_becomes_the_package_s() {
        let shipped = fs::read_to_string(root().join("packaging/cinnabar.service")).expect("it is");
        let unit = unit_of_package(&shipped).expect("it is understood");
        assert!(unit.contains("\nExecStartPre=/usr/bin/cinnabar config check "), "{unit}");
        assert!(unit.contains("/usr/share/doc/cinnabar/docs/guide/index.md"), "{unit}");
        assert!(!unit.contains("install -m"), "{unit}");
        let lines = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(lines(&unit) >= lines(&shipped), "no setting is lost");
        assert!(unit_of_package("[Unit]\nExecStart=/usr/local/sbin/x\n").is_err());
    }
}
