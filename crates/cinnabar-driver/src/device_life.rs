//! The life of the cache device in a driver: opening, loss, replacement, letting go.
//!
//! What happens is an event, and what is to be done next is a [`DeviceStep`]. The driver opens, locks
//! and formats devices, does their I/O, and writes what the host has to remember.
//!
//! ```text
//! absent ─ begin ► opening ─ begun ► in use ─ lost, abandon, replace ► letting go ─ let_go ► absent
//!
//! replace ► [new device prepared] ► [old one let go of] ► entrust ► install ► opening
//! ```
//!
//! The order of a replacement is what keeps the old device from being believed if it comes back: the
//! engine gives it up, it is let go of, the host records durably that the volumes are the new
//! device's, and only then does the engine begin with that. What fails before the old one is given up
//! changes nothing; what fails later leaves the volumes passing through.
//!
//! A device may be silent. Where operations on it have no time-out, they have a bound while the device
//! is being opened, let go of or closed ([`hurries`](DeviceLife::hurries)), so that nothing waits for
//! what may never end.

use crate::silence::Silence;
use cinnabar_engine::Failure;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::Instant;
use std::time::Duration;

/// See the module. `D` is a device that is open and formatted, and waits to be taken into use.
#[derive(Debug)]
pub struct DeviceLife<D> {
    phase: DevicePhase,
    replacement: Replacement<D>,
    /// The last replacement that was begun.
    newest: ReplacementId,
    /// The engine has refused to give the device up.
    refused: bool,
    silence_max: Duration,
    mutants: Mutants,
}

/// What becomes of the device in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevicePhase {
    /// There is none: volumes pass through.
    Absent,
    /// It is open, and the engine was asked to begin with it.
    Opening,
    /// The engine uses it, or has lost it and was not asked yet to give it up.
    InUse,
    /// The engine was asked to give it up; I/O on it may be under way.
    LettingGo,
    /// The session ends. What is there is let go of with it.
    Closing,
}

/// Tells one replacement from another that was given up before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplacementId(u64);

#[derive(Debug)]
enum Replacement<D> {
    None,
    /// The new device is being opened and formatted. Nothing has changed.
    Preparing(Preparing),
    /// It waits for the old one to be let go of.
    Prepared(D),
    /// The host records that the volumes are its own.
    Entrusting(D),
    /// The engine begins with it.
    Installing,
    /// The engine could not begin with it, and gives it up.
    Failed(DeviceError),
}

#[derive(Debug)]
struct Preparing {
    /// Steps of it, as last looked at.
    steps: u64,
    /// Since then.
    silence: Silence,
}

/// What is to be done next.
#[derive(Debug)]
pub enum DeviceStep<D> {
    /// Nothing: an answer is awaited.
    Wait,
    /// The engine gets [`Command::Abandon`](cinnabar_engine::Command::Abandon); its answer goes to
    /// [`DeviceLife::given_up`].
    GiveUp,
    /// The device is let go of, lock included, or left until the I/O has ended that hangs on it; then
    /// [`DeviceLife::let_go`].
    LetGo,
    /// The host records durably that the attached volumes are on [`DeviceLife::new_device`] from now
    /// on; then [`DeviceLife::entrusted`] or [`DeviceLife::not_installed`].
    Entrust,
    /// This device is taken into use, and the engine gets
    /// [`Command::Replace`](cinnabar_engine::Command::Replace); then [`DeviceLife::begun`] or
    /// [`DeviceLife::not_installed`].
    Install(D),
    /// What was asked for has ended.
    Ended(Result<(), DeviceError>),
}

/// What the engine did not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// What was tried: a noun.
    pub what: &'static str,
    /// How the engine refused it.
    pub failure: Failure,
}

/// Another device is being opened or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBusy;

impl<D> DeviceLife<D> {
    /// There is none. `silence_max` is the longest time that a new device may get nowhere; the mutants
    /// are those of tests.
    pub const fn new(silence_max: Duration, mutants: Mutants) -> Self {
        Self {
            phase: DevicePhase::Absent,
            replacement: Replacement::None,
            newest: ReplacementId(0),
            refused: false,
            silence_max,
            mutants,
        }
    }

    /// What becomes of the device in use.
    pub const fn phase(&self) -> DevicePhase {
        self.phase
    }

    /// Whether operations on it that have no time-out are to have a bound: it is being opened, let go of or
    /// closed, and that has to come to an end.
    pub const fn hurries(&self) -> bool {
        use DevicePhase::{Closing, LettingGo, Opening};
        matches!(self.phase, Opening | LettingGo | Closing)
    }

