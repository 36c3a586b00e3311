//! Commands to the machine, and what it answers to them.

use crate::driver::account::Left;
use crate::driver::agenda::Item;
use crate::driver::attach::Attaching;
use crate::driver::log::describe_command;
use crate::driver::world::World;
use crate::kinds::{Fault, Path};
use crate::machine::Factory;
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_engine::health::{LoadReport, Start};
use cinnabar_engine::{Answer, Command, Event, Failure, RequestId};

/// A command under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Open,
    AwaitLoad,
    Attach(usize, Attaching),
    Detach(usize),
    /// With a proof or without one.
    Seal(usize, bool),
    Forget(usize),
    /// To so many sectors.
    Grow(usize, u64),
    /// The cache, to so many segments of a shard; at which number.
    Resize(u32, u64),
    /// By an operator, or because the device was lost.
    Abandon,
    Replace,
    Close,
}

impl<F: Factory<Stamped>> World<'_, F> {
    pub(super) fn command(&mut self, control: Control, command: Command) {
        let id = RequestId(self.number());
        self.log
            .milestone(self.now, || format!("command {}: {}", id.0, describe_command(&command)));
        self.controls.insert(id, control);
        self.batch.push(Event::Control(id, command));
    }

    /// Is such a command under way?
    pub(super) fn is_waiting_for(&self, wanted: impl Fn(&Control) -> bool) -> bool {
        self.controls.values().any(wanted)
    }

    pub(super) fn command_replied(
        &mut self,
        control: Control,
        result: Result<Answer<Stamped>, Failure>,
    ) -> Result<(), Violation> {
        self.log.milestone(self.now, || format!("{control:?} was answered: {result:?}"));
        if let Control::Resize(to, number) = control {
            return self.resize_answered(to, number, result.map(drop));
        }
        match (control, result) {
            (Control::Open | Control::Replace, Ok(Answer::Done)) => self.device_begun(Ok(())),
            (Control::Close, Ok(Answer::Done)) => {}
            (Control::AwaitLoad, Ok(Answer::Loaded(report))) => self.loaded(&report)?,
            // A device that fails while it is opened or closed: the daemon goes on without it.
            (Control::Open, Err(failure @ Failure::Io(_))) if self.cache_has_failed() => {
                self.device_failed = true;
                self.device_begun(Err(failure));
            }
            (Control::AwaitLoad | Control::Close, Err(Failure::Io(_)))
                if self.cache_has_failed() =>
            {
                self.device_failed = true;
            }
            (Control::Attach(volume, attaching), Ok(Answer::Attached { volume: id, warmth })) => {
                self.attached(volume, &attaching, id, warmth)?;
            }
            (Control::Attach(volume, _), Err(Failure::Invalid))
                if self.is_waiting_for(|control| *control == Control::Replace) =>
            {
                self.attach_again(volume);
            }
            (Control::Detach(of), Ok(Answer::Done)) => self.end_answered(of, Left::Lost, Ok(()))?,
            // The backend could not be flushed: nothing can be proven of it, its blocks are dropped.
            (Control::Detach(volume), Err(failure @ Failure::Io(_)))
                if self.volumes[volume].errors > 0 =>
            {
                self.end_answered(volume, Left::Lost, Err(failure))?;
            }
            (Control::Seal(volume, proven), Ok(Answer::Done)) => {
                self.end_answered(volume, Left::Sealed { proven, blocks: None }, Ok(()))?;
            }
            // What it could not record will not be believed; a new generation may have failed, too.
            (Control::Seal(volume, _), Err(failure @ Failure::Io(_)))
                if self.cache_has_failed() || self.volumes[volume].errors > 0 =>
            {
                let left = Left::Sealed { proven: false, blocks: None };
                self.end_answered(volume, left, Err(failure))?;
            }
            (Control::Forget(volume), Ok(Answer::Done)) => self.forgotten(volume, true),
            (Control::Forget(volume), Err(Failure::NoVolume)) => self.forgotten(volume, false),
            // Nor can a device record it that is given up meanwhile; it is not believed again.
            (Control::Forget(volume), Err(Failure::Io(_)))
                if self.cache_has_failed()
                    || self.is_waiting_for(|control| *control == Control::Abandon) =>
            {
                self.forgotten(volume, false);
            }
            (Control::Abandon, Ok(Answer::Done)) => {
                self.count.paths.add(Path::PassThroughAbandoned);
                self.device_given_up(Ok(()));
            }
            (Control::Grow(volume, sectors), Ok(Answer::Done)) => self.grown(volume, sectors),
            (Control::Grow(volume, _), Err(failure)) if self.may_not_grow(volume, failure) => {}
            // Neither the new device nor a backend may have failed it.
            (Control::Replace, Err(failure @ Failure::Io(_)))
                if self.cache_has_failed() || self.volumes.iter().any(|v| v.errors > 0) =>
            {
                self.device_begun(Err(failure));
            }
            (control, result) => {
                let what = format!("{control:?} was answered with {result:?}");
                return Err(Violation::new(Kind::WrongReply, what));
            }
        }
        Ok(())
    }

    /// Was the machine ever told that its device failed, or has it none?
    pub(super) fn cache_has_failed(&self) -> bool {
        !self.present || self.media.cache.damaged
    }

    fn loaded(&mut self, report: &LoadReport) -> Result<(), Violation> {
        self.count.paths.add(match report.start {
            Start::New => Path::StartNew,
            Start::Clean => Path::StartClean,
            Start::Crashed => Path::StartCrashed,
            Start::Damaged => Path::StartDamaged,
        });
        self.count.paths.add_many(Path::Replayed, report.replayed_blocks);
        self.count.paths.add_many(Path::Unflushed, report.unflushed_blocks);
        self.count.paths.add_many(Path::Doubtful, report.doubtful_blocks);
        self.count.paths.add_many(Path::Overwritten, report.overwritten_blocks);
        self.count.paths.add_many(Path::DamagedPages, report.damaged_pages);
        if report.start == Start::Damaged && !self.media.cache.damaged {
            let what = format!("everything was dropped for damage that was not done: {report:?}");
            return Err(Violation::new(Kind::Warmth, what));
        }
        self.loaded = Some(*report);
        Ok(())
    }

    /// Nothing of this volume may come back.
    fn forgotten(&mut self, volume: usize, done: bool) {
        if done {
            self.count.faults.add(Fault::Forgotten);
            self.accounts[volume].forget();
        }
        self.volumes[volume].forgetting = false;
        // The operator's assertion holds: only now another writer writes.
        if done && self.rng.chance(0.7) {
            self.count.faults.add(Fault::ForeignAfterForget);
            self.write_behind_at_will(volume);
        }
        // It may stay away for a while: until then only the record of its end keeps it buried.
        if done && self.rng.chance(0.5) {
            if self.may_crash && self.rng.chance(0.5) {
                self.fuse = Some(self.rng.below(3));
            }
            return self.soon(2_000_000_000, Item::Return(volume));
        }
        self.attach(volume);
    }
}
