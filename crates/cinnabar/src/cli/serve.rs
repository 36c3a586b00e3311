//! `cinnabar serve`: the daemon.

use super::demo::Demo;
use cinnabar_config::settings::IoMode;
use cinnabar_config::{Config, Given};
use cinnabar_daemon::run::{RunError, run as run_daemon};
use cinnabar_text::Failure;
use cinnabar_text::cli::{logging, output};
use std::path::PathBuf;

/// What to serve.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "SIGTERM or Ctrl-C finishes what is under way and stops clean, so that the \
    next start is warm; a second one ends at once. SIGHUP has it read its configuration again, as \
    cinnabar reload does; a demonstration, and a daemon that was started on a terminal, stop.\n\
    Environment: CINNABAR_LOG filters the log on stderr [default: info].\n\n\
    Examples:\n  \
    cinnabar serve --config /etc/cinnabar/cinnabar.toml\n  \
    cinnabar serve --config cinnabar.toml --force\n  \
    cinnabar serve --demo"
)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["config", "demo"])))]
pub(super) struct Args {
    /// Configuration file (TOML); relative paths in it are relative to its folder
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve the disks of four simulated machines at work, behind a simulated file server, with a small cache
    /// and the page
    #[arg(long)]
    demo: bool,
    /// Folder for the demonstration's files [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR", requires = "demo", conflicts_with = "config")]
    dir: Option<PathBuf>,
    /// Format the cache device even if it holds something else, which is lost [default: refuse]
    #[arg(long)]
    force: bool,
    /// How I/O is done [default: what the configuration says, else auto]
    #[arg(long, value_name = "WAY", value_enum)]
    io: Option<IoMode>,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    logging::init()?;
    let demo = args.demo.then(|| Demo::new(args.dir.as_deref())).transpose()?;
    let mut config = match (&demo, &args.config) {
        (Some(demo), _) => demo.config()?,
        (None, Some(file)) => cinnabar_config::load(file)?,
        // The command line does not let this happen.
        (None, None) => return Err(Failure::of_usage("nothing to serve", "--config or --demo")),
    };
    if demo.is_some() {
        // It is not the operator's to change: SIGHUP ends it, and nothing is written into it.
        config.path = None;
    }
    config.give(Given { force: args.force, io: args.io });
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let ready = || {
        let demo = demo.as_ref()?;
        let load = demo.work();
        greet(demo.welcome(&config, load.is_some()));
        load
    };
    let result = run_daemon(&config, ready).map_err(|error| failure(&config, &error));
    drop(demo);
    result
}

/// Shows what there is to see, from a thread of its own: a daemon whose stdout is closed, or which nobody
/// reads, serves all the same.
fn greet(welcome: String) {
    let shown = std::thread::Builder::new().name("greet".into()).spawn(move || {
        let _nobody_reads = output::text(&welcome);
    });
    if let Err(error) = shown {
        tracing::warn!("no thread to show what there is to see: {error}");
    }
}

/// Adds file and line to an error, where it has one.
fn failure(config: &Config, error: &RunError) -> Failure {
    let line = match error {
        RunError::Data(error) => config.line_of(&error.subject),
        RunError::Socket(_) | RunError::Http { .. } | RunError::Token { .. } => {
            config.lines.control
        }
        _ => None,
    };
    let place = line.map(|line| format!("{}:{line}: ", config.file.display())).unwrap_or_default();
    let message = format!("{place}{error}").replace('\n', " ");
    Failure { code: error.exit_code(), message, hint: error.hint() }
}
