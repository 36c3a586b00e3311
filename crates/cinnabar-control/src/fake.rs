//! A data plane for tests: it has volumes, and does as it is told.

use super::{Control, Phase};
use cinnabar_config::messages::{
    AnswerTo, CacheStatus, CommandError, CommandErrorKind, Commands, DataStatus, Message,
    ModeCause, SizeStatus, State, VolumeStatus, Waker, channel,
};
use cinnabar_config::settings::VolumeConfig;
use cinnabar_config::status::latency::Latencies;
use cinnabar_engine::seam::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::seam::health::Health;
use cinnabar_engine::seam::volume::Warmth;
use cinnabar_policy::planning::Totals;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The cache, in blocks.
const CAPACITY_BLOCKS: u64 = 1 << 18;
/// Its unit: sizes are whole ones, and those that people write are not.
const SEGMENT_BYTES: u64 = 3 << 20;

#[derive(Debug)]
struct Nobody;

impl Waker for Nobody {
    fn wake(&self) {}
}

/// What it has, and what it was told.
#[derive(Debug, Default)]
pub(crate) struct Has {
    pub(crate) volumes: Vec<VolumeStatus>,
    /// Changes, in words.
    pub(crate) told: Vec<String>,
    /// Volumes that it refuses to change.
    pub(crate) refuses: Vec<String>,
    /// Volumes that it removes, and has an error to tell of that.
    pub(crate) given_up: Vec<String>,
    /// Beginnings of the names of volumes whose adding it never answers.
    pub(crate) hangs: Option<&'static str>,
    unanswered: Vec<AnswerTo<()>>,
    /// Why the last resize has failed.
    pub(crate) resize_failed: String,
    bytes: u64,
}

/// A configuration in a folder, and a control plane above a data plane that serves it.
pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) control: Arc<Control>,
    has: Arc<Mutex<Has>>,
}

impl Site {
    /// With this behind a `[cache]`.
    pub(crate) fn new(more: &str) -> Self {
        Self::with_wait(more, Duration::from_secs(10))
    }

    /// The same, whose commands are waited for no longer than this.
    pub(crate) fn with_wait(more: &str, wait_max: Duration) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("c.toml");
        std::fs::write(&path, text(more)).expect("a file");
        let config = cinnabar_config::load(&path).expect(more);
        let has = Arc::new(Mutex::new(Has::default()));
        let volumes: Vec<_> = config.volumes.iter().cloned().map(status_of).collect();
        {
            let mut has = has.lock().expect("it does not panic");
            (has.volumes, has.bytes) = (volumes, whole(config.cache.size_bytes.expect("a size")));
        }
        let commands = serve(Arc::clone(&has), config.cache.device.clone());
        let (base, socket) = (config.base.clone(), config.control.socket.clone());
        let control = Control::new(base, socket, wait_max);
        control.set_config(&config);
        control.enter(Phase::Serving(commands));
        Self { dir, control, has }
    }

    pub(crate) fn has(&self) -> MutexGuard<'_, Has> {
        self.has.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("c.toml")
    }

    pub(crate) fn file(&self) -> String {
        std::fs::read_to_string(self.path()).expect("it is there")
    }

    /// Other text behind `[cache]`.
    pub(crate) fn write(&self, more: &str) {
        std::fs::write(self.path(), text(more)).expect("it is ours");
    }

    /// What it was told since the last look.
    pub(crate) fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.has().told)
    }

    /// What a volume is now.
    pub(crate) fn volume(&self, name: &str) -> VolumeConfig {
        let has = self.has();
        let found = has.volumes.iter().find(|volume| volume.config.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).config.clone()
    }

    /// A change by command, past the control plane.
    pub(crate) fn by_command(&self, name: &str, change: impl FnOnce(&mut VolumeStatus)) {
        let mut has = self.has();
        let found = has.volumes.iter_mut().find(|volume| volume.config.name == name);
        change(found.unwrap_or_else(|| panic!("no {name}")));
    }
}

fn text(more: &str) -> String {
    format!("[cache]\ndevice = \"cache.img\"\nsize = \"1GiB\"\nsize_max = \"4GiB\"\n{more}")
}

