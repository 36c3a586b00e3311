//! Planners on small volumes.

use super::*;
use crate::device::Devices;
use crate::geometry::Geometry;
use crate::limits::ROUND_MOVES_MAX;
use crate::record::Record;

/// A volume whose moves happen at once.
struct Bench {
    table: Table,
    heat: Heat,
    budget: u64,
}

fn stable(pool: Pool) -> Record {
    let record = Record::ABSENT.allocated(Pool::Slow, 1).settled();
    if pool == Pool::Slow { record } else { record.copying().flipped().cleaned() }
}

impl Bench {
    fn new(extents: u64, fast: u32, budget: u64) -> Self {
        let mut table = Table::new(Geometry::new(extents << 22, 22).expect("a size"));
        for extent in 0..extents as u32 {
            table.set(extent, stable(if extent < fast { Pool::Fast } else { Pool::Slow }));
        }
        let heat = Heat::new(&table);
        Self { table, heat, budget }
    }

    /// A round of a period with so many small random writes of extents; the moves happen.
    fn round(&mut self, planner: &mut impl Planner, load: &[(u32, u32)]) -> Vec<Move> {
        for (extent, count) in load {
            for _ in 0..*count {
                self.heat.note(*extent, planner.score(Direction::Write, 4096, false));
            }
        }
        let view = View {
            table: &self.table,
            may_move: &|_| true,
            budget_bytes: self.budget << 22,
            fast_bytes: self.table.used_bytes(Pool::Fast),
            seconds: planner.period_s(),
        };
        let mut moves = Vec::new();
        planner.round(&mut self.heat, &view, &mut moves);
        for of in &moves {
            self.table.set(of.extent, stable(of.to));
        }
        assert!(moves.len() <= ROUND_MOVES_MAX, "a round is bounded");
        assert!(
            u64::from(self.table.objects(Pool::Fast)) <= self.budget.max(9),
            "the budget holds"
        );
        moves
    }
}

fn benefit() -> Benefit {
    Benefit::new(BenefitSettings::default(), Devices::default())
}

#[test]
fn mobbs_counts_as_its_authors_do() {
    let mobbs = Mobbs::new(MobbsSettings::default());
    let full = |direction, length| mobbs.score(direction, length, false);
    let one = 1.0 / 0.4 / (170.0 * 0.4 * 100.0 * 3.0);
    assert!((full(Direction::Read, 128 << 10) / one as f32 - 1.0).abs() < 1e-5);
    let write = full(Direction::Write, 4096);
    assert!((write * 140.0 / (one * 170.0) as f32 - 1.0).abs() < 1e-5);
    let long = full(Direction::Write, 200 << 10);
    assert!((long * 3.0 / write - 1.0).abs() < 1e-5, "1 / floor(200 / 64)");
    assert!(mobbs.score(Direction::Read, 4096, true) == 0.0);
}

#[test]
fn mobbs_promotes_after_three_periods_and_demotes_after_five() {
    let mut mobbs = Mobbs::new(MobbsSettings::default());
    let mut bench = Bench::new(40, 0, 8);
    // With 20 active extents an equal share is 140 * 0.4 * 100 * 3 / 2.5 / 20 = 336 small writes.
    let mut load: Vec<(u32, u32)> = (0..20).map(|extent| (extent, 1)).collect();
    load[7].1 = 400;
    assert_eq!(bench.round(&mut mobbs, &load), []);
    assert_eq!(bench.round(&mut mobbs, &load), []);
    assert_eq!(bench.round(&mut mobbs, &[]), [], "one contrary period");
    assert_eq!(bench.round(&mut mobbs, &load), []);
    assert_eq!(bench.round(&mut mobbs, &load), []);
    let moves = bench.round(&mut mobbs, &load);
    assert_eq!(moves.iter().map(|m| (m.extent, m.to)).collect::<Vec<_>>(), [(7, Pool::Fast)]);
    for _ in 0..4 {
        assert_eq!(bench.round(&mut mobbs, &[]), []);
    }
    let moves = bench.round(&mut mobbs, &[]);
    assert_eq!(moves.iter().map(|m| (m.extent, m.to)).collect::<Vec<_>>(), [(7, Pool::Slow)]);
}

