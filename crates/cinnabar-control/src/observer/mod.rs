//! Looks at the status again and again, and keeps what it has seen: a history of the cache and its
//! volumes, which outlives the daemon, and events for those who listen.
//!
//! One look serves all readers: each is a question for the first data thread. There is one every
//! 10 seconds, and while a client listens to events one every 2 seconds and behind each change.

mod file;
#[cfg(test)]
mod tests;

use super::Control;
use super::peer::Peer;
use super::places::{Place, Places};
use cinnabar_config::history::{
    EventLog, EventReport, History, PlanEvent, SERIES_MAX, Step, Watcher,
};
use cinnabar_config::messages::DataStatus;
use cinnabar_manager::PlanListener;
use cinnabar_manager::report::PlanReport;
use file::HistoryFile;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};

/// Clients that listen to events at a time: on the control socket, and as many over HTTP.
pub const LISTENERS_MAX: usize = 16;
/// Between two looks while a client listens.
const LISTEN_EVERY: Duration = Duration::from_secs(2);
/// Between two looks else.
const LOOK_EVERY: Duration = Duration::from_secs(Step::Fine.seconds() as u64);
/// Between two times that the history is written.
const SAVE_EVERY: Duration = Duration::from_mins(10);
/// What a stop waits at most for the history.
const FINISH_MAX: Duration = Duration::from_secs(3);

/// See the module.
#[derive(Debug)]
pub struct Observer {
    history: Mutex<History>,
    events: Mutex<EventLog>,
    /// Number of the next event, for those who wait for it.
    news: watch::Sender<u64>,
    /// A look is wanted now.
    wanted: Notify,
    /// Places of those who listen on the control socket.
    operators: Arc<Places>,
    /// Of those who listen over HTTP.
    listeners: Arc<Places>,
    /// When this run of the daemon began: names it where events are numbered.
    run: u64,
    /// Volumes that there was no room for, as told to the log.
    left_out: AtomicUsize,
    /// One writes the file at a time.
    saving: Arc<Mutex<()>>,
    /// The file of earlier runs was read: what is here may replace it.
    loaded: AtomicBool,
}

impl Default for Observer {
    fn default() -> Self {
        Self {
            history: Mutex::default(),
            events: Mutex::default(),
            news: watch::Sender::new(0),
            wanted: Notify::new(),
            operators: Places::new(LISTENERS_MAX),
            listeners: Places::new(LISTENERS_MAX),
            run: now_ms(),
            left_out: AtomicUsize::new(0),
            saving: Arc::default(),
            loaded: AtomicBool::new(false),
        }
    }
}

impl Observer {
    /// The history, for a moment.
    pub fn history(&self) -> MutexGuard<'_, History> {
        // It is whole at any time.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events, for a moment.
    pub fn events(&self) -> MutexGuard<'_, EventLog> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who listen.
    pub fn tell(&self, event: EventReport) {
        let next = {
            let mut events = self.events();
            events.push(event);
            events.next()
        };
        self.news.send_replace(next);
    }

    /// A place among those who listen, and what wakes them; `None` if there is none for this client.
    pub(super) fn listen(&self, peer: Peer) -> Option<(Place, watch::Receiver<u64>)> {
        let places = if peer == Peer::Operator { &self.operators } else { &self.listeners };
        let place = places.take(peer)?;
        // What was before is not news.
        self.look_soon();
        Some((place, self.news.subscribe()))
    }

    /// Something may have changed: those who listen want to know.
    pub fn look_soon(&self) {
        self.wanted.notify_one();
    }

    /// Which run of the daemon numbers of events are of.
    pub(super) const fn run(&self) -> u64 {
        self.run
    }

    fn keep(&self, now_ms: u64, status: &DataStatus, watcher: &mut Watcher) {
        for event in watcher.look(now_ms, status) {
            self.tell(event);
        }
        let mut history = self.history();
        history.look(now_ms, status);
        let left_out = history.left_out();
        drop(history);
        if left_out > 0 && self.left_out.swap(left_out, Ordering::Relaxed) == 0 {
            tracing::warn!(left_out, most = SERIES_MAX, "no history is kept of some volumes");
        }
    }

    /// Nothing follows this status.
    fn close(&self, status: Option<DataStatus>) {
        let mut history = self.history();
        if let Some(status) = status {
            history.look(now_ms(), &status);
        }
        history.close(now_ms());
    }

    fn is_heard(&self) -> bool {
        self.operators.is_used() || self.listeners.is_used()
    }
}

impl PlanListener for Observer {
    fn planned(&self, plan: &PlanReport) {
        let event = PlanEvent {
            interval: plan.interval,
            allocator: plan.allocator.clone(),
            volumes: plan.volumes.len() as u64,
            applied: plan.applied,
        };
        self.tell(EventReport::plan(plan.made_ms, event, &plan.trouble));
    }
}

/// Looks, until the daemon ends. The history is read from this folder, and written there.
pub async fn observe(control: Arc<Control>, folder: PathBuf) {
    let file = HistoryFile::new(&folder);
    let mut watcher = Watcher::default();
    load(&control.observer, &file).await;
    let mut saved = tokio::time::Instant::now();
    loop {
        if let Ok(status) = control.status().await {
            control.observer.keep(now_ms(), &status, &mut watcher);
        }
        if saved.elapsed() >= SAVE_EVERY {
            saved = tokio::time::Instant::now();
            save(&control.observer, &file).await;
        }
        pause(&control.observer).await;
    }
}

/// The daemon is about to end: a last look, then all of it is written. A state folder, or a data plane,
/// that does not answer is not waited for.
pub async fn finish(control: &Control, folder: &Path) {
    let all = async {
        let status = control.status().await;
        control.observer.close(status.ok());
        save(&control.observer, &HistoryFile::new(folder)).await;
    };
    if tokio::time::timeout(FINISH_MAX, all).await.is_err() {
        tracing::warn!("the history could not be written in time");
    }
}

/// Until the next look: the next multiple of ten seconds, or sooner if it is wanted.
async fn pause(observer: &Observer) {
    let every = LOOK_EVERY.as_millis() as u64;
    let mut left = Duration::from_millis(every - now_ms() % every);
    if observer.is_heard() {
        left = left.min(LISTEN_EVERY);
    }
    let wanted = async {
        // Without listeners it would only be a look more.
        while {
            observer.wanted.notified().await;
            !observer.is_heard()
        } {}
    };
    tokio::select! {
        () = tokio::time::sleep(left) => {}
        () = wanted => {}
    }
}

async fn load(observer: &Observer, file: &HistoryFile) {
    let of_file = file.clone();
    // The file may be on storage that hangs; this thread serves all operators.
    if let Ok(Some(history)) = tokio::task::spawn_blocking(move || of_file.read()).await {
        *observer.history() = history;
    }
    observer.loaded.store(true, Ordering::Release);
}

async fn save(observer: &Observer, file: &HistoryFile) {
    if !observer.loaded.load(Ordering::Acquire) {
        // A stop before the file was read: the earlier runs' samples in it are worth more than none.
        return;
    }
    let (history, file) = (observer.history().clone(), file.clone());
    let saving = Arc::clone(&observer.saving);
    let write = move || {
        let _alone = saving.lock().unwrap_or_else(PoisonError::into_inner);
        file.write(&history);
    };
    // A panic there would be told on its own.
    let _saved = tokio::task::spawn_blocking(write).await;
}

pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
