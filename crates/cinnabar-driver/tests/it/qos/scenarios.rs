//! The behaviours that mClock promises, each as a run of the world with a verdict.

use crate::qos::judge::{Verdict, between};
use crate::qos::world::{Deed, Load, World, guest};
use cinnabar_driver::qos::mutant::Mutants;
use cinnabar_driver::qos::{Op, Settings, Work};

/// A run and what is said of it.
pub(crate) type Scenario = fn(Mutants) -> Verdict;

/// All of them, by name.
pub(crate) const ALL: &[(&str, Scenario)] = &[
    ("reservations hold", reservations_hold),
    ("reservations hold while the server's speed varies", speed_varies),
    ("reservations hold for a few requests at a time", few_at_a_time),
    ("service by weight is no advance on a reservation", weight_is_no_advance),
    ("weights in proportion", weights_in_proportion),
    ("reservations count against the weight", reservations_count),
    ("a reservation's lead is forgotten", lead_is_forgotten),
    ("limits hold", limits_hold),
    ("a limit lets a few requests at a time through", limit_of_few),
    ("limits hold after a stall", limits_hold_after_a_stall),
    ("an idle volume gets no credit", idle_gets_no_credit),
    ("a new volume begins in the middle", new_begins_in_the_middle),
    ("one request at a time jumps no queue", one_at_a_time),
    ("a heavy volume needs no queue", heavy_one_at_a_time),
    ("a new volume does not overtake one that asks one at a time", beside_one_at_a_time),
    ("a limited volume gets no credit", limited_gets_no_credit),
    ("a burst after idleness keeps to the limit", burst_after_idle),
    ("oversold reservations starve no volume", oversold),
    ("other limits count at once", limits_change_live),
    ("other weights count at once", weights_change_live),
    ("a volume is removed with requests waiting", removed),
    ("destage is a client of its own", destage),
    ("flushes count", flushes_count),
    ("no tenant is refused for another one's requests", own_queues),
    ("another depth counts", other_depth),
];

/// Every scenario holds without a bug.
#[test]
fn all_hold() {
    for (name, scenario) in ALL {
        if let Err(wrong) = scenario(Mutants::default()) {
            panic!("{name}: {wrong}");
        }
    }
}

const BUSY: Load = Load::Closed(64);
/// A second of 8,000 I/Os, each with 8 others.
fn world(mutants: Mutants, guests: Vec<crate::qos::world::Guest>) -> World {
    World::new(mutants, 8, 8000, guests)
}

fn reservations_hold(mutants: Mutants) -> Verdict {
    let guests = vec![
        guest(0, 0, 0, 10_000, BUSY),
        guest(1, 3000, 0, 1, BUSY),
        guest(2, 1000, 0, 1, Load::Closed(16)),
        guest(3, 50, 0, 1, Load::Closed(4)),
    ];
    let world = world(mutants, guests).run(5000);
    let turns = world.scheduler.report().turns_by_weight;
    between("turns by weight where reservations fit", turns as f64, 0.0, 0.0)?;
    let log = world.log;
    log.clean()?;
    for (seat, reserved) in [(1, 3000.0), (2, 1000.0), (3, 50.0)] {
        let range = (0.95 * reserved - 1.0, 1.05 * reserved + 1.0);
        log.each_second(seat, (1, 5), range)?;
    }
    Ok(())
}

fn speed_varies(mutants: Mutants) -> Verdict {
    let guests =
        vec![guest(0, 2500, 0, 1, BUSY), guest(1, 500, 0, 1, BUSY), guest(2, 0, 0, 10_000, BUSY)];
    // 8,000, 3,500, 16,000 and 4,000 I/Os a second.
    let world = world(mutants, guests).at(2000, Deed::Speed(2286));
    let log = world.at(4000, Deed::Speed(500)).at(6000, Deed::Speed(2000)).run(8000).log;
    log.clean()?;
    log.each_second(0, (0, 8), (2375.0, 2625.0))?;
    log.each_second(1, (0, 8), (475.0, 525.0))?;
    for (second, rest) in [(1, 5000.0), (3, 500.0), (5, 13_000.0), (7, 1000.0)] {
        between(
            "what is left",
            log.rate(2, second * 1000, second * 1000 + 1000),
            0.8 * rest,
            1.2 * rest,
        )?;
    }
    Ok(())
}

