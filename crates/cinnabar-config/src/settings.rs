//! Settings as the data plane takes them: checked, absolute, in units.
//!
//! Made by the configuration and the control API, used by the data plane.

use super::planned::ManagerConfig;
use cinnabar_driver::qos::Settings;
use cinnabar_engine::Endurance;
use cinnabar_engine::units::BLOCK_BYTES;
pub use cinnabar_frontend::SocketAccess;
/// Whose certificates are taken at an address.
pub use cinnabar_frontend::TlsAccess;
/// Where an NBD server listens; each volume has an address of its own.
pub use cinnabar_frontend::nbd::Address as NbdAddress;
/// What ends TLS for NBD clients.
pub use cinnabar_frontend::nbd::StartTls;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Everything the data plane needs to start. Paths are absolute.
#[derive(Clone, Debug)]
pub struct StartConfig {
    /// The cache device.
    pub cache: CacheConfig,
    /// The volumes served from the start, names unique.
    pub volumes: Vec<VolumeConfig>,
    /// How shares are planned while it serves; `None`: not at all.
    pub manager: Option<ManagerConfig>,
    /// Groups of volumes of which the operator says something.
    pub qos_groups: Vec<QosGroupConfig>,
    /// Longest wait for the locks of the cache device and of the volumes' files, which a dead
    /// daemon's last writes may still hold.
    pub lock_wait_max: Duration,
    /// What ends TLS for NBD clients, if there are certificates.
    pub tls: Option<Arc<dyn StartTls>>,
    /// Set when the operator wants to stop before the start is over; looked at while waiting.
    pub cancel: Arc<AtomicBool>,
}

/// The cache device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// File or block device.
    pub device: PathBuf,
    /// Size in bytes, from each start on; of a block device only beside the next one. `None`: the size
    /// it had last; of a device that is formatted, its own.
    pub size_bytes: Option<u64>,
    /// The largest size, in bytes, that it may be given later: a file is made for it. `None`: the size.
    pub size_max_bytes: Option<u64>,
    /// How I/O is done, for the cache and for file and device back ends.
    pub io: IoMode,
    /// Format it even if it holds something that is not ours.
    pub force: bool,
    /// Don't serve without it. Otherwise volumes pass through if it is missing or broken.
    pub required: bool,
    /// Keep the device recoverable after a crash; without it a crash leaves the cache cold.
    pub crash_safe: bool,
    /// The device is given up when an operation takes longer; zero: it is waited for without a bound.
    pub device_timeout: Duration,
    /// Folder of what has to be known of volumes outside of the device: their generations.
    pub state_dir: PathBuf,
    /// Which blocks earn flash.
    pub eviction: EvictionMode,
    /// Price of a flash write.
    pub endurance: Endurance,
    /// RAM for probation in bytes; `None`: min(1 % of the capacity, 256 MiB).
    pub probation_bytes: Option<u64>,
    /// Logical shards of a device that is formatted; `None`: by its size.
    pub shards: Option<u32>,
    /// Data threads that share the work, each serving some of the shards.
    pub threads: usize,
    /// Bytes that requests of clients may take, of all threads together; `None`: an eighth of the RAM,
    /// 2 GiB at most.
    pub client_memory_bytes: Option<u64>,
    /// How long a busy data thread looks for work before it sleeps; zero: it sleeps at once.
    pub poll_max: Duration,
    /// Of volumes in write-back mode.
    pub write_log: Option<WriteLogConfig>,
}

/// The write log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteLogConfig {
    /// File or block device.
    pub path: PathBuf,
    /// Another one with the same log, if it is mirrored.
    pub mirror: Option<PathBuf>,
    /// Size in bytes: a file is created with it. `None`: the device's own size.
    pub size_bytes: Option<u64>,
    /// Share of it that a volume's writes may fill, in percent of what others leave.
    pub dirty_max_percent: u8,
    /// How long a write is to wait for its back end at most: guests are slowed down as it comes near.
    pub rpo: Duration,
    /// Writes are brought to the back ends no faster than guests' misses bear.
    pub pace: bool,
    /// A stop waits, as long as it may, for the back ends to have everything.
    pub drain_on_stop: bool,
    /// Of volumes whose writes are acknowledged from memory.
    pub memory: Option<WriteMemoryConfig>,
}

