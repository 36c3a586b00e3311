//! The timed simulator by itself: what follows from its settings without any reference.

use cinnabar_study::timed::config::{
    Architecture, BLOCKS_PER_GIB, Background, Placement, Restart, Service, WritePolicy,
};
use cinnabar_study::timed::{Config, Outcome, Pace, RunError, Workload, run};
use cinnabar_trace::{Op, Record, TraceError};

/// Small enough for many runs.
fn small() -> Config {
    Config { scale: 1024, working_set_blocks: 20 * BLOCKS_PER_GIB, ..Config::default() }
}

fn simulate(config: &Config) -> Outcome {
    run(config, Workload::Generated, &mut |_| ()).expect("settings that make sense")
}

fn reads_of(blocks: impl IntoIterator<Item = (u64, u64)>) -> Vec<Record> {
    let read = |(block, count): (u64, u64)| Record {
        ts_us: 0,
        volume: 0,
        op: Op::Read,
        offset_bytes: block << 12,
        length_bytes: count << 12,
    };
    blocks.into_iter().map(read).collect()
}

fn play(config: &Config, records: Vec<Record>, pace: Pace) -> Result<Outcome, RunError> {
    let expected = Some(records.len() as u64);
    let records = Box::new(records.into_iter().map(Ok));
    run(config, Workload::Records { records, pace, warm_up: 0, expected }, &mut |_| ())
}

#[test]
fn same_settings_and_seed_give_the_same_digest_and_others_do_not() {
    let config = Config { hosts: 2, shared_set: true, ..small() };
    let first = simulate(&config);
    let again = simulate(&config);
    assert_eq!(first.digest, again.digest);
    assert_eq!(first.reads.mean_ns().to_bits(), again.reads.mean_ns().to_bits());
    assert_ne!(first.digest, simulate(&Config { seed: 2, ..config }).digest);
    let slower = Config { flash_write_factor: 2.0, ..config };
    assert_ne!(first.digest, simulate(&slower).digest);
}

/// Written down once: another machine, another compiler or a careless change would show.
#[test]
fn digest_of_a_run_is_the_same_everywhere() {
    assert_eq!(format!("{:016x}", simulate(&small()).digest), "73421008b4d5d28f");
}

#[test]
fn threads_pause_between_operations() {
    let (plain, paced) = (small(), Config { pause_ns: 1_000_000, ..small() });
    let [plain, paced] = [plain, paced].map(|config| simulate(&config));
    let operations = paced.reads.count() + paced.writes.count();
    assert_eq!(operations, plain.reads.count() + plain.writes.count());
    // Each of eight threads, after each operation.
    let pauses_ns = operations as f64 / 8.0 * 1e6;
    let longer_ns = paced.simulated_ns as f64 - plain.simulated_ns as f64;
    assert!((0.8..1.2).contains(&(longer_ns / pauses_ns)), "{longer_ns} for {pauses_ns}");
}

#[test]
fn every_combination_of_policies_and_places_runs_to_its_end() {
    let policies =
        [WritePolicy::Sync, WritePolicy::Async, WritePolicy::Periodic(1), WritePolicy::Never];
    for (architecture, placement) in [
        (Architecture::Naive, Placement::Client),
        (Architecture::Naive, Placement::Server),
        (Architecture::Lookaside, Placement::Client),
        (Architecture::Unified, Placement::Client),
    ] {
        for ram_policy in policies {
            for flash_policy in policies {
                for ram_gib in [0, 8] {
                    let lookaside = architecture == Architecture::Lookaside;
                    let config = Config {
                        architecture,
                        placement,
                        ram_policy,
                        flash_policy: (!lookaside).then_some(flash_policy),
                        ram_blocks: ram_gib * BLOCKS_PER_GIB,
                        filer_service: Service::Servers(4),
                        flash_service: Service::Servers(2),
                        eviction_reads_flash: true,
                        prefetch_blocks: 2,
                        operation_blocks: 3,
                        operation_depth: 2,
                        hosts: 2,
                        shared_set: true,
                        scale: 8192,
                        ..small()
                    };
                    let outcome = simulate(&config);
                    let blocks = outcome.block_reads() + outcome.block_writes;
                    let asked = 20 * BLOCKS_PER_GIB / 8192 * 4 / 3 * 2 / 2 * 3;
                    assert!(
                        blocks.abs_diff(asked) <= 6,
                        "{architecture} {placement} {ram_policy} {flash_policy}: {blocks} of {asked}"
                    );
                    assert!(outcome.reads.mean_ns() > 400.0 && outcome.filer_reads > 0);
                }
            }
        }
    }
}

/// Blocks that no other thread asks for, one at a time: latencies follow from the timings alone.
#[test]
fn latencies_of_single_reads_add_up() {
    let config = Config { threads: 1, fast_read_share: 1.0, ..small() };
    let miss = play(&config, reads_of([(7, 1)]), Pace::Threads).expect("a trace");
    // Request, fast read, packet with data.
    assert_eq!(miss.reads.max_ns(), rounded(8_200 + 92_000 + 8_200 + 32_768));
    let both = play(&config, reads_of([(7, 1), (7, 1)]), Pace::Threads).expect("a trace");
    assert_eq!((both.misses, both.ram_hits), (1, 1));
    assert_eq!(both.reads.percentile_ns(50.0), rounded(400));
    let no_ram = Config { ram_blocks: 0, ..config };
    let flash = play(&no_ram, reads_of([(7, 1), (7, 1)]), Pace::Threads).expect("a trace");
    assert_eq!((flash.misses, flash.flash_hits), (1, 1));
    assert_eq!(flash.reads.percentile_ns(50.0), rounded(88_000));
    let server = Config { placement: Placement::Server, ..no_ram };
    let there = play(&server, reads_of([(7, 1), (7, 1)]), Pace::Threads).expect("a trace");
    assert_eq!((there.misses, there.flash_hits), (1, 1));
    assert_eq!(there.reads.percentile_ns(50.0), rounded(8_200 + 88_000 + 8_200 + 32_768));
}

