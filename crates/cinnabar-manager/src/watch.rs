//! What the manager makes of what data threads tell: intervals in order, and the plan behind each.
//!
//! Time and accesses come from outside, so that a test drives it as the thread does. Threads tell a
//! moment after a request came; so the last tenth of a second is left alone, and what is older is
//! sorted by time. Then the intervals, and the plans, are those of a recording of the same requests.

use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::samplers::{Access, Counts, SLOTS, SampleStreams, SampledVolume};
use cinnabar_policy::planning::{Bounds, Closed, Interval, Part, Planning, Rules};
use cinnabar_policy::reuse::SampledCurves;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is younger is not looked at yet: a data thread's turn lasts for less.
const GRACE_US: u64 = 100_000;
/// Entries that are held at a time; what comes beyond them waits in the buffers, and is dropped there.
const HELD_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Watch {
    streams: SampleStreams,
    planning: Planning,
    every_us: u64,
    /// Entries by time, from `done` on not looked at yet.
    held: Vec<Access>,
    done: usize,
    /// The interval that is open.
    open: Option<u64>,
    first_us: u64,
    /// Names of volumes by their number in plans; `None`: the number is free.
    names: Vec<Option<String>>,
    /// Numbers in plans by the volume's own.
    numbers: BTreeMap<u32, usize>,
    /// Entries that came behind the end of their interval.
    late: u64,
    /// Dropped and late by the end of the last interval.
    lost_before: u64,
}

/// An interval that has ended.
#[derive(Debug)]
pub struct Ended {
    /// With the plan.
    pub closed: Closed,
    /// What each volume did in this interval alone, by its number in the plan.
    pub counts: Vec<[u64; 2]>,
    /// Entries that are missing or came late in this interval: with none, the plan is that of a
    /// recording.
    pub lost: u64,
}

impl Watch {
    /// Before anything came.
    pub fn new(streams: SampleStreams, config: &ManagerConfig, capacity_blocks: u64) -> Self {
        let planning = Planning::new(config.cut(), config.monitor, config.rules, capacity_blocks);
        Self {
            every_us: streams.samplers.every_us(),
            streams,
            planning,
            held: Vec::new(),
            done: 0,
            open: None,
            first_us: u64::MAX,
            names: Vec::new(),
            numbers: BTreeMap::new(),
            late: 0,
            lost_before: 0,
        }
    }