impl WriteLogConfig {
    /// Its files or devices.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.path).chain(&self.mirror)
    }
}

/// The write memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteMemoryConfig {
    /// File in a tmpfs or hugetlbfs.
    pub path: PathBuf,
    /// Size in bytes: a file is created with it.
    pub size_bytes: u64,
}

/// When a write is acknowledged in mode write-back.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// When the write log's device has it.
    #[default]
    Durable,
    /// When it is in memory that outlives the daemon, and not the host.
    Memory,
}

/// How I/O on files and devices is done.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum IoMode {
    /// `io_uring` and `O_DIRECT` where they work, else the slower way with a warning.
    #[default]
    Auto,
    /// `io_uring` or an error.
    Uring,
    /// Blocking calls on threads.
    Threads,
}

/// Which blocks earn flash; see [`cinnabar_engine::Eviction`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionMode {
    /// Second touch, ghost, carried blocks.
    #[default]
    Probation,
    /// Plain CLOCK.
    Clock,
}

/// One volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeConfig {
    /// Its name, also the name of its NBD export; 1 to 64 bytes.
    pub name: String,
    /// Where it lives: what [`cinnabar_backend::BackendSpec`] parses, with an absolute path.
    pub backend: String,
    /// What its requests do with the cache.
    pub mode: VolumeMode,
    /// When its writes are acknowledged in mode write-back.
    pub ack: Ack,
    /// What it keeps whatever others do.
    pub share_min: Share,
    /// What it may hold at most.
    pub share_max: Share,
    /// The manager may change its mode.
    pub auto_mode: bool,
    /// How much it counts for the manager, 1 being as much as others.
    pub weight: u16,
    /// Where NBD clients find it, if they may.
    pub nbd: Option<NbdAddress>,
    /// The socket of a vhost-user-blk device, if it is one.
    pub vhost_user: Option<PathBuf>,
    /// Who may use its sockets.
    pub socket: SocketAccess,
    /// Where its claim is kept; `None`: beside a file, else in the state folder.
    pub claim: Option<PathBuf>,
    /// Refuse writes; many clients may attach.
    pub read_only: bool,
    /// A writable volume may have more than one client.
    pub shared: bool,
    /// The operator's word that nobody else writes the backend.
    pub exclusive: bool,
    /// Its bytes are served also if they look like an image in another format than raw.
    pub raw: bool,
    /// A snapshot of its RBD image is left when it is let go of.
    pub return_snapshot: bool,
    /// Sequential runs of at least this many bytes bypass the cache; 0 = never.
    pub bypass_sequential_bytes: u64,
    /// Single requests of at least this many bytes bypass the cache; 0 = never.
    pub bypass_large_bytes: u64,
    /// Bytes of its blocks that may go to the cache device a second; 0 = as many as there are.
    pub fill_limit_bytes: u64,
    /// Most bytes of memory of a guest that is connected by vhost-user.
    pub memory_max_bytes: u64,
    /// Guests are answered with an error when an operation of the backend takes longer; zero: they
    /// wait as long as it takes.
    pub backend_timeout: Duration,
    /// Volumes of the same name share what their back ends can do; `None`: those on the same server,
    /// device or file system do.
    pub qos_group: Option<String>,
    /// What it gets of that.
    pub qos: Settings,
    /// In mode write-back volumes of the same name keep the order of their guest's flushes together.
    pub write_group: Option<String>,
    /// Requests of its guests a second, hits included; 0 = as many as they ask.
    pub guest_iops_limit: u32,
    /// Bytes that these read and write a second; 0 = as many as they ask.
    pub guest_bytes_limit: u64,
    /// The read-only volume whose cached blocks it reads, of a clone.
    pub parent: Option<String>,
    /// The daemon on the other host, of a volume that may move: it begins as a standby.
    pub peer: Option<Peer>,
    /// What of the other host's cache comes along when it is taken from there.
    pub warm: WarmSettings,
}

/// How blocks that the other host has cached are fetched after a volume was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmSettings {
    /// Bytes a second at most; 0: nothing is fetched.
    pub rate_bytes: u64,
    /// For so long at most; zero: nothing is fetched.
    pub time_max: Duration,
}

impl Default for WarmSettings {
    fn default() -> Self {
        Self { rate_bytes: 100_000_000, time_max: Duration::from_mins(5) }
    }
}

