//! A back end whose latency depends on how much is under way, and a destage that goes on for minutes.

use super::*;

const TICK_NS: u64 = 100_000_000;
const S: u64 = 1_000_000_000;

/// A miss takes 1 ms, and `each_percent` more for each request of the destage; a request of one block
/// takes 10 ms, and `each_ns` more for each other one that is under way.
struct Model {
    pace: Pace,
    now: Instant,
    each_percent: u64,
    each_ns: u64,
    misses_a_tick: u64,
    dirty_blocks: u64,
    /// As much is written as is destaged.
    endless: bool,
    rpo_ns: u64,
    pressed: bool,
    /// What the last tick did.
    writing: u64,
    miss_ns: u64,
}

impl Model {
    fn new(each_percent: u64) -> Self {
        Self {
            pace: Pace::default(),
            now: Instant(1),
            each_percent,
            each_ns: 0,
            misses_a_tick: 20,
            dirty_blocks: 100_000,
            endless: true,
            rpo_ns: 3_600 * S,
            pressed: false,
            writing: 0,
            miss_ns: 0,
        }
    }

    fn tick(&mut self) {
        let load = Load {
            dirty_blocks: self.dirty_blocks,
            age_ns: self.now.0,
            rpo_ns: self.rpo_ns,
            pressed: self.pressed,
        };
        let most = if self.pressed { self.pace.pressed() } else { self.pace.at_most() };
        // Each of them ends ten times a tick.
        self.writing = u64::from(most).min(self.dirty_blocks).min(1_000);
        if !self.endless {
            self.dirty_blocks -= (self.writing * 10).min(self.dirty_blocks);
        }
        self.miss_ns = 1_000_000 + self.writing * 10_000 * self.each_percent;
        if self.writing > 0 {
            self.pace.writes(self.writing as u32, self.writing < self.dirty_blocks);
            self.pace.wrote(
                1,
                Sent { at: self.now, alone: false },
                10_000_000 + (self.writing - 1) * self.each_ns,
            );
        }
        self.now = self.now.plus_ns(TICK_NS);
        let reads = self.misses_a_tick;
        self.pace.reads();
        self.pace.saw(self.now, Misses { reads, total_ns: reads * self.miss_ns });
        self.pace.decide(self.now, TICK_NS, &load);
    }

    fn ticks(&mut self, count: u32) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for _ in 0..count {
            self.tick();
            all.push((self.writing, self.miss_ns));
        }
        all
    }
}

#[test]
fn the_destage_takes_what_misses_leave() {
    let mut model = Model::new(10);
    model.ticks(20);
    let all = model.ticks(600);
    let mean = |of: fn(&(u64, u64)) -> u64| all.iter().map(of).sum::<u64>() / all.len() as u64;
    // Usual is 1.1 ms, with one request at a time. At six a miss takes 1.6 ms.
    assert!((3..=6).contains(&mean(|tick| tick.0)), "{}", mean(|tick| tick.0));
    assert!(mean(|tick| tick.1) <= 1_500_000, "{}", mean(|tick| tick.1));
    let slow = all.iter().filter(|tick| tick.1 > 1_650_000).count();
    assert!(slow * 4 < all.len(), "{slow} ticks of {}", all.len());
    assert!(matches!(model.pace.reason, PaceReason::Quick | PaceReason::Slow));
}

#[test]
fn a_back_end_that_does_not_mind_gets_all() {
    let mut model = Model::new(0);
    model.ticks(400);
    assert_eq!(model.pace.at_most(), DEPTH_MAX);
}

#[test]
fn one_request_goes_whatever_misses_say() {
    let mut model = Model::new(500);
    let all = model.ticks(300);
    assert!(all.iter().skip(2).all(|tick| tick.0 >= 1), "it never starves");
    assert!(all.iter().skip(20).all(|tick| tick.0 <= 2), "and takes no more");
}

