//! The production engine as the flash cache of the timed simulator.

use crate::traces::{fixture, shared_trace};
use cinnabar_engine::units::ByteSpan;
use cinnabar_policy::Writes;
use cinnabar_study::hits::EngineCache;
use cinnabar_study::timed::config::{
    Architecture, BLOCKS_PER_GIB, Restart, Service, Timings, WritePolicy,
};
use cinnabar_study::timed::{Config, ConfigError, Outcome, Pace, RunError, Workload, run};
use cinnabar_trace::{Op, Record};
use std::num::NonZeroU32;

const SCALE: u32 = 256;
/// The smallest journal: 256 KiB.
const JOURNAL_BLOCKS: u64 = 64;

fn small() -> Config {
    Config {
        architecture: Architecture::Cinnabar,
        scale: SCALE,
        working_set_blocks: 20 * BLOCKS_PER_GIB,
        ..Config::default()
    }
}

/// The engine alone, one request at a time.
fn alone(flash_blocks: u64) -> Config {
    Config {
        architecture: Architecture::Cinnabar,
        ram_blocks: 0,
        flash_blocks,
        threads: 1,
        working_set_blocks: 1,
        ..Config::default()
    }
}

fn simulate(config: &Config) -> Outcome {
    run(config, Workload::Generated, &mut |_| ()).expect("settings that make sense")
}

fn play(config: &Config, records: &[Record], warm_up: u64) -> Result<Outcome, RunError> {
    let records = Box::new(records.iter().copied().map(Ok));
    let pace = Pace::Threads;
    run(config, Workload::Records { records, pace, warm_up, expected: None }, &mut |_| ())
}

fn record(op: Op, offset_bytes: u64, length_bytes: u64) -> Record {
    Record { ts_us: 0, volume: 0, op, offset_bytes, length_bytes }
}

fn block(op: Op, block: u64) -> Record {
    record(op, block << 12, 4096)
}

/// What each kind of access takes, by hand: request packet 8.2 us, 92 us or 7952 us at the file
/// server, data 8.2 + 32.768 us a block.
#[test]
fn single_accesses_take_the_time_of_their_parts() {
    let config = Config { fast_read_share: 1.0, ..alone(8192) };
    let mean = |records: &[Record], warm_up| {
        let outcome = play(&config, records, warm_up).expect("it runs");
        (outcome.reads.mean_ns(), outcome.writes.mean_ns())
    };
    let exactly = |got: f64, expected: u64| assert!((got - expected as f64).abs() < 0.5, "{got}");
    // Far apart, so that each is a miss; the first one waits for the start.
    let misses = [block(Op::Read, 1), block(Op::Read, 1000), block(Op::Read, 2000)];
    exactly(mean(&misses, 1).0, 8_200 + 92_000 + 8_200 + 32_768);
    // In the engine's RAM by then.
    exactly(mean(&[block(Op::Read, 1), block(Op::Read, 1)], 1).0, 400);
    // Write-through: data there, a word back.
    exactly(mean(&[block(Op::Read, 1), block(Op::Write, 9)], 1).1, 8_200 + 32_768 + 92_000 + 8_200);
    // Three blocks are one request; what follows the first block was read ahead.
    let three = [block(Op::Read, 1), record(Op::Read, 100 << 12, 3 << 12)];
    exactly(mean(&three, 1).0, 8_200 + 3 * 92_000 + 8_200 + 3 * 32_768);
    let slow = Config { fast_read_share: 0.0, ..config };
    let outcome = play(&slow, &three, 1).expect("it runs");
    exactly(outcome.reads.mean_ns(), 8_200 + 7_952_000 + 2 * 92_000 + 8_200 + 3 * 32_768);
    assert_eq!((outcome.filer_reads, outcome.misses), (3, 3));
}