fn few_at_a_time(mutants: Mutants) -> Verdict {
    // Each does a fifth more if nothing else does; now and then none of its requests waits.
    let guests = vec![
        guest(0, 800, 0, 1, Load::Closed(1)),
        guest(1, 1600, 0, 1, Load::Closed(2)),
        guest(2, 3200, 0, 1, Load::Closed(4)),
        guest(3, 0, 0, 10_000, BUSY),
    ];
    let log = world(mutants, guests).run(5000).log;
    log.clean()?;
    for (seat, reserved) in [(0, 800.0), (1, 1600.0), (2, 3200.0)] {
        log.each_second(seat, (1, 5), (0.95 * reserved, 1.05 * reserved))?;
    }
    Ok(())
}

fn weight_is_no_advance(mutants: Mutants) -> Verdict {
    // For two seconds it gets eight times its reservation; then a neighbour comes.
    let mut neighbour = guest(1, 0, 0, 10_000, BUSY);
    neighbour.phases = vec![(2000, 5000)];
    let log = world(mutants, vec![guest(0, 1000, 0, 1, BUSY), neighbour]).run(5000).log;
    log.clean()?;
    between("alone", log.rate(0, 500, 2000), 7500.0, 8500.0)?;
    log.each_second(0, (2, 5), (950.0, 1060.0))
}

fn weights_in_proportion(mutants: Mutants) -> Verdict {
    let mut large = guest(2, 0, 0, 300, BUSY);
    large.op = Op::Write { length: 65_536 };
    let guests = vec![guest(0, 0, 0, 100, BUSY), guest(1, 0, 0, 200, BUSY), large];
    let log = world(mutants, guests).run(3000).log;
    log.clean()?;
    for (seat, weight) in [(0, 1.0), (1, 2.0), (2, 3.0)] {
        let part = log.part(seat, 500, 3000);
        between(&format!("part of {seat}"), part, 0.95 * weight / 6.0, 1.05 * weight / 6.0)?;
    }
    Ok(())
}

fn reservations_count(mutants: Mutants) -> Verdict {
    let guests = vec![guest(0, 2000, 0, 100, BUSY), guest(1, 0, 0, 100, BUSY)];
    let log = world(mutants, guests).run(3000).log;
    log.clean()?;
    between("part of the one with a reservation", log.part(0, 500, 3000), 0.475, 0.525)
}

fn lead_is_forgotten(mutants: Mutants) -> Verdict {
    // For ten seconds the reservation is four fifths of what there is; then there is enough for both.
    let guests = vec![guest(0, 4000, 0, 100, BUSY), guest(1, 0, 0, 100, BUSY)];
    let world = world(mutants, guests).at(0, Deed::Speed(1600)).at(10_000, Deed::Speed(500));
    let log = world.run(12_000).log;
    log.clean()?;
    log.each_second(0, (1, 10), (3800.0, 4200.0))?;
    between("half soon after", log.part(0, 10_050, 10_250), 0.475, 0.525)?;
    between("half later", log.part(0, 11_000, 12_000), 0.475, 0.525)
}

fn limits_hold(mutants: Mutants) -> Verdict {
    let mut large = guest(2, 0, 400, 100, BUSY);
    large.op = Op::Read { length: 131_072 };
    let limited = vec![guest(0, 0, 500, 100, BUSY), guest(1, 0, 0, 100, BUSY), large];
    let log = World::new(mutants, 2, 2000, limited).run(5000).log;
    log.clean()?;
    for (seat, limit) in [(0, 500.0), (2, 400.0)] {
        between("any second", log.most_in_a_second(seat), 0.0, 1.05 * limit)?;
        log.each_second(seat, (1, 5), (0.95 * limit, 1.05 * limit))?;
    }
    // Alone: nothing but the scheduler's own wake-ups brings it on.
    let world = World::new(mutants, 2, 2000, vec![guest(0, 400, 500, 100, BUSY)]).run(3000);
    let capacity = world.scheduler.report().reservations.capacity_iops;
    if capacity.is_some() {
        return Err(format!("a server that is not used up shows no capacity: {capacity:?}"));
    }
    world.log.each_second(0, (1, 3), (475.0, 525.0))
}

