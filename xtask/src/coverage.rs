//! Lines of the engine that each search reaches: `cargo xtask coverage`.
//!
//! The engine is built with `-C instrument-coverage`, and so are the test programs that link it; the
//! tools that read the counts are rustup's component `llvm-tools`. Lines are those that the simulator's
//! build of the engine has, so that the engine's own tests count for nothing.

use crate::shell::{cargo, root, show};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set where this program stands in for the compiler.
const WRAPPER: &str = "CINNABAR_COVERAGE_WRAPPER";
/// What is counted, and what stands before the names of its files.
const ENGINE: [(&str, &str); 4] = [
    ("crates/cinnabar-engine/src/", ""),
    ("crates/cinnabar-format/src/", "format/"),
    ("crates/cinnabar-seam/src/", "seam/"),
    ("crates/cinnabar-shards/src/", "shards/"),
];
/// Crates that are compiled with counters: the engine, its ground floor and its shards, the simulator
/// and the searches, where most of the engine's code is made for its payload, and the tests.
const COUNTED: [&str; 7] = [
    "cinnabar_engine",
    "cinnabar_format",
    "cinnabar_seam",
    "cinnabar_shards",
    "cinnabar_sim",
    "cinnabar_search",
    "it",
];

/// How long to search.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seeds of the fault simulation
    #[arg(long, default_value_t = 400)]
    seeds: u64,
    /// Seconds of the guided search, and of the exhaustive one
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Also print the lines that no search reaches
    #[arg(long)]
    uncovered: bool,
}

/// Files, and of each the lines that have code, and how often each ran.
type Lines = BTreeMap<String, BTreeMap<u32, u64>>;

/// A search: the packages and test to run, and with what.
struct Search {
    name: String,
    packages: &'static [&'static str],
    test: &'static str,
    env: Vec<(&'static str, String)>,
}

/// The compiler with counters, if this process was started in its place.
pub(crate) fn stand_in() -> Option<std::process::ExitCode> {
    std::env::var_os(WRAPPER)?;
    let mut words = std::env::args_os().skip(1);
    let compiler = words.next()?;
    let words: Vec<OsString> = words.collect();
    let name = words.iter().position(|word| word == "--crate-name");
    let name = name.and_then(|at| words.get(at + 1)).and_then(|name| name.to_str());
    let mut command = Command::new(compiler);
    command.args(&words);
    if name.is_some_and(|name| COUNTED.contains(&name)) {
        command.args(["-C", "instrument-coverage"]);
    }
    let status = command.status().ok()?;
    Some(std::process::ExitCode::from(
        status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
    ))
}

/// Runs each search and prints what it reached.
///
/// # Errors
/// When the tools are missing, or a search fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = tools()?;
    let folder = root().join("target/coverage");
    let mut reached: Vec<(String, Lines)> = Vec::new();
    for search in searches(args) {
        let lines = measure(&search, &tools, &folder)?;
        reached.push((search.name, lines));
    }
    let (scripted, searched) = reached.split_last().context("there are searches")?;
    let all = searched[0].1.clone();
    let total = count(&all, |_, _| true);
    let mut table = Table::new(&["search", "lines", "of", "%"]);
    let mut row = |name: &str, lines: usize| {
        let percent = 100.0 * lines as f64 / total.max(1) as f64;
        table.row(vec![name.into(), lines.to_string(), total.to_string(), format!("{percent:.1}")]);
    };
    for (name, lines) in &reached {
        row(name, count(&all, |file, line| ran(lines, file, line)));
    }
    let by_search =
        |file: &str, line: u32| searched.iter().any(|(_, lines)| ran(lines, file, line));
    row("all searches", count(&all, by_search));
    let by_any = |file: &str, line: u32| by_search(file, line) || ran(&scripted.1, file, line);
    row("all", count(&all, by_any));
    print!("{}", table.render());
    if args.uncovered {
        println!("\nreached by scripted tests only:");
        print_lines(&all, |file, line| !by_search(file, line) && by_any(file, line));
        println!("\nreached by nothing:");
        print_lines(&all, |file, line| !by_any(file, line));
    }
    Ok(())
}

fn searches(args: &Args) -> Vec<Search> {
    let seconds = args.seconds.to_string();
    let search = |name: String, packages, test, env| Search { name, packages, test, env };
    vec![
        search(
            format!("{} seeds", args.seeds),
            &["cinnabar-sim"],
            "faults::no_seed_breaks",
            vec![("CINNABAR_SEEDS", format!("0..{}", args.seeds))],
        ),
        search(
            format!("guided, corpus and {seconds} s"),
            &["cinnabar-search"],
            "small::inputs_made_of",
            vec![("CINNABAR_GUIDED_SECONDS", seconds.clone())],
        ),
        search(
            format!("exhaustive, {seconds} s"),
            &["cinnabar-search"],
            "small::every_order",
            vec![("CINNABAR_MOVES", "99".into()), ("CINNABAR_SECONDS", seconds)],
        ),
        Search {
            name: "scripted, the engine's and its shards' own tests".into(),
            packages: &["cinnabar-engine", "cinnabar-format", "cinnabar-seam", "cinnabar-shards"],
            test: "",
            env: Vec::new(),
        },
    ]
}

