//! Why an RBD image can't be used, each with a line that helps.

use rustix::io::Errno;

/// Why an RBD image can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RbdError {
    /// Built without the feature.
    #[error("this program was built without Ceph")]
    NotBuiltIn,
    /// The configuration file.
    #[error("Ceph's configuration {path}: {errno}")]
    Conf {
        path: String,
        /// What librados said.
        errno: Errno,
    },
    /// No monitor answers.
    #[error("no monitor of the cluster answers within {0} s")]
    NoMonitor(u64),
    /// No key for the user, or a wrong one.
    #[error("the cluster refuses user client.{id}: {errno}")]
    User {
        /// The user, without `client.`.
        id: String,
        /// What librados said.
        errno: Errno,
    },
    /// The pool is not there, or not to be seen.
    #[error("there is no pool {0:?}")]
    NoPool(String),
    /// Nor the image.
    #[error("there is no image {0}")]
    NoImage(String),
    /// Nor the snapshot.
    #[error("there is no snapshot {0}")]
    NoSnap(String),
    /// The user's capabilities are not enough.
    #[error("user client.{id} may not {doing}")]
    Caps {
        /// The user, without `client.`.
        id: String,
        /// What was tried.
        doing: &'static str,
    },
    /// The image lacks the feature that the lock is made with.
    #[error("its feature exclusive-lock is off, so other hosts could write it beside this one")]
    NoExclusiveLock,
    /// Its own configuration, or its pool's.
    #[error(
        "its configuration has {0}: what is written would be acknowledged from librbd's memory or plugin"
    )]
    Cached(String),
    /// A snapshot can't be written.
    #[error("it is a snapshot, which can only be read")]
    SnapReadOnly,
    /// The image itself as a read-only volume.
    #[error("a read-only volume needs a snapshot of the image, which nobody can write")]
    NeedsSnap,
    /// Another client holds the lock.
    #[error("it is in use by {0}")]
    InUse(String),
    /// It has no bytes.
    #[error("it has no bytes")]
    Empty,
    /// Not whole sectors.
    #[error("its size of {0} bytes is not a multiple of 512")]
    OddSize(u64),
    /// The OSDs do not answer.
    #[error("{0}: its OSDs do not answer in time")]
    Silent(&'static str),
    /// No thread to serve it.
    #[error("no thread for it: {0}")]
    Thread(Errno),
    /// Anything else.
    #[error("{during}: {errno}")]
    Io {
        /// What was tried.
        during: &'static str,
        /// What the library said.
        errno: Errno,
    },
}

impl RbdError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotBuiltIn => {
                "build it with librbd-dev and librados-dev installed: cargo install --locked --path \
                 crates/cinnabar --features ceph"
            }
            Self::Conf { .. } => "name another one: rbd,conf=PATH:POOL/IMAGE",
            Self::NoMonitor(_) => {
                "check mon_host in Ceph's configuration, and the monitors: ceph -s"
            }
            Self::User { .. } => {
                "check the keyring that Ceph's configuration names; rbd,id=USER:POOL/IMAGE names \
                 another user"
            }
            Self::NoPool(_) => "check the name: ceph osd pool ls",
            Self::NoImage(_) => "check the name: rbd ls POOL",
            Self::NoSnap(_) => "check the name: rbd snap ls POOL/IMAGE",
            Self::Caps { .. } => {
                "give the user what RBD needs: ceph auth caps client.USER mon 'profile rbd' osd \
                 'profile rbd pool=POOL'"
            }
            Self::NoExclusiveLock => "switch it on: rbd feature enable POOL/IMAGE exclusive-lock",
            Self::Cached(_) => {
                "switch it off: rbd config image set POOL/IMAGE rbd_cache false (rbd_plugins \"\"), or \
                 remove it: rbd config image|pool remove"
            }
            Self::SnapReadOnly => "set read_only = true for a snapshot",
            Self::NeedsSnap => {
                "make one and name it: rbd snap create POOL/IMAGE@NAME, rbd:POOL/IMAGE@NAME"
            }
            Self::InUse(_) => {
                "stop the client that uses it; the lock of one that died goes after some 30 s"
            }
            Self::Empty | Self::OddSize(_) => {
                "give it a size in whole sectors: rbd resize --size SIZE POOL/IMAGE"
            }
            Self::Silent(_) => "check the OSDs of its pool: ceph osd tree, ceph -s",
            Self::Thread(_) => "raise the limit on threads",
            Self::Io { .. } => "see the cluster's state: ceph -s",
        }
    }
}
