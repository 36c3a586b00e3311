//! Claims: who may hold writes that a back end lacks, told beside the back end.
//!
//! They may lie on storage that hangs, so background threads read and write them.

use super::{Running, Writes};
use crate::dataplane::disks;
use crate::dataplane::plane::DataPlane;
use cinnabar_backend::claim::{Claim, Location, path_beside};
use cinnabar_backend::generations::Ledger;
use cinnabar_backend::spec::Place;
use cinnabar_config::messages::{StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_config::volume::backend_place;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A volume's claim, and where it is kept.
#[derive(Clone, Debug)]
pub(in super::super) struct Claims {
    pub(in super::super) place: ClaimPlace,
    pub(in super::super) claim: Claim,
    /// The log holds writes of the volume already: the claim must be there, too.
    pub(in super::super) held: bool,
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

/// What a write log has.
#[derive(Clone, Debug)]
struct KnownLog {
    uuid: [u8; 16],
    /// Volumes, and their incarnations.
    places: Vec<(String, u64)>,
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

impl ClaimPlace {
    fn location(&self) -> Location {
        match self {
            Self::At(location) => location.clone(),
            Self::Of(config, dir) => location_of(config, dir),
        }
    }
}

impl Claims {
    /// Makes it durable, or finds it as it must be.
    pub(in super::super) fn make(&self) -> Result<(), String> {
        let location = self.place.location();
        if !self.held {
            return location
                .write(&self.claim)
                .map_err(|error| format!("{error} (hint: {})", error.hint()));
        }
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
        if let Err(error) = self.place.location().remove(&self.claim) {
            tracing::warn!(reason = %error, "a claim that is not needed any more stays");
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
            return self.take_over(config, location, found);
        }
        let has =
            |places: &[(String, u64)]| places.contains(&(found.volume.clone(), found.incarnation));
        let (by, way) = match &self.log {
            Some(KnownLog { uuid, places }) if *uuid == found.write_log => {
                if !has(places) {
                    // Of a volume that has left the log since.
                    return self.take_over(config, location, found);
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
        claim: Claim,
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
        Claims { place: ClaimPlace::At(location.clone()), claim, held: true }.unmake();
        Ok(location)
    }
}

impl DataPlane {
    /// What is to be known of claims when a back end is opened now.
    pub(in super::super) fn known_claims(&self) -> Known {
        let (dir, ledger) = (self.claims_dir.clone(), Some(self.ledger.clone()));
        let Writes::On(running) = &self.writes else { return Known { dir, log: None, ledger } };
        let log = &running.log;
        let places = log.places().filter_map(|place| log.status(place));
        let places = places.map(|status| (status.name, status.incarnation)).collect();
        Known { dir, log: Some(KnownLog { uuid: log.uuid(), places }), ledger }
    }

    /// The claim to a volume's back end: that of its place in the log, or a new one.
    pub(super) fn claims_of(running: &Running, name: &str, place: ClaimPlace, new: u64) -> Claims {
        let log = &running.log;
        let known = running.place_of(name).and_then(|place| log.status(place));
        let (held, incarnation) = known.map_or((false, new), |status| (true, status.incarnation));
        let claim = Claim::new(log.uuid(), running.halves.path(), name, incarnation);
        Claims { place, claim, held }
    }
}
