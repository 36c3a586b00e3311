//! A host that loses its cache, among others that keep theirs, in the timed simulator.

use cinnabar_study::timed::config::{Architecture, BLOCKS_PER_GIB, Restart, Service, WritePolicy};
use cinnabar_study::timed::loss::report::{HostPhase, Phase};
use cinnabar_study::timed::{
    Config, LossReport, LossSettings, LossStats, Outcome, Pace, RunError, Workload, run,
};
use cinnabar_trace::{Op, Record};

const SECOND_NS: u64 = 1_000_000_000;
const MIB_BLOCKS: u64 = 256;
const HOST: u32 = 1;

/// Three hosts with sets of 4 MiB that their flash holds, 240 reads a second each, on a file server of
/// two at a time.
fn three() -> Config {
    let loss = LossSettings { at_ns: 10 * SECOND_NS, host: HOST, ..LossSettings::default() };
    Config {
        hosts: 3,
        threads: 4,
        pause_ns: 16_600_000,
        ram_blocks: 0,
        flash_blocks: 8 * MIB_BLOCKS,
        filer_service: Service::Servers(2),
        fast_read_share: 1.0,
        working_set_blocks: 4 * MIB_BLOCKS,
        total_blocks: 12 * MIB_BLOCKS,
        outside_share: 0.0,
        write_share: 0.0,
        volume_multiple: 20.0,
        warm_up_share: 0.4,
        loss,
        ..Config::default()
    }
}

fn with(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = three();
    change(&mut config);
    config
}

fn simulate(config: &Config) -> Outcome {
    run(config, Workload::Generated, &mut |_| ()).expect("settings that make sense")
}

fn lost(config: &Config) -> LossReport {
    simulate(config).loss.expect("a cache was lost")
}

fn hit_shares(host: &[HostPhase; 3]) -> [f64; 3] {
    [0, 1, 2].map(|phase| host[phase].hit_share())
}

/// The heart of it: fails if the cache is not emptied, or another one is.
#[test]
fn one_host_loses_its_cache_and_no_other_does() {
    let report = lost(&three());
    for (number, host) in report.hosts.iter().enumerate() {
        let [before, during, after] = hit_shares(host);
        if number == HOST as usize {
            assert!(before > 0.99 && after > 0.95, "{before} {during} {after}");
            assert!(during < 0.85, "it has to read its 1,024 blocks again: {during}");
            assert!(host[Phase::During as usize].misses >= 900, "{}", host[1].misses);
        } else {
            assert!(before > 0.99 && during > 0.99 && after > 0.99, "{number}: {before} {during}");
        }
    }
    let warm_up = report.warm_up_ns().expect("it is warm again");
    // Three reads a block leave 5 % cold: some 3,000 at 240 a second, seen by the thousand.
    assert!((8 * SECOND_NS..25 * SECOND_NS).contains(&warm_up), "{warm_up}");
    assert_eq!(report.phases_ns[0], 10 * SECOND_NS);
    let rate = report.loser(Phase::Before).reads.count() as f64 / 10.0;
    assert!((220.0..260.0).contains(&rate), "four threads, a pause of 16.6 ms: {rate}");
}

#[test]
fn phases_add_up_to_the_whole() {
    for architecture in [Architecture::Naive, Architecture::Lookaside, Architecture::Cinnabar] {
        let config = with(|config| {
            config.architecture = architecture;
            config.flash_blocks = 64 * MIB_BLOCKS;
            config.write_share = 0.2;
        });
        let outcome = simulate(&config);
        let report = outcome.loss.as_ref().expect("a cache was lost");
        let sum =
            |of: fn(&HostPhase) -> u64| -> u64 { report.hosts.iter().flatten().map(of).sum() };
        assert_eq!(sum(|seen| seen.reads.count()), outcome.reads.count());
        assert_eq!(sum(|seen| seen.writes.count()), outcome.writes.count());
        assert_eq!(sum(|seen| seen.hits), outcome.ram_hits + outcome.flash_hits);
        assert_eq!(sum(|seen| seen.misses), outcome.misses);
        assert_eq!(report.phases_ns.iter().sum::<u64>(), outcome.simulated_ns);
    }
}

