//! Claims: who may hold writes that a back end lacks, told beside the back end.
//!
//! They may lie on storage that hangs, so background threads read and write them.

use super::{PendingCommand, Running, Writes};
use crate::dataplane::background::Task;
use crate::dataplane::disks;
use crate::dataplane::plane::DataPlane;
use cinnabar_backend::Memory;
use cinnabar_backend::claim::{Claim, Location, path_beside};
use cinnabar_backend::generations::Ledger;
use cinnabar_backend::spec::Place;
use cinnabar_config::messages::{StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_config::volume::backend_place;
use cinnabar_writeback::{Command, Refusal, WriteLog};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A volume's claim, and where it is kept.
#[derive(Clone, Debug)]
pub(in super::super) struct Claims {
    pub(in super::super) place: ClaimPlace,
    pub(in super::super) claim: Claim,
    /// The log holds writes of the volume already: the claim must be there, too.
    pub(in super::super) held: bool,
    in_use: InUse,
}

/// Claims of this log as the threads that read and write them know them. A back end is looked at under its lock,
/// which may be long after that was asked for: what was known then is not enough.
#[derive(Clone, Debug, Default)]
struct InUse(Arc<Mutex<OwnClaims>>);

#[derive(Debug, Default)]
struct OwnClaims {
    /// Volumes that have a place in the log, or are about to have one, by their incarnations; and the numbers that
    /// the log has of their claims.
    places: BTreeMap<u64, (String, u64)>,
    /// Incarnations that are known to have left.
    left: BTreeSet<u64>,
}

/// Where a claim is. To find that out may take as long as the back end does.
#[derive(Clone, Debug)]
pub(in super::super) enum ClaimPlace {
    At(Location),
    /// Of this volume, if claims of back ends that are no files are in this folder.
    Of(Box<VolumeConfig>, PathBuf),
}

/// What a look for a claim has found.
#[derive(Debug)]
pub(in super::super) enum Claimed {
    /// One, or something that can't be read.
    Yes(String),
    /// The storage did not answer in time.
    Silence(String),
}

/// What is known of claims when a back end is opened.
#[derive(Clone, Default)]
pub(in super::super) struct Known {
    /// Folder of the claims of back ends that are no files.
    dir: PathBuf,
    /// The write log in use.
    log: Option<KnownLog>,
    /// Where it is kept that no cache is believed.
    ledger: Option<Ledger>,
}

/// A write log, as claims name it.
#[derive(Clone, Debug)]
pub(super) struct KnownLog {
    uuid: [u8; 16],
    in_use: InUse,
}

/// Where the claim to a volume's back end is.
fn location_of(config: &VolumeConfig, dir: &Path) -> Location {
    // A block device lies in a folder of this host's, which is empty when the host starts.
    let is_device = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    };
    if let Some(path) = &config.claim {
        return Location::File(path.clone());
    }
    match backend_place(&config.backend) {
        Some(Place::File(path)) if !is_device(&path) => Location::File(path_beside(&path)),
        // Nothing is written to a snapshot.
        Some(Place::Rbd(image)) if image.snap.is_none() => Location::Rbd(Box::new(image)),
        _ => Location::File(dir.join(format!("{}.cinnabar-claim", config.name))),
    }
}

/// What an operator deletes, if the log is lost for good.
fn erased(location: &Location) -> String {
    match location {
        Location::File(path) => path.display().to_string(),
        Location::Rbd(image) => format!(
            "the object that `rados -p {} ls | grep cinnabar_claim` shows for the id of image {} (rbd info)",
            image.pool, image.image
        ),
    }
}

/// What helps where the log is older than a claim.
fn older_hint(location: &Location) -> String {
    format!(
        "put the newest state of the write log's device back and restart the daemon; if that is lost for good, \
         `volume remove --discard-dirty` gives up what the older one has, or delete {}: what was only in the \
         newer one is lost",
        erased(location)
    )
}

impl ClaimPlace {
    fn location(&self) -> Location {
        match self {
            Self::At(location) => location.clone(),
            Self::Of(config, dir) => location_of(config, dir),
        }
    }
}

impl InUse {
    fn with<T>(&self, act: impl FnOnce(&mut OwnClaims) -> T) -> T {
        // Each change is made as a whole or not at all.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has(&self, claim: &Claim) -> bool {
        self.with(|own| {
            own.places.get(&claim.incarnation).is_some_and(|(name, _)| *name == claim.volume)
        })
    }
}