#[test]
fn without_misses_all_go_and_the_first_miss_is_not_met_by_a_crowd() {
    let mut model = Model::new(10);
    model.misses_a_tick = 0;
    let all: Vec<u64> = model.ticks(20).iter().map(|tick| tick.0).collect();
    assert!(all.starts_with(&[32, 64, 128, 256, 256]), "{all:?}");
    assert_eq!(model.pace.status().at_most, Some(DEPTH_MAX));
    assert_eq!(model.pace.reason, PaceReason::Idle);
    model.misses_a_tick = 20;
    model.ticks(2);
    assert_eq!((model.writing, model.pace.reason), (1, PaceReason::Quick));
    // What it took beside the crowd is not what it takes usually.
    assert!(model.pace.usual_ns.is_some_and(|ns| ns < 1_200_000), "{:?}", model.pace.usual_ns);
    model.misses_a_tick = 0;
    model.ticks(8);
    assert_eq!(model.writing, 256);
}

/// What is in its queue can't be called back once a guest reads.
#[test]
fn a_slow_back_end_gets_no_queue_while_no_guest_reads() {
    for pressed in [false, true] {
        let mut model = Model::new(10);
        (model.misses_a_tick, model.each_ns, model.pressed) = (0, 5_000_000, pressed);
        let all: Vec<u64> = model.ticks(200).iter().map(|tick| tick.0).collect();
        // Nine of them take 50 ms each.
        let least = if pressed { 32 } else { 8 };
        assert!(all.iter().skip(4).all(|depth| (least..=32).contains(depth)), "{all:?}");
        assert_eq!(all[100..].iter().min(), Some(&least), "{all:?}");
    }
}

/// A back end behind a long line: more at a time make no queue there.
#[test]
fn a_distant_back_end_gets_as_many_as_a_near_one() {
    let mut pace = Pace::default();
    for tick in 1..20 {
        let now = Instant(tick * TICK_NS);
        pace.writes(32, true);
        pace.wrote(1, Sent { at: now, alone: tick < 3 }, 150_000_000);
        pace.decide(now, TICK_NS, &Load { rpo_ns: S, ..Load::default() });
    }
    assert_eq!(pace.at_most(), DEPTH_MAX);
}

/// The one that was alone may have been a quick one.
#[test]
fn a_back_end_of_varied_latencies_gets_enough() {
    let mut pace = Pace::default();
    let load = Load { rpo_ns: S, ..Load::default() };
    let mut least = u32::MAX;
    for tick in 1..500 {
        let now = Instant(tick * TICK_NS);
        pace.writes(pace.at_most(), true);
        for request in 0..20 {
            pace.wrote(
                1,
                Sent { at: now, alone: tick == 1 && request == 0 },
                20_000_000 + request * 6_000_000,
            );
        }
        pace.decide(now, TICK_NS, &load);
        least = least.min(pace.at_most());
    }
    assert_eq!(least, 8);
    pace.decide(Instant(500 * TICK_NS), TICK_NS, &Load { pressed: true, ..load });
    assert_eq!(pace.pressed(), 32, "what must not wait has more");
    let overdue = Load { dirty_blocks: 1_000, age_ns: S, ..load };
    pace.decide(Instant(501 * TICK_NS), TICK_NS, &overdue);
    assert_eq!((pace.at_most(), pace.reason), (32, PaceReason::Idle), "so has what is late");
    // Requests that stay quick with so many lead on from there.
    for tick in 502..506 {
        let now = Instant(tick * TICK_NS);
        pace.writes(32, true);
        pace.wrote(1, Sent { at: now, alone: false }, 10_000_000);
        pace.decide(now, TICK_NS, &overdue);
    }
    assert!(pace.at_most() > 64, "{}", pace.at_most());
}

