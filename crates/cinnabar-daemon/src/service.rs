//! What the service manager hears: states, and that the daemon lives, while all its threads turn.
//!
//! From a thread of its own, for the manager's socket may be full, and the control thread waits for nothing.

use crate::watchdog::{Round, Watchdog};
use cinnabar_config::messages::pulse::Pulse;
use cinnabar_control::Control;
use sd_notify::NotifyState;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// States that may wait; the manager misses others.
const STATES_MAX: usize = 64;
/// `WatchdogSec=` where none is set: threads that do not turn are told of in any case.
const WATCHDOG: Duration = Duration::from_mins(1);

/// Longest wait for a manager that does not read, at the end.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(1);

/// See the module; a clone is a handle to the same thread, which ends with the last one.
#[derive(Clone, Debug)]
pub(crate) struct ServiceManager(SyncSender<Order>);

#[derive(Debug)]
enum Order {
    Say(String),
    Watch(Vec<Pulse>, Arc<Control>),
    /// Threads are about to end.
    LookAway,
    /// Everything before it was said.
    Finish(SyncSender<()>),
}

impl ServiceManager {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is none to be had.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (orders, taken) = sync_channel(STATES_MAX);
        let wanted = sd_notify::watchdog_enabled().filter(|every| !every.is_zero());
        let work = move || Speaker { wanted, watched: None, told: true }.run(&taken);
        std::thread::Builder::new().name("watchdog".into()).spawn(work)?;
        Ok(Self(orders))
    }

    /// Tells it these states, if it wants to know.
    pub(crate) fn say(&self, states: &[NotifyState<'_>]) {
        let mut text = String::new();
        for (at, state) in states.iter().enumerate() {
            let line = if at == 0 { "" } else { "\n" };
            write!(text, "{line}{state}").expect("a string takes everything");
        }
        self.order(Order::Say(text));
    }

    /// From now on tells it that the daemon lives, as long as all these threads turn.
    pub(crate) fn watch(&self, pulses: Vec<Pulse>, control: Arc<Control>) {
        self.order(Order::Watch(pulses, control));
    }

    /// The threads are about to end: it is not their turning that counts any more.
    pub(crate) fn look_away(&self) {
        self.order(Order::LookAway);
    }

    /// Waits until it was told everything, but not for long.
    pub(crate) fn finish(&self) {
        let (done, finished) = sync_channel(1);
        self.order(Order::Finish(done));
        // One that does not read has missed the last word.
        let _told = finished.recv_timeout(FINISH_WAIT_MAX);
    }

    fn order(&self, order: Order) {
        if self.0.try_send(order).is_err() {
            tracing::warn!("the service manager does not take what it is told");
        }
    }
}

/// The thread's.
struct Speaker {
    /// How often the manager wants to hear that the daemon lives, at least.
    wanted: Option<Duration>,
    watched: Option<(Watchdog, Arc<Control>)>,
    /// The last message was sent.
    told: bool,
}

impl Speaker {
    fn run(&mut self, orders: &Receiver<Order>) {
        let mut next = Instant::now();
        loop {
            let order = match &self.watched {
                Some(_) => orders.recv_timeout(next.saturating_duration_since(Instant::now())),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Order::Say(text)) => self.say(&text),
                Ok(Order::Watch(pulses, control)) => {
                    // A thread is late after half of that: the manager has heard nothing for the other
                    // half by then at most.
                    let late_after = self.wanted.unwrap_or(WATCHDOG) / 2;
                    next = Instant::now();
                    self.watched = Some((Watchdog::new(next, pulses, late_after), control));
                }
                Ok(Order::Finish(done)) => drop(done.try_send(())),
                Ok(Order::LookAway) => self.watched = None,
                Err(RecvTimeoutError::Timeout) => next = self.look(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Makes a round; gives the time of the next one.
    fn look(&mut self) -> Instant {
        let now = Instant::now();
        let Some((watchdog, control)) = &mut self.watched else { return now };
        let Round { stuck, turn_again, all_turn } = watchdog.round(now);
        let next = now + watchdog.every();
        control.set_stuck(!all_turn);
        if !stuck.is_empty() {
            let threads = stuck.join(", ");
            tracing::error!(threads, "threads do not turn: their guests and operators wait");
        }
        for (thread, time) in turn_again {
            tracing::warn!(thread, seconds = time.as_secs(), "a thread turns again");
        }
        if all_turn && self.wanted.is_some() {
            self.say(&NotifyState::Watchdog.to_string());
        }
        next
    }

    fn say(&mut self, text: &str) {
        let said = sd_notify::notify(&[NotifyState::Custom(text)]);
        if let Err(error) = &said
            && self.told
        {
            tracing::warn!("can't notify the service manager: {error}");
        }
        self.told = said.is_ok();
    }
}
