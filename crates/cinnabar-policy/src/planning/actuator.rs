//! From plans to what a cache is told: targets of all volumes at once, steadily, and within what the
//! operator wants.
//!
//! A plan says what would be best. A cache that follows each one at once loses what it holds, and not
//! every allocator heeds minima and maxima. So targets go at most a step an interval, stay where they
//! are if little would change, keep to bounds and pins at once, and never sum to more than there is.
//! Nothing is taken from a volume by a smaller target alone: the cache takes it when others need room.
//! Pure: the same plans give the same targets.

use crate::sizing::WritePolicy;

/// Another write policy is asked for once this many plans in a row want it.
const POLICY_PLANS: u32 = 2;
/// A volume with a share of its own keeps it unless another one is to have so many times as much.
const OWN_FACTOR: u64 = 2;

/// What a cache can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Its room, in blocks.
    pub capacity_blocks: u64,
    /// Volumes that can have a share of their own; others have one together.
    pub own_max: usize,
    /// The most that a target changes in an interval, as a part of the capacity, above 0.
    pub step_max: f64,
    /// Targets stay as they are if the largest change would be at most this part of the capacity, from 0.
    pub change_min: f64,
}

/// What is wanted for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// By the plan, in blocks.
    pub blocks: u64,
    /// By the plan.
    pub policy: WritePolicy,
    /// The operator's minimum, in blocks.
    pub min_blocks: u64,
    /// The operator's maximum, in blocks.
    pub max_blocks: u64,
    /// Exactly so many, by the operator's word.
    pub pinned_blocks: Option<u64>,
    /// What it holds now, in blocks.
    pub held_blocks: u64,
}

/// What a volume is to have from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub blocks: u64,
    /// It has a share of its own; otherwise it has a part of the one that others have together.
    pub own: bool,
    /// Why it is not what the plan says.
    pub why: Why,
    /// The write policy that plans have wanted for long enough.
    pub policy: Option<WritePolicy>,
}

/// Why a target is what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Why {
    /// As planned.
    #[default]
    Plan,
    /// Too little would change.
    Kept,
    /// On its way, a step an interval.
    Step,
    /// The operator's minimum.
    Minimum,
    /// The operator's maximum.
    Maximum,
    /// The operator has pinned it.
    Pinned,
    /// Minima, pins and plans together are more than there is.
    Cut,
    /// No share of its own is left.
    Common,
}

impl Why {
    /// In words, for a table.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Plan => "planned",
            Self::Kept => "kept: little would change",
            Self::Step => "on its way: a step an interval",
            Self::Minimum => "share_min",
            Self::Maximum => "share_max",
            Self::Pinned => "pinned",
            Self::Cut => "cut: all together are more than the cache",
            Self::Common => "no share of its own is left: it has a part of the common one",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Actuator {
    volumes: Vec<State>,
    /// There was a plan before.
    begun: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    blocks: u64,
    own: bool,
    /// It was there in the last plan.
    known: bool,
    policy: WritePolicy,
    /// Plans in a row that wanted this policy.
    policy_plans: u32,
}

impl Actuator {
    /// The targets behind a plan; `None` in place of a volume that is not there. Volumes keep their
    /// places.
    ///
    /// # Panics
    /// Never: what it asserts of its own sums holds.
    pub fn next(&mut self, wanted: &[Option<Wanted>], limits: &Limits) -> Vec<Option<Target>> {
        self.volumes.resize(wanted.len(), State::default());
        let mut targets: Vec<Target> = wanted.iter().map(|one| aim(one.as_ref())).collect();
        let (floors, capacity) = (floors(wanted), limits.capacity_blocks);
        fit(&floors, &mut targets, capacity, Why::Cut);
        if self.begun {
            self.go(wanted, &mut targets, limits);
            fit(&floors, &mut targets, capacity, Why::Cut);
        } else {
            let kept = kept(wanted, &floors, limits);
            for (target, kept) in targets.iter_mut().zip(&kept) {
                if target.blocks < *kept {
                    (target.blocks, target.why) = (*kept, Why::Step);
                }
            }
            fit(&kept, &mut targets, capacity, Why::Step);
        }
        self.choose_own(wanted, &mut targets, limits);
        self.choose_policies(wanted, &mut targets);
        self.remember(wanted, &targets);
        let sum: u64 = targets.iter().map(|target| target.blocks).sum();
        assert!(sum <= limits.capacity_blocks, "no block is promised twice");
        targets.into_iter().zip(wanted).map(|(target, one)| one.map(|_| target)).collect()
    }

