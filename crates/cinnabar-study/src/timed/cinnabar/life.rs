//! Sessions of an engine: started, restarted when measuring begins, volumes attached as they appear.
//!
//! Called at each turn of an engine. Commands go one after the other; each takes the time of its I/O.
//! Requests for a volume that is not attached wait, and those that a crash leaves unanswered are asked
//! again, as a guest's NBD client does.

use super::super::config::Restart;
use super::super::model::Model;
use super::node::{COMMAND, Node, Place, Step};
use super::report::Recovery;
use super::setup;
use crate::instant::{Length, plain_volume};
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::shards::Sharded;
use cinnabar_engine::{Answer, Command, Event, Failure, RequestId};
use std::collections::btree_map::Entry;

impl Model<'_> {
    /// Every engine takes its first steps.
    pub(in super::super) fn start_engines(&mut self) {
        for host in 0..self.config.hosts as usize {
            self.engine_turn(0, host);
        }
    }

    /// The next step, if none is under way.
    pub(super) fn take_steps(&mut self, now: u64, node: &mut Node) {
        while node.step.is_none() {
            let Some(step) = node.steps.pop_front() else { return };
            let command = match step {
                Step::Renew | Step::Replace => {
                    let fresh = (step == Step::Replace).then(|| setup::format(&self.config));
                    node.renew(now, fresh);
                    continue;
                }
                Step::Detach(place) | Step::Seal(place) => {
                    // One that was still to be attached is not there.
                    let Some(&Some(volume)) = node.volumes.get(&place) else { continue };
                    match step {
                        Step::Detach(_) => Command::Detach(volume),
                        _ => Command::Seal(volume, None),
                    }
                }
                Step::Close => Command::Close,
                Step::Open => Command::Open,
                Step::AwaitLoad => Command::AwaitLoad,
                Step::Attach(place) => {
                    let name = format!("{}.{}", place.0, place.1);
                    Command::Attach(plain_volume(&name, VOLUME_BLOCKS_MAX))
                }
            };
            node.step = Some(step);
            node.events.push(Event::Control(RequestId(COMMAND), command));
        }
    }
}

impl Node {
    /// A volume is asked for: it will be attached, if it is new.
    pub(super) fn meet(&mut self, place: Place) {
        if let Entry::Vacant(entry) = self.volumes.entry(place) {
            entry.insert(None);
            // Behind a start that is still to come, ahead of waiting for the index.
            let open = self.steps.iter().position(|step| *step == Step::Open);
            self.steps.insert(open.map_or(0, |open| open + 1), Step::Attach(place));
        }
    }

    /// A restart as the settings want it.
    pub(super) fn order_restart(&mut self, now: u64, restart: Restart) {
        let before_blocks = self.engine.cache_counters().cached_blocks;
        let first = match restart {
            Restart::Warm => return,
            Restart::Cold { .. } => Step::Replace,
            Restart::Crash | Restart::Stop => Step::Renew,
        };
        self.recovery =
            (first == Step::Renew).then(|| Recovery { before_blocks, ..Recovery::default() });
        self.recovery_since_ns = now;
        self.steps.clear();
        if restart == Restart::Stop {
            self.stopping = true;
            self.steps.extend(self.volumes.keys().map(|place| Step::Detach(*place)));
            self.steps.extend(self.volumes.keys().map(|place| Step::Seal(*place)));
            self.steps.push_back(Step::Close);
        } else {
            // Commands to the session that ends here are void.
            self.step = None;
        }
        self.steps.extend([first, Step::Open]);
        self.steps.extend(self.volumes.keys().map(|place| Step::Attach(*place)));
        self.steps.push_back(Step::AwaitLoad);
        self.base = VolumeCounters::default();
    }

    /// Starts the next session, on the device as it is or on a new one.
    fn renew(&mut self, now: u64, fresh: Option<Vec<Superblock>>) {
        if let Some(fresh) = &fresh {
            self.lay_down(fresh);
        }
        let superblocks = fresh.unwrap_or_else(|| self.superblocks());
        self.engine = Sharded::new(self.config, superblocks);
        self.life += 1;
        self.wake_ns = None;
        self.events.clear();
        self.unseen.clear();
        self.invalidations.clear();
        self.submitted = 0;
        self.stopping = false;
        self.volumes.values_mut().for_each(|volume| *volume = None);
        for (job, asked) in &mut self.asked {
            if std::mem::take(&mut asked.submitted) {
                self.waiting.push_back(*job);
            }
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.stop_ns = now - self.recovery_since_ns;
            self.recovery_since_ns = now;
        }
    }

    /// The command under way is answered.
    ///
    /// # Panics
    /// If it failed: nothing here gives the engine a reason.
    pub(super) fn command_done(&mut self, now: u64, result: Result<Answer<Length>, Failure>) {
        let step = self.step.take().expect("a command is under way");
        let answer = result.unwrap_or_else(|failure| panic!("{step:?}: {failure}"));
        match (step, answer) {
            (Step::Attach(place), Answer::Attached { volume, .. }) => {
                self.volumes.insert(place, Some(volume));
                self.submit_waiting();
                let last = !self.steps.iter().any(|step| matches!(step, Step::Attach(_)));
                if let Some(recovery) = self.recovery.as_mut().filter(|_| last && self.life > 0)
                    && recovery.attach_ns == 0
                {
                    recovery.attach_ns = now - self.recovery_since_ns;
                    self.recovery_since_ns = now;
                }
            }
            (Step::AwaitLoad, Answer::Loaded(report)) => {
                if let Some(recovery) = &mut self.recovery
                    && self.life > 0
                {
                    recovery.load_ns = now - self.recovery_since_ns;
                    recovery.warm_blocks = report.blocks;
                    recovery.pages = report.pages;
                }
            }
            _ => {}
        }
    }
}
