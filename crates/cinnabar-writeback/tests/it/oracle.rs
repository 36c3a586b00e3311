//! What a guest may see, and what the back end may hold: section 8 of the reference, by sectors.
//!
//! Barriers are numbered by the answers to FLUSH and FUA. A write `w` has `before`, the barriers
//! answered before it was submitted. Once a later write of its sector was answered before a flush was
//! submitted, the barrier of that flush covers the later one: `w` may be seen up to the barrier before
//! (`until`). An image is legal if there is one T such that each sector has a value with
//! before <= T <= until.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A write of one sector.
#[derive(Clone, Copy, Debug)]
struct Written {
    value: u64,
    before: u64,
    answered: Option<u64>,
    /// The first barrier that makes it durable.
    covered: Option<u64>,
    /// No guest has written it: a server has lost what was there.
    lost: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// By sector, in order.
    history: Vec<Vec<Written>>,
    /// Of all disks of a guest.
    time: Rc<Time>,
}

#[derive(Debug, Default)]
struct Time {
    /// Barriers that were answered.
    barriers: Cell<u64>,
    clock: Cell<u64>,
}

impl Time {
    /// The number of a barrier that is answered now.
    fn barrier(&self) -> u64 {
        self.barriers.replace(self.barriers.get() + 1)
    }
}

impl Oracle {
    pub(crate) fn new(sectors: usize) -> Self {
        let first =
            Written { value: 0, before: 0, answered: Some(0), covered: Some(0), lost: false };
        Self { history: vec![vec![first]; sectors], time: Rc::default() }
    }

    pub(crate) fn now(&mut self) -> u64 {
        self.time.clock.set(self.time.clock.get() + 1);
        self.time.clock.get()
    }

    pub(crate) fn write(&mut self, sectors: std::ops::Range<usize>, value: u64) {
        self.now();
        let before = self.time.barriers.get();
        for sector in sectors {
            let (answered, covered, lost) = (None, None, false);
            self.history[sector].push(Written { value, before, answered, covered, lost });
        }
    }

    /// A server has lost what was in a sector, and this is there instead: as if it had been written,
    /// until that is known.
    pub(crate) fn lost(&mut self, sector: usize, value: u64) {
        self.write(sector..sector + 1, value);
        self.history[sector].last_mut().expect("just written").lost = true;
    }

    /// No reader may see any more what was there before.
    pub(crate) fn lost_known(&mut self, sector: usize) {
        let now = self.now();
        for written in self.history[sector].iter_mut().filter(|written| written.lost) {
            written.answered.get_or_insert(now);
        }
    }

    pub(crate) fn written(&mut self, sectors: std::ops::Range<usize>) {
        let now = self.now();
        for sector in sectors {
            let newest = self.history[sector].last_mut().expect("it was submitted");
            assert!(newest.answered.is_none(), "writes of a sector come one at a time");
            newest.answered = Some(now);
        }
    }

    /// A flush that was submitted at `submitted` is answered.
    pub(crate) fn barrier(&mut self, submitted: u64) {
        let number = self.time.barrier();
        for written in self.history.iter_mut().flatten() {
            if written.covered.is_none() && written.answered.is_some_and(|at| at < submitted) {
                written.covered = Some(number);
            }
        }
    }

    /// A write with FUA is answered: a barrier that covers it alone.
    pub(crate) fn fua(&mut self, sectors: std::ops::Range<usize>) {
        let number = self.time.barrier();
        for sector in sectors {
            let newest = self.history[sector].last_mut().expect("it was submitted");
            newest.covered.get_or_insert(number);
        }
    }

    /// The last barrier up to which a write may be seen.
    fn until(&self, sector: usize, index: usize) -> u64 {
        let later = &self.history[sector][index + 1..];
        later.iter().filter_map(|written| written.covered).min().unwrap_or(u64::MAX)
    }

    /// A disk that holds these values, durably.
    pub(crate) fn of(values: &[u64]) -> Self {
        let mut oracle = Self::new(values.len());
        for (history, value) in oracle.history.iter_mut().zip(values) {
            history[0].value = *value;
        }
        oracle
    }

    /// Another disk of the same guest that holds these values, durably.
    pub(crate) fn beside(&self, values: &[u64]) -> Self {
        Self { time: Rc::clone(&self.time), ..Self::of(values) }
    }

