//! Opening the volumes' backends, and saying what is wrong with them.
//!
//! Called at start-up, and by the background threads for volumes that come later.

use super::writes::Known;
use cinnabar_backend::claim::Location;
use cinnabar_backend::disk::{Disk, DiskError, DiskErrorKind, Identity, OpenOptions};
use cinnabar_backend::generations::{DeviceId, StateError};
use cinnabar_backend::model::SimSpec;
use cinnabar_backend::nbd::NbdError;
use cinnabar_backend::rbd::RbdError;
use cinnabar_backend::spec::{Place, SpecError};
use cinnabar_backend::{BackendSpec, Proof};
use cinnabar_config::messages::{StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_driver::ownership::Record;
use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::volume::ProofToken;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A volume whose backend is open and locked.
pub(super) struct OpenedVolume {
    pub(super) config: VolumeConfig,
    pub(super) disk: Disk,
    pub(super) layers: Vec<SimSpec>,
    /// Where its claim is, if it has one.
    pub(super) claim_at: Location,
    /// The proof as it stands now.
    pub(super) proof: Option<ProofToken>,
    /// Under which its blocks are believed; 0 until that is looked up.
    pub(super) generation: u64,
    /// Whether it was looked up, and for which cache device, if there was one.
    pub(super) kept: bool,
    pub(super) kept_on: Option<DeviceId>,
    /// It may move: it is open for reading only and not locked, and this is known of its owners.
    pub(super) standby: Option<Record>,
}

impl OpenedVolume {
    /// What its backend is.
    pub(super) fn identity(&self) -> Identity {
        self.disk.identity()
    }

    /// The same, as others are told of it.
    pub(super) fn taken(&self) -> Taken {
        let what = format!("the backend of volume {:?}", self.config.name);
        Taken { identity: self.identity(), read_only: self.config.read_only, what }
    }
}

/// A file or export that is in use here already.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// Which.
    pub(super) identity: Identity,
    /// By readers only.
    pub(super) read_only: bool,
    /// As what, for the message.
    pub(super) what: String,
}

/// Opens and locks a volume's backend. What is taken here is refused at once: its lock would never
/// come free.
pub(super) fn open_volume(
    config: &VolumeConfig,
    options: &OpenOptions,
    taken: &[Taken],
    claims: &Known,
) -> Result<OpenedVolume, StartError> {
    open_as(config, options, taken, claims, false)
}

/// Opens one that may move as a standby does: for reading only, without the lock.
pub(super) fn open_standby(
    config: &VolumeConfig,
    options: &OpenOptions,
    taken: &[Taken],
    claims: &Known,
    record: Record,
) -> Result<OpenedVolume, StartError> {
    let opened = open_as(config, options, taken, claims, true)?;
    Ok(OpenedVolume { standby: Some(record), ..opened })
}

fn open_as(
    config: &VolumeConfig,
    options: &OpenOptions,
    taken: &[Taken],
    claims: &Known,
    stands_by: bool,
) -> Result<OpenedVolume, StartError> {
    let subject = || Subject::Volume(config.name.clone());
    let spec = BackendSpec::parse(&config.backend, Path::new("/")).map_err(|error| {
        let message = format!("backend {:?}: {}", config.backend, with_source(&error));
        StartError::new(StartErrorKind::Settings, subject(), message, error.hint())
    })?;
    let identity = identity_of(&spec.place);
    if let Some(identity) = &identity {
        check_taken(config, identity, taken)?;
    }
    let read_only = config.read_only || stands_by;
    let is_clone = config.parent.is_some() && !read_only;
    let options = OpenOptions { read_only, unlocked: stands_by, is_clone, ..options.clone() };
    let disk = Disk::open_backend(&spec, &options).map_err(|error| {
        let error = explain(&error, subject(), backend_kind(&error.kind), "backend");
        StartError { backend: identity, ..error }
    })?;
    // A server may be known by several names, which its own address tells.
    check_taken(config, &disk.identity(), taken)?;
    if disk.size_bytes().div_ceil(BLOCK_BYTES) > VOLUME_BLOCKS_MAX {
        let message = format!("backend {}: it is larger than 256 TiB", disk.path().display());
        let kind = StartErrorKind::BackendSize;
        return Err(StartError::new(kind, subject(), message, "split it into smaller volumes"));
    }
    if let Some(format) = disk.image_format().filter(|_| !config.raw) {
        let message = format!("backend {}: it is a {format} image", disk.path().display());
        let hint = "serve it with qemu-nbd and name that (docs/guide/nbd-backends.md), or say format = \"raw\" if \
                    its guest is to see these very bytes";
        return Err(StartError::new(StartErrorKind::BackendAccess, subject(), message, hint));
    }
    if let Some(reason) = disk.may_read_old().filter(|_| stands_by) {
        let message = format!("backend {}: {reason}: it can't move", disk.path().display());
        let hint = "leave migrate_peer out, and move its guest when it is shut down";
        return Err(StartError::new(StartErrorKind::BackendAccess, subject(), message, hint));
    }
    // Under the back end's lock: who holds it may leave a claim as it goes.
    let (claim_at, proof) = if stands_by {
        // It is looked for when something is read.
        (claims.location(config), None)
    } else {
        let claim_at = claims.check(config)?;
        let proof = disk.read_proof().unwrap_or_else(|error| {
            tracing::warn!(volume = config.name, reason = %error, "nothing proves who wrote it last");
            None
        });
        (claim_at, proof)
    };
    Ok(OpenedVolume {
        config: config.clone(),
        disk,
        layers: spec.layers,
        claim_at,
        proof,
        generation: 0,
        kept: false,
        kept_on: None,
        standby: None,
    })
}

