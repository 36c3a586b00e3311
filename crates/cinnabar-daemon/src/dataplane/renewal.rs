//! A back end that has failed a flush, of a volume in the write log: it gets another chance.
//!
//! After a failed flush every later one fails, for which writes before it are lost is not known
//! ([`Disk::forget_failed_flush`]). The write log knows them: it holds all that no good flush has covered.
//! So the engines let go of the volume, with all blocks that they have of it, and attach it once more;
//! flushes are tried again, and the log repeats the epoch. Guests go on meanwhile: their writes are
//! acknowledged by the log, and reads that the log has to pass on wait until the engines have the volume.
//!
//! ```text
//! flush failed ─► (pause) ─► leave ─► gone ─► forgotten ─► attach ─► the epoch is repeated
//! ```
//!
//! Pauses grow up to [`PAUSE_MAX`]. Until then the volume passes through, as any other does after a failed
//! flush, so reads are answered.
//!
//! [`Disk::forget_failed_flush`]: cinnabar_backend::Disk::forget_failed_flush

use super::clock::after;
use super::control::PendingCommand;
use super::plane::DataPlane;
use super::volume::{Change, Volume, VolumeIo};
use cinnabar_backend::entropy;
use cinnabar_config::messages::{AnswerTo, CommandError};
use cinnabar_driver::write_mode::Route;
use cinnabar_driver::{Phase, VolumeLife};
use cinnabar_engine::Failure;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::Instant;
use std::sync::Arc;
use std::time::Duration;

/// Until the first try; each pause is twice the last one.
const PAUSE_MIN: Duration =
    if cfg!(test) { Duration::from_millis(10) } else { Duration::from_secs(1) };
/// Longest pause.
const PAUSE_MAX: Duration =
    if cfg!(test) { Duration::from_millis(80) } else { Duration::from_secs(30) };
/// A failure that comes so long after the last try begins with the first pause again.
const CALM: Duration = Duration::from_mins(5);

/// A volume's way there.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    state: State,
    /// In a row.
    tries: u32,
    last: Option<Instant>,
    /// What the engines had counted before they let go of it.
    counted: VolumeCounters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    /// To be begun, or gone on with, then.
    Due(Instant),
    /// The engines let go of it.
    Leaving,
    /// They attach it.
    Attaching,
    /// The same, and then it is to leave for good.
    Unwanted,
}

impl Renewal {
    fn pause(&self) -> Duration {
        PAUSE_MIN.saturating_mul(1 << self.tries.min(16)).min(PAUSE_MAX)
    }

    /// The volume is about to leave.
    pub(super) const fn cancel(&mut self) {
        self.state = State::None;
    }

    /// Whether it is about to begin.
    pub(super) const fn is_due(&self) -> bool {
        matches!(self.state, State::Due(_))
    }

    /// Whether it is to leave for good once the engines have it.
    pub(super) fn is_unwanted(&self) -> bool {
        self.state == State::Unwanted
    }

    /// All that the engines have counted of the volume, which have counted so much since it is attached.
    pub(super) fn counted(&self, phase: Phase, own: &VolumeCounters) -> VolumeCounters {
        let cached_blocks = own.cached_blocks;
        let leaves = !matches!(self.state, State::None | State::Due(_)) || phase == Phase::Gone;
        let all = if leaves { self.counted } else { [self.counted, *own].into_iter().sum() };
        VolumeCounters { cached_blocks, ..all }
    }
}

impl Volume {
    /// Whether what the log asks for is for the engines, perhaps in a moment. What it has given up must
    /// not reach the back end any more: another host may have it.
    pub(super) fn takes_from_log(&self) -> bool {
        match self.renewal.state {
            State::None | State::Due(_) if self.life.serving().is_some() => true,
            State::None => true,
            State::Unwanted => false,
            _ => matches!(self.writes.route(), Route::Log(_)),
        }
    }

    /// Whether the engines don't serve it for a moment, and will again.
    pub(super) fn is_renewed(&self) -> bool {
        self.renewal.state != State::None && self.life.serving().is_none()
    }
}

impl DataPlane {
    /// A volume that serves, or that the engines don't have for a moment and the log has.
    pub(super) fn find_in_log(&self, name: &str) -> Result<usize, CommandError> {
        let is_it = |volume: &Volume| {
            let in_log = matches!(volume.writes.route(), Route::Log(_));
            let stays = !matches!(volume.change, Change::Remove);
            volume.config.name == name && volume.is_renewed() && in_log && stays
        };
        let renewed = self.volumes.iter().find(|(_, volume)| is_it(volume));
        renewed.map_or_else(|| self.find(name), |(key, _)| Ok(key))
    }

    /// A flush that the log has asked for has failed.
    pub(super) fn flush_failed(&mut self, now: Instant, key: usize) {
        let is_detaching = self.is_detaching();
        let Some(volume) = self.volumes.get_mut(key) else { return };
        let goes_by_log = matches!(volume.writes.route(), Route::Log(_));
        if volume.renewal.state != State::None || !goes_by_log || is_detaching {
            return;
        }
        let renewal = &mut volume.renewal;
        if renewal.last.is_none_or(|last| after(last, CALM) < now) {
            renewal.tries = 0;
        }
        let pause = renewal.pause();
        renewal.tries += 1;
        tracing::error!(
            volume = volume.config.name,
            tries = renewal.tries,
            ?pause,
            "a flush of the back end has failed: what it may have lost is written again from the write log"
        );
        self.renew_at(key, after(now, pause));
    }

