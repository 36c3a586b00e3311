//! What a double keeps on its imaginary cache device, which loses nothing and costs nothing; who may
//! believe it later; and the broken variants of that.

use super::{Bug, Double};
use cinnabar_engine::health::{LoadReport, Start};
use cinnabar_engine::units::VolumeId;
use cinnabar_engine::volume::{Belief, DropReason, ProofToken, Recorded, VolumeSpec, Warmth};
use cinnabar_engine::{Action, IoId, IoOp, IoRequest, Target};
use cinnabar_sim::Stamped;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A cached block.
#[derive(Clone)]
pub(super) struct Block {
    pub(super) data: Stamped,
    /// The backend can't lose what it is a copy of.
    pub(super) flushed: bool,
}

/// What is kept of a volume.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) cached: BTreeMap<u64, Block>,
    /// Blocks that writes took out: a broken double finds them again after a crash.
    pub(super) removed: BTreeMap<u64, Block>,
    pub(super) proof: Option<ProofToken>,
    pub(super) written: bool,
    pub(super) generation: u64,
}

pub(super) type SharedKept = Rc<RefCell<Kept>>;

/// An imaginary cache device.
#[derive(Default)]
pub(super) struct Device {
    pub(super) volumes: BTreeMap<String, SharedKept>,
    pub(super) in_use: bool,
    pub(super) report: LoadReport,
}

pub(super) type SharedDevice = Rc<RefCell<Device>>;

impl Device {
    /// What a start finds.
    pub(super) fn load(&mut self, bug: Bug) {
        let mut report = LoadReport { start: Start::Clean, ..LoadReport::default() };
        if self.volumes.is_empty() && !self.in_use {
            report.start = Start::New;
        }
        if self.in_use {
            report.start = Start::Crashed;
            for kept in self.volumes.values() {
                let kept = &mut *kept.borrow_mut();
                let before = kept.cached.len();
                if bug != Bug::BelievesUnflushed {
                    kept.cached.retain(|_, block| block.flushed);
                }
                report.unflushed_blocks += (before - kept.cached.len()) as u64;
                if bug == Bug::LosesRecords {
                    for (block, copy) in std::mem::take(&mut kept.removed) {
                        kept.cached.entry(block).or_insert(copy);
                    }
                }
                if bug == Bug::ColdAfterCrash {
                    kept.cached.clear();
                }
            }
        }
        report.blocks = self.blocks();
        self.report = report;
        self.in_use = true;
    }

    pub(super) fn blocks(&self) -> u64 {
        self.volumes.values().map(|kept| kept.borrow().cached.len() as u64).sum()
    }
}

impl Kept {
    /// Whether its blocks may be served, and if not, why.
    fn believe(&self, spec: &VolumeSpec, bug: Bug) -> Result<(), DropReason> {
        if self.generation != spec.generation && bug != Bug::IgnoresGeneration {
            return Err(DropReason::WrittenWithoutCache);
        }
        match spec.belief {
            Belief::Unchanged => Ok(()),
            Belief::Changed => Err(DropReason::BackendChanged),
            Belief::Unknown if spec.exclusive => Ok(()),
            Belief::Unknown => Err(DropReason::NoProof),
        }
    }

    /// A flush succeeded that covers everything cached.
    pub(super) fn flushed(&mut self) {
        self.cached.values_mut().for_each(|block| block.flushed = true);
    }
}

impl Double {
    pub(super) fn recorded_of(&self, name: &str) -> Option<Recorded> {
        let device = self.device.as_ref()?.borrow();
        let kept = device.volumes.get(name)?.borrow();
        Some(Recorded { proof: kept.proof.clone(), written: kept.written })
    }

    /// What is kept of a volume that is attached, and how it may be believed. A volume that the
    /// device does not know must get a new generation first: another device may know it.
    pub(super) fn find_kept(&self, spec: &VolumeSpec) -> (SharedKept, Warmth, bool) {
        let known = self.device.as_ref().and_then(|device| {
            let device = device.borrow();
            device.volumes.get(&spec.name).cloned()
        });
        let Some(shared) = known else { return (SharedKept::default(), Warmth::New, true) };
        let mut kept = shared.borrow_mut();
        let blocks = kept.cached.len() as u64;
        let warmth = match kept.believe(spec, self.bug) {
            Ok(()) => Warmth::Warm { blocks },
            Err(_) if self.bug == Bug::BelievesAnything => Warmth::Warm { blocks },
            Err(reason) => {
                kept.cached.clear();
                kept.removed.clear();
                Warmth::Dropped { blocks, reason }
            }
        };
        kept.generation = spec.generation;
        kept.proof.clone_from(&spec.proof);
        kept.written = false;
        drop(kept);
        (shared, warmth, false)
    }

    /// Nothing that any device holds of the volume may be believed any more.
    pub(super) fn bump_generation(&mut self, index: usize, actions: &mut Vec<Action<Stamped>>) {
        self.volumes[index].bumping_generation = true;
        self.volumes[index].caching = false;
        self.next_io += 1;
        let id = IoId(self.next_io);
        self.generation_bumps.insert(id, index);
        let target = Target::Backend(VolumeId(index as u16));
        let held = self.volumes[index].spec.generation;
        actions.push(Action::Io(IoRequest { id, target, op: IoOp::BumpGeneration { held } }));
    }

    /// It is a volume of this device now.
    pub(super) fn generation_bumped(&mut self, index: usize) {
        let volume = &mut self.volumes[index];
        volume.bumping_generation = false;
        volume.spec.generation += 1;
        self.adopt(index);
    }

    /// Begins to cache a volume on the device there is, if there is one.
    pub(super) fn adopt(&mut self, index: usize) {
        let volume = &mut self.volumes[index];
        let Some(device) = &self.device else { return };
        let kept = Kept {
            proof: volume.spec.proof.clone(),
            written: volume.written,
            generation: volume.spec.generation,
            ..Kept::default()
        };
        volume.kept = Rc::new(RefCell::new(kept));
        volume.caching = true;
        device.borrow_mut().volumes.insert(volume.spec.name.clone(), volume.kept.clone());
    }
}