/// The control API of a daemon on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// `HOST:PORT`, as `[control] http` of the other daemon has it.
    pub address: String,
    /// Holds the token that changes need there.
    pub token_file: PathBuf,
}

/// A group of volumes that share a server or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosGroupConfig {
    /// Its name: one that volumes have as `qos_group`, or that of a group that was found.
    pub name: String,
    /// Requests that the back end gets at the same time.
    pub depth: usize,
}

/// What a volume's requests do with the cache.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
    utoipa::ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeMode {
    /// Reads and writes are cached; a write is acknowledged when the backend has it.
    #[default]
    WriteThrough,
    /// As write-through, but a write is acknowledged when the write log has it.
    WriteBack,
    /// Reads are cached, writes invalidate.
    WriteAround,
    /// Nothing is cached; writes still invalidate.
    PassThrough,
}

/// A part of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// Bytes.
    Bytes(u64),
    /// Percent of the capacity, 0 to 100.
    Percent(f64),
}

/// New settings of a volume that is served; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VolumeChange {
    /// Its mode.
    pub mode: Option<VolumeMode>,
    /// Asked for by the manager, not the operator: only if its mode is still this one, and the operator
    /// has not set it.
    pub mode_from: Option<VolumeMode>,
    /// When its writes are acknowledged in mode write-back.
    pub ack: Option<Ack>,
    /// What it keeps whatever others do.
    pub share_min: Option<Share>,
    /// What it may hold at most.
    pub share_max: Option<Share>,
    /// Bytes of its blocks that may go to the cache device a second; 0 = as many as there are.
    pub fill_limit_bytes: Option<u64>,
    /// What it gets of what its back end can do.
    pub qos: Option<Settings>,
    /// Requests of its guests a second, hits included; 0 = as many as they ask.
    pub guest_iops_limit: Option<u32>,
    /// Bytes that these read and write a second; 0 = as many as they ask.
    pub guest_bytes_limit: Option<u64>,
}

impl VolumeConfig {
    /// Takes what a change says.
    pub fn apply(&mut self, change: VolumeChange) {
        self.mode = change.mode.unwrap_or(self.mode);
        self.ack = change.ack.unwrap_or(self.ack);
        self.share_min = change.share_min.unwrap_or(self.share_min);
        self.share_max = change.share_max.unwrap_or(self.share_max);
        self.fill_limit_bytes = change.fill_limit_bytes.unwrap_or(self.fill_limit_bytes);
        self.qos = change.qos.unwrap_or(self.qos);
        self.guest_iops_limit = change.guest_iops_limit.unwrap_or(self.guest_iops_limit);
        self.guest_bytes_limit = change.guest_bytes_limit.unwrap_or(self.guest_bytes_limit);
    }

    /// Where clients find it, for people.
    pub fn addresses(&self) -> String {
        let nbd = self.nbd.as_ref().map(|nbd| format!("nbd {nbd}"));
        let vhost = self.vhost_user.as_ref().map(|path| format!("vhost-user {}", path.display()));
        nbd.into_iter().chain(vhost).collect::<Vec<_>>().join(", ")
    }
}

impl Share {
    /// Blocks of 4 KiB out of `capacity_blocks`, at most all of them.
    pub fn blocks(self, capacity_blocks: u64) -> u64 {
        let blocks = match self {
            Self::Bytes(bytes) => bytes / BLOCK_BYTES,
            #[expect(clippy::cast_sign_loss, reason = "0 to 100 percent by construction")]
            Self::Percent(percent) => (capacity_blocks as f64 * percent / 100.0).round() as u64,
        };
        blocks.min(capacity_blocks)
    }
}

impl From<VolumeMode> for cinnabar_engine::plan::Mode {
    fn from(mode: VolumeMode) -> Self {
        match mode {
            // The engine writes what the log brings to the back end.
            VolumeMode::WriteThrough | VolumeMode::WriteBack => Self::WriteThrough,
            VolumeMode::WriteAround => Self::WriteAround,
            VolumeMode::PassThrough => Self::PassThrough,
        }
    }
}

impl From<EvictionMode> for cinnabar_engine::Eviction {
    fn from(mode: EvictionMode) -> Self {
        match mode {
            EvictionMode::Probation => Self::Probation,
            EvictionMode::Clock => Self::Clock,
        }
    }
}
