//! Volumes that are removed by force though their back ends do not answer: operators are not kept waiting.
//!
//! What is under way holds memory, and a write that is let go of may still change the disk. So it is waited for
//! as long as some of it ends now and then. If none does for a while, a server is given up, which ends the volume
//! and costs what the answer says. Where nothing can be called back, as with a file on storage that hangs, the
//! operator learns that, and the volume ends by itself as soon as the kernel lets it. No server is given up while
//! the write log still brings writes to it: the operator learns that, too.

use super::clock::after;
use super::plane::DataPlane;
use super::status::THREADS_WAIT_MAX;
use super::volume::{Change, Fault, Volume};
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind};
use cinnabar_driver::Phase;
use cinnabar_engine::units::Instant;
use std::time::Duration;

/// How long a back end may finish nothing of what is under way, and then again until the operator is answered.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Forced {
    removals: Vec<Removal>,
    /// How long a back end may finish nothing.
    pub(super) silence_max: Duration,
    /// How long the end of a volume may take whose server was given up.
    pub(super) end_max: Duration,
}

/// A volume that is removed by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) key: usize,
    /// Of the volume that had this key then.
    pub(super) number: u64,
    /// When it is looked at; `None`: all that can be done and said was.
    pub(super) due: Option<Instant>,
    /// The log brings its writes to the back end first.
    pub(super) drains: bool,
    /// Its server was given up.
    pub(super) given_up: bool,
    /// So many operations of its back end were under way at the last look.
    pub(super) seen: u32,
}

/// What to do about a removal whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Looks at it again then.
    Again(Instant),
    /// Looks at it again then, and answers the operator.
    Tell(Instant),
    /// Answers the operator: nothing else helps.
    Leave,
    /// Gives the server up, if there is one.
    GiveUp,
}

impl Default for Forced {
    fn default() -> Self {
        Self { removals: Vec::new(), silence_max: WAIT_MAX, end_max: WAIT_MAX }
    }
}

impl Forced {
    /// Whether this volume is removed by force; it is gone, or stays, and is asked about once.
    pub(super) fn take(&mut self, key: usize, number: u64) -> bool {
        let before = self.removals.len();
        self.removals.retain(|one| (one.key, one.number) != (key, number));
        self.removals.len() < before
    }

    /// Whether no volume is removed by force.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.removals.is_empty()
    }
}

impl Removal {
    /// Of the volume of this key and number, of which so much is under way.
    pub(super) const fn new((key, number): (usize, u64), drains: bool, seen: u32) -> Self {
        Self { key, number, due: None, drains, given_up: false, seen }
    }

    /// Its time has come. So many operations of its back end are under way, the oldest since `began`: `None` if
    /// none was sent yet or, unless `is_known`, a thread does not say. A server that ends some of them is slow, and no reason to lose writes.
    pub(super) fn look(
        &self,
        now: Instant,
        silence_max: Duration,
        (count, began): (u32, Option<Instant>),
        is_known: bool,
    ) -> Look {
        let again = after(now, silence_max);
        if self.drains || self.given_up {
            return Look::Leave;
        }
        match began.map(|began| after(began, silence_max)) {
            // At the last look, too: it waits for something else.
            _ if count == 0 && self.seen == 0 => Look::Tell(again),
            _ if count == 0 || count < self.seen => Look::Again(again),
            None if !is_known => Look::Tell(again),
            None => Look::Again(again),
            Some(silent_at) if silent_at > now => Look::Again(silent_at),
            Some(_) => Look::GiveUp,
        }
    }
}

impl DataPlane {
    /// A removal by force begins. `drains`: the write log brings its writes to the back end first.
    pub(super) fn force_out(&mut self, now: Instant, key: usize, drains: bool) {
        let volume = &self.volumes[key];
        let (number, seen) = (volume.number, volume.io.ios.get());
        // One that was told already is told again.
        self.forced.take(key, number);
        let due = after(now, self.forced.silence_max);
        let removal = Removal::new((key, number), drains, seen.max(1));
        self.forced.removals.push(Removal { due: Some(due), ..removal });
        self.look_at = self.look_at.into_iter().chain([due]).min();
    }

    /// A volume that is to be removed has left the write log: if that is by force, so is what follows.
    pub(super) fn force_goes_on(&mut self, now: Instant, key: usize) {
        let number = self.volumes[key].number;
        let mut removals = self.forced.removals.iter();
        if removals.any(|one| (one.key, one.number) == (key, number) && one.drains) {
            self.force_out(now, key, false);
        }
    }

