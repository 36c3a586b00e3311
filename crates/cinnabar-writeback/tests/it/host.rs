//! The host that the daemon runs on: its boots, and the write memory, which outlives the daemon.

use super::memory::Mem;
use super::memory_file::MemFile;
use super::rng::Rng;
use super::settings::{Counts, Settings};
use super::ssd::Ssd;
use super::world::{Checked, World};
use cinnabar_engine::RequestId;
use cinnabar_writeback::memory::{Host, MemoryAt, MemoryOp, open_with, release};
use cinnabar_writeback::recover::{Media, OpenError};
use cinnabar_writeback::{Command, Config, Event, LogVolumeId, WriteLog};
use rand::RngExt;
use std::cell::Cell;

const PATH: &str = "/dev/shm/memory";

/// See the module.
pub(crate) struct Hosted {
    rng: Rng,
    boot: u8,
    nonce: Cell<u64>,
    file: Option<MemFile>,
    /// What it has held at earlier crashes.
    old: Vec<Vec<u8>>,
    /// What is to be there, while something else is.
    right: Option<Vec<u8>>,
}

impl Hosted {
    pub(crate) fn new(seed: u64, settings: &Settings) -> Self {
        let file = settings.memory.map(MemFile::new);
        let rng = Rng::seed_from_u64(seed ^ 0x4057);
        Self { rng, boot: 1, nonce: Cell::new(seed), file, old: Vec::new(), right: None }
    }

    /// Opens the log with the memory that is there. `lost`: the operator says that it may be.
    pub(crate) fn open(
        &self,
        ssd: &impl Media<Mem>,
        bytes: u64,
        config: Config,
        lost: bool,
    ) -> Result<WriteLog<Mem>, OpenError> {
        self.nonce.set(self.nonce.get() + 1);
        let nonce = self.nonce.get();
        let memory =
            self.file.as_ref().map(|file| MemoryAt { file, path: PATH, nonce, may_be_lost: lost });
        open_with(ssd, bytes, config, &Host { boot: [self.boot; 16], memory })
    }

    pub(crate) fn store(&self, op: &MemoryOp<Mem>) {
        op.carry_out(self.file.as_ref().expect("the log has a memory"));
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.file.as_ref().is_some_and(MemFile::is_killed)
    }

    pub(crate) fn revive(&self) {
        if let Some(file) = &self.file {
            file.revive();
        }
    }

    /// The daemon may be killed at one of the next stores.
    pub(crate) fn draw_kill(&mut self, settings: &Settings) {
        if let Some(file) = &self.file
            && self.rng.random_bool(settings.memory_kill)
        {
            let bytes = [0, 1, 4, 8, 50, 300, 2048][self.rng.random_range(0..7)];
            file.kill_after(self.rng.random_range(0..40), bytes);
        }
    }

    /// Whether a volume's writes are acknowledged from memory, if there is one.
    pub(crate) fn draws_memory(&mut self, settings: &Settings) -> Option<bool> {
        self.file.as_ref().map(|_| self.rng.random_bool(settings.from_memory))
    }

    /// The log was closed, and says so.
    pub(crate) fn release(ssd: &Ssd) {
        release(ssd).expect("the device works");
    }

    /// The daemon has been killed, or the host has lost power. True: another file is there than should
    /// be, for once.
    pub(crate) fn crash(&mut self, settings: &Settings, power: bool, counts: &mut Counts) -> bool {
        let Some(file) = &self.file else { return false };
        let content = file.content();
        self.old.push(content.clone());
        let which = self.rng.random_range(0..self.old.len());
        if power {
            // What comes back is nothing, or what must not be believed.
            self.boot += 1;
            let stale = self.rng.random_bool(0.5);
            counts.memory_stale += u64::from(stale);
            let fresh = MemFile::new(settings.memory.expect("there is one")).content();
            file.replace(if stale { self.old[which].clone() } else { fresh });
            return false;
        }
        if !self.rng.random_bool(settings.memory_lost) {
            return false;
        }
        let other = self.old[which].clone();
        let fresh = MemFile::new(settings.memory.expect("there is one")).content();
        file.replace(if self.rng.random_bool(0.5) { other } else { fresh });
        self.right = Some(content);
        true
    }

    /// Opens a log whose memory is not there, or is another one. Nothing may be believed, and nothing
    /// lost in silence.
    pub(crate) fn refuses(&mut self, ssd: &Ssd, bytes: u64, config: Config) -> Checked<bool> {
        let file = self.file.as_ref().expect("there is one");
        if Some(file.content()) == self.right {
            return Ok(false);
        }
        let noted =
            !matches!(cinnabar_writeback::memory::note::read(ssd, superblock(ssd)), Ok(None));
        let opened = self.open(ssd, bytes, config, false);
        match opened {
            Err(OpenError::Memory(path)) if noted && path == PATH => Ok(true),
            Err(error) => Err(format!("not the right refusal: {error}")),
            Ok(_) if !noted => {
                // Nothing was in memory, and now this one is in use.
                self.right = None;
                Ok(false)
            }
            Ok(_) => Err("a log was opened without the memory that holds its writes".to_owned()),
        }
    }

    /// The right memory is there again, or it is lost for good: true.
    pub(crate) fn restore(&mut self, settings: &Settings) -> bool {
        let (Some(file), Some(right)) = (&self.file, self.right.take()) else { return false };
        if self.rng.random_bool(0.5) {
            let pages = settings.memory.expect("there is one");
            file.replace(MemFile::new(pages).content());
            return true;
        }
        file.replace(right);
        false
    }
}

impl World {
    /// Whether writes of a volume are acknowledged from memory is drawn at each attach. It is told
    /// before requests come, or between them.
    pub(crate) fn acknowledge(&mut self, place: LogVolumeId) {
        if let Some(memory) = self.host.draws_memory(&self.settings) {
            self.told.push(Event::Control(RequestId(0), Command::Acknowledge { place, memory }));
        }
    }
}

fn superblock(ssd: &Ssd) -> [u8; 16] {
    cinnabar_writeback::recover::superblock(ssd).expect("it was formatted").uuid
}