impl KnownLog {
    pub(super) fn of(log: &WriteLog<Memory>) -> Self {
        let all = log.places().filter_map(|place| log.status(place));
        let places = all.map(|of| (of.incarnation, (of.name, of.claim))).collect();
        let left = log.left().iter().copied().collect();
        let in_use = InUse(Arc::new(Mutex::new(OwnClaims { places, left })));
        Self { uuid: log.uuid(), in_use }
    }

    /// Whether the log at hand is an older copy of the one that has made a claim. One without a number stands for
    /// nothing that was acknowledged, or is of a release that did not count.
    fn is_older(&self, claim: &Claim) -> bool {
        let known = self.in_use.with(|own| {
            let number = own.places.get(&claim.incarnation).map_or(0, |(_, number)| *number);
            claim.number <= number || own.left.contains(&claim.incarnation)
        });
        claim.write_log == self.uuid && !known
    }
}

impl Claims {
    /// Makes it durable, or finds it as it must be.
    pub(in super::super) fn make(&self) -> Result<(), String> {
        let Claim { incarnation, volume, .. } = &self.claim;
        let location = self.place.location();
        if self.held {
            return self.find(&location);
        }
        self.in_use.with(|own| own.places.insert(*incarnation, (volume.clone(), 0)));
        location.write(&self.claim).map_err(|error| {
            // There may be one all the same: it is found to be old the next time.
            self.in_use.with(|own| own.places.remove(incarnation));
            format!("{error} (hint: {})", error.hint())
        })
    }

    /// Has the claim say the number that the log has of it.
    pub(in super::super) fn renew(&self) {
        let location = self.place.location();
        let renewed = location.read().and_then(|found| match found {
            Some(found) if found.is_of(self.claim.write_log, self.claim.incarnation) => {
                location.write(&Claim { since: found.since, ..self.claim.clone() })
            }
            // The volume has left, or will find out.
            _ => Ok(()),
        });
        // A back end may be full. It has a lower number then.
        if let Err(error) = renewed {
            tracing::warn!(
                reason = %error,
                "a claim can't be renewed: an older copy of the write log may not be noticed"
            );
        }
    }

    /// Finds the claim of writes that the log holds already.
    fn find(&self, location: &Location) -> Result<(), String> {
        match location.read() {
            Ok(Some(found)) if found.is_of(self.claim.write_log, self.claim.incarnation) => Ok(()),
            Ok(found) => {
                let found = found.map_or("is gone".to_owned(), |other| {
                    format!("is that of {} on host {}", other.device.display(), other.host)
                });
                Err(format!(
                    "the write log holds writes of it, but its claim {location} {found}: others may \
                     have written the back end since (hint: a backend or claim that was changed in \
                     the configuration must be as it was until the writes are there; `volume remove \
                     --discard-dirty` gives the writes in the log up)"
                ))
            }
            Err(error) => Err(format!("{error} (hint: {})", error.hint())),
        }
    }

    /// Takes it away. One that can't be is found to be old the next time.
    pub(in super::super) fn unmake(&self) {
        let incarnation = self.claim.incarnation;
        self.in_use.with(|own| {
            own.places.remove(&incarnation);
            own.left.insert(incarnation);
        });
        match self.place.location().remove(&self.claim) {
            Ok(()) => {
                self.in_use.with(|own| own.left.remove(&incarnation));
            }
            Err(error) => {
                tracing::warn!(reason = %error, "a claim that is not needed any more stays");
            }
        }
    }
}

impl Known {
    /// Where is kept which volumes may move.
    pub(in super::super) fn moves_folder(&self) -> PathBuf {
        self.dir.with_file_name("moves")
    }

    /// Where a claim to the back end of a volume is.
    pub(in super::super) fn location(&self, config: &VolumeConfig) -> Location {
        location_of(config, &self.dir)
    }

    /// Whether a host may have writes that the back end of a volume lacks, and which one. Changes nothing.
    pub(in super::super) fn look(&self, config: &VolumeConfig) -> Result<(), Claimed> {
        let location = self.location(config);
        match location.read() {
            Ok(None) => Ok(()),
            Ok(Some(found)) => Err(Claimed::Yes(format!(
                "it is claimed by the write log {} of host {:?}",
                found.device.display(),
                found.host
            ))),
            Err(error) if error.is_silence() => Err(Claimed::Silence(error.to_string())),
            Err(error) => Err(Claimed::Yes(error.to_string())),
        }
    }

