//! The control plane: what operators ask over the control socket and over HTTP, and what of that
//! becomes a message to the data thread.
//!
//! Runs on one thread and never touches data.

#![forbid(unsafe_code)]
// They panic where stdout or stderr can't be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod access;
mod accounts;
pub mod actions;
pub mod api;
pub mod configured;
pub mod describe;
mod events;
#[cfg(test)]
mod fake;
mod files;
#[cfg(test)]
mod flood;
mod headers;
mod history;
pub mod http;
pub mod life;
pub mod migrate;
pub mod observer;
pub mod path;
pub mod peer;
mod places;
pub mod policy;
pub mod recordings;
pub mod reload;
mod reserve;
pub mod server;
pub mod socket;
mod stall;
#[cfg(test)]
mod tests;
pub mod tls;
mod ui;
pub mod warm;

use self::configured::Configured;
use self::observer::Observer;
use self::reload::ReloadListener;
use cinnabar_config::messages::recording::RECORDINGS_MAX;
use cinnabar_config::messages::{
    AnswerTo, CommandError, CommandErrorKind, Commands, DataStatus, Message,
};
use cinnabar_frontend::tls::Tls;
use cinnabar_manager::{Handle, Query};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, Semaphore, oneshot};

/// Longest wait for a status: the data thread answers between two events.
pub const STATUS_WAIT_MAX: Duration = Duration::from_secs(5);

/// Questions of the status that the data thread has at a time; others wait for their turn.
const STATUSES_MAX: usize = 4;

/// Questions that change nothing which the manager has at a time; others wait for their turn.
const PLANS_MAX: usize = 4;

/// What every request handler needs to know.
#[derive(Debug)]
pub struct Control {
    /// Folder that relative paths are taken from.
    pub base: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// Longest wait for a command that opens, detaches or flushes something.
    pub change_wait_max: Duration,
    /// One change of the set of volumes at a time.
    changes: Arc<tokio::sync::Mutex<()>>,
    /// Places for recordings, each taken until all of it was sent.
    recordings: Arc<Semaphore>,
    /// Places for questions of the status: clients must not fill the queue with them.
    statuses: Arc<Semaphore>,
    /// Places for questions of plans, for the same reason.
    plans: Arc<Semaphore>,
    /// Places for threads that wait for files: those of storage that hangs must not become many.
    files: Arc<Semaphore>,
    /// A place of their own for certificates, which are read beside those.
    tls_files: Arc<Semaphore>,
    phase: Mutex<Phase>,
    /// A thread that it takes to serve does not turn.
    stuck: AtomicBool,
    /// What it runs with, if there is a file that can be read again.
    configured: Mutex<Option<Configured>>,
    /// The manager, once it runs; there may be none.
    manager: OnceLock<Handle>,
    /// Certificates, if it has some.
    tls: OnceLock<Arc<Tls>>,
    /// Learns how reloads go.
    reload_listener: OnceLock<Box<dyn ReloadListener>>,
    /// What happened, and happens.
    pub observer: Arc<Observer>,
}

/// Where the daemon is in its life.
#[derive(Clone, Debug)]
pub enum Phase {
    /// Opening devices; no commands yet.
    Starting,
    /// All volumes answer.
    Serving(Commands),
    /// Finishing what is under way.
    Stopping,
}

impl Control {
    /// Before anything is opened.
    pub fn new(base: PathBuf, socket: PathBuf, change_wait_max: Duration) -> Arc<Self> {
        let phase = Mutex::new(Phase::Starting);
        let changes = Arc::default();
        let recordings = Arc::new(Semaphore::new(RECORDINGS_MAX));
        let statuses = Arc::new(Semaphore::new(STATUSES_MAX));
        let plans = Arc::new(Semaphore::new(PLANS_MAX));
        let manager = OnceLock::new();
        Arc::new(Self {
            base,
            socket,
            change_wait_max,
            changes,
            recordings,
            statuses,
            plans,
            files: Arc::new(Semaphore::new(files::LOOKS_MAX)),
            tls_files: Arc::new(Semaphore::new(1)),
            phase,
            stuck: AtomicBool::new(false),
            configured: Mutex::default(),
            manager,
            tls: OnceLock::new(),
            reload_listener: OnceLock::new(),
            observer: Arc::default(),
        })
    }

    /// This one learns how reloads go, from now on.
    pub fn set_reload_listener(&self, listener: Box<dyn ReloadListener>) {
        let is_first = self.reload_listener.set(listener).is_ok();
        debug_assert!(is_first, "there is one");
    }

    /// There is a manager from now on.
    pub fn set_manager(&self, manager: Handle) {
        let is_first = self.manager.set(manager).is_ok();
        debug_assert!(is_first, "there is one manager");
    }

