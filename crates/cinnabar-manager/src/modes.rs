//! Modes of volumes whose operator leaves them to plans: what is asked for, and what came of it.

use super::share::Seen;
use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::{CommandError, DataStatus, State, VolumeChange, VolumeMode};
use cinnabar_policy::planning::Target;
use cinnabar_policy::sizing::{Allocator, WritePolicy};
use std::collections::BTreeMap;
use tokio::sync::oneshot::{Receiver, error::TryRecvError};

/// A mode that was refused is not asked for again for so many plans.
const REFUSED_PLANS: u32 = 10;

/// What the manager knows of the mode of a volume.
#[derive(Debug, Default)]
struct Mode {
    /// A change under way.
    pending: Option<(VolumeMode, Receiver<Result<(), CommandError>>)>,
    /// The last one that was set here.
    set: Option<VolumeMode>,
    /// One that could not be had, and plans until it is asked for again.
    refused: Option<(VolumeMode, u32)>,
}

/// See the module; by volume.
#[derive(Debug, Default)]
pub(super) struct Modes(BTreeMap<String, Mode>);

impl Modes {
    /// Modes that are to be asked for behind a plan with these targets: of volumes whose operator allows it
    /// and has set none, where plans have wanted another one for long enough. Of a volume that did nothing
    /// in the interval a plan knows nothing.
    pub(super) fn changes(
        &mut self,
        config: &ManagerConfig,
        status: &DataStatus,
        seen: &BTreeMap<String, Seen>,
        targets: &[(String, Option<Target>)],
    ) -> Vec<(String, VolumeChange)> {
        let judge = Judge {
            has_log: status.cache.write_log.as_ref().is_some_and(|log| log.reason.is_empty()),
            allocator: config.rules.allocator,
            omega: config.rules.prices.omega,
        };
        let mut changes = Vec::new();
        self.0.retain(|name, _| targets.iter().any(|(served, _)| served == name));
        for (name, target) in targets {
            let Some(volume) = status.volumes.iter().find(|one| one.config.name == *name) else {
                continue;
            };
            if !volume.config.auto_mode || volume.state != State::Serving {
                continue;
            }
            // On its way out of the log, which may yet fail.
            let leaves = volume.write_back.as_ref().is_some_and(|own| own.leaving);
            if volume.mode_by_operator || leaves {
                if let Some(mode) = self.0.get_mut(name).filter(|_| !leaves) {
                    mode.set = None;
                }
                continue;
            }
            let now = volume.config.mode;
            let mode = self.0.entry(name.clone()).or_default();
            let planned =
                seen.get(name).filter(|seen| seen.counts != [0; 2] && seen.part.is_some());
            let policy = target.filter(|_| planned.is_some()).and_then(policy_of);
            let wanted = policy.map(|policy| judge.mode_of(policy, now));
            if mode.asks(now, wanted) {
                let mode_from = Some(now);
                let change = VolumeChange { mode: wanted, mode_from, ..VolumeChange::default() };
                changes.push((name.clone(), change));
            }
        }
        changes
    }

    /// A change of mode is under way.
    pub(super) fn asked(
        &mut self,
        name: &str,
        wanted: VolumeMode,
        answer: Receiver<Result<(), CommandError>>,
    ) {
        if let Some(mode) = self.0.get_mut(name) {
            mode.pending = Some((wanted, answer));
        }
    }

    /// Looks which changes of mode were answered.
    pub(super) fn look(&mut self) {
        for (volume, mode) in &mut self.0 {
            let Some((wanted, answer)) = &mut mode.pending else { continue };
            let wanted = *wanted;
            match answer.try_recv() {
                Err(TryRecvError::Empty) => continue,
                Ok(Ok(())) => {
                    tracing::info!(volume, mode = ?wanted, "its mode is as planned");
                    mode.set = Some(wanted);
                }
                Ok(Err(error)) => {
                    tracing::warn!(volume, mode = ?wanted, reason = %error, "its mode stays");
                    mode.refused = Some((wanted, REFUSED_PLANS));
                }
                Err(TryRecvError::Closed) => mode.refused = Some((wanted, REFUSED_PLANS)),
            }
            mode.pending = None;
        }
    }
}

impl Mode {
    /// Whether another mode is to be asked for.
    fn asks(&mut self, now: VolumeMode, wanted: Option<VolumeMode>) -> bool {
        if let Some((_, plans)) = &mut self.refused {
            *plans = plans.saturating_sub(1);
        }
        self.refused = self.refused.filter(|(_, plans)| *plans > 0);
        if self.pending.is_some() {
            return false;
        }
        if now == VolumeMode::WriteBack
            && let Some(set) = self.set.take_if(|set| *set != now)
        {
            // It was set, but the log could not bring its writes to the back end.
            self.refused = Some((set, REFUSED_PLANS));
        }
        self.set = self.set.filter(|set| *set != now);
        let refused = self.refused.map(|(mode, _)| mode);
        wanted.is_some_and(|wanted| wanted != now && refused != Some(wanted))
    }
}