    /// Refuses a back end that may lack writes which are elsewhere. Gives where its claim is.
    pub(in super::super) fn check(&self, config: &VolumeConfig) -> Result<Location, StartError> {
        let location = location_of(config, &self.dir);
        let refuse = |message: String, hint: String| {
            let subject = Subject::Volume(config.name.clone());
            Err(StartError::new(StartErrorKind::BackendClaimed, subject, message, hint))
        };
        let found = match location.read() {
            Ok(None) => return Ok(location),
            Ok(Some(found)) => found,
            Err(error) => {
                return refuse(
                    format!("backend {}: {error}", config.backend),
                    error.hint().to_owned(),
                );
            }
        };
        if found.rescued {
            return self.take_over(config, location, &found);
        }
        if self.log.as_ref().is_some_and(|log| log.is_older(&found)) {
            let message = format!(
                "backend {}: it is claimed by a newer state of the write log {}: what is there now is an older copy, \
                 and lacks writes that came later",
                config.backend,
                found.device.display()
            );
            return refuse(message, older_hint(&location));
        }
        let (by, way) = match &self.log {
            Some(log) if log.uuid == found.write_log => {
                if !log.in_use.has(&found) {
                    // Of a volume that has left the log since.
                    return self.take_over(config, location, &found);
                }
                if found.volume == config.name {
                    return Ok(location);
                }
                (format!("volume {:?} of this daemon's write log", found.volume), "under that name")
            }
            _ => (
                format!(
                    "the write log {} of host {:?} (volume {:?}, since {})",
                    found.device.display(),
                    found.host,
                    found.volume,
                    found.since
                ),
                "there",
            ),
        };
        let message = format!(
            "backend {}: it is claimed by {by}, which may hold writes that the back end lacks",
            config.backend
        );
        let hint = format!(
            "serve it {way}, or stop the daemon that has that log and use `cinnabar cache writeback`; if \
             the log is lost for good, delete {}: what was only there is lost",
            erased(&location)
        );
        refuse(message, hint)
    }
}

impl Known {
    /// The back end has all the writes of a claim: what came past the daemon is in no cache, so none is
    /// believed any more, durably, before the claim goes.
    fn take_over(
        &self,
        config: &VolumeConfig,
        location: Location,
        claim: &Claim,
    ) -> Result<Location, StartError> {
        if let Some(ledger) = &self.ledger {
            let name = &config.name;
            ledger.with(|state| state.disown(name)).map_err(|error| disks::state_error(&error))?;
        }
        tracing::warn!(
            volume = config.name,
            claim = %location,
            "its writes were brought to the back end without the daemon: what was cached is dropped"
        );
        if let Err(error) = location.remove(claim) {
            tracing::warn!(reason = %error, "a claim that is not needed any more stays");
        }
        Ok(location)
    }
}

impl DataPlane {
    /// What is to be known of claims when a back end is opened now.
    pub(in super::super) fn known_claims(&self) -> Known {
        let (dir, ledger) = (self.claims_dir.clone(), Some(self.ledger.clone()));
        let log = match &self.writes {
            Writes::On(running) => Some(running.known.clone()),
            Writes::Off | Writes::Missing { .. } => None,
        };
        Known { dir, log, ledger }
    }

    /// A volume has joined: its claim gets a higher number, which the log has first.
    pub(super) fn number_claim(&mut self, key: usize) {
        let (subject, place) = (self.subject(key), self.volumes[key].writes.place());
        if let (Some(place), Some(running)) = (place, self.writes.running()) {
            running.ask(PendingCommand::Number(subject), Command::Claim(place));
        }
    }

    /// The log has the number, durably, or is busy with the volume: then the claim keeps its own.
    pub(super) fn claim_numbered(&mut self, subject: super::Subject, result: Result<(), Refusal>) {
        let Some(key) = self.key_of(subject).filter(|_| result.is_ok()) else { return };
        let volume = &mut self.volumes[key];
        let status = volume.writes.place().and_then(|place| self.writes.log()?.status(place));
        let (Some(status), Some(claims)) = (status, &mut volume.claims) else { return };
        let Claim { incarnation, volume, number, .. } = &mut claims.claim;
        *number = status.claim;
        claims.in_use.with(|own| own.places.insert(*incarnation, (volume.clone(), *number)));
        self.background.start(Task::Renew { subject, claims: claims.clone() });
    }

    /// The claim to a volume's back end: that of its place in the log, or a new one.
    pub(super) fn claims_of(running: &Running, name: &str, place: ClaimPlace, new: u64) -> Claims {
        let log = &running.log;
        let known = running.place_of(name).and_then(|place| log.status(place));
        let (held, incarnation) = known.map_or((false, new), |status| (true, status.incarnation));
        let claim = Claim::new(log.uuid(), running.halves.path(), name, incarnation);
        Claims { place, claim, held, in_use: running.known.in_use.clone() }
    }
}

#[cfg(test)]
mod tests;