    /// From what was to what is wanted: a step, or not at all. A volume that was not there before
    /// begins with what it holds, so that what it gets is taken from others in steps, too.
    fn go(&self, wanted: &[Option<Wanted>], targets: &mut [Target], limits: &Limits) {
        let begins = |(old, one): (&State, &Option<Wanted>)| match one {
            Some(one) if !old.known => one.held_blocks.min(limits.capacity_blocks),
            _ => old.blocks,
        };
        let olds: Vec<u64> = self.volumes.iter().zip(wanted).map(begins).collect();
        let changes = olds.iter().zip(&*targets);
        let furthest = changes.map(|(old, new)| old.abs_diff(new.blocks)).max().unwrap_or(0);
        let capacity = limits.capacity_blocks as f64;
        let (step, least) =
            (part_of(capacity, limits.step_max), part_of(capacity, limits.change_min));
        let is_new = self.volumes.iter().zip(wanted).any(|(old, one)| old.known != one.is_some());
        let part = if furthest <= least && !is_new {
            0.0
        } else {
            (step.max(1) as f64 / furthest.max(1) as f64).min(1.0)
        };
        for ((old, one), target) in olds.iter().zip(wanted).zip(targets) {
            let Some(one) = one else { continue };
            let next = on_the_way(*old, target.blocks, part);
            if next == target.blocks {
                continue;
            }
            let why = if part == 0.0 { Why::Kept } else { Why::Step };
            *target = Target { blocks: next, why, ..*target };
            bound(one, target);
        }
    }

    /// Who has a share of its own, if not all can. Volumes with bounds come first: a cache keeps them
    /// apart whatever their targets are.
    fn choose_own(&self, wanted: &[Option<Wanted>], targets: &mut [Target], limits: &Limits) {
        let own_max = limits.own_max;
        let mut places: Vec<usize> =
            (0..targets.len()).filter(|at| wanted[*at].is_some()).collect();
        if places.len() > own_max {
            let rank = |at: &usize| {
                let one = wanted[*at].as_ref();
                let bound = one.is_some_and(|one| {
                    one.min_blocks > 0 || one.max_blocks < limits.capacity_blocks
                });
                let pinned = one.is_some_and(|one| one.pinned_blocks.is_some());
                let had = if self.volumes[*at].own { OWN_FACTOR } else { 1 };
                let size = std::cmp::Reverse(targets[*at].blocks.saturating_mul(had));
                (!bound, !pinned, size, *at)
            };
            places.sort_by_key(rank);
        }
        for at in places.iter().skip(own_max) {
            (targets[*at].own, targets[*at].why) = (false, Why::Common);
        }
    }

    fn choose_policies(&self, wanted: &[Option<Wanted>], targets: &mut [Target]) {
        for ((old, one), target) in self.volumes.iter().zip(wanted).zip(targets) {
            let Some(one) = one else { continue };
            let same = old.known && old.policy == one.policy;
            let plans = if same { old.policy_plans + 1 } else { 1 };
            target.policy = (plans >= POLICY_PLANS).then_some(one.policy);
        }
    }