/// Blocks that were written to flash are read from there.
#[test]
fn hits_in_flash_take_the_time_of_flash() {
    let config = alone(8192);
    let pass = |op| (0..4000_u64).map(move |number| block(op, number * 7 % 4096));
    let records: Vec<Record> = pass(Op::Read).chain(pass(Op::Read)).collect();
    let outcome = play(&config, &records, 4000).expect("it runs");
    let report = outcome.engine.expect("an engine");
    assert_eq!((outcome.flash_hits, outcome.misses), (4000, 0));
    assert!(report.ram_hits < 600, "few are still in RAM: {}", report.ram_hits);
    let from_flash = (4000 - report.ram_hits) as f64;
    let expected = (from_flash * 88_000.0 + report.ram_hits as f64 * 400.0) / 4000.0;
    assert!((outcome.reads.mean_ns() - expected).abs() < 1.0, "{}", outcome.reads.mean_ns());
    assert!(outcome.flash_reads >= 4000 - report.ram_hits);
}

/// The engine under this driver and under the one for hits, which knows no time: a request every 10 us,
/// and I/O that takes none. Returns hits of reads with the times of the paper.
fn same_hits_as_alone(trace: &[Record], flash_blocks: u64, per_mille: u64) -> (u64, u64) {
    let config = alone(flash_blocks);
    let slow = play(&config, trace, 0).expect("it runs");
    let nothing = Timings {
        ram_read_ns: 0,
        ram_write_ns: 0,
        flash_read_ns: 0,
        flash_write_ns: 0,
        packet_ns: 0,
        block_transfer_ns: 0,
        filer_fast_read_ns: 0,
        filer_slow_read_ns: 0,
        filer_write_ns: 0,
    };
    let config = Config { timings: nothing, ..config };
    let data =
        |record: &&Record| matches!(record.op, Op::Read | Op::Write) && record.length_bytes > 0;
    let every_10_us = |(at, record): (u64, &Record)| Ok(Record { ts_us: at * 10, ..*record });
    let records = Box::new((0..).zip(trace.iter().filter(data)).map(every_10_us));
    let pace = Pace::Recorded;
    let workload = Workload::Records { records, pace, warm_up: 0, expected: None };
    let outcome = run(&config, workload, &mut |_| ()).expect("it runs");
    let report = outcome.engine.expect("an engine");
    let size = NonZeroU32::new(report.capacity_blocks as u32).expect("a size");
    let mut cache = EngineCache::new(size, Writes::Through).expect("a cache");
    assert_eq!(cache.capacity_blocks(), report.capacity_blocks);
    for record in trace {
        let is_write = record.op == Op::Write;
        if !(is_write || record.op == Op::Read) || record.length_bytes == 0 {
            continue;
        }
        let start = record.offset_bytes / 512 * 512;
        let end = (record.offset_bytes + record.length_bytes).next_multiple_of(512);
        cache.request(record.volume, is_write, ByteSpan::new(start, end - start)).expect("it fits");
    }
    let counts = cache.counts();
    println!(
        "{flash_blocks}: {} of {} read hits, {} and {} write hits, {} and {} blocks to flash",
        outcome.flash_hits,
        counts.read_references - counts.read_misses,
        report.write_hits,
        counts.references - counts.misses - (counts.read_references - counts.read_misses),
        outcome.flash_writes,
        counts.flash_writes,
    );
    assert_eq!(outcome.block_reads(), counts.read_references);
    let hits = counts.read_references - counts.read_misses;
    let all_hits = counts.references - counts.misses;
    // Both clocks run differently, and over a long trace what the engine does by time falls between other
    // requests.
    let near = |a: u64, b: u64| a.abs_diff(b) <= b * per_mille / 1000;
    assert!(near(outcome.flash_hits, hits), "{} and {hits}", outcome.flash_hits);
    let in_time = outcome.flash_hits + report.write_hits;
    assert!(near(in_time, all_hits), "{in_time} and {all_hits}");
    // The journal is laid out before the first request, which is when measuring begins here.
    let written = outcome.flash_writes + JOURNAL_BLOCKS;
    assert!(near(written, counts.flash_writes), "{written} and {}", counts.flash_writes);
    println!(
        "in time: {} read hits, {} blocks from the back end",
        slow.flash_hits, slow.filer_reads
    );
    (slow.flash_hits, outcome.flash_hits)
}

