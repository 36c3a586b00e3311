//! Which cluster, as which user.

use std::path::PathBuf;

/// Ceph's own default of a user, without `client.`.
pub const ID: &str = "admin";
/// Ceph's own default of a configuration file.
pub const CONF: &str = "/etc/ceph/ceph.conf";

/// A cluster, and a user of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The Ceph user, without `client.`.
    pub id: String,
    /// Ceph's configuration file, which names the monitors and the keyring.
    pub conf: PathBuf,
}

impl Default for Target {
    fn default() -> Self {
        Self { id: ID.to_owned(), conf: CONF.into() }
    }
}