/// The policy that a plan wants; never to cache nothing in a share that the operator has given.
fn policy_of(target: Target) -> Option<WritePolicy> {
    target.policy.filter(|policy| *policy != WritePolicy::Bypass || target.blocks == 0)
}

/// What plans can say of modes.
#[derive(Clone, Copy, Debug)]
struct Judge {
    /// There is a write log.
    has_log: bool,
    allocator: Allocator,
    /// What a microsecond of a write counts.
    omega: f64,
}

impl Judge {
    /// The mode of a write policy, for a volume whose mode is `now`. Without a write log writes can only
    /// go through.
    fn mode_of(self, policy: WritePolicy, now: VolumeMode) -> VolumeMode {
        if now == VolumeMode::WriteBack && !self.weighs_write_back(policy) {
            return now;
        }
        match policy {
            WritePolicy::Bypass => VolumeMode::PassThrough,
            WritePolicy::ReadOnly => VolumeMode::WriteAround,
            WritePolicy::Back if self.has_log => VolumeMode::WriteBack,
            WritePolicy::Through | WritePolicy::Back => VolumeMode::WriteThrough,
        }
    }

    /// Whether a plan that does not want write-back has looked at what it saves. With an omega of 0 `urd`
    /// counts no time of a write, and of the others those that say write-through do not choose.
    fn weighs_write_back(self, policy: WritePolicy) -> bool {
        match self.allocator {
            Allocator::Urd => self.omega > 0.0,
            _ => policy != WritePolicy::Through,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mode_is_left_for_a_while() {
        use VolumeMode::{PassThrough, WriteAround, WriteThrough};
        let mut known = Mode::default();
        assert!(!known.asks(WriteThrough, None) && !known.asks(WriteThrough, Some(WriteThrough)));
        assert!(known.asks(WriteThrough, Some(WriteAround)));
        known.refused = Some((WriteAround, 3));
        assert!(!known.asks(WriteThrough, Some(WriteAround)));
        assert!(known.asks(WriteThrough, Some(PassThrough)), "another one is not refused");
        assert!(known.asks(WriteThrough, Some(WriteAround)), "and it is tried again");
    }

    #[test]
    fn write_back_that_could_not_be_left_is_not_left_again_at_once() {
        use VolumeMode::{WriteBack, WriteThrough};
        let mut known = Mode::default();
        assert!(known.asks(WriteBack, Some(WriteThrough)));
        let (answer, answered) = tokio::sync::oneshot::channel();
        known.pending = Some((WriteThrough, answered));
        let mut modes = Modes(BTreeMap::from([("vm1".to_owned(), known)]));
        answer.send(Ok(())).expect("it waits");
        modes.look();
        let known = modes.0.get_mut("vm1").expect("it is there");
        // It has begun to leave, and is in write-back again: its log was lost.
        let asked = (0..REFUSED_PLANS).filter(|_| known.asks(WriteBack, Some(WriteThrough)));
        assert_eq!(asked.count(), 0);
        assert!(known.asks(WriteBack, Some(WriteThrough)), "but later");
    }

    #[test]
    fn without_a_write_log_nothing_is_written_back() {
        use VolumeMode::{WriteAround, WriteBack, WriteThrough};
        let judge = Judge { has_log: false, allocator: Allocator::Eci, omega: 0.0 };
        assert_eq!(judge.mode_of(WritePolicy::Back, WriteThrough), WriteThrough);
        let judge = Judge { has_log: true, ..judge };
        assert_eq!(judge.mode_of(WritePolicy::Back, WriteThrough), WriteBack);
        assert_eq!(judge.mode_of(WritePolicy::ReadOnly, WriteBack), WriteAround);
    }

    #[test]
    fn a_plan_that_does_not_count_writes_takes_no_volume_out_of_write_back() {
        use VolumeMode::{PassThrough, WriteAround, WriteBack, WriteThrough};
        let judge = Judge { has_log: true, allocator: Allocator::Urd, omega: 0.0 };
        for policy in WritePolicy::ALL {
            assert_eq!(judge.mode_of(policy, WriteBack), WriteBack, "{policy}");
        }
        assert_eq!(judge.mode_of(WritePolicy::ReadOnly, WriteThrough), WriteAround);
        assert_eq!(judge.mode_of(WritePolicy::Bypass, WriteThrough), PassThrough);
        let counts = Judge { omega: 1.0, ..judge };
        assert_eq!(counts.mode_of(WritePolicy::Through, WriteBack), WriteThrough);
        let other = Judge { allocator: Allocator::SCave, ..judge };
        assert_eq!(other.mode_of(WritePolicy::Through, WriteBack), WriteBack);
    }
}
