//! The second pass: each allocator's plan for each interval, made from what was seen before it.
//!
//! The first interval has equal shares, written back, with every allocator: nothing is known yet.
//! From then on `analyze`'s planner makes the plans.

use super::input::{Input, Step};
use super::progress::Progress;
use super::survey::Survey;
use super::watch::{Ended, Watch};
use super::{Cache, CompareError, Contestant, Entry, Options};
use crate::analysis::{Bounds, Interval, Part, Planner, Rules};
use cinnabar_policy::sizing::{Allocator, WritePolicy};

/// Who has what of a cache for an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
    /// One cache for all, written back.
    Shared,
    /// A share for each volume.
    Divided(Vec<Part>),
}

impl Division {
    /// The same for all, written back.
    fn equal(capacity_blocks: u64, volumes: usize) -> Self {
        let blocks = capacity_blocks / volumes as u64;
        Self::Divided(vec![Part { blocks, policy: WritePolicy::Back }; volumes])
    }

    /// What happens to a volume's writes.
    pub fn policy(&self, volume: usize) -> WritePolicy {
        match self {
            Self::Shared => WritePolicy::Back,
            Self::Divided(parts) => parts[volume].policy,
        }
    }

    /// Blocks given out, of so many.
    pub fn blocks(&self, capacity_blocks: u64) -> u64 {
        match self {
            Self::Shared => capacity_blocks,
            Self::Divided(parts) => parts.iter().map(|part| part.blocks).sum(),
        }
    }
}

/// Plans for caches of these sizes, in blocks, by all contestants.
///
/// # Errors
/// What is wrong with the input.
///
/// # Panics
/// If the input is not what was surveyed.
pub fn plan(
    input: &Input<'_>,
    options: &Options,
    survey: &Survey,
    sizes: &[u64],
    tell: &mut impl FnMut(Progress),
) -> Result<Vec<Cache>, CompareError> {
    let at_work = |size: &u64| -> Vec<AtWork> {
        let one = |contestant: &Contestant| AtWork::new(*contestant, options, survey, *size);
        options.contestants.iter().map(one).collect()
    };
    let mut at_work: Vec<Vec<AtWork>> = sizes.iter().map(at_work).collect();
    let mut watch = Watch::new(options, survey.every);
    watch.expect(survey.volumes.len());
    let has_urd = options.contestants.contains(&Contestant::Allocator(Allocator::Urd));
    let by_engine = options.goal.by_engine && has_urd;
    // Small caches are parts of one cache, so each size of cache has its own.
    let simulating = |size: &u64| {
        let mut watch = Watch::with_engine(options, survey.every, *size);
        watch.expect(survey.volumes.len());
        watch
    };
    let mut engines: Vec<Watch> = sizes.iter().filter(|_| by_engine).map(simulating).collect();
    let mut requests = 0;
    let mut heard = |more: u64| {
        requests += more;
        tell(Progress::Planning { requests, of: survey.requests });
    };
    input.pass(survey.every, &mut heard, |step| {
        let ended = watch.step(&step);
        let by_engine: Vec<_> = engines.iter_mut().map(|watch| watch.step(&step)).collect();
        if let (Step::End { next_us: Some(_), .. }, Some(ended)) = (step, ended) {
            for (at, contestants) in at_work.iter_mut().enumerate() {
                let by_engine = by_engine.get(at).and_then(Option::as_ref);
                for one in contestants {
                    let is_urd = one.contestant == Contestant::Allocator(Allocator::Urd);
                    let seen = by_engine.filter(|_| is_urd).unwrap_or(&ended);
                    one.plan(seen, &survey.bounds);
                }
            }
        }
        Ok(())
    })?;
    let cache = |((size, part), entries): ((&u64, &f64), Vec<AtWork>)| Cache {
        part: *part,
        capacity_blocks: *size,
        entries: entries.into_iter().map(|one| one.entry(&survey.intervals, *size)).collect(),
    };
    Ok(sizes.iter().zip(&options.parts).zip(at_work).map(cache).collect())
}

struct AtWork {
    contestant: Contestant,
    planner: Option<Planner>,
    plans: Vec<Division>,
}

impl AtWork {
    fn new(contestant: Contestant, options: &Options, survey: &Survey, size: u64) -> Self {
        let Contestant::Allocator(allocator) = contestant else {
            return Self { contestant, planner: None, plans: Vec::new() };
        };
        let first = match allocator {
            Allocator::Shared => Division::Shared,
            _ => Division::equal(size, survey.volumes.len()),
        };
        let mut planner = Planner::new(Rules { allocator, ..options.rules }, size);
        planner.set_goal(options.goal);
        planner.set_weighting(options.weighting);
        Self { contestant, planner: Some(planner), plans: vec![first] }
    }

    fn plan(&mut self, ended: &Ended, bounds: &[Bounds]) {
        let Some(planner) = &mut self.planner else { return };
        let parts = planner.plan(&ended.curves, bounds, ended.seconds);
        planner.fade(ended.left);
        self.plans.push(parts.map_or(Division::Shared, Division::Divided));
    }

    fn entry(self, intervals: &[Interval], size: u64) -> Entry {
        let wanted = if self.planner.is_some() { intervals.len() } else { 0 };
        assert_eq!(self.plans.len(), wanted, "both passes see the same trace");
        let blocks = self.plans.iter().map(|plan| plan.blocks(size));
        Entry {
            contestant: self.contestant,
            allocated_blocks: mean_over_time(blocks, intervals),
            plans: self.plans,
            engine: None,
            papers: None,
        }
    }
}

/// A plan holds until the next one, through intervals in which nothing happened.
fn mean_over_time(blocks: impl Iterator<Item = u64>, intervals: &[Interval]) -> f64 {
    let mut blocks = blocks.peekable();
    // A sum of nothing would be a negative zero.
    let (Some(last), Some(_)) = (intervals.last(), blocks.peek()) else { return 0.0 };
    let ends = intervals.iter().skip(1).map(|next| next.number).chain([last.number + 1]);
    let lengths = intervals.iter().zip(ends).map(|(interval, end)| end - interval.number);
    let sum: f64 = blocks.zip(lengths).map(|(blocks, length)| blocks as f64 * length as f64).sum();
    sum / (last.number + 1 - intervals[0].number) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_counts_as_long_as_it_holds() {
        let interval =
            |number| Interval { number, start_us: 0, last_us: 0, requests: 1, references: 1 };
        let intervals = [interval(2), interval(3), interval(7)];
        let mean = mean_over_time([10, 20, 40].into_iter(), &intervals);
        assert!((mean - (10.0 + 4.0 * 20.0 + 40.0) / 6.0).abs() < 1e-9, "{mean}");
        assert!(mean_over_time([].into_iter(), &intervals).abs() < 1e-9, "no cache, no blocks");
    }
}
