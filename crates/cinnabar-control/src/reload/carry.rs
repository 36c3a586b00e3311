//! A plan carried out: one step after another, and volumes that come side by side.
//!
//! Other commands wait meanwhile, so all of it has one deadline: what was not begun by then is left to
//! the next reload.

use super::plan::Step;
use super::report::{ChangeReport, ReloadState};
use crate::Control;
use cinnabar_config::messages::{CommandError, CommandErrorKind, Message};
use cinnabar_manager::Query;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Back ends that are opened at a time.
pub(super) const ADDS_MAX: usize = 4;
/// What a reload may take beyond a single command: a client is told before its connection has lived
/// its time.
const MORE_MAX: Duration = Duration::from_secs(50);

/// Until when steps are begun, and answers awaited.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    all: Duration,
}

impl Control {
    /// Carries out all steps, and notes what became of each.
    pub(super) async fn carry_out(self: &Arc<Self>, steps: &[Step], changes: &mut [ChangeReport]) {
        let all = self.change_wait_max + MORE_MAX.min(self.change_wait_max / 3);
        let deadline = Deadline { at: Instant::now() + all, all };
        let places = Arc::new(Semaphore::new(ADDS_MAX));
        let mut adds = JoinSet::new();
        for (at, step) in steps.iter().enumerate() {
            // They are the last ones.
            if let Step::Add(_) = step {
                changes[at].fail(CommandError::gone());
                let (control, places, step) = (Arc::clone(self), Arc::clone(&places), step.clone());
                adds.spawn(async move {
                    let _place = places.acquire().await;
                    (at, control.do_step(step, deadline).await)
                });
            } else {
                changes[at].note(self.do_step(step.clone(), deadline).await);
            }
        }
        while let Some(done) = adds.join_next().await {
            if let Ok((at, result)) = done {
                changes[at].note(result);
            }
        }
    }

    async fn do_step(&self, step: Step, deadline: Deadline) -> Result<(), CommandError> {
        let left = deadline.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let all = deadline.all.as_secs();
            let message = format!("not tried: what came before it took all of {all} s");
            let hint = "see what hangs, then: cinnabar reload";
            return Err(CommandError::new(CommandErrorKind::Busy, message, hint));
        }
        let wait = left.min(self.change_wait_max);
        match step {
            // It is asked for when it counts.
            Step::StopWait(_) => Ok(()),
            Step::Remove(name) => {
                let (force, discard_dirty) = (false, false);
                let message = |answer| Message::RemoveVolume { name, force, discard_dirty, answer };
                self.ask(wait, message).await
            }
            Step::Resize(size_bytes) => {
                self.ask(wait, |answer| Message::ResizeCache { size_bytes, answer }).await
            }
            // It answers within less than the deadline leaves beyond a single command.
            Step::Manage(config, keys) => {
                self.manager()?.ask(|answer| Query::Configure(config, keys, answer)).await
            }
            Step::Set(name, _, change, _) => {
                self.ask(wait, |answer| Message::SetVolume { name, change, answer }).await
            }
            Step::Add(volume) => self.ask(wait, |answer| Message::AddVolume(volume, answer)).await,
        }
    }
}

impl ChangeReport {
    fn note(&mut self, result: Result<(), CommandError>) {
        match result {
            Ok(()) => {
                self.state = ReloadState::Done;
                self.error.clear();
                self.hint.clear();
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, CommandError { message, hint, .. }: CommandError) {
        (self.state, self.error, self.hint) = (ReloadState::Failed, message, hint);
    }
}
