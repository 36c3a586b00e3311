//! A host's engine: its events, what it asks for, and the commands by which volumes come and go.

use crate::hosts::HostFault;
use crate::hosts::steps::Step;
use crate::hosts::world::{Item, Work, World};
use crate::machine::Machine;
use crate::stamp::{BLOCK_SECTORS, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_driver::ownership::{Event as Owning, Trust};
use cinnabar_driver::{EndStep, VolumeLife};
use cinnabar_engine::mutant::Mutant;
use cinnabar_engine::units::{BLOCK_BYTES, Instant};
use cinnabar_engine::volume::{Recorded, VolumeSpec, Warmth};
use cinnabar_engine::{Action, Answer, Command, Event, Failure, Op, Reply, Request, RequestId};

/// A command under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Open,
    Attach,
    /// A step of a volume's end.
    End,
    /// A flush in place of an end.
    FlushOnly,
}

/// What both hosts call the volume.
const NAME: &str = "volume";

impl World {
    /// A host's daemon is started.
    pub(super) fn start(&mut self, host: usize) -> Result<(), Violation> {
        let (profile, options) = (&self.profile, &self.options);
        self.hosts[host].begin(profile, options)?;
        self.note(|| format!("host {host} is started"));
        self.command(host, Control::Open, Command::Open)
    }

    pub(super) fn command(
        &mut self,
        host: usize,
        control: Control,
        command: Command,
    ) -> Result<(), Violation> {
        let id = RequestId(self.number());
        self.controls.insert(id, (host, control));
        self.tell(host, Event::Control(id, command))
    }

    /// The engine gets an event, and what it says is done.
    pub(super) fn tell(&mut self, host: usize, event: Event<Stamped>) -> Result<(), Violation> {
        self.hosts[host].inbox.push_back(event);
        if std::mem::replace(&mut self.hosts[host].busy, true) {
            return Ok(());
        }
        while let Some(event) = self.hosts[host].inbox.pop_front() {
            let mut actions = Vec::new();
            let now = self.now;
            let machine = self.hosts[host].machine.as_mut().expect("its daemon runs");
            machine.apply(now, &mut vec![event], &mut actions);
            for action in actions {
                match action {
                    Action::Io(request) => self.take_off(host, request)?,
                    Action::Reply(reply) => self.replied(host, reply)?,
                    Action::WakeAt(at) => self.wake_at(host, at),
                }
            }
        }
        self.hosts[host].busy = false;
        Ok(())
    }

    fn wake_at(&mut self, host: usize, at: Instant) {
        if self.hosts[host].wake.is_none_or(|(earlier, _)| at < earlier) {
            let number = self.number();
            self.hosts[host].wake = Some((at, number));
            let run = self.hosts[host].run;
            self.enter(at.since_ns(self.now), Item::At(host, run, Work::Wake(number)));
        }
    }

    pub(super) fn wake(&mut self, host: usize, number: u64) -> Result<(), Violation> {
        if self.hosts[host].wake.is_some_and(|(_, wanted)| wanted == number) {
            self.hosts[host].wake = None;
            return self.tell(host, Event::Wake);
        }
        Ok(())
    }

    fn replied(&mut self, host: usize, reply: Reply<Stamped>) -> Result<(), Violation> {
        let Some((_, control)) = self.controls.remove(&reply.id) else {
            return self.answered(reply.id, reply.result);
        };
        match control {
            Control::Open => reply.result.map(drop).map_err(|failure| {
                Violation::new(Kind::WrongReply, format!("host {host} does not open: {failure}"))
            }),
            Control::Attach => self.attached(host, &reply.result),
            Control::End => self.end_answered(host, reply.result.map(drop)),
            Control::FlushOnly => self.rule(host, Owning::Drained(reply.result.is_ok())),
        }
    }

    /// The engine is to have the volume, on the image as it is open for writing.
    pub(super) fn attach(&mut self, host: usize) -> Result<(), Violation> {
        if self.hosts[host].life.is_some() {
            if self.options.mutants.is(Mutant::StandbyServesCache) {
                return self.rule(host, Owning::Attached(true));
            }
            let what = format!("host {host} attaches a volume that it has let go of in part only");
            return Err(Violation::new(Kind::BadIo, what));
        }
        let attachment = self.number();
        let life = VolumeLife::new(NAME.to_owned(), attachment, self.options.mutants);
        // After a hand-over that has failed nothing is proved once more.
        let (proof, trust) = (self.hosts[host].proof.take(), self.hosts[host].trust);
        let machine = self.hosts[host].machine.as_ref().expect("its daemon runs");
        let recorded = machine.recorded(NAME);
        let spec = VolumeSpec {
            generation: self.hosts[host].generation,
            proof,
            exclusive: self.profile.exclusive,
            ..VolumeSpec::new(NAME.to_owned(), self.profile.blocks * BLOCK_BYTES)
        };
        let (image, mutants) = (&self.image, self.options.mutants);
        let weigh = |one: &Recorded| match trust {
            Trust::ProofOnly if mutants.is(Mutant::OtherOwnerInWindow) => one.clone(),
            _ => trust.weigh(one),
        };
        let command = life.attach(spec, &recorded, |one, now| image.judge(&weigh(one), now));
        self.note(|| format!("host {host} attaches: {command:?}"));
        self.hosts[host].life = Some(life);
        self.command(host, Control::Attach, command)
    }

