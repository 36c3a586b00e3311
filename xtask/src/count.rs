//! `cargo xtask count`: how large the house is, crate by crate, as a table.

use crate::modules::{Modules, collect};
use crate::shell::root;
use crate::source::Source;
use crate::table::Table;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// What to count.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Another checkout of the repository [default: this one]
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
}

/// A crate in numbers.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// Of all files: sources, tests, examples, benchmarks.
    lines: usize,
    /// Of what production compiles.
    own_lines: usize,
    files: usize,
    functions: usize,
    asserts: usize,
    circles: usize,
    /// Modules in those circles.
    in_circles: usize,
}

/// What may not grow.
pub(crate) struct Sizes {
    pub(crate) crates: usize,
    pub(crate) own_lines: usize,
}

/// Sizes of a checkout.
///
/// # Errors
/// When a source can't be read.
pub(crate) fn sizes(tree: &Path) -> Result<Sizes> {
    let folders = crates(tree)?;
    let mut own_lines = 0;
    for folder in &folders {
        own_lines += Counted::of(folder)?.own_lines;
    }
    Ok(Sizes { crates: folders.len(), own_lines })
}

/// Counts and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tree = args.tree.clone().unwrap_or_else(|| root().to_owned());
    let mut heading = vec!["crate", "lines", "without tests", "files", "functions", "asserts"];
    heading.extend(["asserts/function", "circles", "modules in them"]);
    let mut table = Table::new(&heading);
    let mut all = Counted::default();
    for folder in crates(&tree)? {
        let counted = Counted::of(&folder)?;
        all = all.plus(&counted);
        let name = folder.strip_prefix(&tree).unwrap_or(&folder);
        table.row(counted.row(&name.display().to_string()));
    }
    table.row(all.row("all"));
    print!("{}", table.render());
    Ok(())
}

impl Counted {
    fn of(folder: &Path) -> Result<Self> {
        let modules = Modules::read(&folder.join("src"))?;
        let mut counted = Self::default();
        for source in modules.sources.values() {
            counted.own_lines += source.lines - source.test_lines;
            counted.files += 1;
            counted.functions += source.functions();
            counted.asserts += source.asserts();
        }
        let circles = modules.circles();
        counted.circles = circles.len();
        counted.in_circles = circles.iter().map(Vec::len).sum();
        let mut files = Vec::new();
        for part in ["src", "tests", "clients", "examples", "benches"] {
            let part = folder.join(part);
            if part.is_dir() {
                collect(&part, &mut files)?;
            }
        }
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            counted.lines += Source::of(&text).lines;
        }
        Ok(counted)
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            lines: self.lines + other.lines,
            own_lines: self.own_lines + other.own_lines,
            files: self.files + other.files,
            functions: self.functions + other.functions,
            asserts: self.asserts + other.asserts,
            circles: self.circles + other.circles,
            in_circles: self.in_circles + other.in_circles,
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let a_function = self.asserts as f64 / self.functions.max(1) as f64;
        let mut row = vec![name.to_owned()];
        let counts = [self.lines, self.own_lines, self.files, self.functions, self.asserts];
        row.extend(counts.map(|count| count.to_string()));
        row.push(format!("{a_function:.2}"));
        row.extend([self.circles, self.in_circles].map(|count| count.to_string()));
        row
    }
}

/// Folders with a crate: below `crates/`, and the tools beside it.
pub(crate) fn crates(tree: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    let crates = tree.join("crates");
    for entry in fs::read_dir(&crates).with_context(|| format!("{}", crates.display()))? {
        folders.push(entry?.path());
    }
    folders.sort();
    folders.extend(["xtask", "tests", "tests/loadgen"].map(|name| tree.join(name)));
    folders.retain(|folder| folder.join("src").is_dir());
    Ok(folders)
}
