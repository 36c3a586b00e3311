//! Plans: behind an interval, or when an operator asks.

use super::act::{Step, check_pin};
use super::budget::Budget;
use super::query::Query;
use super::report::{HistoryReport, PinReport, PlanReport, PricesReport, ShareReport};
use super::share::{Beside, Seen, share_report};
use super::thread::Manager;
use super::watch::Ended;
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, DataStatus, Message, Share, State,
};
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_policy::planning::{Part, Rules, Target};
use cinnabar_policy::reuse::SampledCurves;
use cinnabar_policy::sizing::Allocator;
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Most plans in an answer.
const HISTORY_MAX: usize = 256;
/// The largest cache that is asked about: 64 TiB.
const CAPACITY_BLOCKS_MAX: u64 = (64 << 40) / BLOCK_BYTES;

/// What a plan is made of, and when.
struct Made {
    status: DataStatus,
    seen: BTreeMap<String, Seen>,
    report: PlanReport,
}

impl Manager {
    /// Ends the interval that can be ended, makes its plan, and carries it out.
    pub(super) fn end_interval(&mut self) {
        let status = self.status();
        if let Ok(status) = &status {
            self.prices.learn(status.cache.io_totals);
            let now_us = self.watch.now_us();
            if let Some(budget) = &mut self.budget {
                budget.end_interval(now_us);
            }
            self.learn(status);
        }
        let begun = Instant::now();
        let Some(Ended { closed, counts, lost }) = self.watch.end() else { return };
        let report = PlanReport {
            interval: closed.interval.number,
            start_us: closed.interval.start_us,
            end_us: closed.ended.end_us,
            seconds: closed.ended.seconds,
            requests: closed.interval.requests,
            references: closed.interval.references,
            lost,
            digest: format!("{:016x}", closed.digest()),
            took_us: begun.elapsed().as_micros() as u64,
            ..self.blank()
        };
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                self.over = error.kind == CommandErrorKind::Stopping;
                tracing::warn!(reason = %error, "a plan can't be carried out");
                self.keep(PlanReport { trouble: error.to_string(), ..report });
                return;
            }
        };
        let seen = self.seen(closed.curves, closed.parts.as_deref(), &counts);
        let plan = self.carry_out(Made { status, seen, report });
        self.keep(plan);
    }

    /// What there is to know before a plan: how large the cache is, what the operator wants, what I/O
    /// costs.
    fn learn(&mut self, status: &DataStatus) {
        self.heed(status);
        self.watch.planning().set_capacity(status.cache.counters.capacity_blocks);
    }

    /// The same without how large the cache is.
    fn heed(&mut self, status: &DataStatus) {
        // Bounds of volumes that have left would count beside those of volumes that came for them.
        self.watch.reset_bounds();
        let bounds = self.actuation.bounds(status);
        for (name, bounds) in bounds {
            self.watch.set_bounds(&name, bounds);
        }
        let mut rules = self.config.rules;
        if self.config.measured {
            rules.prices = self.prices.of(&rules.prices);
        }
        rules.prices.lambda_us += self.budget.as_ref().map_or(0.0, Budget::price_us);
        self.watch.planning().set_rules(rules);
    }

    /// A plan that was made becomes one of those of late.
    fn keep(&mut self, plan: PlanReport) {
        self.listener.planned(&plan);
        self.history.push(plan);
    }

    /// A report without what is of one plan only.
    fn blank(&mut self) -> PlanReport {
        let ram_bytes = self.watch.ram_bytes() as u64;
        let measured = self.config.measured;
        let budget = self.budget.as_ref().map(Budget::report);
        let planning = self.watch.planning();
        let rules = planning.rules();
        PlanReport {
            made_ms: now_ms(),
            allocator: rules.allocator.name().to_owned(),
            prices: PricesReport::new(&rules.prices, measured),
            capacity_bytes: planning.capacity_blocks() * BLOCK_BYTES,
            ram_bytes,
            budget,
            ..PlanReport::default()
        }
    }

    /// Volumes as they were seen, by name.
    pub(super) fn seen(
        &self,
        curves: Vec<SampledCurves>,
        parts: Option<&[Part]>,
        counts: &[[u64; 2]],
    ) -> BTreeMap<String, Seen> {
        let named = curves.into_iter().zip(self.watch.names()).enumerate();
        let one = |(number, (curves, name)): (usize, (SampledCurves, &Option<String>))| {
            let part = parts.map(|parts| parts[number]);
            let counts = counts.get(number).copied().unwrap_or_default();
            Some((name.clone()?, Seen { curves, part, counts }))
        };
        named.filter_map(one).collect()
    }

    /// Has the data plane adopt what follows from a plan, and says what came of it.
    fn carry_out(&mut self, made: Made) -> PlanReport {
        let Made { status, seen, mut report } = made;
        let step = self.actuation.step(&self.config, &status, &seen, true);
        report.trouble.clone_from(&step.trouble);
        report.volumes = self.shares(&status, &seen, &step);
        self.hits = status.volumes.iter().map(hits_of).collect();
        if !self.config.apply {
            report.trouble = "apply = false in [manager]".into();
            return told(report);
        }
        if step.targets.is_empty() && !step.trouble.is_empty() {
            // Nothing follows from it.
            return told(report);
        }
        let target = |(name, target): &(String, Option<Target>)| {
            let own = target.filter(|target| target.own).map(|target| target.blocks);
            (name.clone(), own)
        };
        let targets: Vec<_> = step.targets.iter().map(target).collect();
        let adopted = targets.iter().filter_map(|(name, own)| Some((name.clone(), (*own)?)));
        let adopted = adopted.collect();
        match self.ask(|answer| Message::AdoptTargets { targets, answer }) {
            Ok(()) => (report.applied, self.adopted) = (true, adopted),
            Err(error) => report.trouble = error.to_string(),
        }
        for (name, change) in self.modes.changes(&self.config, &status, &seen, &step.targets) {
            let Some(mode) = change.mode else { continue };
            tracing::info!(volume = name, ?mode, "its plan wants another mode");
            let asked =
                self.send(|answer| Message::SetVolume { name: name.clone(), change, answer });
            match asked {
                Ok(answer) => self.modes.asked(&name, mode, answer),
                Err(error) => tracing::warn!(volume = name, reason = %error, "its mode stays"),
            }
        }
        told(report)
    }

    /// What is said of each volume, in the order in which they were added.
    pub(super) fn shares(
        &self,
        status: &DataStatus,
        seen: &BTreeMap<String, Seen>,
        step: &Step,
    ) -> Vec<ShareReport> {
        let targets: BTreeMap<&String, Option<Target>> =
            step.targets.iter().map(|(name, target)| (name, *target)).collect();
        let served = status.volumes.iter().filter(|volume| volume.state != State::Waiting);
        served
            .map(|volume| {
                let (name, now) = hits_of(volume);
                let before = self.hits.get(&name).copied().unwrap_or_default();
                let since = |at: usize| now[at].saturating_sub(before[at]);
                let capacity_blocks = status.cache.counters.capacity_blocks;
                let beside = Beside {
                    capacity_blocks,
                    reach_part: self.config.rules.reach_part,
                    target: targets.get(&name).copied().flatten(),
                    before_blocks: self.adopted.get(&name).copied(),
                    pinned_blocks: self.actuation.pin(&volume.config, capacity_blocks),
                    hits: Some([since(0), since(1)]),
                };
                share_report(volume, seen.get(&name), &beside)
            })
            .collect()
    }

    /// What would be planned now; nothing changes.
    pub(super) fn preview(
        &mut self,
        allocator: Option<Allocator>,
    ) -> Result<(PlanReport, DataStatus, BTreeMap<String, Seen>), CommandError> {
        let status = self.status()?;
        self.learn(&status);
        Ok(self.preview_of(status, allocator))
    }

    /// What would be planned in a cache of so many blocks; nothing changes.
    fn what_if(
        &mut self,
        allocator: Option<Allocator>,
        capacity_blocks: Option<u64>,
    ) -> Result<PlanReport, CommandError> {
        let status = self.status()?;
        self.learn(&status);
        let capacity_blocks = capacity_blocks.unwrap_or(status.cache.counters.capacity_blocks);
        let capacity_blocks = capacity_blocks.clamp(1, CAPACITY_BLOCKS_MAX);
        let mut other = status.clone();
        other.cache.counters.capacity_blocks = capacity_blocks;
        self.heed(&other);
        // A cache of that size would cut curves: the plan alone is for it.
        self.watch.planning().plan_for(capacity_blocks);
        let (report, ..) = self.preview_of(other, allocator);
        // Bounds and capacity are again those that there are.
        self.learn(&status);
        Ok(report)
    }

    /// Of what was learnt last.
    fn preview_of(
        &mut self,
        status: DataStatus,
        allocator: Option<Allocator>,
    ) -> (PlanReport, DataStatus, BTreeMap<String, Seen>) {
        let now_us = self.watch.now_us();
        let rules = self.rules(allocator);
        let begun = Instant::now();
        let (curves, parts) = self.watch.preview(&rules, now_us);
        let took_us = begun.elapsed().as_micros() as u64;
        let seen = self.seen(curves, parts.as_deref(), &[]);
        let allocator = rules.allocator.name().to_owned();
        let interval = self.watch.open_interval();
        let mut report =
            PlanReport { interval, end_us: now_us, took_us, allocator, ..self.blank() };
        let step = self.actuation.step(&self.config, &status, &seen, false);
        report.trouble.clone_from(&step.trouble);
        report.volumes = self.shares(&status, &seen, &step);
        (report, status, seen)
    }

    fn rules(&mut self, allocator: Option<Allocator>) -> Rules {
        let rules = *self.watch.planning().rules();
        Rules { allocator: allocator.unwrap_or(rules.allocator), ..rules }
    }

    /// Carries out what would be planned now, and goes on with this allocator.
    fn apply(&mut self, allocator: Option<Allocator>) -> Result<PlanReport, CommandError> {
        self.may_apply()?;
        let (report, status, seen) = self.preview(allocator)?;
        if let Some(allocator) = allocator {
            self.config.rules.allocator = allocator;
        }
        let plan = self.carry_out(Made { status, seen, report });
        self.keep(plan.clone());
        Ok(plan)
    }

    fn may_apply(&self) -> Result<(), CommandError> {
        if self.config.apply {
            return Ok(());
        }
        let message = "the manager only looks: apply = false in [manager]";
        let hint = "set apply = true, and have that read: cinnabar reload";
        Err(CommandError::new(CommandErrorKind::Invalid, message, hint))
    }

    fn pin(&mut self, name: &str, size: Share) -> Result<PlanReport, CommandError> {
        self.may_apply()?;
        let status = self.status()?;
        let Some(volume) = status.volumes.iter().find(|volume| volume.config.name == name) else {
            let message = format!("there is no volume {name:?}");
            let hint = "list them: cinnabar volume list";
            return Err(CommandError::new(CommandErrorKind::NotFound, message, hint));
        };
        check_pin(&volume.config, size, status.cache.counters.capacity_blocks)?;
        let before = self.actuation.set_pin(name, Some(size));
        let plan = self.apply(None);
        if plan.is_err() {
            self.actuation.set_pin(name, before);
        }
        plan
    }

    fn unpin(&mut self, name: &str) -> Result<PlanReport, CommandError> {
        self.may_apply()?;
        let volume = name.to_owned();
        let had_mode = self.ask(|answer| Message::FreeMode { name: volume, answer })?;
        if self.actuation.set_pin(name, None).is_none() && !had_mode {
            let message = format!("volume {name:?} is not pinned");
            let hint = "cinnabar policy history lists the pins";
            return Err(CommandError::new(CommandErrorKind::NotFound, message, hint));
        }
        self.apply(None)
    }

    /// The newest plans, without the curves of their volumes.
    fn newest(&mut self, count: usize) -> HistoryReport {
        let capacity_blocks = self.watch.planning().capacity_blocks();
        let plans = self.history.newest(count.min(HISTORY_MAX)).cloned();
        let plans = plans.map(|mut plan| {
            for share in &mut plan.volumes {
                share.curve.clear();
            }
            plan
        });
        let pin = |(volume, size): (&String, &Share)| PinReport {
            volume: volume.clone(),
            size_bytes: size.blocks(capacity_blocks) * BLOCK_BYTES,
        };
        HistoryReport {
            plans: plans.collect(),
            pins: self.actuation.pins().iter().map(pin).collect(),
        }
    }

    /// Answers an operator, who may have gone meanwhile: then a question is none any more.
    pub(super) fn answer(&mut self, query: Query) {
        if query.is_given_up() {
            return;
        }
        match query {
            Query::Plan(allocator, answer) => {
                let plan = self.preview(allocator).map(|(report, ..)| report);
                drop(answer.send(plan));
            }
            Query::WhatIf(allocator, capacity_blocks, answer) => {
                drop(answer.send(self.what_if(allocator, capacity_blocks)));
            }
            Query::Apply(allocator, answer) => drop(answer.send(self.apply(allocator))),
            Query::Explain(name, at_ms, answer) => drop(answer.send(self.explain(&name, at_ms))),
            Query::Pin(name, size, answer) => drop(answer.send(self.pin(&name, size))),
            Query::Unpin(name, answer) => drop(answer.send(self.unpin(&name))),
            Query::Configure(new, keys, answer) => {
                drop(answer.send(self.configure(&new, &keys)));
            }
            Query::History(count, answer) => drop(answer.send(Ok(self.newest(count)))),
        }
    }
}

