//! `cinnabar serve --demo`: a disk, a slow file server in front of it, a small cache.

use cinnabar_config::settings::{CacheConfig, EvictionMode, IoMode};
use cinnabar_config::{Config, ControlConfig, Given, Lines, VolumeInput};
use cinnabar_engine::Endurance;
use cinnabar_text::Failure;
use cinnabar_text::show_size;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const DISK: &str = "disk.raw";
const DISK_BYTES: u64 = 1 << 30;
const CACHE: &str = "cache.img";
const CACHE_BYTES: u64 = 256 << 20;

/// The demonstration's folder; a temporary one is removed when dropped.
#[derive(Debug)]
pub(super) struct Demo {
    path: PathBuf,
    _temporary: Option<TempDir>,
}

impl Demo {
    /// Makes the folder, if need be, and the disk in it.
    pub(super) fn new(dir: Option<&Path>) -> Result<Self, Failure> {
        let failed = |path: &Path, error: std::io::Error| {
            let message = format!("can't make the demonstration in {}: {error}", path.display());
            Failure::of_usage(message, "choose another folder with --dir")
        };
        let (path, temporary) = if let Some(dir) = dir {
            std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
            (std::path::absolute(dir).map_err(|error| failed(dir, error))?, None)
        } else {
            let dir = tempfile::Builder::new()
                .prefix("cinnabar-demo-")
                .tempdir()
                .map_err(|error| failed(&std::env::temp_dir(), error))?;
            (dir.path().to_owned(), Some(dir))
        };
        let disk = path.join(DISK);
        // One of an earlier run is served again, whatever its size.
        match OpenOptions::new().write(true).create_new(true).open(&disk) {
            Ok(file) => file.set_len(DISK_BYTES).map_err(|error| failed(&disk, error))?,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&disk, error)),
        }
        Ok(Self { path, _temporary: temporary })
    }

    /// What to serve.
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let volume = VolumeInput {
            name: "demo".into(),
            backend: format!("sim:filer,seed=1:file:{DISK}"),
            ..VolumeInput::default()
        };
        Ok(Config {
            file: self.path.clone(),
            text: None,
            given: Given::default(),
            base: self.path.clone(),
            cache: CacheConfig {
                device: self.path.join(CACHE),
                size_bytes: Some(CACHE_BYTES),
                size_max_bytes: None,
                io: IoMode::Auto,
                force: false,
                required: false,
                crash_safe: true,
                device_timeout: Duration::from_secs(30),
                state_dir: self.path.join("state"),
                eviction: EvictionMode::Probation,
                endurance: Endurance::default(),
                probation_bytes: None,
                shards: None,
                threads: 1,
                poll_max: Duration::from_micros(50),
                write_log: None,
            },
            lock_wait_max: Duration::from_secs(5),
            qos_groups: Vec::new(),
            control: ControlConfig {
                peers: None,
                socket: self.path.join("control.sock"),
                socket_group: None,
                http: None,
                http_tls: None,
                api: None,
                stop_wait_max: Duration::from_mins(1),
            },
            tls: None,
            manager: None,
            volumes: vec![volume.check(&self.path)?],
            lines: Lines::default(),
            warnings: Vec::new(),
        })
    }
}

/// How to connect, and what to look at.
pub(super) fn welcome(config: &Config, temporary: bool) -> String {
    let folder = config.base.display();
    let uri = format!("nbd+unix:///demo?socket={folder}/demo.sock");
    let socket = config.control.socket.display();
    let end = if temporary { "Ctrl-C; the files are removed" } else { "Ctrl-C; the files stay" };
    format!(
        "\n\
        A disk behind a simulated file server, with a cache of {cache} in front.\n\
        \n\
        attach  {uri}\n\
        look    nbdinfo '{uri}'\n\
        watch   cinnabar status --socket {socket} --watch\n\
        load    fio --name=demo --ioengine=nbd --uri='{uri}' --rw=randrw --rwmixread=70 --bs=4k \
        --iodepth=16 --size=1g --random_distribution=zipf:1.2 --time_based --runtime=60\n\
        end     {end}\n\n",
        cache = show_size(CACHE_BYTES),
    )
}