/// As the histogram says it.
fn rounded(ns: u64) -> u64 {
    let mut histogram = hdrhistogram::Histogram::<u64>::new(3).expect("three digits");
    histogram.record(ns).expect("it grows");
    histogram.max()
}

#[test]
fn reading_ahead_makes_a_sequential_run_as_fast_as_the_link() {
    let config = Config { threads: 1, ..small() };
    let run_of = || reads_of((0..4_000).map(|block| (block, 1)));
    let without = play(&config, run_of(), Pace::Threads).expect("a trace");
    assert_eq!(without.misses, 4_000);
    let with = Config { prefetch_blocks: 32, ..config };
    let with = play(&with, run_of(), Pace::Threads).expect("a trace");
    // Who comes for a block on its way waits for it, and nothing is read twice.
    assert_eq!(with.ram_hits + with.misses, 4_000);
    assert!(with.prefetched > 3_800 && with.filer_reads <= 4_032, "{}", with.filer_reads);
    assert!(with.reads.mean_ns() < without.reads.mean_ns() / 5.0);
}

#[test]
fn parts_of_a_large_request_are_under_way_together() {
    let config = Config { threads: 1, fast_read_share: 1.0, ..small() };
    let one_by_one = Config { operation_depth: 1, ..config };
    let slow = play(&one_by_one, reads_of([(0, 64)]), Pace::Threads).expect("a trace");
    let fast = play(&config, reads_of([(0, 64)]), Pace::Threads).expect("a trace");
    assert_eq!((slow.block_ios, fast.block_ios, fast.reads.count()), (64, 64, 1));
    assert!(fast.reads.mean_ns() < slow.reads.mean_ns() / 2.0);
    // Data come one block behind the other whatever else is done together.
    assert!(fast.reads.mean_ns() > 64.0 * 32_768.0);
}

#[test]
fn a_trace_at_its_own_pace_waits_for_nobody() {
    let config = small();
    let mut records = reads_of((0..100).map(|block| (block, 1)));
    for (at, record) in (0..).zip(&mut records) {
        // From 5 s on: an origin of its own.
        record.ts_us = 5_000_000 + at * 1_000;
    }
    let outcome = play(&config, records, Pace::Recorded).expect("a trace");
    assert_eq!(outcome.reads.count(), 100);
    assert!((99_000_000..110_000_000).contains(&outcome.simulated_ns), "{}", outcome.simulated_ns);
}

#[test]
fn a_trace_that_breaks_off_is_an_error() {
    let broken = TraceError::Io { line: 2, source: std::io::Error::other("gone") };
    let mut records: Vec<Result<Record, TraceError>> =
        reads_of([(1, 1), (2, 1)]).into_iter().map(Ok).collect();
    records.push(Err(broken));
    let records = Box::new(records.into_iter());
    let workload = Workload::Records { records, pace: Pace::Threads, warm_up: 0, expected: None };
    let error = run(&small(), workload, &mut |_| ()).expect_err("the trace is broken");
    assert!(matches!(error, RunError::Trace(_)) && !error.hint().is_empty());
}

#[test]
fn a_write_takes_the_copies_of_other_hosts() {
    let config = Config { hosts: 2, threads: 1, shared_set: true, ..small() };
    let outcome = simulate(&Config { write_share: 0.5, ..config });
    assert!(outcome.invalidation_share() > 0.2, "{}", outcome.invalidation_share());
    let apart = simulate(&Config { shared_set: false, write_share: 0.5, ..config });
    assert!(apart.invalidation_share() < 0.05, "{}", apart.invalidation_share());
    assert_eq!(simulate(&Config { hosts: 1, ..config }).invalidating_writes, 0);
}

#[test]
fn a_loaded_file_server_and_a_full_link_keep_readers_waiting() {
    let config = small();
    let free = simulate(&config).reads.mean_ns();
    let one = Config { filer_service: Service::Servers(1), ..config };
    assert!(simulate(&one).reads.mean_ns() > 2.0 * free);
    let queueing = Config { write_share: 0.7, background: Background::Queue, ..config };
    let giving_way = Config { background: Background::Yield, ..queueing };
    let unseen = Config { background: Background::Free, ..queueing };
    let [queueing, giving_way, unseen] =
        [queueing, giving_way, unseen].map(|config| simulate(&config).reads.mean_ns());
    assert!(queueing > 1.2 * giving_way && giving_way > unseen, "{queueing} {giving_way} {unseen}");
}

#[test]
fn cold_flash_misses_more_and_popular_blocks_less() {
    let config = small();
    let warm = simulate(&config).miss_share();
    let cold = simulate(&Config { restart: Restart::Cold { ram_too: false }, ..config });
    let colder = simulate(&Config { restart: Restart::Cold { ram_too: true }, ..config });
    assert!(cold.miss_share() > 1.5 * warm && colder.miss_share() > cold.miss_share());
    let skewed = simulate(&Config { popularity_power: 4, ..config });
    assert!(skewed.ram_share() > 1.3 * simulate(&config).ram_share());
}

#[test]
fn progress_is_told_and_never_goes_back() {
    let mut told = vec![0.0];
    let config = Config { scale: 64, ..small() };
    run(&config, Workload::Generated, &mut |share| told.push(share)).expect("it runs");
    assert!(told.len() > 2 && told.is_sorted() && told.iter().all(|share| *share <= 1.0));
}
