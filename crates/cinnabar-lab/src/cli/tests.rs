//! The command line: its shape, its help.

use super::Cli;
use cinnabar_text::cli::told::assert_told;
use clap::{CommandFactory, Parser};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split(' '))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn what_is_promised_is_understood() {
    for line in [
        "cinnabar-lab simulate faults --seeds 10 --first 7 --jobs 2 --all-kinds --json",
        "cinnabar-lab simulate faults --seed 4711",
        "cinnabar-lab simulate holland --list --json",
        "cinnabar-lab simulate holland --experiment policies,ram --scale 16 --seed 7 --jobs 2 --out d",
        "cinnabar-lab trace info a.csv b.csv.zst --volumes all --format msr --window 0 --json",
        "cinnabar-lab trace head - -n 5 --volume hm_0 --json",
        "cinnabar-lab trace convert a --out b --to fio2 --volume 1 --volume 2 --from 1h --until 2h --json",
        "cinnabar-lab trace generate zipf --out z.csv --alpha 1.1 --block-sizes 4KiB:1,64KiB:2 --rate 9.5",
        "cinnabar-lab trace generate file-server --out f.csv --files --run 128KiB --private --volumes host",
        "cinnabar-lab trace generate desktop --out d.zst --days 7 --seed 3 --day-length 1h --json",
        "cinnabar-lab trace generate spc1 --out s.zst --bsu 10 --ios 100000 --mix spc1 --asu1-size 9GiB",
        "cinnabar-lab bench replay t.csv --target a --target nbd:unix:b.sock --wrap --speed 10 --json",
        "cinnabar-lab bench replay t.csv --target a --closed --depth 4 --cache c --warm none,0,1,2,3",
        "cinnabar-lab demo-load d",
        "cinnabar-lab version --json",
        "cinnabar-lab completions zsh",
        "cinnabar-lab man d",
    ] {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "cinnabar-lab",
        "cinnabar-lab simulate",
        "cinnabar-lab simulate faults --seeds 0",
        "cinnabar-lab simulate faults --seeds -1",
        "cinnabar-lab simulate faults --jobs 0",
        "cinnabar-lab simulate faults --seed 1 --first 1",
        "cinnabar-lab simulate holland",
        "cinnabar-lab simulate holland --list --out d",
        "cinnabar-lab simulate holland --out d --scale 0",
        "cinnabar-lab simulate holland --out d --scale 2048",
        "cinnabar-lab simulate holland --out d --experiment ram,cache",
        "cinnabar-lab trace generate",
        "cinnabar-lab trace generate desktop",
        "cinnabar-lab trace generate desktop --out d.zst --disk-size 40G",
        "cinnabar-lab trace generate desktop --out d.zst --day-length 5",
        "cinnabar-lab trace generate spc1 --out s.zst --mix spc2",
        "cinnabar-lab trace info",
        "cinnabar-lab trace info a.csv --volumes some",
        "cinnabar-lab trace info a.csv --format nope",
        "cinnabar-lab trace head",
        "cinnabar-lab trace head a.csv -n -1",
        "cinnabar-lab trace convert a.csv",
        "cinnabar-lab trace convert a.csv --out b --to msr",
        "cinnabar-lab trace generate zipf --out z.csv --block-sizes 4KiB",
        "cinnabar-lab trace generate spc1 --out s.zst --ios -1",
        "cinnabar-lab bench replay t.csv",
        "cinnabar-lab bench replay --target a",
        "cinnabar-lab bench replay t.csv --target a --warm 1,x",
        "cinnabar-lab bench replay t.csv --target a --speed 0",
        "cinnabar-lab bench replay t.csv --target a --speed nan",
        "cinnabar-lab bench replay t.csv --target a --depth 4",
        "cinnabar-lab bench replay t.csv --target a --closed --depth 0",
        "cinnabar-lab bench replay t.csv --target a --closed --speed 2",
        "cinnabar-lab bench replay t.csv --target a --period 0s",
        "cinnabar-lab bench replay t.csv --target a --cache-fresh",
        "cinnabar-lab trace",
        "cinnabar-lab trace record vm1 --out r.csv",
        "cinnabar-lab serve --demo",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn help_has_examples_and_defaults() {
    assert_told(&mut Cli::command(), &[]);
}

#[test]
fn commands_in_the_guide_are_generated() {
    let mut program = Cli::command();
    program.build();
    let table = cinnabar_text::cli::commands::table_of(&program, &[]);
    cinnabar_text::guide::assert_generated(
        env!("CARGO_MANIFEST_DIR"),
        "cli.md",
        "cinnabar-lab",
        &table,
    );
}
