//! The manager's thread: looks at what data threads tell, twenty times a second, and answers operators.

use super::act::Actuation;
use super::budget::Budget;
use super::history::History;
use super::modes::Modes;
use super::query::{Handle, Query};
use super::report::PlanReport;
use super::watch::Watch;
use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::samplers::SampleStreams;
use cinnabar_config::messages::{AnswerTo, CommandError, Commands, DataStatus, Message};
use cinnabar_policy::planning::MeasuredPrices;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// Between two looks.
const TICK: Duration = Duration::from_millis(50);
/// Intervals that are ended between two looks at questions.
const INTERVALS_A_LOOK: usize = 64;
/// Longest wait for the data plane, which answers between two turns.
const DATA_WAIT_MAX: Duration = Duration::from_secs(5);
const DATA_STEP: Duration = Duration::from_millis(1);

/// Learns of each plan at once.
pub trait PlanListener: Send + Sync + fmt::Debug {
    /// A plan was made. Must not wait.
    fn planned(&self, plan: &PlanReport);
}

/// What the thread owns.
#[derive(Debug)]
pub(super) struct Manager {
    pub(super) config: ManagerConfig,
    pub(super) watch: Watch,
    pub(super) commands: Commands,
    pub(super) actuation: Actuation,
    pub(super) modes: Modes,
    pub(super) history: History,
    pub(super) prices: MeasuredPrices,
    /// Of SSD writes, if there is one.
    pub(super) budget: Option<Budget>,
    /// Read blocks that hit, and all, of each volume at the last plan.
    pub(super) hits: BTreeMap<String, [u64; 2]>,
    /// Targets of the last plan that was carried out, in blocks, of volumes with a share of their own.
    pub(super) adopted: BTreeMap<String, u64>,
    /// The data plane is gone.
    pub(super) over: bool,
    pub(super) listener: Arc<dyn PlanListener>,
}

/// Starts the thread. It ends with the data plane, or when nobody can reach it any more.
///
/// # Errors
/// If there can't be another thread.
pub fn start(
    config: ManagerConfig,
    streams: SampleStreams,
    commands: Commands,
    listener: Arc<dyn PlanListener>,
) -> Result<Handle, std::io::Error> {
    let (handle, asked) = Handle::channel();
    let manager = Manager::new(config, streams, commands, listener);
    let thread = std::thread::Builder::new().name("cinnabar-manager".into());
    thread.spawn(move || manager.run(&asked))?;
    Ok(handle)
}

impl Manager {
    /// Before anything came.
    pub(super) fn new(
        config: ManagerConfig,
        streams: SampleStreams,
        commands: Commands,
        listener: Arc<dyn PlanListener>,
    ) -> Self {
        let watch = Watch::new(streams, &config, 0);
        Self {
            budget: config.ssd_bytes_a_day.map(|bytes| Budget::new(bytes, watch.now_us())),
            watch,
            config,
            commands,
            actuation: Actuation::default(),
            modes: Modes::default(),
            history: History::default(),
            prices: MeasuredPrices::default(),
            hits: BTreeMap::new(),
            adopted: BTreeMap::new(),
            over: false,
            listener,
        }
    }

    fn run(mut self, queries: &Receiver<Query>) {
        // Curves are as long as the cache needs them; it may not be there yet.
        self.learn_capacity();
        loop {
            match queries.recv_timeout(TICK) {
                Ok(query) => self.answer(query),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for _ in 0..INTERVALS_A_LOOK {
                let now_us = self.watch.now_us();
                if !self.watch.look(now_us) {
                    break;
                }
                self.end_interval();
            }
            self.hold_budget();
            self.modes.look();
            if self.over {
                return;
            }
        }
    }

    /// Looks at what was written, when it is time, and has the data plane let in what the budget bears.
    fn hold_budget(&mut self) {
        let now_us = self.watch.now_us();
        if !self.budget.as_ref().is_some_and(|budget| budget.is_due(now_us)) {
            return;
        }
        // Without an answer nothing is known: it is asked for again.
        let Ok(status) = self.status() else { return };
        let written = status.cache.counters.flash_written_bytes;
        let Some(budget) = &mut self.budget else { return };
        let Some(admits) = budget.look(now_us, written).filter(|_| self.config.apply) else {
            return;
        };
        match self.ask(|answer| Message::AdoptAdmission { admits, answer }) {
            Ok(()) => {
                tracing::info!(admits, "the budget of SSD writes");
                if let Some(budget) = &mut self.budget {
                    budget.admits = admits;
                }
            }
            Err(error) => tracing::warn!(admits, reason = %error, "the budget is not held"),
        }
    }

    fn learn_capacity(&mut self) {
        if let Ok(status) = self.status() {
            self.watch.planning().set_capacity(status.cache.counters.capacity_blocks);
        }
    }

    /// The status of the data plane.
    pub(super) fn status(&self) -> Result<DataStatus, CommandError> {
        self.ask(Message::Status)
    }

    /// Sends a message and waits for its answer, no longer than a data plane that lives takes.
    pub(super) fn ask<T>(
        &self,
        message: impl FnOnce(AnswerTo<T>) -> Message,
    ) -> Result<T, CommandError> {
        let mut answered = self.send(message)?;
        let until = Instant::now() + DATA_WAIT_MAX;
        loop {
            match answered.try_recv() {
                Ok(result) => return result,
                Err(TryRecvError::Closed) => return Err(CommandError::gone()),
                Err(TryRecvError::Empty) if Instant::now() >= until => {
                    let message = "the data plane does not answer";
                    let kind = cinnabar_config::messages::CommandErrorKind::Busy;
                    return Err(CommandError::new(kind, message, "look at the daemon's log"));
                }
                Err(TryRecvError::Empty) => std::thread::sleep(DATA_STEP),
            }
        }
    }

    /// Sends a message; the answer comes later.
    pub(super) fn send<T>(
        &self,
        message: impl FnOnce(AnswerTo<T>) -> Message,
    ) -> Result<oneshot::Receiver<Result<T, CommandError>>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(message(answer))?;
        Ok(answered)
    }
}
