//! Volumes that are removed by force though their back ends do not answer: operators are not kept waiting.
//!
//! What is under way holds memory, and a write that is let go of may still change the disk. So it is waited for
//! a while. Then a server is given up, which ends the volume and costs what the answer says. Where nothing can
//! be called back, as with a file on storage that hangs, the operator learns that, and the volume ends by itself
//! as soon as the kernel lets it.

use super::clock::after;
use super::plane::Plane;
use super::volume::Volume;
use cinnabar_driver::Phase;
use cinnabar_engine::units::Instant;
use cinnabar_messages::{AnswerTo, CommandError, CommandErrorKind};
use std::time::Duration;

/// How long a back end has time to finish what is under way.
const WAIT_MAX: Duration =
    if cfg!(test) { Duration::from_secs(4) } else { Duration::from_secs(10) };

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Forced(Vec<Removal>);

#[derive(Clone, Copy, Debug)]
struct Removal {
    key: usize,
    /// Of the volume that had this key then.
    number: u64,
    /// `None`: it was told.
    due: Option<Instant>,
    /// Its back end was given up, and it has as long again to end.
    given_up: bool,
}

impl Forced {
    /// Whether this volume is removed by force; it is gone, and asked about once.
    pub(super) fn take(&mut self, key: usize, number: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|one| (one.key, one.number) != (key, number));
        self.0.len() < before
    }
}

impl Plane {
    /// A removal by force begins, of a volume whose writes in the log, if there are any, are given up.
    pub(super) fn force_out(&mut self, now: Instant, key: usize) {
        let number = self.volumes[key].number;
        if !self.forced.0.iter().any(|one| (one.key, one.number) == (key, number)) {
            let due = after(now, WAIT_MAX);
            self.forced.0.push(Removal { key, number, due: Some(due), given_up: false });
            self.look_at = self.look_at.into_iter().chain([due]).min();
        }
    }

    /// A volume that is being removed already, by its name.
    pub(super) fn leaving(&self, name: &str) -> Option<usize> {
        let leaves = |phase| matches!(phase, Phase::Leaving | Phase::Gone);
        let found = self.volumes.iter().find(|(_, volume)| {
            volume.config.name == name && leaves(volume.life.phase()) && !volume.is_renewed()
        });
        found.map(|(key, _)| key).filter(|_| self.stop.is_none())
    }

    /// A removal that has begun without force has none of its patience from now on.
    pub(super) fn force_leaving(&mut self, now: Instant, key: usize, answer: AnswerTo<()>) {
        if let Some(earlier) = self.volumes[key].answer.replace(answer) {
            let message = "another command removes it by force";
            let error = CommandError::new(CommandErrorKind::Busy, message, "look at its answer");
            let _ = earlier.send(Err(error));
        }
        // One that was told already is told again.
        let number = self.volumes[key].number;
        self.forced.take(key, number);
        self.force_out(now, key);
    }

    /// Ends, or answers, the removals whose time is over.
    pub(super) fn look_at_forced(&mut self, now: Instant) {
        for at in (0..self.forced.0.len()).rev() {
            let Removal { key, number, due, given_up } = self.forced.0[at];
            if due.is_none_or(|due| due > now) {
                continue;
            }
            let volume = self.volumes.get_mut(key).filter(|volume| volume.number == number);
            let Some(volume) = volume else {
                self.forced.0.swap_remove(at);
                continue;
            };
            let gives_up = !given_up && give_up(volume);
            let one = &mut self.forced.0[at];
            one.given_up |= gives_up;
            one.due = gives_up.then(|| after(now, WAIT_MAX));
            if !gives_up {
                tell_that_it_stays(volume);
            }
        }
        let next = self.forced.0.iter().filter_map(|one| one.due);
        self.look_at = self.look_at.into_iter().chain(next).min();
    }
}

/// Has the server of a volume fail everything; false if there is none that can be given up.
fn give_up(volume: &mut Volume) -> bool {
    let (name, count) = (&volume.config.name, volume.io.ios.get());
    let is_given_up = volume.io.disk.give_up();
    tracing::error!(
        volume = name,
        under_way = count,
        is_given_up,
        "its back end does not answer, and it is removed by force"
    );
    if is_given_up {
        let message = format!(
            "volume {name:?} is removed, but its back end did not answer: {count} operations were given \
             up, of which writes may still be carried out there, and its cached blocks are dropped"
        );
        let hint = "use the disk elsewhere only when its server has ended what it was sent";
        let error = CommandError::new(CommandErrorKind::Io, message, hint);
        volume.failed = Some(error);
    }
    is_given_up
}

/// Answers the operator of a volume that nothing helps to its end.
fn tell_that_it_stays(volume: &mut Volume) {
    let Some(answer) = volume.answer.take() else { return };
    let (name, count) = (&volume.config.name, volume.io.ios.get());
    let message = format!(
        "volume {name:?} has no clients any more, but {count} operations of its back end do not \
         answer and can't be called back: it is removed when they have ended"
    );
    let hint = "its name, its disk and its lock stay taken until then, or until the daemon ends; \
                get its storage to answer, or to fail";
    let _ = answer.send(Err(CommandError::new(CommandErrorKind::Busy, message, hint)));
}
