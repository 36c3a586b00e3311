//! A benchmark of this tree against the same benchmark of an earlier commit, in turns.
//!
//! The earlier commit is checked out and built beside this one, with its own benchmark program, so
//! that formats on the disk may differ. Which of the two goes first changes with each round.

mod figures;

use crate::bench::{heading, median, publish};
use crate::shell::{root, succeeds};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use figures::Figures;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Commit to compare with
    #[arg(long, value_name = "COMMIT")]
    base: String,
    /// Rounds: each runs the benchmark once in both trees; the median of each figure counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Figures whose names hold this text only [default: all]
    #[arg(long, value_name = "TEXT", hide_default_value = true)]
    only: Option<String>,
    /// Write the table to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
    /// The benchmark and its arguments, as `cargo xtask bench` takes them
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    bench: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds must be at least 1");
    let base = checkout(&args.base)?;
    let trees = [base.as_path(), root()];
    let mut rounds: [Vec<Figures>; 2] = Default::default();
    for round in 0..args.rounds {
        for turn in 0..2 {
            let side = (round + turn) % 2;
            let name = ["base", "this tree"][side];
            eprintln!("round {} of {}, {name}", round + 1, args.rounds);
            let said = measure(trees[side], &args.bench).with_context(|| format!("in {name}"))?;
            rounds[side].push(figures::read(&said));
        }
    }
    let what = format!(
        "`bench {}`, base {} against this tree, median of {} rounds in turns",
        args.bench.join(" "),
        args.base,
        args.rounds
    );
    let text = format!("{}\n{}", heading(&what)?, report(&rounds, args.only.as_deref()));
    publish(&text, args.output.as_deref())
}

/// The commit's own tree under `target`, made if it is not there yet.
fn checkout(commit: &str) -> Result<PathBuf> {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).current_dir(root());
        command
    };
    let name = e2e::output(&mut git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")]))
        .with_context(|| format!("{commit} is no commit of this repository"))?;
    let name = name.trim();
    let tree = root().join("target/compare").join(&name[..name.len().min(12)]);
    if tree.join("Cargo.toml").exists() {
        return Ok(tree);
    }
    let path = tree.to_str().context("the workspace's path is not UTF-8")?;
    // A folder that was deleted by hand is still in git's list.
    let _ = succeeds(&mut git(&["worktree", "prune"]));
    ensure!(
        succeeds(&mut git(&["worktree", "add", "--detach", path, name])),
        "git can't check {name} out to {path}"
    );
    Ok(tree)
}

/// Runs the benchmark in a tree and returns what it printed.
fn measure(tree: &Path, bench: &[String]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["run", "--quiet", "--locked", "--release", "--package", "xtask", "--", "bench"])
        .args(bench)
        .current_dir(tree)
        // Programs named here would be measured in place of both trees'.
        .env_remove("CINNABAR_BIN")
        .env_remove("CINNABAR_LAB_BIN")
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(done.status.success(), "the benchmark failed ({}):\n{said}", done.status);
    Ok(said)
}

/// A row for each figure that both trees print, in this tree's order. The change is the median of
/// the rounds' own ratios, so that a machine that slows down meanwhile does not show as one.
fn report(rounds: &[Vec<Figures>; 2], only: Option<&str>) -> String {
    let mut table = Table::new(&["figure", "base", "this tree", "change", "rounds"]);
    let values = |side: usize, name: &str| -> Vec<f64> {
        let value = |figures: &Figures| {
            figures.iter().find(|((_, other), _)| other == name).map(|(_, value)| *value)
        };
        rounds[side].iter().filter_map(value).collect()
    };
    let first = rounds[1].first().into_iter().flat_map(Figures::keys);
    for (_, name) in first.filter(|(_, name)| only.is_none_or(|text| name.contains(text))) {
        let [base, this] = [values(0, name), values(1, name)];
        let is_in_all = base.len() == rounds[0].len() && this.len() == rounds[1].len();
        // A constant says nothing: sizes, counts of rounds, bars.
        if !is_in_all || base.iter().chain(&this).all(|value| value.to_bits() == base[0].to_bits())
        {
            continue;
        }
        let mut ratios: Vec<f64> = base.iter().zip(&this).map(|(base, this)| this / base).collect();
        let change = (median(ratios.clone()) - 1.0) * 100.0;
        ratios.sort_by(f64::total_cmp);
        let each: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        table.row(vec![
            name.clone(),
            number(median(base)),
            number(median(this)),
            format!("{change:+.1} %"),
            each.join(" "),
        ]);
    }
    table.render()
}

fn number(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::{figures, report};

    #[test]
    fn the_change_is_of_the_same_round_and_constants_are_left_out() {
        let run = |text: &str| figures::read(text);
        let rounds = [
            vec![run("8 reads, 100 ns"), run("8 reads, 200 ns"), run("8 reads, 100 ns")],
            vec![run("8 reads, 110 ns"), run("8 reads, 220 ns"), run("8 reads, 110 ns")],
        ];
        let text = report(&rounds, None);
        assert!(text.contains("+10.0 %"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(report(&rounds, Some("IOPS")).lines().count(), 2);
    }
}
