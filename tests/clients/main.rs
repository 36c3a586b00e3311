//! End-to-end tests: the daemon, real clients, real files.
//!
//! A test whose tool is missing counts as ignored and prints `skipped: reason`, which `cargo xtask
//! ci` counts. Started by `cargo test -p e2e`; arguments are those of the built-in harness, and
//! `CINNABAR_TIER` and `CINNABAR_LANE` choose cases ([`tier`]).

mod api;
mod bench;
mod ceph;
mod crash;
mod degrade;
mod guest;
mod hostile;
mod hybrid;
mod lab;
mod libnbd;
mod migration;
mod nbd_backend;
mod package;
mod page;
mod qemu;
mod record;
mod reload;
mod restart;
mod tier;
mod tls;
mod unit;
mod verify;
mod write_back;

use e2e::tools::Tool;
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use std::time::Instant;
use tier::{Selection, Tier};

/// A test: its name, the tools it can't do without, what it does, and when it runs.
pub(crate) struct Case {
    name: &'static str,
    needs: &'static [Tool],
    run: fn() -> anyhow::Result<()>,
    tier: Tier,
    alone: bool,
}

impl Case {
    /// One that runs at night, unless it says otherwise.
    const fn new(
        name: &'static str,
        needs: &'static [Tool],
        run: fn() -> anyhow::Result<()>,
    ) -> Self {
        Self { name, needs, run, tier: Tier::Nightly, alone: false }
    }

    /// Before each change is taken.
    const fn ci(self) -> Self {
        Self { tier: Tier::Ci, ..self }
    }

    /// Also what a newcomer runs.
    const fn quick(self) -> Self {
        Self { tier: Tier::Quick, ..self }
    }

    /// It needs the machine to itself, because it measures time.
    const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    fn into_trial(self) -> Trial {
        let Self { name, needs, run, .. } = self;
        let missing = needs.iter().find(|tool| !tool.is_present());
        if let Some(Tool { command, package, .. }) = missing {
            eprintln!("skipped: {name} needs {command} (package {package})");
        }
        let timed = move || {
            let start = Instant::now();
            let done = run();
            eprintln!("{name}: {:.1} s", start.elapsed().as_secs_f64());
            // At once, for who waits: the summary comes when all cases have ended.
            done.map_err(|error| format!("{error:#}")).map_err(|error| {
                eprintln!("{name}: {error}");
                Failed::from(error)
            })
        };
        Trial::test(name, timed).with_ignored_flag(missing.is_some())
    }
}

fn main() -> ExitCode {
    let selection = match Selection::from_environment() {
        Ok(selection) => selection,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    let mut arguments = Arguments::from_args();
    // Most of the time is spent waiting for files and clients, which use a core each.
    arguments.test_threads.get_or_insert(2);
    if !arguments.list
        && let Err(error) = e2e::binary::cinnabar()
    {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    // The longest first, for the others to run beside them.
    let trials = crash::CASES
        .into_iter()
        .chain(guest::CASES)
        .chain(package::CASES)
        .chain(write_back::CASES)
        .chain(ceph::CASES)
        .chain(verify::CASES)
        .chain(qemu::CASES)
        .chain(migration::CASES)
        .chain(libnbd::CASES)
        .chain(tls::CASES)
        .chain(restart::CASES)
        .chain(degrade::CASES)
        .chain(hostile::CASES)
        .chain(hybrid::CASES)
        .chain(nbd_backend::CASES)
        .chain(bench::CASES)
        .chain(lab::CASES)
        .chain(record::CASES)
        .chain(reload::CASES)
        .chain(unit::CASES)
        .chain(api::CASES)
        .chain(page::CASES)
        .filter(|case| selection.takes(case))
        .map(Case::into_trial)
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
