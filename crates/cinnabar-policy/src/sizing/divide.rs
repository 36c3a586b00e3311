//! Dividing a cache's room where each volume's value depends on its size in its own way.
//!
//! Taking the best next unit again and again sticks below a loop's cliff, where one more unit is
//! worth nothing until the loop fits. So one looks ahead, and takes any number of units that is
//! worth most a unit. As long as all fits, these are whole segments of the curves' upper hulls,
//! steepest first: sorted once instead of searched for each time, a quarter of the time. What the
//! last segments leave is filled by looking ahead.
//!
//! Loops that fit alone but not together are a knapsack, where this alone was 4 % off. So the exact
//! programme is run, too, on cells so large that it takes little time. In both divisions pairs of
//! volumes then share what the two have in the best way there is, until no pair gains, and the
//! better one is taken. Tests hold it against the exact programme in units.

/// Sweeps over all pairs; the second seldom finds anything.
const SWEEPS_MAX: usize = 8;
/// Cells of the coarse programme, whose work grows with their square.
const CELLS_MAX: usize = 512;
/// A gain must be more than rounding.
const GAIN_MIN: f64 = 1e-9;

/// What a volume makes of room.
#[derive(Clone, Debug, PartialEq)]
pub struct Utility {
    /// By size in units; larger sizes are worth what the last one is. Not empty.
    pub values: Vec<f64>,
    /// The least it gets, in units.
    pub min: usize,
    /// The most it gets, in units.
    pub max: usize,
}

impl Utility {
    /// A volume without minimum and maximum; `values` by size.
    pub const fn free(values: Vec<f64>) -> Self {
        Self { values, min: 0, max: usize::MAX }
    }

    /// The value of so many units.
    pub fn at(&self, units: usize) -> f64 {
        self.values[units.min(self.values.len() - 1)]
    }

    /// The largest size worth looking at.
    fn end(&self) -> usize {
        self.max.min(self.values.len() - 1).max(self.min)
    }
}

/// Sizes in units, `capacity` together or less, of about the largest sum of values.
///
/// # Panics
/// If the minima are more than `capacity`, or a minimum is above its maximum: the configuration is
/// checked before.
pub fn divide(utilities: &[Utility], capacity: usize) -> Vec<usize> {
    let needed: usize = utilities.iter().map(|utility| utility.min).sum();
    assert!(needed <= capacity, "minima of {needed} units do not fit into {capacity}");
    assert!(utilities.iter().all(|utility| utility.min <= utility.max), "bounds are in order");
    let mut climbed = Division::least(utilities, capacity);
    climbed.climb();
    climbed.refill();
    let mut solved = Division::least(utilities, capacity);
    solved.solve_coarsely();
    solved.refill();
    climbed.exchange();
    solved.exchange();
    if solved.value() > climbed.value() { solved.sizes } else { climbed.sizes }
}

struct Segment {
    slope: f64,
    volume: usize,
    end: usize,
}

/// The rising segments of all upper hulls, steepest first, so each volume's from left to right.
fn hulls(utilities: &[Utility]) -> Vec<Segment> {
    let mut segments = Vec::new();
    for (volume, utility) in utilities.iter().enumerate() {
        hull(utility, volume, &mut segments);
    }
    // Stable: of equally steep ones, the first volume's first.
    segments.sort_by(|a, b| b.slope.total_cmp(&a.slope));
    segments
}

fn hull(utility: &Utility, volume: usize, segments: &mut Vec<Segment>) {
    let slope = |from: usize, to: usize| (utility.at(to) - utility.at(from)) / (to - from) as f64;
    let mut corners: Vec<usize> = Vec::new();
    for size in utility.min..=utility.end() {
        while let [.., before, last] = corners[..]
            && slope(before, last) <= slope(before, size)
        {
            corners.pop();
        }
        corners.push(size);
    }
    for pair in corners.windows(2) {
        let slope = slope(pair[0], pair[1]);
        if slope > 0.0 {
            segments.push(Segment { slope, volume, end: pair[1] });
        }
    }
}

struct Division<'a> {
    utilities: &'a [Utility],
    sizes: Vec<usize>,
    free: usize,
}

impl<'a> Division<'a> {
    fn least(utilities: &'a [Utility], capacity: usize) -> Self {
        let sizes: Vec<usize> = utilities.iter().map(|utility| utility.min).collect();
        let free = capacity - sizes.iter().sum::<usize>();
        Self { utilities, sizes, free }
    }

    fn value(&self) -> f64 {
        self.utilities.iter().zip(&self.sizes).map(|(utility, &size)| utility.at(size)).sum()
    }

