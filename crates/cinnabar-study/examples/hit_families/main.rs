//! The engine beside simple policies: read misses and flash writes at sizes from 1 to 150 % of what is
//! touched, on workloads of one habit each and on recorded traces.
//!
//! Started by `cargo xtask bench families`. Arguments: `--only TEXT` for families and traces whose
//! names hold it, `--jobs N`, `--sizes 50,100`, `--endurance save`, `--quick` (no further runs for
//! the reasons of misses), then files of traces. The last run is in `hit-table.csv` beside this file;
//! `docs/design/hit-table.md` has its columns and bars. Counts are deterministic. The last column
//! says why a cell falls short: see [`reasons`].

mod families;
mod reasons;

use cinnabar_engine::{Admission, Endurance};
use cinnabar_policy::{Policy, Writes};
use cinnabar_study::hits::engine::blocks_min;
use cinnabar_study::hits::{Contender, Found, Grain, Options, Outcome, Run, run};
use cinnabar_trace::{Record, open};
use families::FAMILIES;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;

const SIZES: [u64; 10] = [1, 2, 5, 10, 25, 50, 75, 100, 125, 150];
const SIMPLE: [Policy; 5] =
    [Policy::Lru, Policy::Clock, Policy::Sieve, Policy::S3Fifo, Policy::Arc];
/// Traces that settings are tuned on, besides the families marked so.
const TUNED: [&str; 2] = ["cp_vscsi", "self_loop4"];
/// Read misses over the best simple policy's, up to half of the footprint and at 75 and 100 %.
const MISSES_MAX: (f64, f64) = (1.02, 1.10);
/// Above compulsory misses, from 125 % on.
const ABOVE_COMPULSORY_MAX: f64 = 0.005;
/// Flash writes over write-through CLOCK's, up to half of the footprint and beyond.
const FLASH_MAX: (f64, f64) = (0.8, 1.0);
/// Read misses by exact sectors over those by whole blocks.
const SECTORS_MAX: f64 = 1.03;

struct Args {
    only: String,
    jobs: NonZeroUsize,
    sizes: Vec<u64>,
    endurance: Endurance,
    /// No further runs to tell why a cell has too many misses.
    quick: bool,
    traces: Vec<PathBuf>,
}

/// Settings of the engine that a cell is tried again with.
#[derive(Clone, Copy)]
struct Settings {
    endurance: Endurance,
    admission: Option<Admission>,
}

/// A cell of the table that falls short, or not.
struct Cell {
    tuned: bool,
    is_met: bool,
    /// Misses over the best simple policy's.
    ratio: f64,
}

