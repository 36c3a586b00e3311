//! An export of an NBD server, an RBD image, or a hybrid volume, as a disk.

use super::durable::Syncs;
use super::error::{DiskError, DiskErrorKind};
use super::remote::Remote;
use super::{Disk, DiskKind, Identity, OpenOptions, Progress};
use crate::hybrid::{self, HybridError, HybridSpec, HybridStatus};
use crate::lineage::{Lineage, Snapshot};
use crate::nbd::{self, NbdSpec};
use crate::rbd::RbdSpec;
use crate::spec::{BackendSpec, Place};
use cinnabar_hybrid::pools::Wait;
use rustix::event::{EventfdFlags, eventfd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// How often it is looked whether an image's lock is free.
#[cfg(feature = "ceph")]
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(200);

/// What a remote disk is like.
struct Facts {
    size_bytes: u64,
    align_bytes: u32,
    identity: Identity,
    read_only: bool,
    snapshot: Option<Snapshot>,
    lineage: Option<Lineage>,
}

impl Disk {
    /// Opens what a backend's text names, without the models in front of it.
    ///
    /// # Errors
    /// [`DiskError`], with a hint.
    pub fn open_backend(spec: &BackendSpec, options: &OpenOptions) -> Result<Self, DiskError> {
        match &spec.place {
            #[cfg(feature = "test-clones")]
            Place::File(path) => Self::open_stand_in(path, options),
            #[cfg(not(feature = "test-clones"))]
            Place::File(path) if options.is_clone => {
                Err(DiskError::new(path, DiskErrorKind::NoClone))
            }
            #[cfg(not(feature = "test-clones"))]
            Place::File(path) => Self::open(path, options),
            Place::Nbd(server) if options.is_clone => {
                let path = PathBuf::from(server.to_string());
                Err(DiskError::new(&path, DiskErrorKind::NoClone))
            }
            Place::Nbd(server) => Self::connect(server, options),
            Place::Rbd(image) => Self::open_rbd(image, options),
            Place::Hybrid(volume) => Self::open_hybrid(volume, options),
        }
    }

    /// A file, which may stand for a clone or a snapshot.
    #[cfg(feature = "test-clones")]
    fn open_stand_in(path: &Path, options: &OpenOptions) -> Result<Self, DiskError> {
        use crate::lineage::of_file;
        let mut disk = Self::open(path, options)?;
        if options.read_only {
            disk.snapshot = Some(of_file::snapshot(path));
        } else if options.is_clone {
            let lineage = of_file::lineage(path);
            disk.lineage =
                Some(lineage.ok_or_else(|| DiskError::new(path, DiskErrorKind::NoClone))?);
        }
        Ok(disk)
    }

    /// Connects to a server, over one connection if `unlocked`: it stands by, and leaves places to who owns it.
    /// Blocks for at most some ten seconds, name lookup apart.
    ///
    /// # Errors
    /// [`DiskErrorKind::Server`], with a hint.
    pub fn connect(spec: &NbdSpec, options: &OpenOptions) -> Result<Self, DiskError> {
        let path = PathBuf::from(spec.to_string());
        let read_only = options.read_only;
        let client = nbd::Client::open(spec, read_only, options.unlocked)
            .map_err(|error| DiskError::new(&path, DiskErrorKind::Server(error)))?;
        let export = client.export();
        let (size_bytes, align_bytes) = (export.size_bytes, export.align_bytes);
        let identity = Identity::Server(client.place().to_owned());
        let (snapshot, lineage) = (None, None);
        let facts = Facts { size_bytes, align_bytes, identity, read_only, snapshot, lineage };
        Self::over(&path, Remote::Nbd(client), facts)
    }

    /// Opens an RBD image, and locks it unless it is a snapshot or `unlocked`. Blocks for at most some ten
    /// seconds for each thing that is asked of the cluster, for `lock_wait` while another client has it, and
    /// for the lease of one that is fenced off.
    ///
    /// # Errors
    /// [`DiskErrorKind::Rbd`], with a hint.
    #[cfg(feature = "ceph")]
    pub fn open_rbd(spec: &RbdSpec, options: &OpenOptions) -> Result<Self, DiskError> {
        use crate::rbd::{Client, Mode, RbdError, Wait};
        let path = PathBuf::from(spec.to_string());
        let mut patience = options.patience();
        let mode = match (options.read_only, options.unlocked) {
            (false, _) => Mode::Owner { by_word: options.by_word },
            (true, false) => Mode::Snapshot,
            (true, true) => Mode::Standby,
        };
        let opened = Client::open(spec, (mode, options.is_clone), |wait| match wait {
            Wait::Holder(holder) => {
                // Each look costs the cluster some operations.
                std::thread::sleep(LOOK_EVERY.min(options.lock_wait));
                patience.wait(&path, || Some(format!(" by {holder}")))
            }
            Wait::Lease => {
                std::thread::sleep(LOOK_EVERY);
                patience.pause()
            }
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
            snapshot: client.snapshot().cloned(),
            lineage: client.lineage().cloned(),
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

    /// Takes a hybrid volume over, waiting for `lock_wait` while another process has it.
    ///
    /// # Errors
    /// [`DiskErrorKind::Hybrid`], with a hint.
    pub fn open_hybrid(spec: &HybridSpec, options: &OpenOptions) -> Result<Self, DiskError> {
        let path = PathBuf::from(spec.to_string());
        let refused = |what: &str| {
            let error = HybridError::Other(what.into());
            Err(DiskError::new(&path, DiskErrorKind::Hybrid(error)))
        };
        if options.is_clone {
            return Err(DiskError::new(&path, DiskErrorKind::NoClone));
        }
        if options.unlocked {
            return refused("a hybrid volume has one owner: it can't be read beside it");
        }
        let mut patience = options.patience();
        let opened = hybrid::Client::open(spec, options.read_only, &mut |wait| match wait {
            Wait::Holder(holder) => patience.wait(&path, || Some(format!(" by {holder}"))),
            Wait::Lease => patience.pause(),
        });
        let client = opened.map_err(|error| match error {
            HybridError::InUse(holder) => patience.in_use(&path, Some(format!(" by {holder}"))),
            error => DiskError::new(&path, DiskErrorKind::Hybrid(error)),
        })?;
        let facts = Facts {
            size_bytes: client.size_bytes(),
            align_bytes: client.align_bytes(),
            identity: Identity::Server(client.place().to_owned()),
            read_only: options.read_only,
            snapshot: None,
            lineage: None,
        };
        Self::over(&path, Remote::Hybrid(client), facts)
    }

    /// What a hybrid volume does, if it is one.
    pub fn hybrid_status(&self) -> Option<HybridStatus> {
        match self.remote() {
            Some(Remote::Hybrid(volume)) => Some(volume.status()),
            _ => None,
        }
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
            had_name: false,
            lost_name: AtomicBool::new(false),
            is_cache: false,
            depth_max: usize::MAX,
            progress: Progress::default(),
            identity: facts.identity,
            snapshot: facts.snapshot,
            lineage: facts.lineage,
            fd,
            remote: Some(remote),
        })
    }
}
