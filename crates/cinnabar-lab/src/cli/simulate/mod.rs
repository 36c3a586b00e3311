//! `cinnabar-lab simulate`: what would happen, without storage: one file a question.

mod faults;
mod hits;
mod holland;
mod timed;

use cinnabar_text::Failure;

/// What to simulate.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Crashes, power cuts, rot and worse: search seeds for a read that is not what it must be
    #[command(
        after_help = "A seed fixes everything that happens in its run: guests, faults, restarts. \
        Each seed leaves some kinds of faults out. The same program and seed give the same run.\n\
        Exit code 1 if a seed fails; its history and the command that repeats it are printed.\n\n\
        Examples:\n  \
        cinnabar-lab simulate faults\n  \
        cinnabar-lab simulate faults --seeds 10000 --jobs 2 --all-kinds\n  \
        cinnabar-lab simulate faults --seed 4711\n  \
        cinnabar-lab simulate faults --seeds 100 --json | jq .faults"
    )]
    Faults(faults::Args),
    /// Flash caching on the storage client: six published results run again, drawn, and judged
    #[command(
        after_help = "Published by Holland, Angelino, Wald and Seltzer (USENIX ATC 2013). Each figure is \
        written as SVG and CSV, and all of them as one page, holland.html, with the claim, what was \
        measured, whether it holds, and the values of an independent model beside ours. \
        One experiment is ours: loaded-filer.\n\
        Exit code 1 if a published result does not hold. Same program, scale and seed, same digest.\n\n\
        Examples:\n  \
        cinnabar-lab simulate holland --list\n  \
        cinnabar-lab simulate holland --out figures\n  \
        cinnabar-lab simulate holland --experiment policies,ram --seed 7 --out figures\n  \
        cinnabar-lab simulate holland --experiment loaded-filer --out figures --json | jq '.experiments[].checks'"
    )]
    Holland(holland::Args),
    /// A flash cache on the storage client, in time: what requests take, along the axes of a plan
    #[command(
        after_help = "A plan names a configuration and what is varied; docs/guide/timed-simulator.md \
        has every key, plans/ some to begin with. Every key that a plan leaves out has its default, that \
        of the paper. Equal plans give equal results on any number of cores.\n\n\
        Examples:\n  \
        cinnabar-lab simulate timed plans/sizes.toml --html sizes.html\n  \
        cinnabar-lab simulate timed plans/base.toml --set flash.size=32GiB --set scale=64 --json\n  \
        cinnabar-lab simulate timed plans/policies.toml --out results --jobs 2\n  \
        cinnabar-lab simulate timed plans/recommend.toml --set workload.trace=vm.csv.zst --recommend\n  \
        cinnabar-lab simulate timed plans/write-share.toml --dry-run"
    )]
    Timed(timed::Args),
    /// Hit ratios and flash writes of caches of many sizes, on a trace, with each policy
    Hits(hits::Args),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Faults(args) => faults::run(args),
        Command::Holland(args) => holland::run(args),
        Command::Timed(args) => timed::run(args),
        Command::Hits(args) => hits::run(args),
    }
}
