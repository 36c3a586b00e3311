//! What a program says of its cache and of what is to be cached.

use cinnabar_backend::port::IoMode;
use cinnabar_engine::plan::Mode;
use cinnabar_engine::{Endurance, Eviction};
use std::path::PathBuf;
use std::time::Duration;

/// A cache.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cache device: a file or block device on an SSD. A file is made if there is none.
    pub device: PathBuf,
    /// Size of a file that is to be made, in bytes, from 20 MiB on; `None` for a device or a file
    /// that has its size.
    pub size_bytes: Option<u64>,
    /// Parts that a new device is divided into, 1 to 64; `None`: as many as suit its size. One
    /// thread serves them all here; a daemon that uses the device later may have one for each.
    pub shards: Option<u32>,
    /// Folder for what must be known of volumes outside of the cache device; made if there is
    /// none, and of one cache only. It belongs on a disk of this host that survives a restart.
    pub state_dir: PathBuf,
    /// Format a device that holds something else, which is lost then.
    pub format: bool,
    /// Begin with an empty cache, whatever an earlier run has left on the device.
    pub fresh: bool,
    /// Fail without the device instead of going on uncached.
    pub required: bool,
    /// How long to wait for another process's lock: the writes of a killed process land for seconds.
    pub lock_wait: Duration,
    /// A device that takes longer for one operation is given up. Zero: never while it is in use; after
    /// 30 s while it is opened, replaced, let go of or closed.
    pub device_timeout: Duration,
    /// RAM for blocks that have not earned their place on the SSD yet, in bytes; `None`: 1 % of
    /// the cache, at most 256 MiB.
    pub probation_bytes: Option<u64>,
    /// Which blocks earn flash, and which stay.
    pub eviction: Eviction,
    /// Price of a flash write: how much of the SSD's life is spent for hits.
    pub endurance: Endurance,
    /// Keep the device recoverable after a crash. Without it a crash leaves the cache cold, and no
    /// write waits for a mark.
    pub crash_safe: bool,
    /// How I/O is done.
    pub io: IoMode,
}

impl Options {
    /// The usual, on this device and with this folder.
    pub fn new(device: impl Into<PathBuf>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            device: device.into(),
            size_bytes: None,
            shards: None,
            state_dir: state_dir.into(),
            format: false,
            fresh: false,
            required: false,
            lock_wait: Duration::from_secs(30),
            device_timeout: Duration::from_secs(30),
            probation_bytes: None,
            eviction: Eviction::default(),
            endurance: Endurance::default(),
            crash_safe: true,
            io: IoMode::default(),
        }
    }
}

/// A cache device that is to take another's place.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// A file or block device on an SSD, other than the one in use. A file is made if there is none.
    pub device: PathBuf,
    /// Size of a file that is to be made or formatted, in bytes, from 20 MiB on; `None` for a device
    /// or a file that has its size.
    pub size_bytes: Option<u64>,
    /// Format a device that holds something, an older cache included. That is lost.
    pub format: bool,
}

impl NewDevice {
    /// A device, or a file that has its size, which holds nothing.
    pub fn new(device: impl Into<PathBuf>) -> Self {
        Self { device: device.into(), size_bytes: None, format: false }
    }
}

/// Something to be cached: a file or device of the program's, or a server's export.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// What its blocks are found under after a restart; 1 to 64 bytes.
    pub name: String,
    /// Where it lives, as in the daemon's configuration: `file:PATH`, `nbd:unix:PATH[:EXPORT]` or
    /// `nbd:tcp:HOST:PORT[:EXPORT]`; with a model in front of it for tests, such as
    /// `sim:filer,seed=1:file:PATH`. A plain path and an NBD URI will do, too. A relative path is
    /// taken from the current folder. The size is a multiple of 512 bytes and stays until
    /// [`Cache::resize`](crate::Cache::resize).
    pub backend: String,
    /// Nothing is written; other readers may have it open, too.
    pub read_only: bool,
    /// Your word that nobody else ever writes it: cached blocks are believed after a restart even
    /// where the backend can't prove it, as a block device can't.
    pub exclusive: bool,
    /// What its requests do with the cache.
    pub mode: Mode,
    /// Bytes of the cache that it keeps whatever other volumes do.
    pub share_min_bytes: u64,
    /// Bytes of the cache that it may hold at most.
    pub share_max_bytes: u64,
    /// Bytes of its blocks that may go to the cache device a second; 0: as many as there are.
    pub fill_limit_bytes: u64,
    /// Accesses that continue one another for at least this many bytes bypass the cache; 0: never.
    pub bypass_sequential_bytes: u64,
    /// Single requests of at least this many bytes bypass the cache; 0: never.
    pub bypass_large_bytes: u64,
    /// A request whose backend takes longer fails; zero: never.
    pub backend_timeout: Duration,
}

impl VolumeOptions {
    /// The usual: written through, and a sequential run of 16 MiB bypasses the cache.
    pub fn new(name: impl Into<String>, backend: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            backend: backend.into(),
            read_only: false,
            exclusive: false,
            mode: Mode::default(),
            share_min_bytes: 0,
            share_max_bytes: u64::MAX,
            fill_limit_bytes: 0,
            bypass_sequential_bytes: 16 << 20,
            bypass_large_bytes: 0,
            backend_timeout: Duration::from_secs(30),
        }
    }
}
