//! The modules of a crate, who names whom, and the circles among them.
//!
//! A module is a file. What a module and its own submodules name of each other is not looked at: a
//! folder is one room. Names that a module hands on (`pub use`) count for where they come from.

use crate::source::{Source, is_word};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's name within its crate, the root's is empty.
pub(crate) type Name = Vec<String>;

/// A crate's modules that production compiles, and its files that only tests do.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    pub(crate) sources: BTreeMap<Name, Source>,
    /// Lines of files that only tests compile.
    pub(crate) test_lines: usize,
}

impl Modules {
    /// Reads the modules below `folder`, a crate's `src`.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut files = Vec::new();
        collect(folder, &mut files)?;
        let mut modules = Self::default();
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            let name = name_of(file.strip_prefix(folder).unwrap_or(&file));
            modules.sources.insert(name, Source::of(&text));
        }
        modules.leave_tests_out();
        Ok(modules)
    }

    /// Moves modules that only tests compile, and those below them, out of the way.
    fn leave_tests_out(&mut self) {
        let mut tests = BTreeSet::new();
        for (name, source) in &self.sources {
            let below = |test: &String| [name.as_slice(), std::slice::from_ref(test)].concat();
            tests.extend(source.test_modules.iter().map(below));
        }
        let is_test = |name: &Name| tests.iter().any(|test| name.starts_with(test));
        let lines = |(_, source): (&Name, &Source)| source.lines;
        self.test_lines = self.sources.iter().filter(|one| is_test(one.0)).map(lines).sum();
        self.sources.retain(|name, _| !is_test(name));
    }

    /// Groups of modules that name each other in a circle.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let edges: BTreeMap<&Name, BTreeSet<&Name>> =
            self.sources.keys().map(|name| (name, self.named_by(name))).collect();
        let reached: BTreeMap<&Name, BTreeSet<&Name>> =
            edges.keys().map(|name| (*name, reachable(&edges, name))).collect();
        let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
        for (name, from_here) in &reached {
            let back = |other: &&&Name| reached[**other].contains(name);
            let circle: Vec<String> =
                from_here.iter().filter(back).map(|name| name.join("::")).collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// The modules that a module names, but for those above and below it.
    fn named_by(&self, name: &Name) -> BTreeSet<&Name> {
        let paths = paths(&self.sources[name].tokens);
        let found = paths.iter().filter_map(|path| self.target(name, path, 0));
        found.filter(|other| !other.starts_with(name) && !name.starts_with(other)).collect()
    }

    /// The module that a path leads to, as written in module `from`.
    fn target(&self, from: &Name, path: &[String], depth: usize) -> Option<&Name> {
        let (mut at, mut rest) = (from.clone(), path);
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Name::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some(("super", more)) = rest.split_first().map(|(a, b)| (a.as_str(), b)) {
                    at.pop()?;
                    rest = more;
                }
            }
            _ => {}
        }
        while let Some((next, more)) = rest.split_first() {
            let below = [at.as_slice(), std::slice::from_ref(next)].concat();
            if !self.sources.contains_key(&below) {
                break;
            }
            (at, rest) = (below, more);
        }
        // Handed on from elsewhere?
        if let Some(name) = rest.first().filter(|_| depth < 4 && at != *from) {
            let handed = paths(&self.sources.get(&at)?.tokens);
            let by_name = handed.iter().find(|path| path.len() > 1 && path.last() == Some(name));
            if let Some(path) = by_name
                && let Some(found) = self.target(&at, path, depth + 1)
            {
                return Some(found);
            }
        }
        self.sources.get_key_value(&at).filter(|_| rest.len() < path.len()).map(|(name, _)| name)
    }
}

fn reachable<'a>(
    edges: &BTreeMap<&'a Name, BTreeSet<&'a Name>>,
    from: &'a Name,
) -> BTreeSet<&'a Name> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(name) = open.pop() {
        open.extend(edges[name].iter().filter(|next| found.insert(**next)));
    }
    found
}

/// Paths of two names and more: those of `use`, one a name, and those in between.
fn paths(tokens: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = is_word(&tokens[at]) && tokens.get(at + 1).is_some_and(|next| next == "::");
        if begins { at = tree(tokens, at, &[], &mut found) } else { at += 1 }
    }
    found
}

/// Reads the path at `at`, with all branches of its braces; says where it ends.
fn tree(tokens: &[String], mut at: usize, stem: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = stem.to_vec();
    while let Some(token) = tokens.get(at) {
        if is_word(token) {
            path.push(token.clone());
            at += 1;
            if tokens.get(at).is_some_and(|next| next == "::") {
                at += 1;
                continue;
            }
        } else if token == "{" && !path.is_empty() {
            at += 1;
            while tokens.get(at).is_some_and(|token| token != "}") {
                let next = tree(tokens, at, &path, found);
                at = next.max(at + 1);
            }
            return at + 1;
        }
        break;
    }
    found.push(path);
    at
}

/// `engine/mod.rs` is `engine`, `engine/read.rs` is `engine::read`.
fn name_of(file: &Path) -> Name {
    let stem = file.with_extension("");
    let parts = stem.iter().map(|part| part.to_string_lossy().into_owned());
    let mut name: Name = parts.collect();
    let last = name.last().map(String::as_str);
    if last == Some("mod") || (name.len() == 1 && matches!(last, Some("lib" | "main"))) {
        name.pop();
    }
    name
}

/// The Rust files below `folder`.
pub(crate) fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let one = |(file, text): &(&str, &str)| (name_of(Path::new(file)), Source::of(text));
        let mut modules = Modules { sources: files.iter().map(one).collect(), test_lines: 0 };
        modules.leave_tests_out();
        modules
    }

    #[test]
    fn siblings_make_circles_and_a_folder_does_not() {
        let found = modules(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::Two;"),
            ("b.rs", "pub struct Two; fn f() { super::c::three() }"),
            ("c.rs", "use super::{d::Four, a::{One, Other}};"),
            ("d/mod.rs", "mod e; use e::Five;"),
            ("d/e.rs", "use super::Four;"),
        ]);
        assert_eq!(found.circles(), [["a", "b", "c"]]);
    }

    #[test]
    fn names_that_are_handed_on_count_where_they_are_from() {
        let found = modules(&[
            ("lib.rs", "mod a; mod b; pub use b::Two;"),
            ("a.rs", "use crate::Two;"),
            ("b.rs", "#[cfg(test)] mod tests; use crate::a::One;"),
            ("b/tests.rs", "use crate::a::One;"),
        ]);
        assert_eq!(found.circles(), [["a", "b"]]);
        assert_eq!(found.test_lines, 1);
    }
}