    fn remember(&mut self, wanted: &[Option<Wanted>], targets: &[Target]) {
        self.begun = true;
        for ((old, one), target) in self.volumes.iter_mut().zip(wanted).zip(targets) {
            let Some(one) = one else {
                *old = State::default();
                continue;
            };
            let same = old.known && old.policy == one.policy;
            *old = State {
                blocks: target.blocks,
                own: target.own,
                known: true,
                policy: one.policy,
                policy_plans: if same { old.policy_plans.saturating_add(1) } else { 1 },
            };
        }
    }
}

/// The plan within the operator's bounds.
fn aim(one: Option<&Wanted>) -> Target {
    let Some(one) = one else {
        return Target { blocks: 0, own: false, why: Why::Plan, policy: None };
    };
    let mut target = Target { blocks: one.blocks, own: true, why: Why::Plan, policy: None };
    bound(one, &mut target);
    target
}

fn bound(one: &Wanted, target: &mut Target) {
    let found = match one.pinned_blocks {
        Some(blocks) => (blocks, Why::Pinned),
        None if target.blocks < one.min_blocks => (one.min_blocks, Why::Minimum),
        None if target.blocks > one.max_blocks => {
            (one.max_blocks.max(one.min_blocks), Why::Maximum)
        }
        None => return,
    };
    (target.blocks, target.why) = found;
}

/// Pins and minima.
fn floors(wanted: &[Option<Wanted>]) -> Vec<u64> {
    let floor =
        |one: &Option<Wanted>| one.map_or(0, |one| one.pinned_blocks.unwrap_or(one.min_blocks));
    wanted.iter().map(floor).collect()
}

/// What the first plan leaves to each volume at least: what it holds but for a step, within its bounds
/// and beside the minima and pins of all. So a volume that is quiet at first does not lose all that an
/// earlier session has kept for it.
fn kept(wanted: &[Option<Wanted>], floors: &[u64], limits: &Limits) -> Vec<u64> {
    let step = part_of(limits.capacity_blocks as f64, limits.step_max).max(1);
    let beyond = |(one, floor): (&Option<Wanted>, &u64)| match one {
        Some(one) if one.pinned_blocks.is_none() => {
            let most = one.held_blocks.saturating_sub(step).min(one.max_blocks);
            most.saturating_sub(*floor)
        }
        _ => 0,
    };
    let beyond: Vec<u64> = wanted.iter().zip(floors).map(beyond).collect();
    let sum = |blocks: &[u64]| blocks.iter().copied().fold(0, u64::saturating_add);
    let (room, wish) = (limits.capacity_blocks.saturating_sub(sum(floors)), sum(&beyond));
    let fits = |blocks: u64| if wish > room { scaled(blocks, room, wish) } else { blocks };
    floors.iter().zip(beyond).map(|(floor, beyond)| floor + fits(beyond)).collect()
}

/// Cuts what is more than there is: first what is beyond these floors, then these.
fn fit(floors: &[u64], targets: &mut [Target], capacity: u64, why: Why) {
    let all = floors.iter().copied().fold(0, u64::saturating_add);
    let room = capacity.saturating_sub(all);
    let beyond = |(target, floor): (&Target, &u64)| target.blocks.saturating_sub(*floor);
    let wish = targets.iter().zip(floors).map(beyond).fold(0, u64::saturating_add);
    for (target, floor) in targets.iter_mut().zip(floors) {
        let own = if all > capacity { scaled(*floor, capacity, all) } else { *floor };
        let more = target.blocks.saturating_sub(*floor);
        let more = if wish > room { scaled(more, room, wish) } else { more };
        if own + more < target.blocks {
            (target.blocks, target.why) = (own + more, why);
        }
    }
}

/// Rounded down, so that parts together stay below the whole.
fn scaled(blocks: u64, room: u64, wish: u64) -> u64 {
    (u128::from(blocks) * u128::from(room) / u128::from(wish.max(1))) as u64
}

#[allow(clippy::cast_sign_loss, reason = "a part of a capacity is not below zero")]
fn part_of(capacity: f64, part: f64) -> u64 {
    (capacity * part) as u64
}

/// A size between two, rounded down.
#[allow(clippy::cast_sign_loss, reason = "between two sizes")]
fn on_the_way(from: u64, to: u64, part: f64) -> u64 {
    // Of a whole way nothing is left over by rounding.
    if part >= 1.0 {
        return to;
    }
    let (from, to) = (from as f64, to as f64);
    (from + (to - from) * part).floor() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { capacity_blocks: 1000, own_max: 63, step_max: 0.25, change_min: 0.01 };

    #[allow(clippy::unnecessary_wraps, reason = "as the actuator takes it")]
    fn plain(blocks: u64) -> Option<Wanted> {
        let policy = WritePolicy::Through;
        let (min_blocks, max_blocks, pinned_blocks) = (0, u64::MAX, None);
        Some(Wanted { blocks, policy, min_blocks, max_blocks, pinned_blocks, held_blocks: 0 })
    }

    fn sizes(targets: &[Option<Target>]) -> Vec<u64> {
        targets.iter().map(|target| target.map_or(0, |target| target.blocks)).collect()
    }

    #[test]
    fn the_first_plan_is_followed_at_once_and_later_ones_in_steps() {
        let mut actuator = Actuator::default();
        assert_eq!(sizes(&actuator.next(&[plain(900), plain(100)], &LIMITS)), [900, 100]);
        let next = actuator.next(&[plain(500), plain(500)], &LIMITS);
        assert_eq!(sizes(&next), [650, 350], "a quarter of the cache");
        assert!(next.iter().flatten().all(|target| target.why == Why::Step));
        let next = actuator.next(&[plain(500), plain(500)], &LIMITS);
        assert_eq!(sizes(&next), [500, 500], "and there");
        let next = actuator.next(&[plain(505), plain(495)], &LIMITS);
        assert_eq!(sizes(&next), [500, 500], "for half a percent nothing is moved");
        assert_eq!(next[0].map(|target| target.why), Some(Why::Kept));
    }

    fn held(blocks: u64, held_blocks: u64) -> Option<Wanted> {
        plain(blocks).map(|one| Wanted { held_blocks, ..one })
    }

    /// After a restart, only one of three asks for something in the first interval.
    #[test]
    fn the_first_plan_takes_no_more_than_a_step_of_what_is_held() {
        let mut actuator = Actuator::default();
        let wanted = [held(1000, 100), held(0, 600), held(0, 300)];
        let next = actuator.next(&wanted, &LIMITS);
        assert_eq!(sizes(&next), [600, 350, 50]);
        assert!(next.iter().flatten().all(|target| target.why == Why::Step), "{next:?}");
        let next = actuator.next(&wanted, &LIMITS);
        assert!(sizes(&next)[0] <= 850 && sizes(&next)[1] >= 100, "{next:?}");
        let min = plain(0).map(|one| Wanted { min_blocks: 700, ..one });
        let next = Actuator::default().next(&[held(0, 900), min], &LIMITS);
        assert_eq!(sizes(&next), [300, 700], "a minimum holds at once");
    }

    #[test]
    fn a_volume_that_comes_back_with_its_blocks_keeps_them_but_for_steps() {
        let mut actuator = Actuator::default();
        actuator.next(&[plain(500)], &LIMITS);
        let next = actuator.next(&[plain(500), held(0, 400)], &LIMITS);
        assert_eq!(sizes(&next), [500, 150]);
        assert_eq!(sizes(&actuator.next(&[plain(500), held(0, 150)], &LIMITS)), [500, 0]);
    }

    #[test]
    fn bounds_and_pins_hold_at_once_and_are_cut_only_if_they_do_not_fit() {
        let mut actuator = Actuator::default();
        actuator.next(&[plain(900), plain(100), plain(0)], &LIMITS);
        let min = plain(0).map(|one| Wanted { min_blocks: 600, ..one });
        let pin = plain(0).map(|one| Wanted { pinned_blocks: Some(300), ..one });
        let next = actuator.next(&[plain(900), min, pin], &LIMITS);
        assert_eq!(sizes(&next), [100, 600, 300]);
        let whys: Vec<Why> = next.iter().flatten().map(|target| target.why).collect();
        assert_eq!(whys, [Why::Cut, Why::Minimum, Why::Pinned]);
        let pin = plain(0).map(|one| Wanted { pinned_blocks: Some(1400), ..one });
        let next = actuator.next(&[plain(900), min, pin], &LIMITS);
        assert_eq!(sizes(&next), [0, 300, 700], "in proportion");
        let max = plain(900).map(|one| Wanted { max_blocks: 50, ..one });
        let next = Actuator::default().next(&[max, plain(0), plain(0)], &LIMITS);
        assert_eq!(next[0].map(|target| (target.blocks, target.why)), Some((50, Why::Maximum)));
    }

    #[test]
    fn volumes_come_and_go() {
        let mut actuator = Actuator::default();
        actuator.next(&[plain(1000)], &LIMITS);
        let next = actuator.next(&[plain(200), plain(800)], &LIMITS);
        assert_eq!(sizes(&next), [750, 250], "what a new one gets is taken in steps");
        let next = actuator.next(&[None, plain(800)], &LIMITS);
        assert_eq!(next[0], None);
        assert!(next[1].is_some_and(|target| target.blocks >= 250), "{next:?}");
    }

    #[test]
    fn shares_of_their_own_go_to_the_promised_and_the_largest_and_stay() {
        let limits = Limits { own_max: 2, ..LIMITS };
        let mut actuator = Actuator::default();
        let min = plain(10).map(|one| Wanted { min_blocks: 1, ..one });
        let own = |targets: &[Option<Target>]| -> Vec<bool> {
            targets.iter().flatten().map(|target| target.own).collect()
        };
        let first = actuator.next(&[min, plain(300), plain(250)], &limits);
        assert_eq!(own(&first), [true, true, false]);
        assert_eq!(first[2].map(|target| target.why), Some(Why::Common));
        let next = actuator.next(&[min, plain(250), plain(300)], &limits);
        assert_eq!(own(&next), [true, true, false], "a little more is no reason");
        actuator.next(&[min, plain(100), plain(500)], &limits);
        let next = actuator.next(&[min, plain(100), plain(500)], &limits);
        assert_eq!(own(&next), [true, false, true], "five times as much is");
        // What has a maximum has a group of its own in a cache, and takes its place in any case.
        let max = plain(10).map(|one| Wanted { max_blocks: 20, ..one });
        let pin = plain(0).map(|one| Wanted { pinned_blocks: Some(400), ..one });
        let next = Actuator::default().next(&[plain(300), max, plain(250), pin], &limits);
        assert_eq!(own(&next), [false, true, false, true]);
    }

    #[test]
    fn a_policy_is_asked_for_when_it_is_wanted_twice() {
        let mut actuator = Actuator::default();
        let around = plain(500).map(|one| Wanted { policy: WritePolicy::ReadOnly, ..one });
        let mut ask = |one| actuator.next(&[one], &LIMITS)[0].and_then(|target| target.policy);
        assert_eq!(ask(plain(500)), None);
        assert_eq!(ask(around), None);
        assert_eq!(ask(around), Some(WritePolicy::ReadOnly));
        assert_eq!(ask(plain(500)), None, "one plan alone changes nothing");
    }

    /// Whatever is planned, wanted and pinned: nobody is under its minimum as long as all fit, and
    /// together they are never more than there is.
    #[test]
    fn minima_hold_and_the_sum_stays_within_the_capacity() {
        let mut seed = 1_u64;
        let mut draw = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..300 {
            let mut actuator = Actuator::default();
            let volumes = 1 + draw(80) as usize;
            for _ in 0..12 {
                let capacity_blocks = [1000, 0, 7, 1 << 40][draw(4) as usize];
                let limits = Limits {
                    capacity_blocks,
                    own_max: draw(70) as usize,
                    step_max: draw(100) as f64 / 100.0 + 0.01,
                    change_min: draw(3) as f64 / 100.0,
                };
                let mut one = || {
                    let most = capacity_blocks.max(1);
                    let share = |draw: &mut dyn FnMut(u64) -> u64| draw(most) / volumes as u64;
                    let min_blocks = if draw(3) == 0 { share(&mut draw) } else { 0 };
                    let max_blocks = if draw(3) == 0 { share(&mut draw) * 3 } else { u64::MAX };
                    let pinned_blocks = (draw(9) == 0).then(|| share(&mut draw));
                    let (blocks, policy) = (draw(most * 2), WritePolicy::ALL[draw(4) as usize]);
                    let held_blocks = share(&mut draw);
                    let bounds = plain(blocks).map(|one| Wanted { min_blocks, max_blocks, ..one });
                    let wanted =
                        bounds.map(|one| Wanted { policy, pinned_blocks, held_blocks, ..one });
                    wanted.filter(|_| draw(8) > 0)
                };
                let wanted: Vec<_> = (0..volumes).map(|_| one()).collect();
                let targets = actuator.next(&wanted, &limits);
                check(&wanted, &targets, &limits);
            }
        }
    }

    fn check(wanted: &[Option<Wanted>], targets: &[Option<Target>], limits: &Limits) {
        let floor = |one: &Wanted| one.pinned_blocks.unwrap_or(one.min_blocks);
        let floors: u64 = wanted.iter().flatten().map(floor).sum();
        assert!(sizes(targets).iter().sum::<u64>() <= limits.capacity_blocks);
        let own = targets.iter().flatten().filter(|target| target.own).count();
        assert!(own <= limits.own_max);
        for (one, target) in wanted.iter().zip(targets) {
            let (Some(one), Some(target)) = (one, target) else {
                assert!(one.is_none() && target.is_none(), "a target for each that is there");
                continue;
            };
            if floors <= limits.capacity_blocks {
                assert!(target.blocks >= floor(one), "{one:?} {target:?}");
            }
            let most = one.pinned_blocks.unwrap_or(one.max_blocks.max(one.min_blocks));
            assert!(target.blocks <= most, "{one:?} {target:?}");
        }
    }
}
