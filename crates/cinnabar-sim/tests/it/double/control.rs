//! The operator's commands: starting and stopping, volumes that come and go, other devices.

use super::{Bug, Double, Volume, Work, reply};
use cinnabar_engine::units::VolumeId;
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Action, Answer, Command, Failure, IoOp, Op, Request, RequestId};
use cinnabar_sim::Stamped;

impl Double {
    pub(super) fn control(
        &mut self,
        id: RequestId,
        command: Command,
        actions: &mut Vec<Action<Stamped>>,
    ) {
        match command {
            Command::Open => reply(actions, id, Ok(Answer::Done)),
            Command::Close => {
                if let Some(device) = &self.device {
                    device.borrow_mut().in_use = false;
                }
                reply(actions, id, Ok(Answer::Done));
            }
            Command::AwaitLoad => {
                let report = self.device.as_ref().map(|device| device.borrow().report);
                reply(actions, id, Ok(Answer::Loaded(report.unwrap_or_default())));
            }
            Command::Forget(name) => {
                if let Some(device) =
                    self.device.as_ref().filter(|_| self.bug != Bug::ForgetsNothing)
                {
                    device.borrow_mut().volumes.remove(&name);
                }
                reply(actions, id, Ok(Answer::Done));
            }
            Command::Abandon => {
                self.device = None;
                for index in 0..self.volumes.len() {
                    self.volumes[index].caching = false;
                    if self.volumes[index].attached && self.bug != Bug::NeverBumpsGeneration {
                        self.bump_generation(index, actions);
                    }
                }
                reply(actions, id, Ok(Answer::Done));
            }
            Command::Replace(superblock) => {
                let device = self.devices.borrow()[&superblock.uuid].clone();
                device.borrow_mut().load(self.bug);
                self.device = Some(device);
                for index in 0..self.volumes.len() {
                    if self.volumes[index].attached && !self.volumes[index].bumping_generation {
                        self.adopt(index);
                    }
                }
                reply(actions, id, Ok(Answer::Done));
            }
            // Its imaginary device has no segments.
            Command::Resize { .. } => reply(actions, id, Err(Failure::Limit)),
            Command::Grow(..) => unreachable!("no simulated back end grows"),
            Command::Discard(_) => unreachable!("the simulated driver drops doubtful ranges"),
            Command::Attach(spec) => self.attach(id, spec, actions),
            Command::Detach(volume) => {
                self.volumes[usize::from(volume.0)].detaching = Some(id);
                self.volumes[usize::from(volume.0)].attached = false;
                self.let_go(usize::from(volume.0), actions);
            }
            Command::Seal(volume, proof) => {
                let volume = &self.volumes[usize::from(volume.0)];
                let mut kept = volume.kept.borrow_mut();
                kept.proof = proof;
                kept.written = false;
                reply(actions, id, Ok(Answer::Done));
            }
        }
    }

    pub(super) fn attach(
        &mut self,
        id: RequestId,
        spec: VolumeSpec,
        actions: &mut Vec<Action<Stamped>>,
    ) {
        let (kept, warmth, unknown) = self.find_kept(&spec);
        let known = self.volumes.iter().position(|volume| volume.spec.name == spec.name);
        let index = known.unwrap_or(self.volumes.len());
        let counters = known.map(|index| self.volumes[index].counters).unwrap_or_default();
        let volume = Volume {
            spec,
            attached: true,
            kept,
            caching: !unknown,
            bumping_generation: false,
            waiting: Vec::new(),
            written: false,
            writes: 0,
            writing: 0,
            // An earlier session may have left writes that are not flushed.
            clean: false,
            sync_failed: None,
            detaching: None,
            in_flight: 0,
            counters,
        };
        if index == self.volumes.len() {
            self.volumes.push(volume);
        } else {
            self.volumes[index] = volume;
        }
        let volume = VolumeId(index as u16);
        reply(actions, id, Ok(Answer::Attached { volume, warmth }));
        if unknown && self.bug == Bug::NeverBumpsGeneration {
            self.adopt(index);
        } else if unknown {
            self.bump_generation(index, actions);
        }
    }

    /// Once the last request is done, a volume being detached is flushed.
    pub(super) fn let_go(&mut self, index: usize, actions: &mut Vec<Action<Stamped>>) {
        let volume = &mut self.volumes[index];
        let idle = volume.in_flight == 0 || self.bug == Bug::ForgetsRequests;
        let idle = idle && !volume.bumping_generation;
        let Some(id) = volume.detaching.take_if(|_| idle) else { return };
        if matches!(self.bug, Bug::ForgetsRequests | Bug::DetachesUnflushed) {
            return reply(actions, id, Ok(Answer::Done));
        }
        let request = Request { id, volume: VolumeId(index as u16), op: Op::Flush };
        let covers = Some(self.volumes[index].writes);
        self.work.insert(id, Work { left: 1, detach: true, covers, ..Work::of(request) });
        self.io(id, IoOp::Flush, actions);
    }
}