/// Answers to requests of before say nothing of the bound of now.
#[test]
fn an_old_queue_does_not_halve_it_twice() {
    let mut pace = Pace::default();
    let load = Load { rpo_ns: S, ..Load::default() };
    let mut depths = Vec::new();
    for tick in 1..10 {
        let now = Instant(tick * TICK_NS);
        pace.writes(32, true);
        pace.wrote(1, Sent { at: Instant(0), alone: false }, now.0);
        pace.decide(now, TICK_NS, &load);
        depths.push(pace.at_most());
    }
    assert_eq!(depths[8], 16, "{depths:?}");
}

/// Requests of a time without misses may still be under way when misses come.
#[test]
fn misses_beside_a_crowd_are_not_usual() {
    let mut pace = Pace::default();
    let load = Load { rpo_ns: 3_600 * S, ..Load::default() };
    let mut tick = 0;
    let mut after = |pace: &mut Pace, under_way: u32, miss_ns: u64| {
        tick += 1;
        pace.writes(under_way, true);
        pace.reads();
        pace.saw(Instant(tick * TICK_NS), Misses { reads: 10, total_ns: 10 * miss_ns });
        pace.decide(Instant(tick * TICK_NS), TICK_NS, &load);
        (pace.at_most(), pace.usual_ns)
    };
    for _ in 0..5 {
        assert_eq!(after(&mut pace, 30, 500_000_000), (1, None));
    }
    assert_eq!(after(&mut pace, 1, 5_000_000), (2, Some(5_000_000)));
}

#[test]
fn rpo_is_kept_whatever_misses_suffer() {
    // With one at a time it would take 100 s.
    let mut model = Model::new(500);
    (model.dirty_blocks, model.endless) = (10_000, false);
    model.rpo_ns = 30 * S;
    let mut reasons = Vec::new();
    while model.dirty_blocks > 0 {
        model.tick();
        reasons.push(model.pace.reason);
        assert!(model.now.0 < 18 * S, "{} blocks are left", model.dirty_blocks);
    }
    assert!(reasons.contains(&PaceReason::Rpo));
    let few = model.pace.at_most();
    assert!(few < 200, "no more than that takes: {few}");
}

#[test]
fn what_is_late_or_pressed_goes_at_once() {
    let mut model = Model::new(500);
    model.ticks(50);
    assert_eq!(model.writing, 1);
    model.pressed = true;
    model.ticks(2);
    assert_eq!((model.writing, model.pace.reason), (64, PaceReason::Pressed));
    model.pressed = false;
    model.ticks(2);
    assert_eq!(model.writing, 1);
    model.rpo_ns = 2 * model.now.0;
    model.ticks(2);
    assert_eq!((model.writing, model.pace.reason), (256, PaceReason::Rpo));
}

#[test]
fn a_back_end_that_became_slower_is_usual_after_a_while() {
    let mut model = Model::new(0);
    model.ticks(100);
    let before = model.pace.at_most();
    // Three times slower, whatever the destage does.
    for _ in 0..3_000 {
        model.tick();
        let reads = model.misses_a_tick;
        model.pace.reads();
        model.pace.saw(model.now, Misses { reads, total_ns: reads * 5_000_000 });
    }
    assert!(before > 50 && model.pace.at_most() > before, "{before}, {}", model.pace.at_most());
}

#[test]
fn nothing_is_paced_without_a_tick() {
    let mut pace = Pace::default();
    pace.reads();
    pace.saw(Instant(1), Misses { reads: 100, total_ns: 100 });
    pace.decide(Instant(S), 0, &Load::default());
    assert_eq!(pace.status().at_most, None);
    assert_eq!(pace.status().reason, PaceReason::Off);
}

/// What the engine reads for the destage itself is no guest's.
#[test]
fn reads_for_the_destage_do_not_slow_it_down() {
    let mut pace = Pace::default();
    for tick in 1..100 {
        let now = Instant(tick * TICK_NS);
        pace.writes(1, true);
        pace.saw(now, Misses { reads: 10, total_ns: tick * TICK_NS });
        pace.decide(now, TICK_NS, &Load { rpo_ns: S, ..Load::default() });
        assert_eq!((pace.at_most(), pace.reason), (32, PaceReason::Idle));
    }
}