    /// A volume that is being removed already, by its name.
    pub(super) fn leaving(&self, name: &str) -> Option<usize> {
        let found = self.volumes.iter().find(|(key, volume)| {
            volume.config.name == name && self.is_removed(*key) && self.stop.is_none()
        });
        found.map(|(key, _)| key)
    }

    /// Whether the removal of a volume has begun: a hand-over, and another attachment, look much the same.
    fn is_removed(&self, key: usize) -> bool {
        let volume = &self.volumes[key];
        let leaves = matches!(volume.life.phase(), Phase::Leaving | Phase::Gone);
        let leaves = leaves && !volume.is_renewed() && !self.is_swapped(key);
        leaves || volume.renewal.is_unwanted() || matches!(volume.change, Change::Remove)
    }

    /// A removal that has begun without force has none of its patience from now on.
    pub(super) fn force_leaving(
        &mut self,
        now: Instant,
        key: usize,
        discard_dirty: bool,
        answer: AnswerTo<()>,
    ) {
        if let Some(earlier) = self.volumes[key].answer.replace(answer) {
            let message = "another command removes it by force";
            let error = CommandError::new(CommandErrorKind::Busy, message, "look at its answer");
            let _ = earlier.send(Err(error));
        }
        let drains = !discard_dirty && matches!(self.volumes[key].change, Change::Remove);
        self.force_out(now, key, drains);
    }

    /// Ends, or answers, the removals whose time is over.
    pub(super) fn look_at_forced(&mut self, now: Instant) {
        let is_due = |one: &Removal| one.due.is_some_and(|due| due <= now);
        if self.forced.removals.iter().any(is_due) {
            // Of a thread that does not answer nothing is known, and no server is given up for it.
            let until = std::time::Instant::now() + THREADS_WAIT_MAX;
            let oldest = self.shard_set.oldest(&self.data_thread, until);
            for at in (0..self.forced.removals.len()).rev() {
                let mut one = self.forced.removals[at];
                if !is_due(&one) {
                    continue;
                }
                if self.look_at_removal(now, &mut one, &oldest) {
                    self.forced.removals[at] = one;
                } else {
                    self.forced.removals.swap_remove(at);
                }
            }
        }
        let next = self.forced.removals.iter().filter_map(|one| one.due);
        self.look_at = self.look_at.into_iter().chain(next).min();
    }

    /// False if it is over, or was refused.
    fn look_at_removal(
        &mut self,
        now: Instant,
        one: &mut Removal,
        oldest: &[Option<Instant>],
    ) -> bool {
        let Forced { silence_max, end_max, .. } = self.forced;
        let volume = self.volumes.get(one.key).filter(|volume| volume.number == one.number);
        if volume.is_none() || !self.is_removed(one.key) {
            return false;
        }
        let is_known = self.shard_set.silent().is_none();
        let volume = &mut self.volumes[one.key];
        let count = volume.io.ios.get();
        let began = oldest.get(one.key).copied().flatten();
        let look = one.look(now, silence_max, (count, began), is_known);
        one.seen = count;
        one.due = match look {
            Look::Again(at) => Some(at),
            Look::Tell(at) => {
                tell_that_it_stays(volume, false);
                Some(at)
            }
            Look::GiveUp if give_up(volume) => {
                one.given_up = true;
                Some(after(now, end_max))
            }
            Look::GiveUp | Look::Leave => {
                tell_that_it_stays(volume, one.drains);
                None
            }
        };
        true
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
        volume.failed = Some(Fault::End(error));
    }
    is_given_up
}

/// Answers the operator of a volume that is not gone yet.
fn tell_that_it_stays(volume: &mut Volume, drains: bool) {
    let Some(answer) = volume.answer.take() else { return };
    let (name, count) = (&volume.config.name, volume.io.ios.get());
    let (message, hint) = if drains {
        (
            format!(
                "volume {name:?} has no clients any more, but its back end lacks writes of the write log: it \
                 is removed when it has them"
            ),
            "get its storage to answer, or give the writes up: --force --discard-dirty",
        )
    } else if count == 0 {
        (
            format!(
                "volume {name:?} has no clients any more, and no operations of its back end are under way, \
                 but the daemon has not finished with it: it is removed then"
            ),
            "see the daemon's log and `cinnabar status`: the cache device, the state folder, or a look at \
             its disk may hang",
        )
    } else {
        (
            format!(
                "volume {name:?} has no clients any more, but {count} operations of its back end do not \
                 answer and can't be called back: it is removed when they have ended"
            ),
            "its name, its disk and its lock stay taken until then, or until the daemon ends; get its \
             storage to answer, or to fail",
        )
    };
    let _ = answer.send(Err(CommandError::new(CommandErrorKind::Busy, message, hint)));
}