    /// The newest value of a sector, if it was answered before `time`.
    pub(crate) fn newest_before(&self, sector: usize, time: u64) -> Option<u64> {
        let newest = self.history[sector].last().expect("a sector has a value");
        newest.answered.is_some_and(|at| at < time).then_some(newest.value)
    }

    /// Whether the back end may hold these values, of each sector any. `Err` says which sectors
    /// contradict each other.
    pub(crate) fn check_image(&self, image: impl Fn(usize) -> Vec<u64>) -> Result<(), String> {
        Self::check_images([(self, image)])
    }

    /// The same of all disks of a guest.
    pub(crate) fn check_images<'a>(
        all: impl IntoIterator<Item = (&'a Self, impl Fn(usize) -> Vec<u64>)>,
    ) -> Result<(), String> {
        // For each value of each sector the T that it allows, as a list of ranges.
        let mut allowed: BTreeMap<u64, i64> = BTreeMap::new();
        let (mut values, mut notes) = (0i64, Vec::new());
        for (disk, (of, image)) in all.into_iter().enumerate() {
            for sector in 0..of.history.len() {
                let mut candidates = image(sector);
                candidates.sort_unstable();
                candidates.dedup();
                for value in candidates {
                    values += 1;
                    let ranges = of.ranges(sector, value);
                    if ranges.is_empty() {
                        return Err(format!("sector {sector} holds {value}, which it must not"));
                    }
                    for (from, to) in &ranges {
                        *allowed.entry(*from).or_default() += 1;
                        if *to != u64::MAX {
                            *allowed.entry(to + 1).or_default() -= 1;
                        }
                    }
                    notes.push((disk, sector, value, ranges));
                }
            }
        }
        let mut sum = 0;
        for change in allowed.values() {
            sum += change;
            if sum == values {
                return Ok(());
            }
        }
        let latest = notes.iter().max_by_key(|note| note.3[0].0);
        let earliest = notes.iter().min_by_key(|note| note.3.last().map(|range| range.1));
        Err(format!("no barrier allows this image: {latest:?} and {earliest:?}"))
    }

    /// The T that a value of a sector allows, in order; where they overlap they count once.
    fn ranges(&self, sector: usize, value: u64) -> Vec<(u64, u64)> {
        let history = self.history[sector].iter().enumerate();
        let ranges = history.filter(|(_, written)| written.value == value);
        let ranges = ranges.map(|(index, written)| (written.before, self.until(sector, index)));
        let mut ranges: Vec<_> = ranges.filter(|(before, until)| before <= until).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in ranges {
            match merged.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        merged
    }

    /// Whether a guest may read this value of a sector after a crash. `power`: what was not flushed
    /// may be lost, else only what was not answered.
    pub(crate) fn check_after_crash(&self, sector: usize, value: u64, power: bool) -> bool {
        let history = &self.history[sector];
        let now = self.time.barriers.get();
        history.iter().enumerate().any(|(index, written)| {
            let superseded = history[index + 1..].iter().any(|later| later.answered.is_some());
            let seen = if power { self.until(sector, index) >= now } else { !superseded };
            written.value == value && seen
        })
    }

    /// After a crash this is the value; later writes did not happen.
    pub(crate) fn decide(&mut self, sector: usize, value: u64) {
        let now = self.time.clock.get() + 1;
        let history = &mut self.history[sector];
        let at =
            history.iter().rposition(|written| written.value == value).expect("it was checked");
        history.truncate(at + 1);
        let newest = history.last_mut().expect("one is left");
        newest.answered = Some(newest.answered.unwrap_or(now));
    }

    /// After a crash everything that is left is durable.
    pub(crate) fn crash_barrier(&mut self) {
        let now = self.now();
        let after = self.now();
        assert!(now < after, "time goes on");
        self.barrier(after);
    }

    /// What a sector may be read as now: the newest answered value, or one under way.
    pub(crate) fn newest(&self, sector: usize) -> u64 {
        self.history[sector].last().expect("a sector has a value").value
    }

    /// The values that a read may bring that was submitted at `since`.
    pub(crate) fn check_read(&self, sector: usize, value: u64, since: u64) -> bool {
        let history = &self.history[sector];
        history.iter().enumerate().any(|(index, written)| {
            let later = &history[index + 1..];
            let hidden = later.iter().any(|l| l.answered.is_some_and(|answered| answered < since));
            written.value == value && !hidden
        })
    }
}
