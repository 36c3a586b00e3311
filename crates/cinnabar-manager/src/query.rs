//! What operators ask the manager, and how they reach it.

use super::report::{ExplainReport, HistoryReport, PlanReport};
use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind, Share};
use cinnabar_policy::sizing::Allocator;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Questions that may wait for the manager; one more is refused.
pub const QUERIES_MAX: usize = 16;
/// Longest wait for an answer: the manager may be making a plan of many volumes.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A question. Each is answered exactly once.
#[derive(Debug)]
pub enum Query {
    /// What plan there would be now, by this allocator or the one in use; nothing changes.
    Plan(Option<Allocator>, AnswerTo<PlanReport>),
    /// The same in a cache of so many blocks; `None`: as many as it has.
    WhatIf(Option<Allocator>, Option<u64>, AnswerTo<PlanReport>),
    /// Carry that plan out, and go on with this allocator.
    Apply(Option<Allocator>, AnswerTo<PlanReport>),
    /// Why a volume has what it has, by the plan in force at this time (in milliseconds since 1970) or
    /// by what would be planned now.
    Explain(String, Option<u64>, AnswerTo<ExplainReport>),
    /// A volume is to have exactly this.
    Pin(String, Share, AnswerTo<PlanReport>),
    /// No more.
    Unpin(String, AnswerTo<PlanReport>),
    /// The configuration says something else of these keys of `[manager]`; all others stay.
    Configure(Box<ManagerConfig>, Vec<&'static str>, AnswerTo<()>),
    /// The newest plans, so many at most.
    History(usize, AnswerTo<HistoryReport>),
}

/// Reaches the manager.
#[derive(Clone, Debug)]
pub struct Handle {
    queries: SyncSender<Query>,
}

impl Query {
    /// Whether it changes nothing and nobody waits for its answer any more.
    pub(super) fn is_given_up(&self) -> bool {
        match self {
            Self::Plan(_, answer) | Self::WhatIf(_, _, answer) => answer.is_closed(),
            Self::Explain(_, _, answer) => answer.is_closed(),
            Self::History(_, answer) => answer.is_closed(),
            Self::Apply(..) | Self::Pin(..) | Self::Unpin(..) | Self::Configure(..) => false,
        }
    }
}

impl Handle {
    /// A handle, and where what it asks arrives.
    pub fn channel() -> (Self, Receiver<Query>) {
        let (queries, asked) = mpsc::sync_channel(QUERIES_MAX);
        (Self { queries }, asked)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the manager says, or that it can't be asked now.
    pub async fn ask<T>(
        &self,
        query: impl FnOnce(AnswerTo<T>) -> Query,
    ) -> Result<T, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.queries.try_send(query(answer)).map_err(|error| match error {
            TrySendError::Full(_) => {
                let message = "too many questions wait for the manager";
                CommandError::new(CommandErrorKind::Limit, message, "try again in a moment")
            }
            TrySendError::Disconnected(_) => CommandError::gone(),
        })?;
        match tokio::time::timeout(WAIT_MAX, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(CommandError::gone()),
            Err(_) => {
                let message = format!("the manager did not answer within {} s", WAIT_MAX.as_secs());
                Err(CommandError::new(CommandErrorKind::Busy, message, "look at the daemon's log"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_given_up_with_its_answer_and_a_command_is_not() {
        let (answer, answered) = oneshot::channel();
        let query = Query::Plan(None, answer);
        assert!(!query.is_given_up());
        drop(answered);
        assert!(query.is_given_up());
        let (answer, answered) = oneshot::channel();
        drop(answered);
        assert!(!Query::Unpin("vm1".into(), answer).is_given_up());
    }
}
