//! The oracle can fail: broken doubles are caught, the sound ones are not.

use crate::double::{Bug, Doubles};
use cinnabar_sim::{Failed, Features, Kind, Options, Report, run};

/// What the doubles can do: their cache device never fails, and they evict nothing.
fn options() -> Options {
    let features = Features {
        rot: false,
        cache_faults: false,
        start_faults: false,
        metadata_rot: false,
        misdirections: false,
        clock: false,
        // Overlapping requests are under way together in them, and what is asked for again overtakes.
        server_restarts: false,
        // They go on serving what is cached.
        lost_syncs: false,
        // They wait for everything, and know one size of a volume.
        time_outs: false,
        growth: false,
        resizes: false,
        ..Features::ALL
    };
    Options { requests: 1000, features, cold_after_crash: false, ..Options::default() }
}

fn run_seeds(bug: Bug, seeds: std::ops::Range<u64>) -> Result<Report, Box<Failed>> {
    seeds
        .map(|seed| run(seed, &options(), &mut Doubles::new(bug)))
        .try_fold(Report::default(), |sum, report| Ok(sum.plus(report?)))
}

#[test]
fn sound_doubles_pass() {
    for bug in [Bug::PassThrough, Bug::None] {
        let sum = run_seeds(bug, 0..60).unwrap_or_else(|failed| panic!("{bug:?}: {failed}"));
        assert!(sum.requests > 30_000 && sum.sectors_judged > 1_000_000, "{sum:#?}");
        assert!(sum.failed > 100 && sum.backend_errors > 100, "{sum:#?}");
        assert!(sum.crashes > 10 && sum.detaches > 10 && sum.plans > 100, "{sum:#?}");
        assert!(sum.refused > 100 && sum.foreign_writes > 10, "{sum:#?}");
        assert_eq!(sum.read_hits > 1000, bug == Bug::None, "{sum:#?}");
        println!("{bug:?}: {sum:#?}");
    }
}

#[test]
fn broken_doubles_are_caught() {
    let cases: &[(Bug, &[Kind])] = &[
        (Bug::StaleRead, &[Kind::Stale]),
        (Bug::TornPartialWrite, &[Kind::Garbage]),
        (Bug::FillOverNewerWrite, &[Kind::Stale]),
        (Bug::EarlyPartialHit, &[Kind::Garbage, Kind::TouchedBuffer]),
        (Bug::LostZeroes, &[Kind::Stale]),
        (Bug::NoFlush, &[Kind::NotDurable]),
        (Bug::NoFua, &[Kind::NotDurable]),
        (Bug::KeepsFailedWrite, &[Kind::Stale, Kind::Garbage]),
        (Bug::IgnoresReadError, &[Kind::Garbage]),
        (Bug::BelievesAnything, &[Kind::Stale, Kind::Warmth]),
        (Bug::ForgetsRequests, &[Kind::BadIo, Kind::NoReply, Kind::NotDurable]),
        (Bug::DetachesUnflushed, &[Kind::NotDurable]),
        (Bug::ReusesBuffer, &[Kind::TouchedBuffer, Kind::Stale, Kind::Garbage]),
        (Bug::Misaligned, &[Kind::BadIo]),
        (Bug::Unbounded, &[Kind::BadIo, Kind::WrongReply]),
        (Bug::WritesReadOnly, &[Kind::BadIo]),
        (Bug::LosesRecords, &[Kind::Stale]),
        (Bug::BelievesUnflushed, &[Kind::Stale]),
        (Bug::ColdAfterCrash, &[Kind::Cold]),
        (Bug::IgnoresGeneration, &[Kind::Stale, Kind::Warmth]),
        (Bug::NeverBumpsGeneration, &[Kind::Stale, Kind::Unordered, Kind::Warmth]),
        (Bug::ForgetsNothing, &[Kind::Stale, Kind::Warmth]),
        (Bug::IgnoresInvalidate, &[Kind::Stale]),
    ];
    for &(bug, kinds) in cases {
        let failed = run_seeds(bug, 0..1000).expect_err(&format!("{bug:?} was not caught"));
        assert!(kinds.contains(&failed.violation.kind), "{bug:?} was caught as {failed}");
        println!("{bug:?}: seed {}, {}", failed.seed, failed.violation);
    }
}

#[test]
fn not_waiting_for_the_lock_is_caught() {
    let options = Options { wait_for_lock: false, ..options() };
    // The last events of some failed runs only tell what came of it.
    let failed = (0..200)
        .filter_map(|seed| run(seed, &options, &mut Doubles::new(Bug::None)).err())
        .find(|failed| failed.events.contains("LATE"))
        .expect("a dead daemon's writes landed in the next session");
    assert!(matches!(failed.violation.kind, Kind::Stale | Kind::NotDurable), "{failed}");
}

#[test]
fn a_failed_run_tells_its_seed_and_its_events() {
    let failed = run_seeds(Bug::StaleRead, 0..200).expect_err("it is caught");
    let text = failed.to_string();
    assert!(text.contains(&format!("seed {}", failed.seed)), "{text}");
    assert!(text.contains("submit") && text.contains("last of all"), "{text}");
}

#[test]
fn the_same_seed_gives_the_same_actions() {
    let digest =
        |seed| run(seed, &options(), &mut Doubles::new(Bug::None)).expect("a sound double").digest;
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}