    fn attached(
        &mut self,
        host: usize,
        result: &Result<Answer<Stamped>, Failure>,
    ) -> Result<(), Violation> {
        let life = self.hosts[host].life.as_mut().expect("it is being attached");
        let Ok((id, warmth)) = life.attached(result) else {
            self.hosts[host].life = None;
            return self.rule(host, Owning::Attached(false));
        };
        self.note(|| format!("host {host} has the volume: {warmth:?}"));
        match warmth {
            Warmth::Warm { .. } | Warmth::Loading | Warmth::Partly { .. } => {
                self.happened(HostFault::BelievedAgain);
            }
            Warmth::Dropped { .. } => self.happened(HostFault::Dropped),
            Warmth::New => {}
        }
        self.hosts[host].media.attach(id, 0);
        self.rule(host, Owning::Attached(true))
    }

    /// What is under way ends and is flushed, and the engine lets go of the volume.
    pub(super) fn drain(&mut self, host: usize) -> Result<(), Violation> {
        self.count.read_hits += self.hosts[host].read_hits();
        let life = self.hosts[host].life.as_mut().expect("an owner has the volume");
        if self.options.mutants.is(Mutant::StandbyServesCache) {
            let volume = life.serving().expect("it serves");
            let id = RequestId(self.number());
            self.controls.insert(id, (host, Control::FlushOnly));
            return self.tell(host, Event::Submit(Request { id, volume, op: Op::Flush }));
        }
        let first = life.leave().expect("it serves");
        self.command(host, Control::End, first)
    }

    fn end_answered(&mut self, host: usize, result: Result<(), Failure>) -> Result<(), Violation> {
        let life = self.hosts[host].life.as_mut().expect("it is about to end");
        let id = life.id().expect("a volume that ends has a name");
        match life.answered(result) {
            EndStep::Ask(command) => self.command(host, Control::End, command),
            EndStep::TakeProof => {
                self.soon_at(host, 1_000_000, Work::Step(Step::Proof));
                Ok(())
            }
            EndStep::Gone(result) => {
                if !life.is_over() {
                    let what = format!("host {host} lets go of the volume beside I/O of it");
                    return Err(Violation::new(Kind::BadIo, what));
                }
                self.hosts[host].life = None;
                self.hosts[host].media.detach(id);
                self.note(|| format!("host {host} has drained the volume: {result:?}"));
                if result.is_err() {
                    self.happened(HostFault::DrainFailed);
                }
                self.rule(host, Owning::Drained(result.is_ok()))
            }
        }
    }

    /// The proof of the volume's end is taken.
    pub(super) fn seal(&mut self, host: usize) -> Result<(), Violation> {
        let session = self.hosts[host].session.expect("it is open still");
        let proof = self.image.take_proof(session);
        let life = self.hosts[host].life.as_mut().expect("it is about to end");
        let seal = life.proved(proof);
        self.command(host, Control::End, seal)
    }

    /// What only the operator's word would make believed is dropped, durably, if that word does not hold; so
    /// is what a crash has left, whose last changes would be taken for this host's.
    pub(super) fn disown(&mut self, host: usize, trust: Trust) {
        let trusted = self.options.mutants.is(Mutant::OtherOwnerTrusted);
        let machine = self.hosts[host].machine.as_ref().expect("its daemon runs");
        let crashed = machine.recorded(NAME).iter().any(|shard| shard.written);
        let windowed = self.options.mutants.is(Mutant::OtherOwnerInWindow);
        let disowns = self.profile.exclusive && !trusted || crashed && !windowed;
        if trust == Trust::ProofOnly && disowns {
            self.hosts[host].generation += 1;
        }
    }

    /// Blocks of the image that these sectors are in.
    pub(super) fn blocks_of(sectors: &std::ops::Range<u64>) -> std::ops::Range<u64> {
        let block = BLOCK_SECTORS as u64;
        sectors.start / block..sectors.end.div_ceil(block)
    }
}
