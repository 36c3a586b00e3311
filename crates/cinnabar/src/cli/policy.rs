//! `cinnabar policy`: how a running daemon divides its cache, why, and the operator's word against it.
//!
//! Pins and another allocator last until the daemon ends; what is to stay goes into the configuration
//! file: `share_min` and `share_max` of a volume, `allocator` of `[manager]`.

mod show;

use super::client::Daemon;
use cinnabar_config::volume::check_name;
use cinnabar_control::path::escape;
use cinnabar_control::policy::{ApplyInput, PinInput};
use cinnabar_manager::report::{ExplainReport, HistoryReport, PlanReport};
use cinnabar_policy::sizing::Allocator;
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use cinnabar_text::cli::parse::duration as ago;
use hyper::Method;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to do.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show what would be planned now, or have it carried out
    #[command(
        after_help = "PLANNED is what the allocator gives, TARGET what the volume is to have \
        within bounds, pins and steps; GRANTED and HELD are what the cache has promised and what it \
        holds.\n\
        With --apply the allocator plans until the daemon ends; to keep it, write it into [manager] of the \
        configuration file, too.\n\nExamples:\n  \
        cinnabar policy plan --diff\n  \
        cinnabar policy plan --allocator centaur\n  \
        cinnabar policy plan --allocator urd --apply --json"
    )]
    Plan {
        /// Who divides the cache [default: who does now]
        #[arg(long, value_name = "NAME", value_parser = allocator)]
        allocator: Option<Allocator>,
        /// Show what would change only
        #[arg(long, conflicts_with = "apply")]
        diff: bool,
        /// Carry it out now, and go on with this allocator until the daemon ends [default: nothing
        /// changes]
        #[arg(long)]
        apply: bool,
        /// Print a JSON object [default: a table]
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Say why a volume has the share that it has
    #[command(after_help = "Examples:\n  cinnabar policy explain vm1\n  \
        cinnabar policy explain vm1 --at 10min\n  cinnabar policy explain vm1 --json")]
    Explain {
        /// The volume
        name: String,
        /// By the plan that was in force so long ago [default: by what would be planned now]
        #[arg(long, value_name = "TIME", value_parser = ago)]
        at: Option<Duration>,
        /// Print a JSON object [default: text]
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Give a volume exactly this share, until the daemon ends
    #[command(
        after_help = "The pin lasts until the daemon ends; for a share that stays write share_min and \
        share_max of the volume into the configuration file.\n\n\
        Examples:\n  cinnabar policy pin vm1 4GiB\n  cinnabar policy pin vm1 25%"
    )]
    Pin {
        /// The volume
        name: String,
        /// What it is to have: bytes or percent of the cache
        size: String,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Leave a volume's share, and its mode, to plans again
    #[command(after_help = "Examples:\n  cinnabar policy unpin vm1")]
    Unpin {
        /// The volume
        name: String,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// List the plans of late, and the pins
    #[command(after_help = "Examples:\n  cinnabar policy history\n  \
        cinnabar policy history --last 100 --json")]
    History {
        /// So many at most
        #[arg(long, value_name = "N", default_value_t = 20,
            value_parser = clap::value_parser!(u16).range(1..=256))]
        last: u16,
        /// Print a JSON object [default: a table]
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Plan { allocator, diff, apply, json, daemon } => {
            let plan =
                if *apply { applied(*allocator, daemon) } else { planned(*allocator, daemon) }?;
            if *json {
                return output::json(&plan);
            }
            output::text(&show::plan(&plan, *diff))
        }
        Command::Explain { name, at, json, daemon } => {
            check_name(name)?;
            let query = at.map(|ago| format!("?at_ms={}", ms_of(ago))).unwrap_or_default();
            let path = format!("/v1/policy/volumes/{}{query}", escape(name));
            let explained: ExplainReport = daemon.get(&path)?;
            if *json {
                return output::json(&explained);
            }
            output::text(&show::explained(&explained))
        }
        Command::Pin { name, size, daemon } => {
            check_name(name)?;
            let path = format!("/v1/policy/pins/{}", escape(name));
            let pin = PinInput { size: size.clone() };
            let plan: PlanReport = daemon.send(Method::PUT, &path, &pin)?;
            output::text(&show::target(&plan, name)?)
        }
        Command::Unpin { name, daemon } => {
            check_name(name)?;
            daemon.delete(&format!("/v1/policy/pins/{}", escape(name)))
        }
        Command::History { last, json, daemon } => {
            let history: HistoryReport = daemon.get(&format!("/v1/policy/history?last={last}"))?;
            if *json {
                return output::json(&history);
            }
            output::text(&show::history(&history))
        }
    }
}

fn planned(allocator: Option<Allocator>, daemon: &Daemon) -> Result<PlanReport, Failure> {
    let query = allocator.map(|one| format!("?allocator={}", one.name())).unwrap_or_default();
    daemon.get(&format!("/v1/policy/plan{query}"))
}

fn applied(allocator: Option<Allocator>, daemon: &Daemon) -> Result<PlanReport, Failure> {
    let input = ApplyInput { allocator: allocator.map(|one| one.name().to_owned()) };
    daemon.send(Method::POST, "/v1/policy/plan", &input)
}

fn allocator(text: &str) -> Result<Allocator, String> {
    text.parse().map_err(|error: cinnabar_policy::UnknownName| error.to_string())
}

/// Milliseconds since 1970, so long ago.
fn ms_of(ago: Duration) -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(ago).as_millis()
}
