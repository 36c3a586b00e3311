//! MOBBS's experiment: Zipf-distributed writes to hybrid volumes beside all-SSD and all-HDD ones, in one run.
//!
//! Each side is a hybrid volume with a daemon of its own, so that the way of a request is the same. The
//! cache is not used (`pass-through`). Sides have their turns cell by cell; all-SSD has one before and one
//! after the others, which shows how far the machine drifted. Before each cell the volume is on HDD again.
//!
//! * `place`: the cluster, with HDDs that serve one message at a time; or folders.
//! * `side`: a volume, its daemon, and one load on it; `load`: fio, and figures of parts of its time.
//! * `zipf`, `sizes`, `adapt`: the tables; an example of `cinnabar-bench` draws the first one.

mod adapt;
mod load;
mod place;
mod side;
mod sizes;
mod zipf;

use super::{example_of, heading, publish};
use crate::install;
use anyhow::{Context, Result, ensure};
use e2e::{MIB, ceph, tools};
use place::{Place, Size};
use side::{Cell, Kind, Pace, Side};
use std::path::{Path, PathBuf};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<Part>,
    /// Laws of the writes
    #[arg(long, value_delimiter = ',', default_values_t = THETAS)]
    theta: Vec<f64>,
    /// Seconds for each measurement, after moves have settled
    #[arg(long, default_value_t = 8)]
    seconds: u32,
    /// Longest time that moves may take to settle, in seconds
    #[arg(long, default_value_t = 40)]
    settle_s: u32,
    /// Size of each of the five volumes, in MiB
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Size of an extent, in KiB
    #[arg(long, default_value_t = 1024)]
    extent_kib: u64,
    /// Of a volume, what "benefit" may have of the SSDs, in per cent
    #[arg(long, default_value_t = 10)]
    budget_percent: u64,
    /// Writes under way at a time
    #[arg(long, default_value_t = 16)]
    depth: u32,
    /// Seconds of a planner's round
    #[arg(long, default_value_t = 2.0)]
    round_s: f64,
    /// MiB that are copied a second
    #[arg(long, default_value_t = 32)]
    copy_mib_s: u64,
    /// Which blocks are hot
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// How often the hot blocks become others, in the part "adapt"
    #[arg(long, default_value_t = 4)]
    shifts: u64,
    /// Folders of this machine instead of a Ceph cluster: both pools are as fast
    #[arg(long)]
    local: bool,
    /// Small volumes, one law, short parts: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Draw the first table into this folder [default: no charts]
    #[arg(long, value_name = "FOLDER", hide_default_value = true)]
    charts: Option<PathBuf>,
    /// Write the tables to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

/// The laws of the authors' slides.
const THETAS: [f64; 5] = [1.25, 1.5, 1.75, 2.0, 2.25];
/// Rounds that a move may take to pay: as many as the planner's defaults have.
const HORIZON_ROUNDS: f64 = 60.0;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Writes of 4 KiB over laws
    Zipf,
    /// Larger writes, and sequential ones
    Sizes,
    /// Hot blocks that become others
    Adapt,
}

/// All sides, and how they are measured.
struct Bench<'a> {
    sides: Vec<Side<'a>>,
    size: Size,
    pace: Pace,
    seconds: f64,
    depth: u32,
    seed: u64,
    moves: Moves,
}

/// Moves of all cells together.
#[derive(Clone, Copy, Debug, Default)]
struct Moves {
    moved: u64,
    moved_bytes: u64,
    given_up: u64,
    host_bytes: u64,
    held_writes: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        args.extent_kib.is_power_of_two() && args.extent_kib >= 64,
        "an extent has 64 KiB or more"
    );
    ensure!(args.size_mib * 1024 >= args.extent_kib * 16, "a volume has 16 extents or more");
    ensure!((0.1..=600.0).contains(&args.round_s), "a round has 0.1 to 600 seconds");
    ensure!((1..=100).contains(&args.budget_percent), "a budget has 1 to 100 per cent");
    if !args.local {
        install::debian(ceph::TOOLS)?;
    }
    install::debian(&[tools::FIO])?;
    e2e::binary::cinnabar()?;
    let place = Place::start(args.local)?;
    let mut bench = Bench::start(&place, args)?;
    let mut text = heading(&bench.about(&place))?;
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    if wants(Part::Zipf) {
        let thetas = if args.quick { &[1.5][..] } else { &args.theta };
        let (table, points) = bench.zipf(thetas)?;
        text.push_str(&table);
        if let Some(folder) = &args.charts {
            draw(folder, &points)?;
        }
    }
    if wants(Part::Sizes) {
        let sizes = if args.quick { &[64][..] } else { &sizes::KIB[..] };
        text.push_str(&bench.sizes(sizes)?);
    }
    if wants(Part::Adapt) {
        text.push_str(&bench.adapt(if args.quick { 1 } else { args.shifts })?);
    }
    text.push_str(&bench.moves.show());
    for side in bench.sides {
        side.stop()?;
    }
    publish(&text, args.output.as_deref())
}

