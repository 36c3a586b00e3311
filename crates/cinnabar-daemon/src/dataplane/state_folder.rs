//! The state folder, as guests meet it: after a loss of the cache device, the first write of each volume
//! waits until its new generation is durable there.
//!
//! The folder may lie on a disk that hangs, is full or read-only; often enough it is that of the cache.
//! No write waits for it without a bound, its failures are told once a minute, and the status has them.

use super::clock::after;
use super::plane::DataPlane;
use super::status::beside;
use cinnabar_config::messages::State;
use cinnabar_driver::Silence;
use cinnabar_engine::units::Instant;
use std::path::Path;
use std::time::Duration;

/// Longest wait of a guest's write.
const WAIT_MAX: Duration =
    if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(30) };
/// Between two log lines of failures.
const TELL_EVERY: Duration = Duration::from_mins(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StateFolder {
    /// Of the write under way, unless that is overdue.
    silence: Option<Silence>,
    /// Why the last one failed.
    trouble: Option<String>,
    /// Failures that no log line has told of.
    untold: u64,
    told: Option<Instant>,
}

impl StateFolder {
    /// A write of generations begins.
    pub(super) const fn begins(&mut self, now: Instant) {
        self.silence = Some(Silence::since(now));
    }

    /// Whether the write under way is overdue; true once.
    fn is_overdue(&mut self, now: Instant) -> bool {
        let over = self.silence.as_mut().is_some_and(|silence| silence.is_over(now, WAIT_MAX));
        if over {
            self.silence = None;
        }
        over
    }

    /// A write has failed. Gives how many have since the last log line, if it is time for one.
    fn failed(&mut self, now: Instant, reason: String) -> Option<u64> {
        self.silence = None;
        self.trouble = Some(reason);
        self.untold += 1;
        if self.told.is_some_and(|told| after(told, TELL_EVERY) > now) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }

    /// A write is durable. True: the one before was not.
    fn succeeded(&mut self) -> bool {
        (self.silence, self.untold) = (None, 0);
        self.trouble.take().is_some()
    }

    /// The state of the cache, with why volumes can't be written, if some can't.
    pub(super) fn beside(&self, state: (State, String)) -> (State, String) {
        let told = |why| format!("volumes can't be written without a new generation: {why}");
        beside(state, self.trouble.as_ref().map(told))
    }
}

impl DataPlane {
    /// Lets no guest wait too long for the state folder.
    pub(super) fn look_at_state_folder(&mut self, now: Instant) {
        if self.state_folder.is_overdue(now) {
            let ios = self.proofs.write_is_overdue();
            self.settle_generations(now, ios, None);
            let reason = format!("the state folder has not answered for {} s", WAIT_MAX.as_secs());
            self.state_failed(now, &reason, "check the disk that state_dir lies on");
        }
    }

    /// The state folder can't be written.
    pub(super) fn state_failed(&mut self, now: Instant, reason: &str, hint: &str) {
        if let Some(failures) = self.state_folder.failed(now, reason.to_owned()) {
            tracing::error!(
                reason,
                hint,
                failures,
                "volumes can't be written: without a cache device, a new generation must be kept"
            );
        }
    }

    /// The state folder has been written.
    pub(super) fn state_kept(&mut self) {
        if self.state_folder.succeeded() {
            tracing::info!("the state folder can be written again");
        }
    }
}

/// Says so if a failure of the cache device takes the state folder with it.
pub(super) fn warn_of_one_disk(device: &Path, state_dir: &Path) {
    if cinnabar_backend::disk::share_a_disk(device, state_dir) {
        tracing::warn!(
            device = %device.display(), state_dir = %state_dir.display(),
            "the cache and its state folder lie on one disk: when that fails, volumes can be read but \
             not written (hint: set state_dir in [cache] to a folder on another disk)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn failures_are_told_once_a_minute_and_counted() {
        let mut folder = StateFolder::default();
        let told: Vec<_> =
            (0..150).filter_map(|second| folder.failed(at(second), "full".into())).collect();
        assert_eq!(told, [1, 60, 60]);
        let beside = |folder: &StateFolder| folder.beside((State::Serving, "so far".to_owned()));
        let (state, reason) = beside(&folder);
        assert_eq!(state, State::Degraded);
        assert!(reason.starts_with("so far; ") && reason.ends_with(": full"), "{reason}");
        assert!(folder.succeeded());
        assert_eq!(beside(&folder), (State::Serving, "so far".to_owned()));
        assert!(!folder.succeeded(), "that was told");
        assert_eq!(folder.failed(at(155), "full".into()), None, "not twice a minute either");
    }

    #[test]
    fn a_write_is_overdue_once() {
        let mut folder = StateFolder::default();
        assert!(!folder.is_overdue(at(100)), "there is none");
        folder.begins(at(100));
        let times: Vec<_> = (101..120).filter(|second| folder.is_overdue(at(*second))).collect();
        assert_eq!(times, [103], "at the look after its time");
    }
}