/// What it means at start that generations can't be kept.
pub(super) fn state_error(error: &StateError) -> StartError {
    let kind = match error {
        StateError::Folder(DiskError { kind: DiskErrorKind::Cancelled, .. }) => {
            StartErrorKind::Cancelled
        }
        _ => StartErrorKind::Settings,
    };
    StartError::new(kind, Subject::Cache, error.to_string(), error.hint())
}

/// What a place is before it is opened. What is not there is found out, and explained, then.
fn identity_of(place: &Place) -> Option<Identity> {
    match place {
        Place::File(path) => {
            let metadata = std::fs::metadata(path).ok()?;
            Some(Identity::Inode(metadata.dev(), metadata.ino()))
        }
        Place::Nbd(server) => Some(Identity::Server(server.place())),
        Place::Rbd(image) => Some(Identity::Server(image.place())),
        Place::Hybrid(volume) => Some(Identity::Server(volume.place())),
    }
}

/// One file can't be two volumes, or cache and volume, unless nobody writes it.
pub(super) fn check_taken(
    config: &VolumeConfig,
    identity: &Identity,
    taken: &[Taken],
) -> Result<(), StartError> {
    let twin = taken.iter().find(|t| t.identity == *identity && !(t.read_only && config.read_only));
    twin.map_or(Ok(()), |twin| Err(twice(config, &twin.what)))
}

/// A volume's backend is something else here already.
pub(super) fn twice(config: &VolumeConfig, what: &str) -> StartError {
    let message = format!("backend {}: it is {what}", config.backend);
    let subject = Subject::Volume(config.name.clone());
    let hint = "give each volume a backend of its own";
    StartError::new(StartErrorKind::BackendTwice, subject, message, hint)
}

pub(super) fn explain(
    error: &DiskError,
    subject: Subject,
    kind: StartErrorKind,
    what: &str,
) -> StartError {
    StartError::new(kind, subject, format!("{what} {error}"), error.hint())
}

fn with_source(error: &SpecError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error} {source}"),
        None => error.to_string(),
    }
}

fn backend_kind(kind: &DiskErrorKind) -> StartErrorKind {
    match kind {
        DiskErrorKind::ReadOnly
        | DiskErrorKind::Server(NbdError::ReadOnly)
        | DiskErrorKind::Rbd(RbdError::SnapReadOnly) => StartErrorKind::BackendReadOnly,
        DiskErrorKind::Empty
        | DiskErrorKind::OddSize(_)
        | DiskErrorKind::Server(NbdError::Empty | NbdError::OddSize { .. })
        | DiskErrorKind::Rbd(RbdError::Empty | RbdError::OddSize(_)) => StartErrorKind::BackendSize,
        // No time makes these good.
        DiskErrorKind::NoClone | DiskErrorKind::Rbd(RbdError::NotBuiltIn | RbdError::NeedsSnap) => {
            StartErrorKind::Settings
        }
        DiskErrorKind::InUse { .. } => StartErrorKind::BackendInUse,
        DiskErrorKind::Cancelled => StartErrorKind::Cancelled,
        DiskErrorKind::Io { .. } => StartErrorKind::Io,
        _ => StartErrorKind::BackendAccess,
    }
}

/// `cache device /path: what is wrong`.
pub(super) fn with_path(what: &str, path: &Path, error: &impl std::fmt::Display) -> String {
    format!("{what} {}: {error}", path.display())
}