fn main() -> ExitCode {
    match args().and_then(|args| table(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn args() -> Result<Args, String> {
    let mut args = Args {
        only: String::new(),
        jobs: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        sizes: SIZES.to_vec(),
        endurance: Endurance::default(),
        quick: false,
        traces: Vec::new(),
    };
    let mut given = std::env::args_os().skip(1);
    while let Some(arg) = given.next() {
        let mut value = || -> Result<String, String> {
            let value = given.next().and_then(|value| value.into_string().ok());
            value.ok_or_else(|| format!("a value is missing after {}", arg.display()))
        };
        let wrong = |value: &str| format!("{}: `{value}` is no such value", arg.display());
        match arg.to_str() {
            Some("--only") => args.only = value()?,
            Some("--jobs") => {
                let jobs = value()?;
                args.jobs = jobs.parse().map_err(|_| wrong(&jobs))?;
            }
            Some("--sizes") => {
                let sizes = value()?;
                let each = sizes.split(',').map(str::parse).collect::<Result<_, _>>();
                args.sizes = each.map_err(|_| wrong(&sizes))?;
            }
            Some("--quick") => args.quick = true,
            Some("--endurance") => {
                let name = value()?;
                args.endurance = Endurance::named(&name).ok_or_else(|| wrong(&name))?;
            }
            _ => args.traces.push(arg.into()),
        }
    }
    Ok(args)
}

fn table(args: &Args) -> Result<(), String> {
    println!(
        "| workload | half | % | blocks | mode | read misses | best simple | x best | x compulsory \
         | flash | x CLOCK | reinserted | metadata | |"
    );
    println!("|---|---|--:|--:|---|--:|---|--:|--:|--:|--:|--:|--:|---|");
    let mut cells = Vec::new();
    for family in FAMILIES.iter().filter(|family| family.name.contains(&args.only)) {
        rows(family.name, family.tuned, &(family.make)(), args, &mut cells)?;
    }
    for path in &args.traces {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let name = file.split('.').next().unwrap_or_default();
        if !name.contains(&args.only) {
            continue;
        }
        let failed = |error| format!("{}: {error}", path.display());
        let records = open(path).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        rows(name, TUNED.contains(&name), &records, args, &mut cells)?;
    }
    for (half, tuned) in [("tuned on", true), ("held out", false)] {
        let half_cells: Vec<&Cell> = cells.iter().filter(|cell| cell.tuned == tuned).collect();
        let met = half_cells.iter().filter(|cell| cell.is_met).count();
        let ratios = half_cells.iter().map(|cell| cell.ratio).filter(|ratio| ratio.is_finite());
        let (sum, count) =
            ratios.fold((0.0, 0_u32), |(sum, count), ratio| (sum + ratio, count + 1));
        println!(
            "\n{half}: {met} of {} cells met; mean of read misses over the best simple policy's: {:.3}",
            half_cells.len(),
            sum / f64::from(count)
        );
    }
    Ok(())
}

/// All sizes and modes of one workload.
fn rows(
    name: &str,
    tuned: bool,
    records: &[Record],
    args: &Args,
    cells: &mut Vec<Cell>,
) -> Result<(), String> {
    let blocks_only = (Writes::Through, Grain::Blocks);
    let survey = simulate(records, Vec::new(), blocks_only, args)?.survey;
    let footprint = u64::from(survey.blocks);
    eprintln!("{name}: {} references, {footprint} blocks", survey.references);
    let blocks = |size: &u64| (footprint * size).div_ceil(100);
    let (sizes, small): (Vec<u64>, Vec<u64>) =
        args.sizes.iter().copied().partition(|size| blocks(size) >= blocks_min());
    if !small.is_empty() {
        println!("| {name} | | {small:?} | | smaller than the smallest cache | | | | | | | | | |");
    }
    for (mode, writes) in [("get-or-insert", Writes::AsReads), ("whole blocks", Writes::Through)] {
        let sized = |size: &u64| NonZeroU32::new(blocks(size) as u32).expect("not empty");
        let contenders = SIMPLE.map(Contender::Policy).into_iter().chain([Contender::Engine]);
        let contenders: Vec<Contender> = contenders.collect();
        let mut runs: Vec<Run> = Vec::new();
        for size in &sizes {
            let of =
                |contender: &Contender| Run { contender: *contender, size_blocks: sized(size) };
            runs.extend(contenders.iter().map(of));
        }
        // Read misses of a cache with room for all.
        let all = NonZeroU32::new(survey.blocks.max(1)).expect("at least one");
        runs.push(Run { contender: Contender::Policy(Policy::Lru), size_blocks: all });
        let found = simulate(records, runs, (writes, Grain::Blocks), args)?;
        let compulsory = found.outcomes.last().expect("the last run").counts.read_misses;
        for (size, outcomes) in sizes.iter().zip(found.outcomes.chunks(contenders.len())) {
            let row = Row { name, tuned, size: *size, mode };
            cells.push(row.show(outcomes, compulsory, &|settings: Settings| {
                if args.quick {
                    return Ok(None);
                }
                let engine = outcomes.last().expect("the engine is the last");
                let found = simulate_with(
                    records,
                    vec![engine.run],
                    (writes, Grain::Blocks),
                    args,
                    settings,
                )?;
                Ok(Some(found.outcomes[0]))
            })?);
            if writes == Writes::Through && is_unaligned(records) {
                let engine = outcomes.last().expect("the engine is the last");
                let by_sectors = (writes, Grain::Sectors);
                let exact = simulate(records, vec![engine.run], by_sectors, args)?;
                cells.push(row.show_sectors(engine, exact.outcomes[0].counts.read_misses));
            }
        }
    }
    Ok(())
}

/// What a line of the table is about.
struct Row<'a> {
    name: &'a str,
    tuned: bool,
    /// In % of the footprint.
    size: u64,
    mode: &'a str,
}

impl Row<'_> {
    /// The engine, the last of `outcomes`, beside the simple policies.
    fn show(
        &self,
        outcomes: &[Outcome],
        compulsory: u64,
        again: &dyn Fn(Settings) -> Result<Option<Outcome>, String>,
    ) -> Result<Cell, String> {
        let Self { name, tuned, size, mode } = *self;
        let (engine, simple) = outcomes.split_last().expect("the engine is the last");
        let best = simple.iter().min_by_key(|outcome| outcome.counts.read_misses);
        let best = best.expect("there are simple ones");
        let clock = simple[1].counts.flash_writes;
        let misses = engine.counts.read_misses;
        let ratio = misses as f64 / best.counts.read_misses as f64;
        let above = misses as f64 / compulsory.max(1) as f64;
        let flash = engine.counts.flash_writes as f64 / clock.max(1) as f64;
        let mut short = Vec::new();
        let misses_max = match size {
            ..=50 => MISSES_MAX.0 * best.counts.read_misses as f64,
            51..=100 => MISSES_MAX.1 * best.counts.read_misses as f64,
            _ => (1.0 + ABOVE_COMPULSORY_MAX) * compulsory as f64,
        };
        if misses as f64 > misses_max {
            short.push(reasons::of_misses(misses_max, again)?);
        }
        let flash_max = if size <= 50 { FLASH_MAX.0 } else { FLASH_MAX.1 };
        if flash > flash_max {
            short.push(reasons::of_flash(engine, flash_max * clock as f64));
        }
        let reasons = engine.reasons.unwrap_or_default();
        let kept = reasons.kept_room + reasons.kept_used + reasons.kept_returned;
        println!(
            "| {name} | {} | {size} | {} | {mode} | {misses} | {} {} | {ratio:.3} | {above:.3} | {} \
             | {flash:.3} | {} | {} | {} |",
            half(tuned),
            engine.run.size_blocks,
            best.run.contender,
            best.counts.read_misses,
            engine.counts.flash_writes,
            reasons.reinserted,
            engine.counts.flash_writes - kept - reasons.reinserted,
            short.join("; ")
        );
        Ok(Cell { tuned, is_met: short.is_empty(), ratio })
    }

    /// The same requests to the exact sector, beside whole blocks.
    fn show_sectors(&self, engine: &Outcome, sectors: u64) -> Cell {
        let misses = engine.counts.read_misses;
        let over = sectors as f64 / misses.max(1) as f64;
        let is_met = over <= SECTORS_MAX;
        println!(
            "| {} | {} | {} | {} | exact sectors | {sectors} | whole blocks {misses} | {over:.3} | | | \
             | | | {} |",
            self.name,
            half(self.tuned),
            self.size,
            engine.run.size_blocks,
            if is_met { "" } else { "misses" }
        );
        Cell { tuned: self.tuned, is_met, ratio: f64::NAN }
    }
}

fn half(tuned: bool) -> &'static str {
    if tuned { "tuned on" } else { "held out" }
}

fn simulate(
    records: &[Record],
    runs: Vec<Run>,
    how: (Writes, Grain),
    args: &Args,
) -> Result<Found, String> {
    let settings = Settings { endurance: args.endurance, admission: None };
    simulate_with(records, runs, how, args, settings)
}

fn simulate_with(
    records: &[Record],
    runs: Vec<Run>,
    (writes, grain): (Writes, Grain),
    args: &Args,
    settings: Settings,
) -> Result<Found, String> {
    let Settings { endurance, admission } = settings;
    let options = Options { runs, writes, endurance, admission, grain, jobs: args.jobs };
    run(records.iter().copied().map(Ok), &options, &mut |_| {}).map_err(|error| error.to_string())
}

fn is_unaligned(records: &[Record]) -> bool {
    records.iter().any(|record| (record.offset_bytes | record.length_bytes) % 4096 != 0)
}