    /// The first device is open, and the engine is asked to open it.
    ///
    /// # Panics
    /// If there is one.
    pub fn begin(&mut self) {
        assert_eq!(self.phase, DevicePhase::Absent, "one device at a time");
        self.phase = DevicePhase::Opening;
    }

    /// The engine has begun with the device, or could not. After an error of the first device it is
    /// to be let go of with the engine.
    ///
    /// # Panics
    /// If it was not asked.
    pub fn begun(&mut self, result: Result<(), Failure>) -> DeviceStep<D> {
        if self.phase == DevicePhase::Closing {
            self.replacement = Replacement::None;
            return DeviceStep::Ended(result.map_err(beginning));
        }
        assert_eq!(self.phase, DevicePhase::Opening, "the engine begins when it is asked");
        match (result, std::mem::replace(&mut self.replacement, Replacement::None)) {
            (Ok(()), _) => {
                (self.phase, self.refused) = (DevicePhase::InUse, false);
                DeviceStep::Ended(Ok(()))
            }
            (Err(failure), Replacement::Installing) => {
                self.replacement = Replacement::Failed(beginning(failure));
                self.phase = DevicePhase::LettingGo;
                DeviceStep::GiveUp
            }
            (Err(failure), _) => {
                self.phase = DevicePhase::Absent;
                DeviceStep::Ended(Err(beginning(failure)))
            }
        }
    }

    /// The device is not to be used any more: the engine has lost it, it does not answer, or it was cut
    /// short. Gives [`DeviceStep::GiveUp`] once; later, and where there is no device, nothing.
    pub fn lost(&mut self) -> DeviceStep<D> {
        if self.refused { DeviceStep::Wait } else { self.give_up() }
    }

    /// Whether that would have the engine give it up: it uses a device, and has not refused to.
    pub fn can_be_lost(&self) -> bool {
        self.phase == DevicePhase::InUse && !self.refused
    }

    fn give_up(&mut self) -> DeviceStep<D> {
        if self.phase != DevicePhase::InUse {
            return DeviceStep::Wait;
        }
        self.phase = DevicePhase::LettingGo;
        DeviceStep::GiveUp
    }

    /// The program or operator wants to be without it.
    ///
    /// # Errors
    /// If another device is being opened or closed.
    pub fn abandon(&mut self) -> Result<DeviceStep<D>, DeviceBusy> {
        self.may_change()?;
        Ok(match self.phase {
            DevicePhase::InUse => self.give_up(),
            DevicePhase::LettingGo => DeviceStep::Wait,
            _ => DeviceStep::Ended(Ok(())),
        })
    }

    /// Another device is to take its place, and is being opened, locked and formatted from now on.
    ///
    /// # Errors
    /// If another device is being opened or closed.
    pub fn replace(&mut self, now: Instant) -> Result<ReplacementId, DeviceBusy> {
        self.may_change()?;
        self.newest.0 += 1;
        let silence = Silence::since(now);
        self.replacement = Replacement::Preparing(Preparing { steps: 0, silence });
        Ok(self.newest)
    }

    fn may_change(&self) -> Result<(), DeviceBusy> {
        let is_free = matches!(self.replacement, Replacement::None);
        let settled = !matches!(self.phase, DevicePhase::Opening | DevicePhase::Closing);
        if is_free && settled { Ok(()) } else { Err(DeviceBusy) }
    }

    /// Whether this is the replacement whose device is being opened and formatted.
    pub fn is_preparing(&self, id: ReplacementId) -> bool {
        id == self.newest && matches!(self.replacement, Replacement::Preparing(_))
    }

    /// So many steps of opening and formatting the new device are done. True if none was for too
    /// long: the replacement has ended then, and what comes of it later is closed. To be asked several
    /// times a second: time in which it is not counts as little ([`Silence`]).
    pub fn is_silent(&mut self, now: Instant, steps: u64) -> bool {
        let Replacement::Preparing(preparing) = &mut self.replacement else { return false };
        if preparing.steps != steps {
            *preparing = Preparing { steps, silence: Silence::since(now) };
        }
        let silent = preparing.silence.is_over(now, self.silence_max);
        if silent {
            self.replacement = Replacement::None;
        }
        silent
    }

    /// The new device is open and formatted.
    ///
    /// # Errors
    /// The device, to be closed, if its replacement was given up.
    pub fn prepared(&mut self, id: ReplacementId, device: D) -> Result<DeviceStep<D>, D> {
        if !self.is_preparing(id) {
            return Err(device);
        }
        if self.phase == DevicePhase::Absent {
            return Ok(self.entrust(device));
        }
        if self.mutants.is(Mutant::EntrustedEarly) {
            self.replacement = Replacement::Entrusting(device);
            return Ok(DeviceStep::Entrust);
        }
        self.replacement = Replacement::Prepared(device);
        Ok(self.give_up())
    }

