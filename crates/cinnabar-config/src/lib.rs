//! The configuration file: read, checked and made absolute before anything is opened.
//!
//! Every key is described in `section_keys` or `volume_keys`; `docs/guide/configuration.md` is made of that.

pub mod checks;
mod control_api;
pub mod diff;
mod error;
mod file;
#[cfg(test)]
mod guide_tests;
pub mod history;
pub mod looks;
mod manager;
pub mod messages;
pub mod parent;
pub mod peer;
mod planned;
pub mod qos;
mod section_keys;
mod sections;
pub mod settings;
pub mod status;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod units;
mod values;
pub mod volume;
mod volume_keys;

pub use cinnabar_text::ConfigError;
pub use error::SettingError;
pub use file::{load, load_again};
pub use planned::ManagerConfig;
pub use volume_keys::{ChangeInput, VolumeInput};

use crate::settings::{CacheConfig, IoMode, QosGroupConfig, VolumeConfig};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Everything `serve` needs to know; paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file it came from.
    pub file: PathBuf,
    /// Its absolute path, to read it again; `None`: there is none, as for a demonstration.
    pub path: Option<PathBuf>,
    /// What the command line said beside it.
    pub given: Given,
    /// The folder that relative paths are taken from.
    pub base: PathBuf,
    /// The cache device.
    pub cache: CacheConfig,
    /// Longest wait for locks.
    pub lock_wait_max: Duration,
    /// How operators reach the daemon.
    pub control: ControlConfig,
    /// The daemon's certificate, and whose clients' certificates it takes; `None`: no TLS.
    pub tls: Option<TlsConfig>,
    /// How shares are planned while it serves; `None`: not at all.
    pub manager: Option<ManagerConfig>,
    /// The volumes, in the order of the file.
    pub volumes: Vec<VolumeConfig>,
    /// Groups of volumes at their back ends.
    pub qos_groups: Vec<QosGroupConfig>,
    /// Lines of what may be wrong at run time.
    pub lines: Lines,
    /// What is allowed but deserves a word.
    pub warnings: Vec<String>,
}

/// What the command line said beside the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Format the cache device even if it holds something else.
    pub force: bool,
    /// How I/O is done, whatever the file says.
    pub io: Option<IoMode>,
}

/// How operators reach the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    /// The control socket.
    pub socket: PathBuf,
    /// Members of this group, a name or number, may use it; `None`: the daemon's account alone.
    pub socket_group: Option<String>,
    /// Metrics over HTTP, on a loopback address unless clients need certificates; `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// HTTP is served over TLS; `None`: in plain text.
    pub http_tls: Option<HttpTls>,
    /// Names of hosts, in lower case, that requests to `http` may be sent to, beside IP addresses and
    /// `localhost`.
    pub allowed_hosts: Vec<String>,
    /// The control API at the same address; `None`: on the control socket only.
    pub api: Option<ApiConfig>,
    /// Where daemons on other hosts ask for volumes; `None`: nowhere but at `http`.
    pub peers: Option<PeersConfig>,
    /// Longest clean stop.
    pub stop_wait_max: Duration,
}

/// How the address of HTTP uses TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTls {
    /// Clients need a certificate of `client_ca`.
    pub clients_known: bool,
    /// Names of which that must have one; none: any will do.
    pub allow: Vec<String>,
}

/// Files of TLS, absolute, and what it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The daemon's certificate, and behind it those up to its authority's.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of authorities that clients' certificates are signed by.
    pub client_ca: Option<PathBuf>,
    /// Threads that end TLS for NBD clients.
    pub threads: usize,
}

/// An address for daemons on other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// Any address of this host.
    pub address: SocketAddr,
    /// Holds the token that each request needs.
    pub token_file: PathBuf,
}

/// How the control API is served over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// Holds the token that changes need; `None`: nothing may be changed.
    pub token_file: Option<PathBuf>,
    /// The page for people is served beside it.
    pub page: bool,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self { token_file: None, page: true }
    }
}

/// Where in the file things stand, for errors that only show when the daemon starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// `[cache]`.
    pub cache: Option<usize>,
    /// `[control]`.
    pub control: Option<usize>,
    /// `[tls]`.
    pub tls: Option<usize>,
    /// Volumes by name.
    pub volumes: Vec<(String, usize)>,
}

/// The part of the configuration an error belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The daemon as a whole.
    Daemon,
    /// `[cache]`.
    Cache,
    /// The `[[volume]]` of this name.
    Volume(String),
}

impl Config {
    /// What the command line says counts instead of the file.
    pub fn give(&mut self, given: Given) {
        self.given = given;
        self.cache.force = given.force;
        self.cache.io = given.io.unwrap_or(self.cache.io);
    }

    /// The line that an error about `subject` belongs to.
    pub fn line_of(&self, subject: &Subject) -> Option<usize> {
        match subject {
            Subject::Daemon => None,
            Subject::Cache => self.lines.cache,
            Subject::Volume(name) => {
                self.lines.volumes.iter().find(|(other, _)| other == name).map(|(_, line)| *line)
            }
        }
    }
}
