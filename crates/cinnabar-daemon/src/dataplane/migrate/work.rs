//! What background threads do for volumes that move: all that may take long.

use super::peer;
use super::record::{self, Kept};
use crate::dataplane::disks::{self, OpenedVolume, Taken};
use crate::dataplane::writes::{Claimed, Known};
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::generations::{DeviceId, Ledger};
use cinnabar_backend::{Disk, Proof};
use cinnabar_config::messages::{Peer, StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_config::peer::{check_movable, is_hybrid};
use cinnabar_driver::ownership::{Attempt, PeerAnswer, Record};
use cinnabar_engine::volume::ProofToken;
use std::path::PathBuf;
use std::sync::Arc;

pub(in super::super) enum MoveStep {
    /// Ask the other host for it.
    Ask { peer: Peer, name: String, attempt: Attempt, epoch: u64, from: String },
    /// Ask the other host which daemon it has.
    Identify(Peer),
    /// Open its back end for writing. A server is left by the standby before that: it may take few clients.
    Lock(Where, Arc<Disk>),
    /// Open it for reading, without the lock, in place of this one, which leaves its server before that.
    StandBy(Where, Record, Arc<Disk>),
    /// Make this durable; for an operator's command, or for the step of taking. Before that, disown what
    /// only the operator's word would make believed, if there is a ledger to do that.
    Record { folder: PathBuf, name: String, kept: Kept, disown: Option<Ledger>, by_command: bool },
    /// Look up its generation.
    Prepare { ledger: Ledger, name: String, device: Option<(DeviceId, PathBuf)> },
    /// Whether a write log somewhere claims it.
    Look { claims: Known, config: Box<VolumeConfig> },
}

/// What is to be opened.
pub(in super::super) struct Where {
    pub(super) config: Box<VolumeConfig>,
    pub(super) options: OpenOptions,
    pub(super) taken: Vec<Taken>,
    pub(super) claims: Known,
}

/// What came of it.
pub(in super::super) enum MoveDone {
    Asked(Attempt, PeerAnswer, String),
    Identified(Result<String, String>),
    Locked(Result<Box<OpenedVolume>, String>),
    /// If it can't be: why, and the proof of the one that is to be replaced.
    StandsBy(Result<Box<OpenedVolume>, (String, Option<ProofToken>)>),
    Recorded(Result<(), String>, Kept, bool),
    Prepared(Result<(u64, Option<DeviceId>), String>),
    Looked(Result<(), Claimed>),
}

impl MoveStep {
    /// Nothing has to be brought to an end if the daemon stops.
    pub(in super::super) const fn only_asks(&self) -> bool {
        matches!(self, Self::Ask { .. } | Self::Identify(_) | Self::Look { .. })
    }

    /// It makes something durable, in the order in which that was asked for.
    pub(in super::super) const fn is_kept(&self) -> bool {
        matches!(self, Self::Record { .. })
    }

    /// Does it; blocks.
    pub(in super::super) fn run(self) -> MoveDone {
        match self {
            Self::Ask { peer, name, attempt, epoch, from } => {
                let (answer, reason) = peer::ask(&peer, &name, epoch, &from);
                MoveDone::Asked(attempt, answer, reason)
            }
            Self::Identify(peer) => MoveDone::Identified(peer::identity(&peer)),
            Self::Lock(Where { config, options, taken, claims }, standby) => {
                standby.rest();
                drop(standby);
                let opened = disks::open_volume(&config, &options, &taken, &claims);
                MoveDone::Locked(opened.map(Box::new).map_err(|error| error.message))
            }
            Self::StandBy(Where { config, options, taken, claims }, record, before) => {
                before.rest();
                let opened = disks::open_standby(&config, &options, &taken, &claims, record);
                let proof = || before.read_proof().ok().flatten();
                MoveDone::StandsBy(opened.map(Box::new).map_err(|error| (error.message, proof())))
            }
            Self::Record { folder, name, kept, disown, by_command } => {
                let disowned = disown.map_or(Ok(false), |ledger| {
                    ledger.with(|state| state.disown(&name)).map_err(|error| error.to_string())
                });
                let result = disowned.and_then(|_| {
                    let path = record::path_of(&folder, &name);
                    record::write(&folder, &name, &kept)
                        .map_err(|error| format!("{}: {error}", path.display()))
                });
                MoveDone::Recorded(result, kept, by_command)
            }
            Self::Prepare { ledger, name, device } => {
                let prepared = ledger.with(|state| {
                    let device = device.as_ref().map(|(id, path)| (*id, path.as_path()));
                    state.attach(&[name], device)
                });
                let id = device.map(|(id, _)| id);
                let prepared = prepared.map(|generations| (generations[0], id));
                MoveDone::Prepared(prepared.map_err(|error| error.to_string()))
            }
            Self::Look { claims, config } => MoveDone::Looked(claims.look(&config)),
        }
    }
}

/// Opens a volume as what it begins as: one that may move is a standby.
pub(in super::super) fn open(
    config: &VolumeConfig,
    options: &OpenOptions,
    taken: &[Taken],
    claims: &Known,
) -> Result<OpenedVolume, StartError> {
    let folder = claims.moves_folder();
    let refuse = |message: String, hint: &str| {
        let subject = Subject::Volume(config.name.clone());
        Err(StartError::new(StartErrorKind::BackendClaimed, subject, message, hint))
    };
    let Kept { record, peer } = match record::read(&folder, &config.name) {
        Ok(kept) => kept,
        Err(error) => {
            let path = record::path_of(&folder, &config.name);
            let message = format!("{}: {error}", path.display());
            let hint = "it says whether another host may serve the volume: make sure that none does, \
                        then delete it";
            return refuse(message, hint);
        }
    };
    // A hybrid volume has never moved, whatever was recorded of it: its owner's lock keeps others away.
    let peer = config.peer.clone().or_else(|| peer.filter(|_| !is_hybrid(config)));
    let Some(peer) = peer else {
        return disks::open_volume(config, options, taken, claims);
    };
    if let Err(error) = check_movable(config) {
        let hint = "it was to move: change it back, take it, and say here: cinnabar migrate cancel";
        return refuse(error.message, hint);
    }
    let config = VolumeConfig { peer: Some(peer), ..config.clone() };
    disks::open_standby(&config, options, taken, claims, record)
}