#[test]
fn benefit_keeps_the_hottest_within_the_budget() {
    let mut planner = benefit();
    let mut bench = Bench::new(40, 0, 4);
    let load: Vec<(u32, u32)> = (0..10).map(|extent| (extent, 100 * (10 - extent))).collect();
    assert_eq!(bench.round(&mut planner, &load), []);
    assert_eq!(bench.round(&mut planner, &load), []);
    let moves = bench.round(&mut planner, &load);
    assert_eq!(moves.iter().map(|m| m.extent).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let Gain::Time { per_second, .. } = moves[0].gain else { panic!("a gain in time") };
    // 1000 requests in 30 s save 7.8 ms each; after 90 s of 300 s about half of it is believed.
    let all = 1000.0 / 30.0 * 7.8e-3;
    assert!((all / 2.0..all * 0.55).contains(&per_second), "{}", moves[0]);
    for _ in 0..20 {
        assert_eq!(bench.round(&mut planner, &load), [], "a steady load moves nothing");
    }
}

#[test]
fn benefit_displaces_what_has_become_less_worth() {
    let mut planner = benefit();
    let mut bench = Bench::new(40, 0, 2);
    let before = [(1, 500), (2, 400), (3, 10)];
    let after = [(1, 500), (2, 20), (3, 400)];
    for _ in 0..6 {
        bench.round(&mut planner, &before);
    }
    let mut moves = Vec::new();
    for _ in 0..40 {
        moves.extend(bench.round(&mut planner, &after));
    }
    let said: Vec<_> = moves.iter().map(|m| (m.extent, m.to, m.reason)).collect();
    assert_eq!(said, [(2, Pool::Slow, Reason::Displaced(3)), (3, Pool::Fast, Reason::Hot)]);
}

#[test]
fn benefit_leaves_alone_what_does_not_pay() {
    let mut planner = benefit();
    let mut bench = Bench::new(10, 1, 8);
    // Copies there and back of 4 MiB cost 92 ms: one request of 7.8 ms in 153 s pays in 30 minutes.
    for round in 0..40 {
        let load = if round % 20 == 0 { vec![(5, 1)] } else { vec![] };
        let moves = bench.round(&mut planner, &load);
        let idle = moves.iter().all(|m| (m.extent, m.reason) == (0, Reason::Cold));
        assert!(idle, "{moves:?}");
    }
    assert_eq!(bench.table.objects(Pool::Fast), 0, "what is idle leaves");
}

#[test]
fn a_lower_budget_is_come_to_at_once_coldest_first() {
    let mut planner = benefit();
    let mut bench = Bench::new(12, 9, 9);
    let load: Vec<(u32, u32)> = (0..9).map(|extent| (extent, 100 + extent)).collect();
    for _ in 0..3 {
        assert_eq!(bench.round(&mut planner, &load), []);
    }
    bench.budget = 7;
    let moves = bench.round(&mut planner, &load);
    let said: Vec<_> = moves.iter().map(|m| (m.extent, m.reason)).collect();
    assert_eq!(said, [(0, Reason::OverBudget), (1, Reason::OverBudget)]);
    bench.budget = 0;
    assert_eq!(bench.round(&mut planner, &load).len(), 7, "a volume is evacuated by a budget of 0");
}

#[test]
fn a_round_is_bounded_however_many_are_hot() {
    let mut planner = benefit();
    let mut bench = Bench::new(1000, 0, 900);
    let load: Vec<(u32, u32)> = (0..1000).map(|extent| (extent, 10)).collect();
    let counts: Vec<usize> = (0..6).map(|_| bench.round(&mut planner, &load).len()).collect();
    assert_eq!(counts, [0, 0, 50, 50, 50, 50]);
}

#[test]
fn the_first_ones_are_those_of_a_full_sort() {
    for order in [hotter as fn(Rated, Rated) -> Ordering, colder] {
        let rated: Vec<Rated> =
            (0..5000u32).map(|i| (f32::from((i.wrapping_mul(40_503) >> 5) as u16), i)).collect();
        let mut first = First::new(ROUND_MOVES_MAX, order);
        for of in &rated {
            first.offer(*of);
        }
        let mut sorted = rated;
        sorted.sort_unstable_by(|a, b| order(*a, *b));
        assert_eq!(first.take(usize::MAX), sorted[..ROUND_MOVES_MAX]);
    }
}