/// Read blocks that hit, and all.
fn hits_of(volume: &cinnabar_config::messages::VolumeStatus) -> (String, [u64; 2]) {
    let counters = &volume.counters;
    (volume.config.name.clone(), [counters.read_hits, counters.blocks_read])
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Logs a plan, with what it was made of.
fn told(report: PlanReport) -> PlanReport {
    let PricesReport { ssd_read_us, ssd_write_us, backend_read_us, backend_write_us, .. } =
        report.prices;
    tracing::info!(
        interval = report.interval,
        seconds = report.seconds,
        allocator = report.allocator,
        requests = report.requests,
        lost = report.lost,
        digest = report.digest,
        ssd_read_us,
        ssd_write_us,
        backend_read_us,
        backend_write_us,
        capacity_bytes = report.capacity_bytes,
        took_us = report.took_us,
        applied = report.applied,
        trouble = report.trouble,
        "plan"
    );
    for share in &report.volumes {
        tracing::debug!(
            volume = share.volume,
            planned = share.planned_bytes,
            target = share.target_bytes,
            granted = share.granted_bytes,
            held = share.held_bytes,
            min = share.min_bytes,
            max = share.max_bytes,
            policy = share.policy,
            why = share.why,
            "share"
        );
    }
    report
}

#[cfg(test)]
mod tests;
