//! An export of an NBD server, or an RBD image, as a disk.

use super::durable::Syncs;
use super::error::{DiskError, DiskErrorKind};
use super::remote::Remote;
use super::{Disk, DiskKind, Identity, OpenOptions, Progress};
use crate::nbd::{self, NbdSpec};
use crate::rbd::RbdSpec;
use crate::spec::{BackendSpec, Place};
use rustix::event::{EventfdFlags, eventfd};
use std::path::{Path, PathBuf};

/// How often it is looked whether an image's lock is free.
#[cfg(feature = "ceph")]
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(200);

/// What a remote disk is like.
struct Facts {
    size_bytes: u64,
    align_bytes: u32,
    identity: Identity,
    read_only: bool,
}

impl Disk {
    /// Opens what a backend's text names, without the models in front of it.
    ///
    /// # Errors
    /// [`DiskError`], with a hint.
    pub fn open_backend(spec: &BackendSpec, options: &OpenOptions) -> Result<Self, DiskError> {
        match &spec.place {
            Place::File(path) => Self::open(path, options),
            Place::Nbd(server) => Self::connect(server, options.read_only),
            Place::Rbd(image) => Self::open_rbd(image, options),
        }
    }

    /// Connects to a server. Blocks for at most some ten seconds, name lookup apart.
    ///
    /// # Errors
    /// [`DiskErrorKind::Server`], with a hint.
    pub fn connect(spec: &NbdSpec, read_only: bool) -> Result<Self, DiskError> {
        let path = PathBuf::from(spec.to_string());
        let client = nbd::Client::open(spec, read_only)
            .map_err(|error| DiskError::new(&path, DiskErrorKind::Server(error)))?;
        let export = client.export();
        let (size_bytes, align_bytes) = (export.size_bytes, export.align_bytes);
        let identity = Identity::Server(client.place().to_owned());
        let facts = Facts { size_bytes, align_bytes, identity, read_only };
        Self::over(&path, Remote::Nbd(client), facts)
    }

    /// Opens an RBD image, and locks it unless it is a snapshot. Blocks for at most some ten seconds
    /// for each thing that is asked of the cluster, and for `lock_wait` while another client has it.
    ///
    /// # Errors
    /// [`DiskErrorKind::Rbd`], with a hint.
    #[cfg(feature = "ceph")]
    pub fn open_rbd(spec: &RbdSpec, options: &OpenOptions) -> Result<Self, DiskError> {
        use crate::rbd::{Client, RbdError};
        let path = PathBuf::from(spec.to_string());
        let mut patience = options.patience();
        let opened = Client::open(spec, options.read_only, |holder| {
            // Each look costs the cluster some operations.
            std::thread::sleep(LOOK_EVERY.min(options.lock_wait));
            patience.wait(&path, || Some(format!(" by {holder}")))
        });
        let client = opened.map_err(|error| match error {
            RbdError::InUse(holder) => patience.in_use(&path, Some(format!(" by {holder}"))),
            error => DiskError::new(&path, DiskErrorKind::Rbd(error)),
        })?;
        let facts = Facts {
            size_bytes: client.size_bytes(),
            align_bytes: 512,
            identity: Identity::Server(client.place().to_owned()),
            read_only: options.read_only,
        };
        Self::over(&path, Remote::Rbd(client), facts)
    }

    /// Without librbd there is none.
    ///
    /// # Errors
    /// [`DiskErrorKind::Rbd`], with a hint.
    #[cfg(not(feature = "ceph"))]
    pub fn open_rbd(spec: &RbdSpec, _options: &OpenOptions) -> Result<Self, DiskError> {
        let path = PathBuf::from(spec.to_string());
        Err(DiskError::new(&path, DiskErrorKind::Rbd(crate::rbd::RbdError::NotBuiltIn)))
    }

    fn over(path: &Path, remote: Remote, facts: Facts) -> Result<Self, DiskError> {
        // Something open with which nothing can be read or written.
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|errno| DiskError::from_errno(path, "eventfd", errno))?;
        Ok(Self {
            fresh: None,
            path: path.to_owned(),
            kind: DiskKind::Server,
            size_bytes: facts.size_bytes.into(),
            align_bytes: facts.align_bytes,
            direct: true,
            read_only: facts.read_only,
            in_memory: false,
            nowait: false,
            dsync_is_known: true,
            syncs: Syncs::default(),
            sync_failure_sticks: true,
            is_cache: false,
            depth_max: usize::MAX,
            progress: Progress::default(),
            identity: facts.identity,
            fd,
            remote: Some(remote),
        })
    }
}