/// Builds and runs a search, and reads what it reached.
fn measure(search: &Search, tools: &Path, folder: &Path) -> Result<Lines> {
    let programs = build(search.packages)?;
    let counts = folder.join(search.test.replace("::", "_"));
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts).context("making the folder of counts")?;
    for program in &programs {
        let mut run = Command::new(program);
        run.args([search.test, "--nocapture"])
            .current_dir(root().join("crates").join(search.packages[0]));
        run.env("LLVM_PROFILE_FILE", counts.join("%p-%m.profraw"));
        run.envs(search.env.iter().map(|(name, value)| (name, value)));
        show(&mut run)?;
    }
    let raw = fs::read_dir(&counts)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let merged = counts.join("all.profdata");
    let mut merge = Command::new(tools.join("llvm-profdata"));
    merge.args(["merge", "--sparse", "-o"]).arg(&merged).args(raw);
    show(&mut merge)?;
    let mut export = Command::new(tools.join("llvm-cov"));
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged);
    for (number, program) in programs.iter().enumerate() {
        if number > 0 {
            export.arg("--object");
        }
        export.arg(program);
    }
    let export = export.output().context("starting llvm-cov")?;
    ensure!(export.status.success(), "llvm-cov: {}", String::from_utf8_lossy(&export.stderr));
    Ok(parse(&String::from_utf8_lossy(&export.stdout)))
}

/// The test programs of packages, with counters.
fn build(packages: &[&str]) -> Result<Vec<PathBuf>> {
    let mut command = cargo(&["test", "--locked", "--no-run", "--message-format=json"]);
    let programs =
        if packages[0] == "cinnabar-engine" { ["--lib", "--quiet"] } else { ["--test", "it"] };
    command.args(packages.iter().flat_map(|package| ["--package", package])).args(programs);
    let wrapper = std::env::current_exe().context("this program's own path")?;
    command.env("RUSTC_WORKSPACE_WRAPPER", wrapper).env(WRAPPER, "1");
    let packages = packages.join(" and ");
    println!("building the tests of {packages} with counters");
    let built = command.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(built.status.success(), "the tests of {packages} do not build");
    let text = String::from_utf8_lossy(&built.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter_map(|message| {
        let tests = message["profile"]["test"].as_bool().unwrap_or(false);
        message["executable"].as_str().filter(|_| tests).map(PathBuf::from)
    });
    Ok(programs.collect())
}

/// The folder of rustup's LLVM tools for the compiler in use.
fn tools() -> Result<PathBuf> {
    let ask = |args: &[&str]| -> Result<String> {
        let done = Command::new("rustc").args(args).current_dir(root()).output()?;
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let version = ask(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let sysroot = ask(&["--print", "sysroot"])?;
    let tools = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin");
    ensure!(
        tools.join("llvm-cov").exists(),
        "no llvm-cov in {}\nhint: rustup component add llvm-tools",
        tools.display()
    );
    Ok(tools)
}

/// The engine's files of an lcov report.
fn parse(report: &str) -> Lines {
    let mut lines = Lines::new();
    let mut file = None;
    for line in report.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let of = |(folder, before): (&str, &str)| {
                path.split_once(folder).map(|(_, name)| format!("{before}{name}"))
            };
            file = ENGINE.into_iter().find_map(of);
        } else if let (Some(data), Some(file)) = (line.strip_prefix("DA:"), &file) {
            let mut numbers = data.split(',').map_while(|number| number.parse::<u64>().ok());
            if let (Some(line), Some(count)) = (numbers.next(), numbers.next()) {
                *lines.entry(file.clone()).or_default().entry(line as u32).or_default() += count;
            }
        }
    }
    lines
}

fn ran(lines: &Lines, file: &str, line: u32) -> bool {
    lines.get(file).and_then(|lines| lines.get(&line)).is_some_and(|count| *count > 0)
}

fn count(all: &Lines, wanted: impl Fn(&str, u32) -> bool) -> usize {
    let of = |(file, lines): (&String, &BTreeMap<u32, u64>)| {
        lines.keys().filter(|line| wanted(file, **line)).count()
    };
    all.iter().map(of).sum()
}

fn print_lines(all: &Lines, wanted: impl Fn(&str, u32) -> bool) {
    for (file, lines) in all {
        let some: BTreeSet<u32> =
            lines.keys().copied().filter(|line| wanted(file, *line)).collect();
        if !some.is_empty() {
            println!("{file}: {}", ranges(&some));
        }
    }
}

/// Numbers as ranges.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match all.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => all.push((number, number)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    all.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{count, parse, ran, ranges};

    #[test]
    fn lines_of_the_engine_are_counted_once() {
        let report = "SF:/x/crates/cinnabar-engine/src/a.rs\nDA:1,2\nDA:2,0\nend_of_record\n\
            SF:/x/crates/cinnabar-sim/src/b.rs\nDA:1,1\nend_of_record\n";
        let lines = parse(report);
        assert_eq!(count(&lines, |_, _| true), 2);
        assert_eq!(count(&lines, |file, line| ran(&lines, file, line)), 1);
    }

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(ranges(&[1, 2, 3, 7].into()), "1-3, 7");
    }
}