    /// The daemon's clock, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.streams.origin.elapsed().as_micros() as u64
    }

    /// The planner, to change its rules, bounds and capacity.
    pub const fn planning(&mut self) -> &mut Planning {
        &mut self.planning
    }

    /// Number of the interval that is open.
    pub fn open_interval(&self) -> u64 {
        self.open.unwrap_or(0)
    }

    /// Names of volumes by their number in plans.
    pub fn names(&self) -> &[Option<String>] {
        &self.names
    }

    /// A volume's number in plans.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known.as_deref() == Some(name))
    }

    /// Dropped and late so far.
    pub fn lost(&self) -> u64 {
        self.streams.samplers.dropped() + self.late
    }

    /// About how many bytes of RAM it takes.
    pub fn ram_bytes(&self) -> usize {
        let held = self.held.capacity() * size_of::<Access>();
        self.planning.ram_bytes() + self.streams.samplers.ram_bytes() + held
    }

    /// Looks at what there is; whether an interval can be ended, which is done before the next look.
    pub fn look(&mut self, now_us: u64) -> bool {
        self.receive();
        let horizon_us = now_us.saturating_sub(GRACE_US);
        let volumes = self.streams.samplers.volumes();
        let next = |from: u64| volumes.iter().filter_map(|one| one.next_interval(from)).min();
        if self.open.is_none() {
            self.open = next(0).filter(|first| first * self.every_us < horizon_us);
        }
        // Of volumes that come and go without a request no interval ends.
        self.let_go(0, &volumes);
        let Some(open) = self.open else { return false };
        let end_us = (open + 1).saturating_mul(self.every_us);
        self.take_up_to(horizon_us.min(end_us), &volumes);
        horizon_us >= end_us && next(open + 1).is_some()
    }

    /// Ends the interval that can be ended, with the plan behind it.
    pub fn end(&mut self) -> Option<Ended> {
        let number = self.open?;
        let volumes = self.streams.samplers.volumes();
        let next = volumes.iter().filter_map(|one| one.next_interval(number + 1)).min()?;
        for one in &volumes {
            // Its first entry was dropped.
            if one.counts(number).requests > 0 && !self.numbers.contains_key(&one.number) {
                self.number(one.number, &one.name);
            }
        }
        let (total, counts) = self.counted(number, &volumes);
        // Its counts are gone, or some of them: it took too long to come here.
        let is_over = |one: &Arc<SampledVolume>| one.newest_interval() >= number + SLOTS as u64;
        self.late += u64::from(volumes.iter().any(is_over));
        let interval = Interval {
            number,
            start_us: number * self.every_us,
            last_us: total.last_us,
            requests: total.requests,
            references: total.reads + total.writes,
        };
        let (first_us, next_us) = (self.first_us, next.saturating_mul(self.every_us));
        let closed = self.planning.end_counted(interval, &counts, first_us, next_us);
        self.open = Some(next);
        self.let_go(number + 1, &volumes);
        let lost = self.lost();
        let since = lost - std::mem::replace(&mut self.lost_before, lost);
        Some(Ended { closed, counts, lost: since })
    }

    /// What these rules would make of all that was seen so far; nothing changes.
    pub fn preview(&self, rules: &Rules, now_us: u64) -> (Vec<SampledCurves>, Option<Vec<Part>>) {
        let open = self.open.unwrap_or(0);
        let (_, counts) = self.counted(open, &self.streams.samplers.volumes());
        let seconds = now_us.saturating_sub(open * self.every_us).min(self.every_us) as f64 / 1e6;
        self.planning.preview(rules, &counts, seconds)
    }

    /// The operator wants nothing for any volume, until bounds are set again.
    pub fn reset_bounds(&mut self) {
        for number in 0..self.names.len() {
            self.planning.set_bounds(number, Bounds::default());
        }
    }

    /// What the operator wants for a volume that was seen.
    pub fn set_bounds(&mut self, name: &str, bounds: Bounds) {
        if let Some(number) = self.number_of(name) {
            self.planning.set_bounds(number, bounds);
        }
    }

    fn receive(&mut self) {
        self.held.drain(..self.done);
        self.done = 0;
        for queue in &self.streams.queues {
            let room = HELD_MAX.saturating_sub(self.held.len());
            self.held.extend(queue.try_iter().take(room));
        }
        // Stable: those of one thread stay in their order.
        self.held.sort_by_key(|access| access.at_us);
    }

    fn take_up_to(&mut self, until_us: u64, volumes: &[Arc<SampledVolume>]) {
        let start_us = self.open.unwrap_or(0) * self.every_us;
        let mut touched = BTreeSet::new();
        while let Some(access) = self.held.get(self.done).filter(|one| one.at_us < until_us) {
            let access = *access;
            self.done += 1;
            self.late += u64::from(access.at_us < start_us);
            let Some(number) = self.number_of_access(&access, volumes) else { continue };
            let mut mask = access.mask;
            while mask != 0 {
                let at = u64::from(mask.trailing_zeros());
                self.planning.touch(number, access.first + at, access.is_write);
                mask &= mask - 1;
            }
            touched.insert(access.volume);
        }
        for one in volumes.iter().filter(|one| touched.contains(&one.number)) {
            one.publish(self.planning.filter(self.numbers[&one.number]));
        }
    }

    /// The number in plans of an access's volume, which may be seen for the first time.
    fn number_of_access(
        &mut self,
        access: &Access,
        volumes: &[Arc<SampledVolume>],
    ) -> Option<usize> {
        if let Some(number) = self.numbers.get(&access.volume) {
            return Some(*number);
        }
        let known = volumes.iter().find(|one| one.number == access.volume)?;
        self.first_us = self.first_us.min(access.at_us);
        Some(self.number(access.volume, &known.name))
    }

    /// The number in plans of a volume that is seen for the first time: that of its name, if it was
    /// here before.
    fn number(&mut self, watched: u32, name: &str) -> usize {
        let free = || self.names.iter().position(Option::is_none);
        let number = self.number_of(name).or_else(free).unwrap_or(self.names.len());
        if number == self.names.len() {
            self.names.push(None);
        }
        self.names[number] = Some(name.to_owned());
        self.numbers.insert(watched, number);
        number
    }

    fn counted(&self, interval: u64, volumes: &[Arc<SampledVolume>]) -> (Counts, Vec<[u64; 2]>) {
        let mut total = Counts::default();
        let mut counts = vec![[0; 2]; self.names.len()];
        for one in volumes {
            let own = one.counts(interval);
            let Some(number) = self.numbers.get(&one.number) else { continue };
            counts[*number][0] += own.reads;
            counts[*number][1] += own.writes;
            total.requests += own.requests;
            total.reads += own.reads;
            total.writes += own.writes;
            total.last_us = total.last_us.max(own.last_us);
        }
        (total, counts)
    }

    /// Forgets volumes that have left and did nothing from this interval on.
    fn let_go(&mut self, from: u64, volumes: &[Arc<SampledVolume>]) {
        let waits = |number: u32| self.held[self.done..].iter().any(|one| one.volume == number);
        let gone: Vec<u32> = volumes
            .iter()
            .filter(|one| one.has_left() && one.next_interval(from).is_none())
            .map(|one| one.number)
            .filter(|number| !waits(*number))
            .collect();
        for watched in gone {
            self.streams.samplers.forget(watched);
            let Some(number) = self.numbers.remove(&watched) else { continue };
            if !self.numbers.values().any(|other| *other == number) {
                self.names[number] = None;
                self.planning.forget(number);
            }
        }
    }
}

#[cfg(test)]
mod tests;
