//! A guest with its volume: in the log, in the engines, at its back end.

use super::backend::Backend;
use crate::guest::Asked;
use crate::memory::Mem;
use crate::oracle::Oracle;
use cinnabar_driver::write_mode::WriteMode;
use cinnabar_driver::{Phase, VolumeLife};
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::{Op, RequestId};
use cinnabar_writeback::EngineId;
use std::collections::{BTreeMap, VecDeque};

/// A restart of a server of which some ports have not told yet.
pub(super) struct Restart {
    pub(super) ranges: Vec<ByteSpan>,
    /// By thread.
    pub(super) waits: Vec<bool>,
    /// Some port has told.
    pub(super) told: bool,
    /// Which of the volume's it is.
    pub(super) number: u64,
}

/// A sector that a server has lost while no log had it.
pub(super) struct Lost {
    pub(super) restart: u64,
    pub(super) sector: usize,
    /// The request that drops copies of it has this number, or a higher one.
    pub(super) dropped_by: Option<RequestId>,
}

/// See the module.
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) sectors: u64,
    pub(super) backend: Backend,
    pub(super) restarts: Vec<Restart>,
    /// Restarts so far.
    pub(super) restarted: u64,
    pub(super) lost: Vec<Lost>,
    pub(super) oracle: Oracle,
    pub(super) asked: BTreeMap<u64, Asked>,
    /// Requests that wait for the volume, of those.
    pub(super) held: VecDeque<(RequestId, Op<Mem>)>,
    /// The mode that the operator wants is write-back.
    pub(super) wanted: bool,
    pub(super) mode: WriteMode,
    /// Drains so far of one that leaves.
    pub(super) drains: u32,
    /// It has joined the log, and not left it: the newest that was acknowledged may be there and nowhere
    /// else.
    pub(super) joined: bool,
    /// It has served: it joins beside its guests' requests.
    pub(super) serves: bool,
    /// After a crash: what is there has not been looked at yet.
    pub(super) undecided: bool,
    /// There is a claim beside the back end.
    pub(super) claim: bool,
    pub(super) life: Option<VolumeLife>,
    /// Attachments so far.
    pub(super) attachments: u64,
    /// The engines are to attach it again: a flush has failed.
    pub(super) again: bool,
    /// They let go of it then.
    pub(super) again_at: Instant,
    /// Requests of the log that wait for that, or for the first attach.
    pub(super) early: VecDeque<(EngineId, Op<Mem>)>,
    /// Steps for which the back end does nothing.
    pub(super) away: u32,
}

impl Volume {
    pub(super) fn new(index: usize, sectors: u64, wanted: bool) -> Self {
        Self {
            name: format!("volume{index}"),
            sectors,
            backend: Backend::new(sectors as usize),
            restarts: Vec::new(),
            restarted: 0,
            lost: Vec::new(),
            oracle: Oracle::new(sectors as usize),
            asked: BTreeMap::new(),
            held: VecDeque::new(),
            wanted,
            mode: WriteMode::default(),
            drains: 0,
            joined: false,
            serves: false,
            undecided: false,
            claim: false,
            life: None,
            attachments: 0,
            again: false,
            again_at: Instant(0),
            early: VecDeque::new(),
            away: 0,
        }
    }

    pub(super) fn whole(&self) -> ByteSpan {
        ByteSpan::new(0, self.sectors * 512)
    }

    /// The engines' name for it, while they serve it.
    pub(super) fn id(&self) -> Option<VolumeId> {
        self.life.as_ref().and_then(VolumeLife::serving)
    }

    pub(super) fn phase(&self) -> Phase {
        self.life.as_ref().map_or(Phase::Gone, VolumeLife::phase)
    }

    pub(super) fn check_backend(&self) -> Result<(), String> {
        self.oracle
            .check_image(|sector| self.backend.candidates(sector).collect())
            .map_err(|wrong| format!("{}: the back end's image is illegal: {wrong}", self.name))
    }

    /// What was acknowledged, and not written since, is at the back end, durably.
    pub(super) fn check_drained(&self) -> Result<(), String> {
        for sector in 0..self.sectors as usize {
            let Some(newest) = self.oracle.newest_before(sector, u64::MAX) else { continue };
            if let Some(is) = self.backend.candidates(sector).find(|value| *value != newest) {
                let name = &self.name;
                return Err(format!(
                    "{name}: has left, but sector {sector} holds {is} for {newest}"
                ));
            }
        }
        Ok(())
    }
}