#[test]
fn hits_are_those_of_the_engine_by_itself() {
    let (slow, quick) = same_hits_as_alone(&fixture()[..30_000], 8192, 0);
    assert!(slow.abs_diff(quick) * 100 < quick, "{slow} {quick}");
}

#[test]
fn hits_on_a_real_disk_are_those_of_the_engine_by_itself() {
    let Some(trace) = shared_trace("cp_vscsi.canon.csv.zst") else { return };
    // A chunk that is not full after a second is written as it is, so by the clock of a slow back end
    // segments end elsewhere, and other blocks leave.
    let (slow, quick) = same_hits_as_alone(&trace, 65_536, 10);
    assert!(slow.abs_diff(quick) * 100 < quick, "{slow} {quick}");
}

/// Beside the paper's model of the same sizes: the engine keeps blocks by its own rules, so it is not
/// the same; but it is a cache of that size at that place.
#[test]
fn the_engine_does_about_what_the_models_flash_does() {
    let model = Config { architecture: Architecture::Lookaside, ..small() };
    let (engine, model) = (simulate(&small()), simulate(&model));
    let report = engine.engine.expect("an engine");
    println!(
        "engine {:.1} us, hits {:.3} + {:.3}; lookaside {:.1} us, {:.3} + {:.3}; {report:?}",
        engine.reads.mean_ns() / 1e3,
        engine.ram_share(),
        engine.flash_share(),
        model.reads.mean_ns() / 1e3,
        model.ram_share(),
        model.flash_share(),
    );
    assert_eq!(engine.block_reads(), engine.reads.count(), "each block read is in one place");
    assert!((engine.ram_share() - model.ram_share()).abs() < 0.01);
    assert!((engine.flash_share() - model.flash_share()).abs() < 0.05);
    assert!(engine.reads.mean_ns() < 1.3 * model.reads.mean_ns());
    assert!(report.cached_blocks <= report.capacity_blocks + report.capacity_blocks / 50);
    assert!(report.metadata_writes > 0 && report.metadata_writes < engine.flash_writes);
    assert!(model.engine.is_none());
}

#[test]
fn same_settings_and_seed_give_the_same_digest() {
    let config = Config { hosts: 2, shared_set: true, ..small() };
    let (first, again) = (simulate(&config), simulate(&config));
    assert_eq!((first.digest, first.engine), (again.digest, again.engine));
    assert_ne!(first.digest, simulate(&Config { seed: 2, ..config }).digest);
}

#[test]
fn every_policy_of_ram_and_every_queue_runs_to_its_end() {
    for ram_policy in
        [WritePolicy::Sync, WritePolicy::Async, WritePolicy::Periodic(1), WritePolicy::Never]
    {
        for ram_blocks in [0, 8 * BLOCKS_PER_GIB] {
            for restart in [Restart::Warm, Restart::Cold { ram_too: true }, Restart::Crash] {
                let config = Config {
                    ram_policy,
                    ram_blocks,
                    restart,
                    flash_service: Service::Servers(8),
                    filer_service: Service::Servers(64),
                    operation_blocks: 3,
                    ..small()
                };
                let outcome = simulate(&config);
                let all = outcome.reads.count() + outcome.writes.count();
                let expected = (20 * BLOCKS_PER_GIB * 4 / u64::from(SCALE)).div_ceil(3);
                assert_eq!(all, expected - expected.div_ceil(2), "{config:?}");
            }
        }
    }
}