    /// The new device can't be used: nothing has changed.
    pub fn not_prepared(&mut self, id: ReplacementId) {
        if self.is_preparing(id) {
            self.replacement = Replacement::None;
        }
    }

    /// The engine has given up the device, and no I/O on it is waited for any more; or it has not.
    ///
    /// # Panics
    /// If it was not asked.
    pub fn given_up(&mut self, result: Result<(), Failure>) -> DeviceStep<D> {
        use DevicePhase::{Closing, InUse, LettingGo};
        assert!(matches!(self.phase, LettingGo | Closing), "it was asked to: {:?}", self.phase);
        match result {
            _ if self.phase == Closing => DeviceStep::Wait,
            Ok(()) => DeviceStep::LetGo,
            Err(failure) => {
                (self.phase, self.refused) = (InUse, true);
                let error = DeviceError { what: "giving up the cache device", failure };
                self.end(error)
            }
        }
    }

    /// The device is let go of.
    ///
    /// # Panics
    /// If it was not to be.
    pub fn let_go(&mut self) -> DeviceStep<D> {
        assert_eq!(self.phase, DevicePhase::LettingGo, "a device is let go of once");
        self.phase = DevicePhase::Absent;
        match std::mem::replace(&mut self.replacement, Replacement::None) {
            Replacement::Prepared(device) if self.mutants.is(Mutant::EntrustedEarly) => {
                self.install(device)
            }
            Replacement::Prepared(device) => self.entrust(device),
            Replacement::Failed(error) => DeviceStep::Ended(Err(error)),
            // Entrusting: with that mutant only.
            waits @ (Replacement::Preparing(_) | Replacement::Entrusting(_)) => {
                self.replacement = waits;
                DeviceStep::Wait
            }
            _ => DeviceStep::Ended(Ok(())),
        }
    }

    /// The old device is gone.
    fn entrust(&mut self, device: D) -> DeviceStep<D> {
        if self.mutants.is(Mutant::NotEntrusted) {
            return self.install(device);
        }
        self.replacement = Replacement::Entrusting(device);
        DeviceStep::Entrust
    }

    fn install(&mut self, device: D) -> DeviceStep<D> {
        assert_eq!(self.phase, DevicePhase::Absent, "the old device is gone");
        self.phase = DevicePhase::Opening;
        self.replacement = Replacement::Installing;
        DeviceStep::Install(device)
    }

    /// The device that is to be taken into use, once it is prepared.
    pub const fn new_device(&self) -> Option<&D> {
        match &self.replacement {
            Replacement::Prepared(device) | Replacement::Entrusting(device) => Some(device),
            _ => None,
        }
    }

    /// The host has recorded, durably, that the volumes are the new device's.
    ///
    /// # Panics
    /// If that was not asked for.
    pub fn entrusted(&mut self) -> DeviceStep<D> {
        match std::mem::replace(&mut self.replacement, Replacement::None) {
            Replacement::Entrusting(device)
                if self.mutants.is(Mutant::EntrustedEarly) && self.phase != DevicePhase::Absent =>
            {
                self.replacement = Replacement::Prepared(device);
                self.give_up()
            }
            Replacement::Entrusting(device) => self.install(device),
            _ => panic!("nothing was to be entrusted to a new device"),
        }
    }

    /// The host could not record that, or could not take the new device: volumes pass through. What is
    /// left of the new device is dropped.
    pub fn not_installed(&mut self) {
        self.replacement = Replacement::None;
        if self.phase == DevicePhase::Opening {
            self.phase = DevicePhase::Absent;
        }
    }

    /// The session ends. A replacement under way does not go on.
    pub fn close(&mut self) {
        self.phase = DevicePhase::Closing;
        self.replacement = Replacement::None;
    }

    /// The engine keeps the device. That ends a replacement that waits for it, but not one whose device
    /// is still being opened: it asks again once that is open. A failure of before is what the caller
    /// gets.
    fn end(&mut self, error: DeviceError) -> DeviceStep<D> {
        match std::mem::replace(&mut self.replacement, Replacement::None) {
            Replacement::Failed(first) => DeviceStep::Ended(Err(first)),
            preparing @ Replacement::Preparing(_) => {
                self.replacement = preparing;
                DeviceStep::Ended(Err(error))
            }
            _ => DeviceStep::Ended(Err(error)),
        }
    }
}

const fn beginning(failure: Failure) -> DeviceError {
    DeviceError { what: "beginning with the cache device", failure }
}

#[cfg(test)]
mod tests;