    fn renew_at(&mut self, key: usize, at: Instant) {
        self.volumes[key].renewal.state = State::Due(at);
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
    }

    /// Begins with those that are due.
    pub(super) fn renew_due(&mut self, now: Instant) {
        let state = |volume: &Volume| match volume.renewal.state {
            State::Due(at) => Some(at),
            _ => None,
        };
        let all = self.volumes.iter().filter_map(|(key, volume)| Some((key, state(volume)?)));
        for (key, at) in all.collect::<Vec<_>>() {
            if at > now {
                self.renew_at(key, at);
            } else {
                self.renew(now, key);
            }
        }
    }

    fn renew(&mut self, now: Instant, key: usize) {
        let volume = &self.volumes[key];
        let waits = self.replacing.is_some();
        match (volume.life.phase(), volume.writes.route()) {
            // Behind what hangs the engines would not let go of it.
            (Phase::Serving, Route::Log(_)) if !waits && volume.overdue_now() == 0 => {
                let counted = self.counted(key);
                let volume = &mut self.volumes[key];
                volume.renewal.counted = VolumeCounters { cached_blocks: 0, ..counted };
                let first = volume.life.leave().expect("it serves");
                (volume.renewal.state, volume.renewal.last) = (State::Leaving, Some(now));
                self.leave_group(key);
                self.discard_lost(key);
                self.command(PendingCommand::End(key), &first);
            }
            (Phase::Gone, Route::Log(_) | Route::Engine) if !waits => self.attach_again(now, key),
            // It is being given up: nothing of what was under way is for the back end.
            (Phase::Gone, Route::Wait) => {
                self.submit_early(now, key);
                self.renew_at(key, after(now, PAUSE_MIN));
            }
            // It is on its way out of the log.
            (Phase::Serving, Route::Engine) => self.volumes[key].renewal.state = State::None,
            _ => self.renew_at(key, after(now, PAUSE_MIN)),
        }
    }

    /// The engines have let go of a volume, and nothing of it is under way. Whether it stays.
    pub(super) fn stays_renewed(&mut self, now: Instant, key: usize) -> bool {
        let is_detaching = self.is_detaching();
        let renewal = &mut self.volumes[key].renewal;
        match renewal.state {
            State::Leaving if !is_detaching => {
                renewal.state = State::Due(now);
                self.renew(now, key);
                true
            }
            State::Due(_) if !is_detaching => true,
            _ => {
                renewal.state = State::None;
                false
            }
        }
    }

    fn attach_again(&mut self, now: Instant, key: usize) {
        let renewed = entropy::bytes().map(u64::from_le_bytes).map(|attachment| {
            let volume = &self.volumes[key];
            let life = VolumeLife::new(volume.config.name.clone(), attachment, Mutants::default());
            let io = Arc::new(VolumeIo::renewed(&volume.io, &life));
            (life, io)
        });
        let Ok((life, io)) = renewed else {
            return self.renew_at(key, after(now, PAUSE_MAX));
        };
        self.shard_set.uninstall(&mut self.data_thread, key);
        if let Err(errno) = self.shard_set.install(&mut self.data_thread, key, &io) {
            tracing::error!(volume = life.name(), %errno, "no place for the volume's back end");
            return self.renew_at(key, after(now, PAUSE_MAX));
        }
        io.disk.forget_failed_flush();
        let volume = &mut self.volumes[key];
        io.take_models(&volume.io);
        (volume.life, volume.io, volume.proof) = (life, io, None);
        if self.stop.is_some() {
            // As all that stop: it waits for no turn.
            self.leave_group(key);
        }
        let volume = &mut self.volumes[key];
        // The engines are told of the size that the disk has by now.
        volume.grow_due = false;
        volume.renewal.state = State::Attaching;
        // Before anything that it asks for now is answered.
        self.restarted_for_log(key);
        self.attach_to_engines(key, None);
    }

    /// The engines have it again, or not. Whether there was a renewal.
    pub(super) fn attached_again(
        &mut self,
        now: Instant,
        key: usize,
        result: Result<(), Failure>,
    ) -> bool {
        let (is_detaching, attached) = (self.is_detaching(), result.is_ok());
        let volume = &mut self.volumes[key];
        if let (Err(failure), false) = (result, volume.renewal.state == State::None) {
            let volume = &volume.config.name;
            tracing::error!(volume, reason = %failure, "attaching the volume again failed");
        }
        match volume.renewal.state {
            State::Attaching if attached => volume.renewal.state = State::None,
            State::Attaching if !is_detaching => {
                let pause = volume.renewal.pause();
                self.renew_at(key, after(now, pause));
            }
            State::Unwanted if attached => {
                volume.renewal.state = State::None;
                let answer = volume.answer.take();
                self.detach(key, answer);
            }
            State::Unwanted => {
                volume.renewal.state = State::None;
                self.forget_if_quiet(key);
            }
            _ => {
                volume.renewal.state = State::None;
                return false;
            }
        }
        true
    }

    /// A volume is to leave for good while it is renewed: `true`, and it will.
    pub(super) fn leaves_renewed(&mut self, key: usize, answer: Option<AnswerTo<()>>) -> bool {
        let volume = &mut self.volumes[key];
        if !volume.is_renewed() {
            return false;
        }
        volume.answer = answer;
        volume.renewal.state = match volume.renewal.state {
            State::Attaching | State::Unwanted => State::Unwanted,
            _ => State::None,
        };
        self.remove_exports(key);
        self.recordings.leave(key, self.stop.is_some());
        self.volumes[key].io.leave_manager();
        self.forget_if_quiet(key);
        true
    }
}
