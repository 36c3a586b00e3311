//! What the state of a loss does by itself, and which losses are refused.
//!
//! Part of the module's unit tests.

use super::super::config::{Config, Placement, Restart};
use super::report::{Phase, WINDOW_READS};
use super::settings::LossSettings;
use super::state::{Found, Loss};

fn config(loss: LossSettings) -> Config {
    Config { hosts: 2, loss, ..Config::default() }
}

fn loss(iops: u32) -> Loss {
    let loss = LossSettings { at_ns: 1000, host: 1, iops, hurry: true, ..LossSettings::default() };
    Loss::new(&config(loss))
}

fn found(hits: u64, misses: u64) -> Found {
    Found { hits, misses }
}

#[test]
fn a_window_is_held_against_the_share_before() {
    let mut loss = loss(0);
    assert_eq!(loss.measure(50), 1050);
    assert!(!loss.hurries(1));
    loss.lose(1050, &[found(10, 0), found(800, 200)]);
    assert!(loss.hurries(1) && !loss.hurries(0));
    for read in 1..=WINDOW_READS {
        assert!(!loss.record(0, false, 2000, 2100), "another host's");
        assert!(!loss.record(1, true, 2000, 2100), "a write");
        assert_eq!(loss.record(1, false, 2000, 2100), read == WINDOW_READS);
    }
    // 0.8 before: 0.76 are asked for, of each window by itself.
    assert!(!loss.is_warm(found(800 + 759, 200 + 241)));
    assert!(loss.is_warm(found(1559 + 760, 441 + 240)));
    loss.end(9000, &[found(10, 0), found(2319, 681)]);
    assert!(!loss.hurries(1));
    // By the instant at which each was asked for, whenever it is done.
    for started_ns in [1049, 8999, 9000] {
        loss.record(1, false, started_ns, 9500);
    }
    let report = loss.report(10_000, &[found(10, 0), found(2320, 681)]).expect("it was lost");
    assert_eq!((report.warm_up_ns(), report.phases_ns), (Some(7950), [1000, 7950, 1000]));
    let count = |phase| report.loser(phase).reads.count();
    assert_eq!(Phase::ALL.map(count), [1, u64::from(WINDOW_READS) + 1, 1]);
    let blocks = Phase::ALL.map(|phase| (report.loser(phase).hits, report.loser(phase).misses));
    assert_eq!(blocks, [(800, 200), (1519, 481), (1, 0)]);
    assert_eq!(report.others(Phase::Before).hits, 10);
    assert_eq!(report.others(Phase::During).reads.count(), u64::from(WINDOW_READS));
}

#[test]
fn a_host_without_hits_before_is_never_warm() {
    let mut loss = loss(0);
    loss.measure(0);
    loss.lose(1000, &[found(0, 0), found(0, 500)]);
    assert!(!loss.is_warm(found(0, 1500)));
    let report = loss.report(5000, &[found(0, 0), found(0, 1500)]).expect("it was lost");
    assert_eq!((report.warm_up_ns(), report.phases_ns), (None, [1000, 4000, 0]));
}

#[test]
fn a_limit_spaces_the_io_of_one_host_until_it_is_warm() {
    let mut loss = loss(1000);
    loss.measure(0);
    assert_eq!(loss.turn(500, 1), None, "before the loss");
    loss.lose(1000, &[found(0, 0), found(1, 0)]);
    assert_eq!(loss.turn(1000, 0), None, "another host");
    let turns: Vec<_> = [2000, 2000, 2001].map(|now| loss.turn(now, 1)).to_vec();
    assert_eq!(turns, [None, Some(1_002_000), Some(2_002_000)]);
    assert_eq!(loss.turn(9_000_000, 1), None, "no turn is kept for later");
    assert_eq!(loss.turn(9_000_000, 1), Some(10_000_000));
    loss.end(9_000_001, &[found(0, 0), found(2, 0)]);
    assert_eq!(loss.turn(9_000_001, 1), None, "after the warm-up");
}

#[test]
fn a_run_that_ends_before_the_loss_says_so() {
    let mut loss = loss(0);
    loss.measure(0);
    assert_eq!(loss.report(999, &[Found::default(); 2]).err(), Some(1000));
}

#[test]
fn losses_that_make_no_sense_are_refused() {
    let key_of = |change: fn(&mut Config)| {
        let at = LossSettings { at_ns: 1000, host: 1, ..LossSettings::default() };
        let mut config = config(at);
        change(&mut config);
        let error = config.check().err()?;
        assert!(!error.hint.is_empty() && !error.message.is_empty());
        Some(error.key)
    };
    assert_eq!(key_of(|_| ()), None);
    assert_eq!(key_of(|config| config.loss.host = 2), Some("host"));
    assert_eq!(key_of(|config| config.loss.iops = 1_000_001), Some("iops"));
    assert_eq!(key_of(|config| config.loss.at_ns = u64::MAX), Some("at_ns"));
    assert_eq!(key_of(|config| config.scale = 1001), Some("at_ns"));
    assert_eq!(key_of(|config| config.placement = Placement::Server), Some("placement"));
    assert_eq!(key_of(|config| config.restart = Restart::Cold { ram_too: true }), None);
    // Settings of a loss that never comes.
    assert_eq!(key_of(|config| config.loss.at_ns = 0), None);
    let never = |loss| key_of_never(&loss);
    assert_eq!(never(LossSettings { hurry: true, ..LossSettings::default() }), Some("hurry"));
    assert_eq!(never(LossSettings { iops: 1, ..LossSettings::default() }), Some("iops"));
    assert_eq!(never(LossSettings { ram_too: true, ..LossSettings::default() }), Some("ram_too"));
}

fn key_of_never(loss: &LossSettings) -> Option<&'static str> {
    config(*loss).check().err().map(|error| error.key)
}
