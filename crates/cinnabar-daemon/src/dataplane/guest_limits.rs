//! Limits of what guests ask for, hits included: requests beyond them are held where they arrive
//! (docs/design/qos.md, "A guest's own limit").
//!
//! One thread's, as the sockets of a volume are. What is held counts against the servers' bounds like any
//! request that is not answered, so that a guest that goes on asking is not read from any more.

use super::front::Side;
use super::volume::answer_by;
use cinnabar_backend::Memory;
use cinnabar_config::messages::VolumeConfig;
use cinnabar_driver::qos::GuestLimit;
use cinnabar_engine::Op;
use cinnabar_engine::units::Instant;
use cinnabar_frontend::{Command, ExportId, Incoming};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub(super) struct GuestLimits {
    /// Volumes that have a limit, or have had one.
    limited: BTreeMap<ExportId, Limited>,
    /// When the first request that is held of each is to be looked at.
    due: BTreeSet<(Instant, ExportId)>,
}

/// A volume that has a limit.
#[derive(Default)]
struct Limited {
    limit: GuestLimit,
    timeout: Duration,
    /// In the order in which they came.
    held: VecDeque<Held>,
    /// Requests that had to wait.
    waited: u64,
}

/// A request that is held.
pub(super) struct Held {
    pub(super) arrived: Instant,
    /// When it takes too long; `None`: never.
    answer_by: Option<Instant>,
    pub(super) side: Side,
    pub(super) request: Incoming<Memory>,
}

impl Held {
    /// Whether its time is over.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.answer_by.is_some_and(|at| at <= now)
    }
}

impl GuestLimits {
    /// The limits of a volume from now on, also for what is held.
    pub(super) fn set(&mut self, now: Instant, export: ExportId, config: &VolumeConfig) {
        let (iops, bytes) = (config.guest_iops_limit, config.guest_bytes_limit);
        if iops == 0 && bytes == 0 && !self.limited.contains_key(&export) {
            return;
        }
        let limited = self.limited.entry(export).or_default();
        limited.limit.set(now.0, iops, bytes);
        limited.timeout = config.backend_timeout;
        self.look_at(now, export);
    }

    /// Lets all go on that are held, and holds nothing more.
    pub(super) fn lift(&mut self, now: Instant) {
        for export in self.limited.keys().copied().collect::<Vec<_>>() {
            if let Some(limited) = self.limited.get_mut(&export) {
                limited.limit = GuestLimit::default();
            }
            self.look_at(now, export);
        }
    }

    /// Forgets a volume, and gives what is held of it.
    pub(super) fn remove(&mut self, export: ExportId) -> VecDeque<Held> {
        self.due.retain(|(_, due)| *due != export);
        self.limited.remove(&export).map(|limited| limited.held).unwrap_or_default()
    }

    /// Requests of a volume that had to wait.
    pub(super) fn waited(&self, export: ExportId) -> u64 {
        self.limited.get(&export).map_or(0, |limited| limited.waited)
    }

    /// When [`first_due`](Self::first_due) has something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A request has arrived: gives it back, or holds it behind those that came before it.
    #[inline]
    pub(super) fn pass(
        &mut self,
        now: Instant,
        side: Side,
        request: Incoming<Memory>,
    ) -> Option<Incoming<Memory>> {
        if self.limited.is_empty() { Some(request) } else { self.hold(now, side, request) }
    }

    fn hold(
        &mut self,
        now: Instant,
        side: Side,
        request: Incoming<Memory>,
    ) -> Option<Incoming<Memory>> {
        let export = request.export;
        let Some(limited) = self.limited.get_mut(&export) else { return Some(request) };
        let is_first = limited.held.is_empty();
        if is_first && limited.limit.pass(now.0, bytes_of(&request.command)).is_ok() {
            return Some(request);
        }
        limited.waited += 1;
        let answer_by = answer_by(limited.timeout, now);
        limited.held.push_back(Held { arrived: now, answer_by, side, request });
        if is_first {
            self.due.insert((now, export));
        }
        None
    }

    /// The first request of a volume of which one is to be looked at.
    pub(super) fn first_due(&self, now: Instant) -> Option<&Held> {
        let (_, export) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.limited.get(export)?.held.front()
    }

    /// Takes it, if its limits or its time allow, or at once if it is `free`; else it is due later.
    pub(super) fn take_due(&mut self, now: Instant, free: bool) -> Option<Held> {
        let (_, export) = self.due.pop_first()?;
        let limited = self.limited.get_mut(&export)?;
        let first = limited.held.front()?;
        if !free
            && !first.is_late(now)
            && let Err(at) = limited.limit.pass(now.0, bytes_of(&first.request.command))
        {
            let at = first.answer_by.map_or(Instant(at), |by| by.min(Instant(at)));
            self.due.insert((at, export));
            return None;
        }
        let taken = limited.held.pop_front();
        if !limited.held.is_empty() {
            self.due.insert((now, export));
        }
        taken
    }

    /// What is held of a volume is looked at now.
    fn look_at(&mut self, now: Instant, export: ExportId) {
        self.due.retain(|(_, due)| *due != export);
        if self.limited.get(&export).is_some_and(|limited| !limited.held.is_empty()) {
            self.due.insert((now, export));
        }
    }
}

/// What a request moves: nothing, if it only says what to do.
fn bytes_of(command: &Command<Memory>) -> u64 {
    match command {
        Command::Engine(Op::Read { span, .. } | Op::Write { span, .. })
        | Command::Prefetch { span, .. } => span.len,
        Command::Engine(_) | Command::BlockStatus { .. } => 0,
    }
}