fn draw(folder: &Path, points: &str) -> Result<()> {
    let (file, charts) = (folder.join("hybrid.tsv"), ["throughput", "ssd"]);
    std::fs::write(&file, points).with_context(|| format!("writing {}", file.display()))?;
    let charts = charts.map(|name| folder.join(format!("hybrid-{name}.svg")));
    let args: Vec<String> =
        [file.clone()].iter().chain(&charts).map(|path| path.display().to_string()).collect();
    example_of("cinnabar-bench", "hybrid_chart", &args)?;
    Ok(std::fs::remove_file(&file)?)
}

impl<'a> Bench<'a> {
    fn start(place: &'a Place, args: &Args) -> Result<Self> {
        let extent_bytes = args.extent_kib * 1024;
        let mib = if args.quick { 64 } else { args.size_mib };
        let size = Size { bytes: mib * MIB, extent_bytes };
        let round_s = if args.quick { 0.5 } else { args.round_s };
        let pace = Pace {
            round_seconds: round_s,
            horizon_s: HORIZON_ROUNDS * round_s,
            copy_mib_s: args.copy_mib_s,
            settle_s: if args.quick { 6.0 } else { f64::from(args.settle_s) },
        };
        let budget =
            (size.bytes * args.budget_percent / 100).max(extent_bytes).next_multiple_of(MIB);
        let mut sides = Vec::new();
        for kind in [Kind::AllSsd, Kind::Benefit, Kind::Mobbs, Kind::Equal, Kind::AllHdd] {
            // The authors had no budget.
            let budget = if kind == Kind::Mobbs { size.bytes } else { budget };
            sides.push(Side::new(place, kind, size, pace, budget)?);
        }
        let seconds = if args.quick { 2.0 } else { f64::from(args.seconds) };
        let (depth, seed, moves) = (args.depth, args.seed, Moves::default());
        Ok(Self { sides, size, pace, seconds, depth, seed, moves })
    }

    fn about(&self, place: &Place) -> String {
        let Size { bytes, extent_bytes } = self.size;
        format!(
            "fio's nbd engine at QD{}, the cache not used, on {}; volumes of {} MiB in {} extents of {} KiB, \
             filled; rounds of {} s, horizon {} s, copies of {} MiB/s; {} s each, after moves have settled or {} s",
            self.depth,
            place.name(),
            bytes / MIB,
            self.size.extents(),
            extent_bytes / 1024,
            self.pace.round_seconds,
            self.pace.horizon_s,
            self.pace.copy_mib_s,
            self.seconds,
            self.pace.settle_s,
        )
    }

    fn side(&mut self, kind: Kind) -> &mut Side<'a> {
        self.sides.iter_mut().find(|side| side.kind == kind).expect("all kinds are there")
    }

    /// One load on one side, from the beginning.
    fn cell(&mut self, kind: Kind, load: &load::Load) -> Result<Cell> {
        self.side(kind).begin()?;
        self.go_on(kind, load)
    }

    /// One load on one side as it is.
    fn go_on(&mut self, kind: Kind, load: &load::Load) -> Result<Cell> {
        let seconds = self.seconds;
        let cell = self.side(kind).measure(load, seconds)?;
        self.moves.add(&cell);
        Ok(cell)
    }
}

impl Moves {
    fn add(&mut self, cell: &Cell) {
        let (first, last) = (cell.looks[0].1, cell.last);
        self.moved += last.moved - first.moved;
        self.moved_bytes += last.moved_bytes() - first.moved_bytes();
        self.given_up += last.given_up - first.given_up;
        self.host_bytes += last.host_bytes - first.host_bytes;
        self.held_writes += last.held_writes - first.held_writes;
    }

    fn show(&self) -> String {
        let percent = self.host_bytes as f64 / self.moved_bytes as f64 * 100.0;
        format!(
            "\nMoves of all cells: {}, with {:.0} MiB; {} given up; through the host {:.2} MiB, {percent:.3} % of what \
             was moved (asked: below 1 % on Ceph); {} writes waited for a move\n",
            self.moved,
            self.moved_bytes as f64 / MIB as f64,
            self.given_up,
            self.host_bytes as f64 / MIB as f64,
            self.held_writes,
        )
    }
}
