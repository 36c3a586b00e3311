//! House rules that no other tool checks: lengths, module headers, words, links, the map.

use crate::ratchet;
use crate::shell::root;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file; few come near.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, blank ones and comments not counted.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of ARCHITECTURE.md.
const ARCHITECTURE_LINES_MAX: usize = 200;

/// What must not stand in source code. Written in two halves, so that this file passes.
const BANNED_CODE: &[&str] = &[
    concat!(".unwr", "ap()"),
    concat!("tod", "o!("),
    concat!("unimplem", "ented!("),
    concat!("db", "g!("),
    concat!("#[ign", "ore]"),
];
/// What must not stand anywhere: notes to self, paths of one machine, paths out of the tree.
const BANNED_TEXT: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("TB", "D"),
    concat!("/ho", "me/"),
    concat!("../sha", "red"),
];

/// Checks the whole tree.
pub(crate) fn check() -> Result<()> {
    let mut files = Vec::new();
    collect(root(), &mut files)?;
    let mut wrong = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
        let found = match file.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => [source(&text), words(&text)].concat(),
            Some("md") => [links(file, &text), words(&text)].concat(),
            _ => words(&text),
        };
        let found = [found, leaves(Path::new(&name), &text)].concat();
        wrong.extend(found.into_iter().map(|what| format!("{name}: {what}")));
    }
    wrong.extend(architecture()?);
    wrong.extend(ratchet::check()?);
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!("{} files are tidy", files.len());
    Ok(())
}

/// The project's text files below `folder`.
pub(crate) fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let skip = ["target", "corpus", "artifacts", "node_modules"];
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_symlink() || name.starts_with('.') || skip.contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else if [".rs", ".md", ".toml", ".yml"].iter().any(|end| name.ends_with(end)) {
            files.push(path);
        }
    }
    Ok(())
}

fn source(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        wrong.push(format!("{lines} lines, more than {FILE_LINES_MAX}"));
    }
    if !text.starts_with("//!") && !text.starts_with("#![no_main]") {
        wrong.push("does not begin with //! (what it is for, who calls it)".into());
    }
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        for banned in BANNED_CODE.iter().filter(|banned| code.contains(**banned)) {
            wrong.push(format!("line {}: {banned}", number + 1));
        }
    }
    wrong.extend(long_functions(text));
    wrong
}

/// Functions that are too long, found by their indentation, which rustfmt guarantees.
fn long_functions(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (first, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let is_function = !code.starts_with("//")
            && (code.starts_with("fn ") || code.contains(" fn "))
            && (code.starts_with("pub")
                || code.starts_with("fn ")
                || code.starts_with("unsafe ")
                || code.starts_with("const ")
                || code.starts_with("async "));
        if !is_function || code.ends_with('}') || code.ends_with(';') {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let stop = format!("{};", &line[..line.len() - code.len()]);
        // A declaration over several lines: of a trait, or of another language's.
        let close = format!("{})", &line[..line.len() - code.len()]);
        let declared = |line: &str| line.starts_with(&close) && line.ends_with(';');
        let body = lines[first..]
            .iter()
            .take_while(|line| **line != end && **line != stop && !declared(line));
        let count = body
            .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//"))
            .count();
        if count > FUNCTION_LINES_MAX {
            let max = FUNCTION_LINES_MAX;
            wrong.push(format!("line {}: a function of {count} lines, more than {max}", first + 1));
        }
    }
    wrong
}

/// Words that must not stand anywhere.
fn words(text: &str) -> Vec<String> {
    let checkout = root().display().to_string();
    text.lines()
        .enumerate()
        .flat_map(|(number, line)| {
            BANNED_TEXT
                .iter()
                .copied()
                .chain([checkout.as_str()])
                .filter(|banned| line.contains(banned))
                .map(move |banned| format!("line {}: {banned}", number + 1))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Paths that lead out of the tree, from the folder of the file `name`.
fn leaves(name: &Path, text: &str) -> Vec<String> {
    let depth = name.components().count() - 1;
    let out = "../".repeat(depth + 1);
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| line.contains(&out))
        .map(|(number, _)| format!("line {}: a path out of the tree", number + 1))
        .collect()
}

/// Relative links of a document that lead nowhere.
fn links(file: &Path, text: &str) -> Vec<String> {
    let folder = file.parent().unwrap_or(root());
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains(':') && !target.contains(' '))
        .filter(|target| !folder.join(target).exists())
        .map(|target| format!("link to {target}, which is not there"))
        .collect()
}

/// The map names each crate, and stays short.
fn architecture() -> Result<Vec<String>> {
    let name = "ARCHITECTURE.md";
    let Ok(text) = fs::read_to_string(root().join(name)) else {
        return Ok(vec![format!("{name} is missing")]);
    };
    let mut wrong = Vec::new();
    let lines = text.lines().count();
    if lines > ARCHITECTURE_LINES_MAX {
        wrong.push(format!("{name}: {lines} lines, more than {ARCHITECTURE_LINES_MAX}"));
    }
    for entry in fs::read_dir(root().join("crates"))? {
        let folder = entry?.file_name();
        let folder = folder.to_string_lossy();
        if !text.contains(&*folder) {
            wrong.push(format!("{name}: does not name the crate {folder}"));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::{FUNCTION_LINES_MAX, leaves, links, root, source, words};
    use std::path::Path;

    #[test]
    fn finds_what_is_banned() {
        let code = format!("//! Doc.\nfn a() {{ b(){} }}\n", concat!(".unwr", "ap()"));
        assert_eq!(source(&code).len(), 1);
        assert!(source("//! Doc.\n// never .unwrap\nfn a() {}\n").is_empty());
        assert_eq!(source("fn a() {}\n").len(), 1, "no module header");
        assert_eq!(words(concat!("a FIX", "ME")).len(), 1);
        assert_eq!(words(&format!("see {}/x", root().display())).len(), 1);
    }

    #[test]
    fn finds_long_functions() {
        let function =
            |lines: usize| format!("//! Doc.\nfn a() {{\n{}}}\n", "    b();\n".repeat(lines));
        assert!(source(&function(FUNCTION_LINES_MAX - 1)).is_empty());
        assert_eq!(source(&function(FUNCTION_LINES_MAX)).len(), 1);
        let declared = "unsafe extern \"C\" {\n    fn a(\n        b: u8,\n    ) -> u8;\n";
        let long = format!("//! Doc.\n{declared}{}}}\n", "    // c\n    d!();\n".repeat(90));
        assert!(source(&long).is_empty(), "a declaration has no body");
    }

    #[test]
    fn finds_paths_out_of_the_tree() {
        let out = concat!("[a](..", "/../b)");
        assert_eq!(leaves(Path::new("docs/a.md"), out).len(), 1);
        assert!(leaves(Path::new("docs/guide/a.md"), out).is_empty());
        assert_eq!(words(concat!("join(\"../sha", "red/traces\")")).len(), 1);
    }

    #[test]
    fn finds_broken_links() {
        let readme = root().join("README.md");
        assert!(links(&readme, "[a](Cargo.toml) [b](https://example.org) [c](#here)").is_empty());
        assert_eq!(links(&readme, "[a](nowhere.md)").len(), 1);
    }
}