#[test]
fn every_architecture_loses_and_warms_up() {
    for architecture in [
        Architecture::Naive,
        Architecture::Lookaside,
        Architecture::Unified,
        Architecture::Cinnabar,
    ] {
        for ram_blocks in [0, MIB_BLOCKS] {
            let config = with(|config| {
                config.architecture = architecture;
                config.ram_blocks = ram_blocks;
                config.ram_policy = WritePolicy::Sync;
                config.flash_blocks = 64 * MIB_BLOCKS;
                config.volume_multiple = 30.0;
                config.loss.ram_too = true;
            });
            let report = lost(&config);
            let [before, during, after] = hit_shares(&report.hosts[HOST as usize]);
            let other = report.others(Phase::During).hit_share();
            let name = format!("{architecture}, {ram_blocks}: {before} {during} {after} {other}");
            assert!(before > 0.95 && during < 0.85 && after > 0.9 && other > 0.95, "{name}");
            assert!(report.warm, "{name}");
        }
    }
}

#[test]
fn ram_stays_unless_it_is_lost_too() {
    let config = |ram_too| {
        with(|config| {
            config.ram_blocks = 4 * MIB_BLOCKS;
            config.loss.ram_too = ram_too;
        })
    };
    let [kept, gone] =
        [false, true].map(|ram_too| lost(&config(ram_too)).loser(Phase::During).misses);
    assert!(kept < 10 && gone > 900, "all 1,024 blocks were in RAM: {kept} {gone}");
}

#[test]
fn the_same_seed_gives_the_same_report_and_a_loss_changes_nothing_before_it() {
    for architecture in [Architecture::Naive, Architecture::Cinnabar] {
        let config = with(|config| {
            config.architecture = architecture;
            config.flash_blocks = 64 * MIB_BLOCKS;
            config.loss.hurry = true;
            config.loss.iops = 500;
        });
        let stats = |outcome: &Outcome| LossStats::new(outcome.loss.as_ref().expect("a loss"));
        let (first, again) = (simulate(&config), simulate(&config));
        assert_eq!((first.digest, stats(&first)), (again.digest, stats(&again)));
        let other = simulate(&Config { seed: 2, ..config });
        assert_ne!((first.digest, stats(&first)), (other.digest, stats(&other)));
        let elsewhere = LossSettings { host: 2, ..config.loss };
        let elsewhere = simulate(&Config { loss: elsewhere, ..config });
        assert_ne!(first.digest, elsewhere.digest);
        let before = |outcome: &Outcome| {
            stats(outcome).hosts.iter().map(|host| host.before).collect::<Vec<_>>()
        };
        assert_eq!(before(&first), before(&elsewhere));
    }
}

/// A cold host in a hurry keeps others waiting at the file server; with a limit it does not, and takes
/// longer.
#[test]
fn a_hurry_costs_the_others_and_a_limit_costs_the_loser() {
    let config = |hurry, iops| {
        with(|config| {
            // A miss in five, so that the others need the file server, too.
            config.outside_share = 0.2;
            config.timings.filer_fast_read_ns = 2_000_000;
            config.filer_service = Service::Servers(1);
            config.volume_multiple = 60.0;
            config.threads = 8;
            config.pause_ns = 80_000_000;
            config.flash_blocks = 5 * MIB_BLOCKS;
            (config.loss.hurry, config.loss.iops) = (hurry, iops);
        })
    };
    let [paced, hurried, limited] =
        [(false, 0), (true, 0), (true, 60)].map(|(hurry, iops)| lost(&config(hurry, iops)));
    let others = |report: &LossReport, phase| report.others(phase).reads.mean_ns();
    let before = others(&paced, Phase::Before);
    assert!(others(&hurried, Phase::During) > 2.0 * before, "{hurried:?}");
    assert!(others(&limited, Phase::During) < 1.5 * before, "{before}");
    assert!(others(&hurried, Phase::After) < 1.3 * before);
    let [paced, hurried, limited] =
        [paced, hurried, limited].map(|report| (report.warm_up_ns(), report));
    assert!(hurried.0 < paced.0 && hurried.0 < limited.0);
    let seen = limited.1.loser(Phase::During);
    let seconds = limited.1.phases_ns[1] as f64 / 1e9;
    let rate = seen.misses as f64 / seconds;
    assert!((55.0..61.0).contains(&rate), "in a hurry it takes all that the limit gives: {rate}");
}