/// A write of one host takes the others' copies, in RAM and in their engines.
#[test]
fn writes_take_other_hosts_copies() {
    let shared = Config { hosts: 2, shared_set: true, ..small() };
    let outcome = simulate(&shared);
    // 20 GB fit: most of what is written is on the other host, too.
    assert!(outcome.invalidation_share() > 0.4, "{}", outcome.invalidation_share());
    let without_ram = simulate(&Config { ram_blocks: 0, ..shared });
    assert!(without_ram.invalidation_share() > 0.4, "{}", without_ram.invalidation_share());
    let apart = simulate(&Config { shared_set: false, outside_share: 0.0, ..shared });
    assert_eq!(apart.invalidating_writes, 0);
}

#[test]
fn a_crash_or_a_stop_leaves_the_cache_warm_and_a_new_device_does_not() {
    let with = |restart| simulate(&Config { restart, ram_blocks: 0, ..small() });
    let (warm, cold) = (with(Restart::Warm), with(Restart::Cold { ram_too: false }));
    assert!(cold.misses > warm.misses + warm.misses / 2, "{} {}", cold.misses, warm.misses);
    assert!(warm.engine.expect("an engine").restart.is_none());
    for restart in [Restart::Crash, Restart::Stop] {
        let outcome = with(restart);
        let recovery = outcome.engine.expect("an engine").restart.expect("it was restarted");
        println!("{restart:?}: {recovery:?}, {} misses, warm {}", outcome.misses, warm.misses);
        let lost = recovery.before_blocks.saturating_sub(recovery.warm_blocks);
        // What was in RAM only is lost in a crash, probation and the chunks being filled; and 8 MiB of
        // active regions.
        let most = if restart == Restart::Crash { recovery.before_blocks / 10 + 2048 } else { 0 };
        assert!(lost <= most, "{recovery:?}");
        assert!(outcome.misses < cold.misses && outcome.misses + 100 > warm.misses);
        assert!(recovery.load_ns > 0 && recovery.pages > 0);
        assert_eq!(recovery.stop_ns > 0, restart == Restart::Stop);
    }
}

fn refused(change: impl FnOnce(&mut Config)) -> &'static str {
    let mut config = small();
    change(&mut config);
    let error: ConfigError = config.check().expect_err("it makes no sense");
    assert!(!error.hint.is_empty());
    error.key
}

#[test]
fn what_an_engine_can_not_be_is_refused() {
    use cinnabar_study::timed::config::Placement;
    assert!(small().check().is_ok());
    assert_eq!(refused(|config| config.placement = Placement::Server), "placement");
    assert_eq!(refused(|config| config.flash_policy = Some(WritePolicy::Never)), "flash_policy");
    assert_eq!(refused(|config| config.prefetch_blocks = 4), "prefetch_blocks");
    assert_eq!(refused(|config| config.flash_blocks = 0), "flash_blocks");
    assert_eq!(refused(|config| config.scale = 1 << 14), "flash_blocks");
    let crash = |config: &mut Config| {
        config.architecture = Architecture::Naive;
        config.restart = Restart::Crash;
    };
    assert_eq!(refused(crash), "restart");
}

/// Requests of a trace set out in its order, whatever keeps some of the threads: each of these writes
/// shares a block with the one before it, so none begins before that one ends.
#[test]
fn threads_take_the_requests_of_a_trace_in_order() {
    let config = Config { threads: 4, fast_read_share: 0.0, ..alone(8192) };
    let reads = (0..3).map(|at| block(Op::Read, 100_000 + at * 1000));
    let writes = (0..400).map(|at| record(Op::Write, at * 8192 + 512, 8192));
    let records: Vec<Record> = writes.clone().take(8).chain(reads).chain(writes.skip(8)).collect();
    let outcome = play(&config, &records, 0).expect("it runs");
    // Up with two blocks, two blocks of service, a word back; one after the other.
    let one_ns = 8_200 + 2 * 32_768 + 3 * 92_000 + 8_200;
    assert!(outcome.simulated_ns > 380 * (one_ns - 92_000), "{}", outcome.simulated_ns);
}