fn limit_of_few(mutants: Mutants) -> Verdict {
    // A request of the neighbour's takes three times as long as the limit's interval.
    let mut large = guest(1, 0, 0, 100, BUSY);
    large.op = Op::Read { length: 1 << 20 };
    let guests = vec![guest(0, 0, 1500, 10_000, Load::Closed(1)), large];
    let log = World::new(mutants, 1, 8000, guests).run(4000).log;
    log.clean()?;
    log.each_second(0, (1, 4), (0.95 * 1500.0, 1.05 * 1500.0))?;
    between("any second", log.most_in_a_second(0), 0.0, 1.05 * 1500.0)
}

fn limits_hold_after_a_stall(mutants: Mutants) -> Verdict {
    let guests = vec![guest(0, 1000, 1000, 100, Load::Open(990)), guest(1, 0, 0, 1, BUSY)];
    let log = world(mutants, guests).at(1000, Deed::Stall(4000)).run(8000).log;
    log.clean()?;
    between("any second", log.most_in_a_second(0), 0.0, 1050.0)?;
    log.each_second(0, (5, 8), (950.0, 1050.0))
}

fn idle_gets_no_credit(mutants: Mutants) -> Verdict {
    let mut sleeper = guest(0, 0, 0, 100, BUSY);
    sleeper.phases = vec![(0, 200), (3000, 4000)];
    let mut napper = guest(1, 0, 0, 100, BUSY);
    napper.phases = vec![(0, 200), (2500, 4000)];
    let guests = vec![sleeper, napper, guest(2, 0, 0, 100, BUSY)];
    let log = world(mutants, guests).run(4000).log;
    log.clean()?;
    between("the third after one woke", log.part(2, 2500, 2600), 0.45, 0.55)?;
    between("the third after both woke", log.part(2, 3000, 3200), 0.30, 0.37)
}

fn new_begins_in_the_middle(mutants: Mutants) -> Verdict {
    // The third one's reservation has brought its proportional tag far ahead of the others'.
    let mut new = guest(3, 0, 0, 100, BUSY);
    new.phases = vec![(2000, 4000)];
    let old =
        vec![guest(0, 0, 0, 100, BUSY), guest(1, 0, 0, 100, BUSY), guest(2, 2000, 0, 1, BUSY)];
    let log = world(mutants, [old, vec![new]].concat()).run(4000).log;
    log.clean()?;
    for from in [2000, 2100, 2500, 3000] {
        for seat in 0..4 {
            let what = format!("guest {seat} from {from} ms");
            between(&what, log.part(seat, from, from + 100), 0.225, 0.275)?;
        }
    }
    Ok(())
}

fn one_at_a_time(mutants: Mutants) -> Verdict {
    let guests = vec![guest(0, 0, 0, 1, Load::Closed(1)), guest(1, 0, 0, 100, BUSY)];
    let log = World::new(mutants, 4, 4000, guests).run(3000).log;
    log.clean()?;
    between("part of a hundredth", log.part(0, 500, 3000), 0.005, 0.015)
}

fn heavy_one_at_a_time(mutants: Mutants) -> Verdict {
    // Whenever its request ends, the other one's wait already.
    let guests = vec![guest(0, 0, 0, 1, BUSY), guest(1, 0, 0, 99, Load::Closed(1))];
    let log = World::new(mutants, 1, 1000, guests).run(4000).log;
    log.clean()?;
    between("99 parts of 100", log.part(1, 500, 4000), 0.95, 0.995)
}

fn beside_one_at_a_time(mutants: Mutants) -> Verdict {
    // When the second one comes, nothing waits; the first one had the server for two seconds.
    let mut new = guest(1, 0, 0, 100, BUSY);
    new.phases = vec![(2000, 4000)];
    let guests = vec![guest(0, 0, 0, 100, Load::Closed(1)), new];
    let log = World::new(mutants, 1, 1000, guests).run(4000).log;
    log.clean()?;
    between("the first one", log.part(0, 2000, 2200), 0.4, 0.6)?;
    between("the first one later", log.part(0, 2000, 4000), 0.45, 0.55)
}