#[test]
fn a_limit_holds_for_an_engine_and_for_writes() {
    let rate = |architecture, write_share| {
        let config = with(|config| {
            config.architecture = architecture;
            config.flash_blocks = 64 * MIB_BLOCKS;
            config.flash_policy = Some(WritePolicy::Sync);
            config.write_share = write_share;
            config.volume_multiple = 60.0;
            (config.loss.hurry, config.loss.iops) = (true, 100);
        });
        let report = lost(&config);
        let seen = report.loser(Phase::During);
        (seen.misses + seen.writes.count()) as f64 / (report.phases_ns[1] as f64 / 1e9)
    };
    for architecture in [Architecture::Naive, Architecture::Cinnabar] {
        for write_share in [0.0, 0.5] {
            let rate = rate(architecture, write_share);
            assert!((80.0..102.0).contains(&rate), "{architecture}, {write_share}: {rate}");
        }
    }
}

#[test]
fn a_loss_that_can_not_be_seen_is_an_error() {
    let late = with(|config| config.loss.at_ns = 800 * SECOND_NS);
    let error = run(&late, Workload::Generated, &mut |_| ()).expect_err("it is over by then");
    assert!(matches!(error, RunError::LossTooLate(ms, 800_000, HOST) if ms > 10_000), "{error}");
    assert!(error.hint().contains("loss.at"));
    let early = with(|config| config.loss.at_ns = 1);
    let error = run(&early, Workload::Generated, &mut |_| ()).expect_err("nothing was read");
    assert!(matches!(error, RunError::LossTooEarly(HOST)), "{error}");
    let restarted = with(|config| {
        (config.architecture, config.restart) = (Architecture::Cinnabar, Restart::Crash);
        config.flash_blocks = BLOCKS_PER_GIB;
    });
    let error = run(&restarted, Workload::Generated, &mut |_| ()).expect_err("both at once");
    assert!(matches!(error, RunError::Config(_)), "{error}");
}

/// Two volumes, one on each host, each reading its 100 blocks over and over at its own pace.
#[test]
fn the_host_of_a_trace_loses_its_cache() {
    let records = (0..20_000u64).map(|at| Record {
        ts_us: at * 500,
        volume: (at % 2) as u32,
        op: Op::Read,
        offset_bytes: (at / 2 % 100) << 12,
        length_bytes: 4096,
    });
    let records = Box::new(records.map(Ok));
    let config = with(|config| {
        config.hosts = 2;
        config.pause_ns = 0;
        config.loss.at_ns = 5 * SECOND_NS;
    });
    let expected = Some(20_000);
    let workload = Workload::Records { records, pace: Pace::Recorded, warm_up: 1000, expected };
    let outcome = run(&config, workload, &mut |_| ()).expect("it runs");
    let report = outcome.loss.expect("a cache was lost");
    assert_eq!(report.hosts[HOST as usize][Phase::During as usize].misses, 100);
    assert_eq!(report.hosts[0].iter().map(|seen| seen.misses).sum::<u64>(), 0);
    let warm_up = report.warm_up_ns().expect("after two windows at most");
    assert!(warm_up < 2_100_000_000, "{warm_up}");
}
