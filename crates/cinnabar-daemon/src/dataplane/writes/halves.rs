//! The devices of the write log: one, or the two halves of a mirrored log.
//!
//! With one device the log's I/O goes there as it is. With two, the mirror makes I/O of each half of it, and
//! says which of them count.

use crate::dataplane::plane::DataPlane;
use cinnabar_backend::{Disk, Memory};
use cinnabar_config::messages::{LogHalfState, LogHalfStatus};
use cinnabar_engine::units::Instant;
use cinnabar_engine::{IoDone, IoError, IoId, IoOp};
use cinnabar_writeback::mirror::{HalfState, Mirror, Out};
use cinnabar_writeback::{Event, WriteLog};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub(in super::super) struct Halves {
    /// As configured: the log's own device, and its mirror.
    devices: Vec<LogHalf>,
    mirror: Option<Mirror<Memory>>,
    /// The longest that one of them may take for an answer.
    bound: Duration,
    out: Out<Memory>,
    /// What each half was when that was last logged.
    reported: [HalfState; 2],
}

/// One of the devices.
pub(super) struct LogHalf {
    pub(super) path: PathBuf,
    /// `None`: it could not be opened, or failed while the log was opened.
    pub(super) disk: Option<Arc<Disk>>,
    /// Why it does not count, as far as is known.
    pub(super) why: String,
}

impl Halves {
    /// A log on one device.
    pub(super) fn one(disk: Disk, bound: Duration) -> Self {
        let path = disk.path().to_owned();
        let half = LogHalf { path, disk: Some(Arc::new(disk)), why: String::new() };
        let reported = [HalfState::Member, HalfState::Gone];
        Self { devices: vec![half], mirror: None, bound, out: Out::default(), reported }
    }

    pub(super) fn two(devices: Vec<LogHalf>, mirror: Mirror<Memory>, bound: Duration) -> Self {
        let reported = mirror.states();
        Self { devices, mirror: Some(mirror), bound, out: Out::default(), reported }
    }

    /// The longest that a device may take for an answer.
    pub(super) const fn bound(&self) -> Duration {
        self.bound
    }

    /// Whether a half is saying what it is: it would be filled once more if it could not.
    pub(super) fn is_marking(&self) -> bool {
        self.mirror.as_ref().is_some_and(Mirror::is_marking)
    }

    /// Why the log is lost.
    pub(super) fn loss(&self) -> String {
        // A read that is overdue costs no half its place, but the log gives up.
        let why = |half: &LogHalf| {
            let why = if half.why.is_empty() { "it did not answer in time" } else { &half.why };
            format!("{}: {why}", half.path.display())
        };
        match &self.devices[..] {
            [log, mirror] => {
                format!("neither of its devices can be used: {}; {}", why(log), why(mirror))
            }
            _ => "its device has failed".to_owned(),
        }
    }

    /// The log's own device, by which it is called.
    pub(super) fn path(&self) -> &Path {
        &self.devices[0].path
    }