fn limited_gets_no_credit(mutants: Mutants) -> Verdict {
    // Held at 100 of 2,000 for three seconds; then the server has 100 for both.
    let guests = vec![guest(0, 0, 100, 100, BUSY), guest(1, 0, 0, 100, BUSY)];
    let world = World::new(mutants, 2, 2000, guests).at(3000, Deed::Speed(20_000));
    let log = world.run(8000).log;
    log.clean()?;
    between("at its limit", log.rate(0, 500, 3000), 95.0, 105.0)?;
    between("half of what is left", log.part(0, 3100, 5000), 0.45, 0.55)
}

fn burst_after_idle(mutants: Mutants) -> Verdict {
    let mut bursting = guest(0, 500, 1000, 100, Load::Closed(4000));
    bursting.phases = vec![(0, 100), (9000, 12_000)];
    let guests = vec![bursting, guest(1, 2000, 0, 100, Load::Closed(16))];
    let log = world(mutants, guests).run(12_000).log;
    log.clean()?;
    between("any second", log.most_in_a_second(0), 0.0, 1050.0)?;
    between("the neighbour meanwhile", log.rate(1, 9000, 9100), 6500.0, 8500.0)
}

fn oversold(mutants: Mutants) -> Verdict {
    let guests =
        vec![guest(0, 6000, 0, 100, BUSY), guest(1, 6000, 0, 100, BUSY), guest(2, 0, 0, 100, BUSY)];
    let world = world(mutants, guests).run(6000);
    world.log.clean()?;
    for seat in [0, 1] {
        world.log.each_second(seat, (1, 6), (3800.0, 4200.0))?;
    }
    between("the one without", world.log.rate(2, 1000, 6000), 160.0, 320.0)?;
    between("its longest wait, ms", world.log.longest_wait_ms(2, 0, 5000), 0.0, 500.0)?;
    let shown = world.scheduler.report().reservations;
    // What the server really did, by the judge's count.
    let capacity = world.log.done / 6.0;
    let measured = shown.capacity_iops.unwrap_or(0) as f64;
    between("measured capacity", measured, 0.95 * capacity, 1.05 * capacity)?;
    between("oversold", shown.oversold_iops() as f64, 3600.0, 4400.0)?;
    let behind = world.scheduler.client(world.id(0)).map_or(0, |client| client.behind_ns);
    between("behind, ms", behind as f64 / 1e6, 1.0, 1e6)?;

    // If all have reservations, none waits beside them, and all turns are theirs.
    let world =
        self::world(mutants, vec![guest(0, 6000, 0, 1, BUSY), guest(1, 6000, 0, 100, BUSY)]);
    let world = world.run(2000);
    for seat in [0, 1] {
        world.log.each_second(seat, (1, 2), (3800.0, 4200.0))?;
    }
    let turns = world.scheduler.report().turns_by_weight;
    between("turns by weight", turns as f64, 0.0, 0.0)
}

fn limits_change_live(mutants: Mutants) -> Verdict {
    // A request of 17 I/Os at 5 a second holds the next one back for more than three seconds.
    let mut slow = guest(0, 5, 5, 100, Load::Closed(4));
    slow.op = Op::Read { length: 1 << 20 };
    let other = Settings { reservation_iops: 1000, limit_iops: Some(1000), weight: 100 };
    let world = world(mutants, vec![slow, guest(1, 0, 0, 10_000, BUSY)]);
    let world = world.at(900, Deed::Op(0, Op::Read { length: 4096 }));
    let lower = Settings { reservation_iops: 0, limit_iops: Some(200), weight: 10_000 };
    let log = world.at(1000, Deed::Change(0, other)).at(2000, Deed::Change(0, lower)).run(4000).log;
    log.clean()?;
    between("before", log.rate(0, 0, 1000), 0.0, 40.0)?;
    between("at the higher limit", log.rate(0, 1100, 2000), 900.0, 1050.0)?;
    between("at the lower limit", log.rate(0, 2100, 3900), 190.0, 210.0)
}