    fn grow(&mut self, volume: usize, end: usize) {
        self.free -= end - self.sizes[volume];
        self.sizes[volume] = end;
    }

    /// Takes whole segments, steepest first, as long as they fit.
    fn climb(&mut self) {
        let mut is_stuck = vec![false; self.sizes.len()];
        for segment in hulls(self.utilities) {
            let more = segment.end - self.sizes[segment.volume];
            if is_stuck[segment.volume] || more > self.free {
                is_stuck[segment.volume] = true;
                continue;
            }
            self.grow(segment.volume, segment.end);
        }
    }

    /// Takes what is worth most a unit, any number of units at a time.
    fn refill(&mut self) {
        loop {
            let mut best = (0.0, 0, 0);
            for (volume, utility) in self.utilities.iter().enumerate() {
                let size = self.sizes[volume];
                for end in size + 1..=utility.end().min(size + self.free) {
                    let slope = (utility.at(end) - utility.at(size)) / (end - size) as f64;
                    if slope > best.0 {
                        best = (slope, volume, end);
                    }
                }
            }
            let (slope, volume, end) = best;
            if slope <= 0.0 {
                return;
            }
            self.grow(volume, end);
        }
    }

    /// The exact programme, in cells instead of units: the most that the first volumes make of every
    /// room, one volume after the other, and then back through the choices that led there.
    fn solve_coarsely(&mut self) {
        let cell = self.free.div_ceil(CELLS_MAX).max(1);
        let rooms = self.free / cell;
        let choices: Vec<Vec<usize>> = self.utilities.iter().map(best_sizes).collect();
        let size = |volume: usize, cells: usize| {
            let choices: &[usize] = &choices[volume];
            choices[(cells * cell).min(choices.len() - 1)]
        };
        let mut best = vec![vec![0.0; rooms + 1]];
        for (volume, utility) in self.utilities.iter().enumerate() {
            let before = &best[volume];
            let mut with = vec![f64::NEG_INFINITY; rooms + 1];
            for cells in 0..=rooms.min(choices[volume].len().div_ceil(cell)) {
                let value = utility.at(size(volume, cells));
                for (with, before) in with[cells..].iter_mut().zip(before) {
                    *with = with.max(before + value);
                }
            }
            best.push(with);
        }
        let mut room = rooms;
        for (volume, utility) in self.utilities.iter().enumerate().rev() {
            let is_choice = |cells: &usize| {
                let value = best[volume][room - cells] + utility.at(size(volume, *cells));
                value.total_cmp(&best[volume + 1][room]).is_eq()
            };
            let cells = (0..=room).find(is_choice).expect("a choice led there");
            self.grow(volume, size(volume, cells));
            room -= cells;
        }
    }

    /// For every pair of volumes, divides their shares and the unused room among the two, until no
    /// pair gains.
    fn exchange(&mut self) {
        let best_up_to: Vec<Vec<usize>> = self.utilities.iter().map(best_sizes).collect();
        for _ in 0..SWEEPS_MAX {
            let mut has_gained = false;
            for (second, best_up_to) in best_up_to.iter().enumerate() {
                for first in 0..second {
                    has_gained |= self.exchange_pair(first, second, best_up_to);
                }
            }
            if !has_gained {
                return;
            }
        }
    }

    fn exchange_pair(&mut self, first: usize, second: usize, best_up_to: &[usize]) -> bool {
        let (a, b) = (&self.utilities[first], &self.utilities[second]);
        let pool = self.sizes[first] + self.sizes[second] + self.free;
        let now = a.at(self.sizes[first]) + b.at(self.sizes[second]);
        let mut best = (now + now.abs() * GAIN_MIN, None);
        for of_first in a.min..=a.end().min(pool - b.min) {
            let left = (pool - of_first).min(b.end());
            let of_second = best_up_to[left - b.min];
            let value = a.at(of_first) + b.at(of_second);
            if value > best.0 {
                best = (value, Some((of_first, of_second)));
            }
        }
        let Some((of_first, of_second)) = best.1 else { return false };
        (self.sizes[first], self.sizes[second]) = (of_first, of_second);
        self.free = pool - of_first - of_second;
        true
    }
}

/// For each size from the minimum on, the size up to it that is worth most.
fn best_sizes(utility: &Utility) -> Vec<usize> {
    let mut best = utility.min;
    let sizes = utility.min..=utility.end();
    sizes
        .map(|size| {
            if utility.at(size) > utility.at(best) {
                best = size;
            }
            best
        })
        .collect()
}