    /// The devices that are open.
    pub(in super::super) fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.devices.iter().filter_map(|half| half.disk.as_deref())
    }

    /// Those that get the log's I/O, with their numbers.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (usize, &Arc<Disk>)> {
        let states = self.states();
        let uses = move |half: &usize| states[*half] != HalfState::Gone;
        let all = self.devices.iter().enumerate();
        all.filter(move |(half, _)| uses(half))
            .filter_map(|(number, half)| Some((number, half.disk.as_ref()?)))
    }

    fn states(&self) -> [HalfState; 2] {
        self.mirror.as_ref().map_or(self.reported, states_of)
    }

    /// The log asks for an I/O; it has read the page that it wants so often before.
    fn submit(&mut self, id: IoId, op: IoOp<Memory>, before: u8) {
        match &mut self.mirror {
            Some(mirror) => mirror.submit(id, op, before, &mut self.out),
            None => self.out.ios.push((0, id, op)),
        }
    }

    /// An I/O of a half has ended.
    fn done(&mut self, half: usize, done: IoDone) {
        let Some(mirror) = &mut self.mirror else { return self.out.done.push(done) };
        mirror.done(half, &done, &mut self.out);
        let states = states_of(mirror);
        if let Err(error) = done.result
            && states[half] == HalfState::Gone
            && self.devices[half].why.is_empty()
        {
            self.devices[half].why = match error {
                IoError::TimedOut => "it did not answer in time".to_owned(),
                error => format!("it has failed: {error}"),
            };
        }
        let other = &mut self.devices[1 - half];
        if states == [HalfState::Gone; 2] && other.why.is_empty() {
            // It was being filled when the one that counts failed.
            "it is not complete".clone_into(&mut other.why);
        }
    }

    /// The log has taken an event.
    fn advance(&mut self, log: &WriteLog<Memory>) {
        if let Some(mirror) = &mut self.mirror {
            mirror.advance(log, &mut self.out);
        }
    }

    /// Logs what has become of the halves since the last call.
    fn log_changes(&mut self) {
        let states = self.states();
        if states == self.reported {
            return;
        }
        let was = std::mem::replace(&mut self.reported, states);
        for half in (0..2).filter(|half| states[*half] != was[*half]) {
            let LogHalf { path, why, .. } = &self.devices[half];
            let (device, other) = (path.display(), self.devices[1 - half].path.display());
            if states == [HalfState::Gone; 2] {
                tracing::error!(%device, reason = why, "this half of the write log is lost, too");
            } else if states[half] == HalfState::Gone {
                tracing::error!(
                    %device,
                    reason = why,
                    "a half of the write log has failed: acknowledged writes are only on {other} \
                     (hint: replace the device and restart the daemon, see docs/guide/write-back.md)"
                );
            } else {
                tracing::info!(%device, "this half of the write log holds everything now");
            }
        }
    }

    /// Logs how the halves are at a start.
    pub(super) fn log_start(&self) {
        if self.mirror.is_none() {
            return;
        }
        for (number, half) in self.devices.iter().enumerate() {
            let (device, other) = (half.path.display(), self.devices[1 - number].path.display());
            match self.reported[number] {
                HalfState::Member => {}
                HalfState::Filling => tracing::info!(
                    %device,
                    "this half of the write log is being filled: until the back ends have all older \
                     writes these are only on {other}"
                ),
                HalfState::Gone => tracing::warn!(
                    %device,
                    reason = half.why,
                    "a half of the write log is missing: acknowledged writes are only on {other} \
                     (hint: replace the device and restart the daemon, see docs/guide/write-back.md)"
                ),
            }
        }
    }

    /// How each half is; nothing of a log on one device.
    pub(super) fn status(&self) -> Vec<LogHalfStatus> {
        let Some(mirror) = &self.mirror else { return Vec::new() };
        let (states, errors) = (states_of(mirror), mirror.read_errors());
        let of = |(number, half): (usize, &LogHalf)| LogHalfStatus {
            device: half.path.clone(),
            state: match (states[number], states[1 - number]) {
                (HalfState::Gone, _) => LogHalfState::Missing,
                (HalfState::Filling, _) => LogHalfState::Filling,
                (HalfState::Member, HalfState::Member) => LogHalfState::Both,
                (HalfState::Member, _) => LogHalfState::Alone,
            },
            reason: half.why.clone(),
            read_errors: errors[number],
        };
        self.devices.iter().enumerate().map(of).collect()
    }
}

/// What each half is. Once all is lost none counts.
fn states_of(mirror: &Mirror<Memory>) -> [HalfState; 2] {
    if mirror.has_failed() { [HalfState::Gone; 2] } else { mirror.states() }
}

impl DataPlane {
    /// The log asks for an I/O on its device.
    pub(super) fn start_log_io(&mut self, now: Instant, id: IoId, op: IoOp<Memory>) {
        let Some(running) = self.writes.running() else { return };
        let before = running.log.reads_again(id);
        running.halves.submit(id, op, before);
        self.carry_out_log_io(now);
    }

    /// An I/O on one of the log's devices has ended.
    pub(in super::super) fn log_io_done(&mut self, now: Instant, half: usize, done: IoDone) {
        let Some(running) = self.writes.running() else { return };
        running.halves.done(half, done);
        running.halves.log_changes();
        self.carry_out_log_io(now);
    }

    /// The log has taken what there was.
    pub(super) fn log_has_moved(&mut self, now: Instant) {
        let Some(running) = self.writes.running() else { return };
        running.halves.advance(&running.log);
        self.carry_out_log_io(now);
    }

    fn carry_out_log_io(&mut self, now: Instant) {
        let Some(running) = self.writes.running() else { return };
        let Out { ios, done } = &mut running.halves.out;
        running.events.extend(done.drain(..).map(Event::LogDone));
        for (half, id, op) in ios.drain(..) {
            self.data_thread.io_table.log_io(now, (half, id), op);
        }
    }
}
