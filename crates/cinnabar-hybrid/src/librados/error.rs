//! Why a cluster or one of its pools can't be used, each with a line that helps.

use rustix::io::Errno;

/// Why a cluster or one of its pools can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RadosError {
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
    /// The user's capabilities are not enough.
    #[error("user client.{id} may not {doing}")]
    Caps {
        /// The user, without `client.`.
        id: String,
        /// What was tried.
        doing: String,
    },
    /// The OSDs do not answer.
    #[error("{0}: the cluster does not answer in time")]
    Silent(String),
    /// Anything else.
    #[error("{during}: {errno}")]
    Io {
        /// What was tried.
        during: String,
        /// What the library said.
        errno: Errno,
    },
}

impl RadosError {
    /// How `doing` failed for a user.
    pub fn of(id: &str, doing: &str, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::Caps { id: id.into(), doing: doing.into() },
            Errno::TIMEDOUT => Self::Silent(doing.into()),
            errno => Self::Io { during: doing.into(), errno },
        }
    }

    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotBuiltIn => {
                "build it with librados-dev and libradospp-dev installed: cargo install --locked --path \
                 crates/cinnabar --features ceph"
            }
            Self::Conf { .. } => "name another one: conf=PATH",
            Self::NoMonitor(_) => {
                "check mon_host in Ceph's configuration, and the monitors: ceph -s"
            }
            Self::User { .. } => {
                "check the keyring that Ceph's configuration names; id=USER names another user"
            }
            Self::NoPool(_) => "check the name: ceph osd pool ls",
            Self::Caps { .. } => {
                "give the user what it needs: ceph auth caps client.USER mon 'profile rbd' osd 'profile rbd \
                 pool=FAST, profile rbd pool=SLOW'"
            }
            Self::Silent(_) => "check the OSDs of its pools: ceph osd tree, ceph -s",
            Self::Io { .. } => "see the cluster's state: ceph -s",
        }
    }
}