fn weights_change_live(mutants: Mutants) -> Verdict {
    let guests = vec![guest(0, 2000, 0, 1, BUSY), guest(1, 0, 0, 10_000, BUSY)];
    let equal = Settings { reservation_iops: 0, limit_iops: None, weight: 10_000 };
    let log = world(mutants, guests).at(2000, Deed::Change(0, equal)).run(4000).log;
    log.clean()?;
    between("by its reservation", log.rate(0, 500, 2000), 1900.0, 2100.0)?;
    between("by its weight", log.part(0, 2100, 3000), 0.475, 0.525)?;

    // A new reservation counts from now on, though its requests wait for seconds.
    let guests = vec![guest(0, 0, 0, 1, BUSY), guest(1, 0, 0, 10_000, BUSY)];
    let reserved = Settings { reservation_iops: 100, limit_iops: None, weight: 1 };
    let log = self::world(mutants, guests).at(2000, Deed::Change(0, reserved)).run(4000).log;
    between("at its new reservation", log.rate(0, 2000, 2200), 80.0, 120.0)?;
    log.each_second(0, (2, 4), (95.0, 105.0))
}

fn removed(mutants: Mutants) -> Verdict {
    let guests = vec![guest(0, 0, 0, 100, BUSY), guest(1, 0, 0, 100, BUSY)];
    let world = world(mutants, guests).at(1000, Deed::Remove(0)).run(3000);
    world.log.clean()?;
    between("gone", world.log.rate(0, 1001, 3000), 0.0, 0.0)?;
    between("all for the other one", world.log.rate(1, 1100, 3000), 7600.0, 8400.0)
}

fn destage(mutants: Mutants) -> Verdict {
    // A write log without bounds behind the same volume; and prefetching.
    let mut destage = guest(0, 200, 1000, 10, BUSY);
    destage.work = Work::Destage;
    let mut prefetch = guest(0, 0, 300, 10, BUSY);
    prefetch.work = Work::Prefetch;
    let guests = vec![guest(0, 0, 2000, 100, BUSY), destage, prefetch, guest(1, 0, 0, 100, BUSY)];
    let log = world(mutants, guests).run(3000).log;
    log.clean()?;
    log.each_second(0, (1, 3), (1900.0, 2100.0))?;
    between("destage", log.rate(1, 500, 3000), 330.0, 1050.0)?;
    between("prefetch", log.rate(2, 500, 3000), 150.0, 315.0)
}

fn flushes_count(mutants: Mutants) -> Verdict {
    let mut flushing = guest(0, 0, 100, 100, Load::Closed(8));
    flushing.op = Op::Flush;
    let log = world(mutants, vec![flushing, guest(1, 0, 0, 100, BUSY)]).run(3000).log;
    log.clean()?;
    log.each_second(0, (1, 3), (95.0, 105.0))
}

fn own_queues(mutants: Mutants) -> Verdict {
    let guests =
        vec![guest(0, 0, 0, 100, Load::Open(16_000)), guest(1, 0, 0, 100, Load::Open(100))];
    let log = world(mutants, guests).run(2000).log;
    log.clean()?;
    between("refusals of the flood", log.refused[0] as f64, 1.0, 1e9)?;
    between("refusals of its neighbour", log.refused[1] as f64, 0.0, 0.0)?;
    between("longest wait of its neighbour, ms", log.longest_wait_ms(1, 0, 1900), 0.0, 2.0)
}

fn other_depth(mutants: Mutants) -> Verdict {
    let guests = vec![guest(0, 0, 0, 100, BUSY), guest(1, 0, 0, 100, BUSY)];
    let world = world(mutants, guests).at(1000, Deed::Depth(4)).at(2000, Deed::Depth(16));
    let log = world.run(3000).log;
    log.clean()?;
    let all = |from, to| log.rate(0, from, to) + log.rate(1, from, to);
    between("8 of 8 channels", all(100, 1000), 7600.0, 8400.0)?;
    between("4 of 8 channels", all(1100, 2000), 3800.0, 4200.0)?;
    between("16 for 8 channels", all(2100, 3000), 7600.0, 8400.0)
}
