//! A folder with a cache and volumes, and a data plane over them.

use super::client::Client;
use crate::dataplane;
use cinnabar_config::messages::{
    Ack, AnswerTo, CacheConfig, CommandError, CommandErrorKind, DataPlaneHandle, DataStatus,
    EvictionMode, IoMode, Message, NbdAddress, Share, SocketAccess, StartConfig, StartError,
    StopReport, VolumeConfig, VolumeMode, WriteLogConfig,
};
use cinnabar_driver::qos::Settings;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

pub(super) const MIB: u64 = 1 << 20;
/// Size of the volumes' files.
pub(super) const SIZE: u64 = 8 * MIB;

pub(in super::super) struct Rig {
    pub(super) folder: tempfile::TempDir,
    pub(super) config: StartConfig,
    running: Option<DataPlaneHandle>,
}

impl Rig {
    /// A small cache and the volumes `names`, their files filled with [`pattern`].
    pub(in super::super) fn new(io: IoMode, names: &[&str]) -> Self {
        let layout = LAYOUT.get();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cache = CacheConfig {
            device: folder.path().join("cache.img"),
            size_bytes: Some(layout.shards.map_or(32 * MIB, |shards| u64::from(shards) * 24 * MIB)),
            size_max_bytes: None,
            io,
            force: false,
            required: false,
            crash_safe: true,
            device_timeout: Duration::from_secs(30),
            state_dir: folder.path().join("state"),
            eviction: EvictionMode::Probation,
            endurance: cinnabar_engine::Endurance::default(),
            probation_bytes: None,
            shards: layout.shards,
            threads: layout.threads,
            client_memory_bytes: None,
            poll_max: Duration::from_micros(50),
            write_log: None,
        };
        let config = StartConfig {
            cache,
            volumes: Vec::new(),
            manager: None,
            qos_groups: Vec::new(),
            // Not zero: another test's child process may hold copies of our descriptors for a moment.
            lock_wait_max: Duration::from_secs(5),
            tls: None,
            cancel: Arc::default(),
        };
        let mut rig = Self { folder, config, running: None };
        for name in names {
            let volume = rig.volume(name);
            rig.config.volumes.push(volume);
        }
        rig
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Settings of a volume, and a file for it.
    pub(in super::super) fn volume(&self, name: &str) -> VolumeConfig {
        let file = self.path(&format!("{name}.raw"));
        std::fs::write(&file, pattern(0, SIZE as usize)).expect("a file");
        VolumeConfig {
            name: name.into(),
            backend: format!("file:{}", file.display()),
            mode: VolumeMode::WriteThrough,
            ack: Ack::Durable,
            share_min: Share::Bytes(0),
            share_max: Share::Percent(100.0),
            auto_mode: false,
            weight: 1,
            nbd: Some(NbdAddress::Unix(self.path(&format!("{name}.sock")))),
            vhost_user: None,
            claim: None,
            socket: SocketAccess::default(),
            read_only: false,
            shared: false,
            exclusive: false,
            raw: false,
            return_snapshot: false,
            bypass_sequential_bytes: 0,
            bypass_large_bytes: 0,
            fill_limit_bytes: 0,
            memory_max_bytes: 1 << 40,
            backend_timeout: Duration::from_secs(30),
            qos_group: None,
            write_group: None,
            qos: Settings::default(),
            guest_iops_limit: 0,
            guest_bytes_limit: 0,
            parent: None,
            peer: None,
            warm: cinnabar_config::settings::WarmSettings::default(),
        }
    }

    /// The same with a write log, and the volumes in write-back mode.
    pub(super) fn write_back(io: IoMode, names: &[&str]) -> Self {
        let mut rig = Self::new(io, names);
        rig.config.cache.write_log = Some(WriteLogConfig {
            pace: true,
            path: rig.path("writes.img"),
            mirror: None,
            size_bytes: Some(32 * MIB),
            dirty_max_percent: 80,
            rpo: Duration::from_secs(30),
            drain_on_stop: true,
            memory: None,
        });
        for volume in &mut rig.config.volumes {
            volume.mode = VolumeMode::WriteBack;
        }
        rig
    }

    pub(super) fn try_start(&mut self) -> Result<(), StartError> {
        self.running = Some(dataplane::start(self.config.clone())?);
        Ok(())
    }

    pub(super) fn start(&mut self) {
        self.try_start().expect("it starts");
    }

    pub(super) fn client(&self, name: &str) -> Client {
        Client::connect(&self.path(&format!("{name}.sock")), name)
    }

    /// Sends a message and waits for its answer.
    pub(super) fn ask<T>(
        &self,
        message: impl FnOnce(AnswerTo<T>) -> Message,
    ) -> Result<T, CommandError> {
        self.send(message).blocking_recv().expect("every message is answered")
    }

    /// Removes a volume; its writes that are not on its back end keep it.
    pub(super) fn remove(&self, name: &str, force: bool) -> Result<(), CommandErrorKind> {
        let name = name.to_owned();
        self.ask(|answer| Message::RemoveVolume { name, force, discard_dirty: false, answer })
            .map_err(|error| error.kind)
    }

    /// The same, without waiting.
    pub(super) fn send<T>(
        &self,
        message: impl FnOnce(AnswerTo<T>) -> Message,
    ) -> oneshot::Receiver<Result<T, CommandError>> {
        let (answer, answered) = oneshot::channel();
        let running = self.running.as_ref().expect("it runs");
        running.commands.send(message(answer)).expect("there is room");
        answered
    }

    /// Takes a data plane that the test runs itself, as far as messages go.
    pub(super) fn adopt(&mut self, commands: cinnabar_config::messages::Commands) {
        let (_, ended) = oneshot::channel();
        self.running = Some(DataPlaneHandle { commands, ended, streams: None, pulses: Vec::new() });
    }

    /// Where messages go.
    pub(super) fn commands(&self) -> cinnabar_config::messages::Commands {
        self.running.as_ref().expect("it runs").commands.clone()
    }

    pub(super) fn status(&self) -> DataStatus {
        self.ask(Message::Status).expect("there is always a status")
    }

    /// The status once the index is loaded.
    pub(super) fn loaded(&self) -> DataStatus {
        loop {
            let status = self.status();
            if status.cache.loaded.is_some() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn stop(&mut self) -> StopReport {
        self.stop_within(Duration::from_mins(1))
    }

    pub(super) fn stop_within(&mut self, deadline: Duration) -> StopReport {
        let report = self.ask(|answer| Message::Stop { deadline, answer }).expect("it stops");
        let running = self.running.take().expect("it ran");
        // A stop sets it; the next daemon is another process, with one of its own.
        self.config.cancel = Arc::default();
        assert_eq!(running.ended.blocking_recv().expect("the thread says how it ended"), Ok(()));
        report
    }
}

/// Bytes that differ everywhere: each 8 bytes hold their own offset, scrambled.
pub(super) fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64 / 8)
        .flat_map(|i| (offset + i * 8).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

/// Shards and threads of the rigs that a test makes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    shards: Option<u32>,
    threads: usize,
}

const SIMPLE: Layout = Layout { shards: None, threads: 1 };

thread_local! {
    static LAYOUT: Cell<Layout> = const { Cell::new(SIMPLE) };
}

/// Both ways of doing I/O, and several shards on several threads.
const WAYS: [(IoMode, Layout); 3] = [
    (IoMode::Auto, SIMPLE),
    (IoMode::Threads, SIMPLE),
    (IoMode::Auto, Layout { shards: Some(3), threads: 2 }),
];

/// Runs a test over both ways of doing I/O, and with several shards on several threads.
pub(super) fn both(test: impl Fn(IoMode)) {
    for way in 0..WAYS.len() {
        in_way(way, &test);
    }
}

/// Runs a test in one of these ways: of a test that waits for long each is a test of its own, and they
/// wait at the same time.
pub(super) fn in_way(way: usize, test: impl Fn(IoMode)) {
    let (io, layout) = WAYS[way];
    eprintln!("{io:?}, {layout:?}");
    LAYOUT.set(layout);
    test(io);
    LAYOUT.set(SIMPLE);
}

/// Runs a test with three shards and one, two and three data threads.
pub(super) fn on_threads(test: impl Fn(usize)) {
    for threads in 1..=3 {
        eprintln!("{threads} threads");
        LAYOUT.set(Layout { shards: Some(3), threads });
        test(threads);
    }
    LAYOUT.set(SIMPLE);
}
