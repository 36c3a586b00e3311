//! Sweeps: the same outcomes in the same order, whatever runs together.
//!
//! Part of the module's unit tests.

use super::*;
use crate::timed::config::{Architecture, Config};
use crate::timed::{Pace, Workload};
use cinnabar_trace::{Op, Record};

/// The paper's base configuration, small enough for a test: thousands of operations.
fn small(seed: u64) -> Config {
    Config { scale: 1 << 13, seed, ..Config::default() }
}

fn limits(threads: usize) -> Limits {
    Limits { threads, memory_bytes: 1 << 30 }
}

fn jobs() -> Vec<Job<'static>> {
    let flash = [0, 8, 64, 128].map(|gib| Config { flash_blocks: gib << 18, ..small(7) });
    let mut jobs: Vec<_> =
        flash.map(|config| Job::generated(config.flash_blocks.to_string(), config)).into();
    jobs.push(Job::generated(
        "unified",
        Config { architecture: Architecture::Unified, ..small(7) },
    ));
    jobs
}

fn digests(jobs: &[Job<'_>], limits: &Limits) -> Vec<u64> {
    let found = outcomes(jobs, limits, &mut |_| ()).expect("they are fine");
    found.iter().map(|outcome| outcome.digest).collect()
}

#[test]
fn threads_and_memory_change_nothing() {
    let jobs = jobs();
    let alone: Vec<u64> = jobs
        .iter()
        .map(|job| timed::run(&job.config, Workload::Generated, &mut |_| ()))
        .map(|outcome| outcome.expect("it is fine").digest)
        .collect();
    assert_eq!(digests(&jobs, &limits(1)), alone);
    assert_eq!(digests(&jobs, &limits(3)), alone);
    let most = jobs.iter().map(Job::memory_bytes).max().expect("there are some");
    assert_eq!(digests(&jobs, &Limits { threads: 3, memory_bytes: most }), alone);
    let distinct: std::collections::BTreeSet<_> = alone.iter().collect();
    assert_eq!(distinct.len(), alone.len(), "different settings, different digests");
}

#[test]
fn progress_ends_with_all_of_it() {
    let jobs = jobs();
    let mut ended = Vec::new();
    let mut last = Progress::default();
    run(&jobs, &limits(2), &mut |progress, finished| {
        assert!(progress.ios_done >= last.ios_done && progress.jobs_done >= last.jobs_done);
        last = *progress;
        let ios = finished.map(|one| (one.job, one.result.expect("it is fine").block_ios));
        ended.extend(ios);
        ControlFlow::Continue(())
    })
    .expect("the watcher does not stop it");
    assert_eq!((last.jobs_done, last.jobs), (jobs.len(), jobs.len()));
    assert!((last.ios_done - last.ios).abs() < 1e-6 * last.ios, "{last:?}");
    ended.sort_unstable();
    for ((at, ios), job) in ended.iter().zip(&jobs) {
        assert_eq!(*ios, job.ios(), "job {at}: what was expected is what was done");
    }
}

#[test]
fn what_fails_or_does_not_fit_is_named() {
    let mut jobs = jobs();
    let tight = Limits { threads: 2, memory_bytes: 1 << 20 };
    let error = outcomes(&jobs, &tight, &mut |_| ()).expect_err("there is no room");
    assert!(matches!(&error, SweepError::TooLarge { name, .. } if name == "0"), "{error}");
    assert!(!error.hint().is_empty());
    jobs[2].config.write_share = 30.0;
    let error = outcomes(&jobs, &limits(2), &mut |_| ()).expect_err("a share is at most 1");
    assert!(error.to_string().starts_with(&format!("{}: write_share", jobs[2].name)), "{error}");
    // The others are run all the same if the caller wants them.
    let mut sound = 0;
    run(&jobs, &limits(2), &mut |_, finished| {
        sound += usize::from(finished.is_some_and(|one| one.result.is_ok()));
        ControlFlow::Continue(())
    })
    .expect("a failure ends nothing");
    assert_eq!(sound, jobs.len() - 1);
}

#[test]
fn a_stop_begins_nothing_new() {
    let jobs = jobs();
    let mut ended = 0;
    let result = run(&jobs, &limits(1), &mut |_, finished| {
        ended += usize::from(finished.is_some());
        if ended == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(result, Err(SweepError::Stopped)));
    assert_eq!(ended, 2, "no report comes after the stop");
    run(&[], &limits(1), &mut |_, _| ControlFlow::Continue(())).expect("nothing is done at once");
}

#[test]
fn a_trace_is_opened_anew_for_each_job() {
    let record = |at: u64| Record {
        ts_us: at * 100,
        volume: 0,
        op: if at.is_multiple_of(3) { Op::Write } else { Op::Read },
        offset_bytes: at * 7919 % 500 * 4096,
        length_bytes: 4096,
    };
    let records: Vec<Record> = (0..2000).map(record).collect();
    let open = || {
        let records = Box::new(records.clone().into_iter().map(Ok));
        Ok(Workload::Records { records, pace: Pace::Threads, warm_up: 500, expected: Some(2000) })
    };
    let load = Load::Trace { open: &open, pace: Pace::Threads, ios: 2000, blocks: 500 };
    let of = |blocks| Job {
        name: "trace".into(),
        config: Config { flash_blocks: blocks, ..small(1) },
        load,
    };
    let jobs = [of(100 << 13), of(1000 << 13), of(100 << 13)];
    let found = outcomes(&jobs, &limits(2), &mut |_| ()).expect("it can be read");
    assert_eq!(found[0].digest, found[2].digest);
    assert!(found[1].flash_hits > found[0].flash_hits, "more flash, more hits");
    assert!(found.iter().all(|one| one.block_ios == 2000));
}
