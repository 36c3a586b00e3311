//! An export of an NBD server as a disk.

use super::durable::Syncs;
use super::error::{DiskError, DiskErrorKind};
use super::{Disk, DiskKind, Identity, OpenOptions, Progress};
use crate::nbd::{Client, NbdSpec};
use crate::spec::{BackendSpec, Place};
use rustix::event::{EventfdFlags, eventfd};
use std::path::PathBuf;

impl Disk {
    /// Opens what a backend's text names, without the models in front of it.
    ///
    /// # Errors
    /// [`DiskError`], with a hint.
    pub fn open_backend(spec: &BackendSpec, options: &OpenOptions) -> Result<Self, DiskError> {
        match &spec.place {
            Place::File(path) => Self::open(path, options),
            Place::Nbd(server) => Self::connect(server, options.read_only),
        }
    }

    /// Connects to a server. Blocks for at most some ten seconds, name lookup apart.
    ///
    /// # Errors
    /// [`DiskErrorKind::Server`], with a hint.
    pub fn connect(spec: &NbdSpec, read_only: bool) -> Result<Self, DiskError> {
        let path = PathBuf::from(spec.to_string());
        let client = Client::open(spec, read_only)
            .map_err(|error| DiskError::new(&path, DiskErrorKind::Server(error)))?;
        // Something open with which nothing can be read or written.
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|errno| DiskError::from_errno(&path, "eventfd", errno))?;
        let export = client.export();
        Ok(Self {
            fresh: None,
            path,
            kind: DiskKind::Server,
            size_bytes: export.size_bytes.into(),
            align_bytes: export.align_bytes,
            direct: true,
            read_only,
            in_memory: false,
            nowait: false,
            dsync_is_known: true,
            syncs: Syncs::default(),
            sync_failure_sticks: true,
            is_cache: false,
            depth_max: usize::MAX,
            progress: Progress::default(),
            identity: Identity::Server(client.place().to_owned()),
            fd,
            server: Some(client),
        })
    }
}
