//! Curves, exact and sampled, what samples get wrong, and dividing a cache.
//!
//! Errors and gaps are those of tests, which hold them to their bars: the tables here are what these
//! tests print.

use super::{Bench, Measured, met, numbers};
use crate::bench::baseline::dram_read_ns;
use crate::shell::{cargo, show};
use crate::table::Table;
use anyhow::{Result, ensure};
use std::process::Command;

/// References of the sampled analysis, in millions.
const MILLIONS: &str = "100";
const DIVIDE_MS_MAX: f64 = 5.0;

/// Curves: bars in millions of references a second.
pub(super) fn curves(bench: &Bench) -> Result<String> {
    let mut table =
        Table::new(&["curves", "M ref/s", "bar", "", "peak MiB", "references", "DRAM read ns"]);
    let mut row = |what: String, words: &[&str], bar: Option<f64>| -> Result<()> {
        eprintln!("{what}");
        let dram_ns = dram_read_ns();
        let mut best: Option<Measured> = None;
        for _ in 0..bench.rounds {
            let [references, seconds, peak_kib] = numbers(&mut bench.command(words))?;
            let new = Measured { misses: 0.0, references, seconds, peak_kib };
            best = Some(best.filter(|old| old.seconds < seconds).unwrap_or(new));
        }
        let best = best.expect("a round at least");
        table.row(vec![
            what,
            format!("{:.1}", best.rate()),
            bar.map_or_else(|| "-".into(), |bar| format!(">= {bar}")),
            bar.map_or_else(String::new, |bar| met(best.rate() >= bar)),
            format!("{:.0}", best.peak_mib()),
            best.references.to_string(),
            format!("{dram_ns:.0}"),
        ]);
        Ok(())
    };
    for (name, path) in &bench.traces {
        let path = path.to_string_lossy();
        let bars = if name == "cp_vscsi" { [Some(6.0), Some(2.0)] } else { [None, None] };
        row(format!("{name}, write-back, exact"), &["curves", "write-back", &path], bars[0])?;
        row(format!("{name}, all, exact"), &["curves", "all", &path], bars[1])?;
    }
    row("all, sampled, 1 %".to_owned(), &["sampled", "rate", MILLIONS], Some(80.0))?;
    row("all, sampled, 8192 blocks".to_owned(), &["sampled", "size", MILLIONS], None)?;
    Ok("Curves of all sizes; references in memory, keys looked up\n\n".to_owned() + &table.render())
}

/// What the test of sampled curves prints.
pub(super) fn errors() -> Result<String> {
    let printed = test("cinnabar-study", "a_sample_of_8192_blocks_has_the_curves_of_all")?;
    let mut rows = printed.lines().filter(|line| line.matches(" | ").count() == 4);
    let cells = |row: &str| row.split(" | ").map(str::to_owned).collect::<Vec<_>>();
    let header = cells(rows.next().unwrap_or_default());
    ensure!(header.len() == 5, "the test prints a table: {printed}");
    let mut table = Table::new(&header);
    rows.for_each(|row| table.row(cells(row)));
    let what = "Sampled curves, 8192 blocks, against exact ones at 100 sizes, five seeds";
    Ok(format!("{what} (bar: median at most 0.01)\n\n{}", table.render()))
}

/// Dividing a cache, and how far from the exact programme.
pub(super) fn dividing(bench: &Bench) -> Result<String> {
    let mut best = [f64::INFINITY; 2];
    for _ in 0..bench.rounds {
        let found: [f64; 2] = numbers(&mut bench.command(&["divide"]))?;
        best = [best[0].min(found[0]), best[1].min(found[1])];
    }
    let printed = test("cinnabar-policy", "hull_and_lookahead_are_next_to_the_exact_programme")?;
    let gaps = printed.lines().find(|line| line.starts_with("worst gap"));
    ensure!(gaps.is_some(), "the test prints the gaps: {printed}");
    Ok(format!(
        "Dividing 1024 units among 16 volumes: {:.2} ms on average, {:.2} ms at most (bar: {} ms: {}).\n\
         Below the exact programme, 200 random instances (bar: 0.002): {}.\n",
        best[0],
        best[1],
        DIVIDE_MS_MAX,
        met(best[1] < DIVIDE_MS_MAX),
        gaps.unwrap_or_default(),
    ))
}

/// Runs a test for what it prints; it must be there and succeed.
fn test(package: &str, name: &str) -> Result<String> {
    let run = ["test", "--profile", "dist", "--locked", "--package", package, "--test", "it"];
    // Building may take longer than a program has for its answer.
    show(cargo(&run).arg("--no-run"))?;
    let mut command: Command = cargo(&run);
    command.args(["--", name, "--nocapture", "--test-threads", "1"]);
    let printed = e2e::output(&mut command)?;
    ensure!(printed.contains("1 passed"), "{name} is a test of {package}: {printed}");
    // What it prints first comes behind its name, in the same line.
    Ok(printed.replace(" ... ", "\n"))
}