fn serve(has: Arc<Mutex<Has>>, device: PathBuf) -> Commands {
    let (commands, queue) = channel(Arc::new(Nobody));
    std::thread::spawn(move || {
        for message in &queue {
            obey(&mut has.lock().expect("it does not panic"), message, &device);
        }
    });
    commands
}

fn obey(has: &mut Has, message: Message, device: &Path) {
    let refused = |name: &str, refuses: &[String]| {
        let is = refuses.iter().any(|other| other == name);
        let error = CommandError::new(CommandErrorKind::Io, "the back end is away", "wait for it");
        if is { Err(error) } else { Ok(()) }
    };
    match message {
        Message::Status(answer) => {
            let status = DataStatus {
                cache: cache_status(device, has),
                volumes: has.volumes.clone(),
                qos_groups: Vec::new(),
            };
            let _ = answer.send(Ok(status));
        }
        Message::AddVolume(config, answer) => {
            has.told.push(format!("add {}", config.name));
            if has.hangs.is_some_and(|start| config.name.starts_with(start)) {
                return has.unanswered.push(answer);
            }
            if has.volumes.iter().any(|volume| volume.config.name == config.name) {
                let error = CommandError::new(CommandErrorKind::Exists, "it exists", "remove it");
                let _ = answer.send(Err(error));
                return;
            }
            let result = refused(&config.name, &has.refuses);
            if result.is_ok() {
                has.volumes.push(status_of(*config));
            }
            let _ = answer.send(result);
        }
        Message::RemoveVolume { name, answer, .. } => {
            has.told.push(format!("remove {name}"));
            let is_there = has.volumes.iter().any(|volume| volume.config.name == name);
            let none = CommandError::new(CommandErrorKind::NotFound, "there is none", "look");
            let found = if is_there { Ok(()) } else { Err(none) };
            let result = found.and_then(|()| refused(&name, &has.refuses));
            if result.is_ok() {
                has.volumes.retain(|volume| volume.config.name != name);
            }
            let result = result.and_then(|()| refused(&name, &has.given_up));
            let _ = answer.send(result);
        }
        Message::SetVolume { name, change, answer } => {
            has.told.push(format!("set {name}"));
            let result = refused(&name, &has.refuses);
            let mut volumes = has.volumes.iter_mut();
            let found = volumes.find(|volume| volume.config.name == name);
            if let (Ok(()), Some(volume)) = (&result, found) {
                volume.config.apply(change);
            }
            let _ = answer.send(result);
        }
        Message::ResizeCache { size_bytes, answer } => {
            has.told.push(format!("resize {}", size_bytes >> 30));
            has.bytes = whole(size_bytes);
            has.resize_failed.clear();
            let _ = answer.send(Ok(()));
        }
        other => panic!("not expected: {other:?}"),
    }
}

fn status_of(config: VolumeConfig) -> VolumeStatus {
    VolumeStatus {
        config,
        state: State::Serving,
        reason: String::new(),
        waiting: None,
        size_bytes: 1 << 30,
        connections: 0,
        guest_waited: 0,
        overdue_now: 0,
        oldest: None,
        backend_size_bytes: 0,
        warmth: Warmth::New,
        counters: VolumeCounters::default(),
        read_hits_log: 0,
        latencies: Latencies::default(),
        write_back: None,
        mode_by_operator: false,
        mode_cause: ModeCause::default(),
        qos: None,
        parent: None,
        migration: None,
        hybrid: None,
    }
}

const fn whole(bytes: u64) -> u64 {
    bytes / SEGMENT_BYTES * SEGMENT_BYTES
}

fn cache_status(device: &Path, has: &Has) -> CacheStatus {
    let (bytes, failed) = (has.bytes, has.resize_failed.clone());
    let counters = CacheCounters { capacity_blocks: CAPACITY_BLOCKS, ..CacheCounters::default() };
    CacheStatus {
        device: device.to_owned(),
        state: State::Serving,
        reason: String::new(),
        throttled: false,
        size: SizeStatus { bytes, bytes_max: whole(4 << 30), failed, ..SizeStatus::default() },
        health: Health::Serving,
        loaded: None,
        io: "threads".into(),
        shards: 1,
        threads: 1,
        counters,
        losses: 0,
        replacements: 0,
        detached_blocks: 0,
        ram: RamBytes::default(),
        edge_ram_bytes: 0,
        write_log: None,
        io_totals: Totals::default(),
    }
}
