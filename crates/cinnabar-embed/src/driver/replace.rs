//! Another cache device in place of the one in use, or none.
//!
//! Steps of a replacement ([`DeviceLife`](cinnabar_driver::DeviceLife) has their order): a thread opens,
//! locks and formats the new device, while requests go on; the engine gives up the old one; that is let
//! go of; the volumes' generations are entrusted to the new one, durably, so that the old one is never
//! believed again; the engine goes on with the new one.

use super::device::{Prepared, silence_max};
use super::new_device::Opening;
use super::slow::Task;
use super::{Driver, PendingCommand};
use crate::NewDevice;
use crate::error::Error;
use cinnabar_backend::disk::{DiskError, DiskErrorKind, Identity};
use cinnabar_driver::device_life::{DeviceBusy, DeviceError, ReplacementId};
use cinnabar_driver::{DevicePhase, DeviceStep};
use cinnabar_engine::{Command, Failure};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// How often it is looked whether a new device answers.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Driver {
    /// Goes on with another device.
    pub(crate) fn replace(&mut self, new: &NewDevice) -> Result<(), Error> {
        self.settle_device()?;
        self.check_new(new)?;
        let now = self.now();
        let id = self.device.life.replace(now).map_err(busy)?;
        let prepared = self.open_new(id, new)?;
        let step = self.device.life.prepared(id, prepared).map_err(|_given_up| busy(DeviceBusy))?;
        self.carry_out(step)?;
        tracing::info!(
            path = %self.device.path.display(),
            segments = self.device.segments(),
            "the cache device was replaced"
        );
        Ok(())
    }

    /// Goes on without a device.
    pub(crate) fn abandon(&mut self) -> Result<(), Error> {
        self.settle_device()?;
        let step = self.device.life.abandon().map_err(busy)?;
        self.carry_out(step)
    }

    /// Waits until a device that was lost is let go of. It has a bound.
    pub(super) fn settle_device(&mut self) -> Result<(), Error> {
        self.watch_device();
        while self.device.life.phase() == DevicePhase::LettingGo {
            self.act();
            if self.device.life.phase() == DevicePhase::LettingGo {
                self.wait(None)?;
            }
        }
        Ok(())
    }

    /// What is open here is refused at once: its lock would never come free.
    fn check_new(&self, new: &NewDevice) -> Result<(), Error> {
        // What is not there is found out, and explained, when it is opened.
        let Ok(metadata) = std::fs::metadata(&new.device) else { return Ok(()) };
        let identity = Identity::Inode(metadata.dev(), metadata.ino());
        let what = self.device.is_taken(&identity).map(str::to_owned).or_else(|| {
            let mut all = self.volumes.iter().map(|(_, volume)| volume);
            all.find(|volume| volume.disk.identity() == identity)
                .map(|volume| format!("the backend of volume {:?}", volume.name))
        });
        what.map_or(Ok(()), |what| Err(Error::DeviceTaken { path: new.device.clone(), what }))
    }

    /// Opens, locks and formats a new device while requests go on. Bounded: as long as it gets on.
    fn open_new(&mut self, id: ReplacementId, new: &NewDevice) -> Result<Prepared, Error> {
        let shards = self.engine.router().map().shards();
        let opening = Opening::new(new, shards, self.lock_wait);
        let progress = opening.progress();
        self.opened = None;
        self.slow.start(Task::OpenDevice { id, opening: Box::new(opening) });
        loop {
            self.act();
            if let Some(result) = self.opened.take() {
                return result.inspect_err(|_| self.device.life.not_prepared(id));
            }
            let now = self.now();
            if self.device.life.is_silent(now, progress.steps()) {
                progress.give_up();
                let kind = DiskErrorKind::Silent(silence_max(self.device.timeout));
                return Err(Error::Device(DiskError { path: new.device.clone(), kind }));
            }
            if !self.device.life.is_preparing(id) {
                progress.give_up();
                return Err(busy(DeviceBusy));
            }
            if let Err(error) = self.wait(Some(LOOK_EVERY)) {
                progress.give_up();
                self.device.life.not_prepared(id);
                return Err(error);
            }
        }
    }

    /// A new device is open, or could not be opened. One that was given up is closed; that may take
    /// long.
    pub(super) fn device_opened(&mut self, id: ReplacementId, result: Result<Prepared, Error>) {
        if self.device.life.is_preparing(id) {
            self.opened = Some(result);
        } else if let Ok(late) = result {
            self.slow.close(late);
        }
    }

    /// Does step after step, and waits for what each of them asks of the engine.
    fn carry_out(&mut self, mut step: DeviceStep<Prepared>) -> Result<(), Error> {
        loop {
            step = match step {
                DeviceStep::GiveUp => {
                    self.hurry_device();
                    let answer = self.command(Command::Abandon)?.map(drop);
                    self.device.life.given_up(answer)
                }
                DeviceStep::LetGo => {
                    self.close_device();
                    self.device.life.let_go()
                }
                DeviceStep::Entrust => {
                    self.entrust().inspect_err(|_| self.device.life.not_installed())?;
                    self.device.life.entrusted()
                }
                DeviceStep::Install(new) => {
                    let answer = self.install(new)?;
                    self.device.life.begun(answer)
                }
                // It was lost while the new one was opened.
                DeviceStep::Wait => {
                    self.settle_device()?;
                    match (self.device.life.new_device(), self.device.life.phase()) {
                        (Some(_), _) => DeviceStep::Entrust,
                        (None, DevicePhase::Absent) => return Ok(()),
                        (None, _) => return Err(busy(DeviceBusy)),
                    }
                }
                DeviceStep::Ended(result) => {
                    let failed = |DeviceError { what, failure }| Error::Failed { what, failure };
                    return result.map_err(failed);
                }
            }
        }
    }

    /// The attached volumes' generations are the new device's from now on, durably.
    fn entrust(&mut self) -> Result<(), Error> {
        let Some(new) = self.device.life.new_device() else { return Ok(()) };
        let (device, path) = (new.superblocks[0].uuid, new.disk.path().to_owned());
        let serving = self.volumes.iter().filter(|(_, volume)| volume.life.id().is_some());
        let names: Vec<String> = serving.map(|(_, volume)| volume.name.clone()).collect();
        let ledger = self.ledger.clone();
        self.beside(move || ledger.with(|state| state.entrust(&names, device, &path)))?
            .map_err(Error::State)
    }

    /// The engine begins with a new device; the inner error is its own.
    fn install(&mut self, new: Prepared) -> Result<Result<(), Failure>, Error> {
        let Prepared { disk, superblocks } = new;
        self.use_device(disk, &superblocks).inspect_err(|_| self.device.life.not_installed())?;
        let first = superblocks.into_iter().next().expect("a device has a region");
        let answer = self.command(Command::Replace(Box::new(first)))?.map(drop);
        if answer.is_ok() {
            self.advise_tables();
            self.ease_device();
            self.loaded = None;
            self.order(PendingCommand::Load, Command::AwaitLoad);
        }
        Ok(answer)
    }
}

fn busy(_: DeviceBusy) -> Error {
    Error::Failed { what: "changing the cache device", failure: Failure::Invalid }
}