    /// The manager.
    ///
    /// # Errors
    /// If there is none, or none yet.
    pub fn manager(&self) -> Result<&Handle, CommandError> {
        // A daemon that starts or stops says so.
        self.commands()?;
        self.manager.get().ok_or_else(|| {
            let message = "shares are not managed: there is no [manager] in the configuration";
            let hint =
                "add [manager] and start the daemon again; docs/guide/shares.md has its keys";
            CommandError::new(CommandErrorKind::Invalid, message, hint)
        })
    }

    /// Where the daemon is in its life.
    pub fn phase(&self) -> Phase {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A thread that it takes to serve does not turn, or all do again.
    pub fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// See [`set_stuck`](Self::set_stuck).
    fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Goes on to the next phase.
    pub fn enter(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// The turn among changes, for one that is brought to its end even if its client leaves.
    async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changes).lock_owned().await
    }

    /// Sends a message and waits for its answer.
    ///
    /// # Errors
    /// What the data plane says, or that it can't be asked now.
    pub async fn ask<T>(
        &self,
        wait_max: Duration,
        message: impl FnOnce(AnswerTo<T>) -> Message,
    ) -> Result<T, CommandError> {
        let commands = self.commands()?;
        let (answer, answered) = oneshot::channel();
        commands.send(message(answer))?;
        match tokio::time::timeout(wait_max, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(CommandError::gone()),
            Err(_) => Err(no_answer(wait_max)),
        }
    }

    /// Where messages go.
    fn commands(&self) -> Result<Commands, CommandError> {
        match self.phase() {
            Phase::Serving(commands) => Ok(commands),
            Phase::Starting => {
                let hint = "wait for it: cinnabar status --wait, or until /v1/ready answers 200";
                let kind = CommandErrorKind::Stopping;
                Err(CommandError::new(kind, "the daemon is starting", hint))
            }
            Phase::Stopping => Err(CommandError::gone()),
        }
    }

    /// Waits until all recordings have been sent to their ends, but no longer than this.
    pub async fn recordings_sent(&self, wait_max: Duration) {
        let all = self.recordings.acquire_many(RECORDINGS_MAX as u32);
        if tokio::time::timeout(wait_max, all).await.is_err() {
            tracing::warn!("the client of a recording does not take the rest");
        }
    }

    /// Asks the manager what changes nothing. Commands of the operator find room beside it.
    ///
    /// # Errors
    /// What the manager says, or that there is none, or that it can't be asked now.
    ///
    /// # Panics
    /// Never: the places are never closed.
    pub async fn ask_manager<T, Q>(&self, query: Q) -> Result<T, CommandError>
    where
        T: Send + 'static,
        Q: FnOnce(AnswerTo<T>) -> Query + Send + 'static,
    {
        let manager = self.manager()?.clone();
        let place = Arc::clone(&self.plans).acquire_owned();
        let Ok(place) = tokio::time::timeout(STATUS_WAIT_MAX, place).await else {
            return Err(no_answer(STATUS_WAIT_MAX));
        };
        let place = place.expect("the places are never closed");
        // Its place in the queue is taken until it is answered, also if the client has left.
        let waits = tokio::spawn(async move {
            let answer = manager.ask(query).await;
            drop(place);
            answer
        });
        waits.await.unwrap_or_else(|_| Err(CommandError::gone()))
    }

    /// Asks for the raw status.
    ///
    /// # Errors
    /// As [`Control::ask`].
    ///
    /// # Panics
    /// Never: the places are never closed.
    pub async fn status(&self) -> Result<DataStatus, CommandError> {
        let place = Arc::clone(&self.statuses).acquire_owned();
        let Ok(place) = tokio::time::timeout(STATUS_WAIT_MAX, place).await else {
            return Err(no_answer(STATUS_WAIT_MAX));
        };
        let place = place.expect("the places are never closed");
        let commands = self.commands()?;
        let (answer, answered) = oneshot::channel();
        commands.send(Message::Status(answer))?;
        // Its place in the queue is taken until it is answered, also if the client has left.
        let waits = tokio::spawn(async move {
            let answered = tokio::time::timeout(STATUS_WAIT_MAX, answered).await;
            drop(place);
            answered
        });
        match waits.await {
            Ok(Ok(Ok(result))) => result,
            Ok(Err(_)) => Err(no_answer(STATUS_WAIT_MAX)),
            Ok(Ok(Err(_))) | Err(_) => Err(CommandError::gone()),
        }
    }
}

fn no_answer(wait_max: Duration) -> CommandError {
    CommandError::new(
        CommandErrorKind::Busy,
        format!("no answer within {} s; it may still be done", wait_max.as_secs()),
        "look at the status, and at the log for a backend that hangs",
    )
}
