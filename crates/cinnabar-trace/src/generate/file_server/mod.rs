//! A file server and the hosts that use it, after Holland, Angelino, Wald and Seltzer, "Flash caching on
//! the storage client" (USENIX ATC 2013), as a trace.
//!
//! Two ways: single blocks of a working set, all alike ([`super::working_set`], what the timed
//! simulator uses), or runs within the files of a population (`files`). In the model a thread asks
//! again when it is answered; a trace can't know when that will be, so requests come at a given
//! rate, from each thread in turn.

mod files;

pub use files::{
    BODY_SHARE, FILE_PART_MAX, FILES_PER_DIRECTORY, SIZE_MU, SIZE_SIGMA, TAIL_ALPHA, TAIL_BYTES,
};

use super::chance::Chance;
use super::clock::{Clock, check_rate};
use super::error::{Error, check_range};
use super::lengths::LENGTH_BLOCKS_MAX;
use super::request;
use super::working_set::{self, Sharing, WorkingSet};
use crate::record::Record;
use files::{Files, WorkingFiles};

/// The stream of chance of the clock; threads have the ones from 0 on.
const CLOCK_STREAM: u64 = 1 << 32;
/// The stream of chance of the files.
const FILES_STREAM: u64 = CLOCK_STREAM + 1;

/// What is a volume in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volumes {
    /// The server: what hosts share, they share in the trace.
    Server,
    /// Each host sees a volume of its own.
    Host,
    /// Each thread of each host does.
    Thread,
}

/// What is on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Blocks, asked for one at a time.
    Blocks,
    /// Files; at most so many blocks of one are asked for at a time, from any of its blocks on.
    Files {
        /// 1 to [`LENGTH_BLOCKS_MAX`].
        run_blocks: u64,
    },
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Hosts, threads, sizes, shares and the seed.
    pub access: working_set::Settings,
    /// What is on the server.
    pub content: Content,
    /// What is a volume in the trace.
    pub volumes: Volumes,
    /// Requests a second of all threads together, a Poisson stream.
    pub per_second: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            access: working_set::Settings::default(),
            content: Content::Blocks,
            volumes: Volumes::Server,
            per_second: 5000.0,
        }
    }
}

/// The workload: an endless iterator in order of time.
#[derive(Debug)]
pub struct FileServer {
    settings: Settings,
    threads: WorkingSet,
    files: Option<Population>,
    clock: Clock,
    chance: Chance,
    /// Whose turn it is.
    turn: u32,
}

/// The files, and the working sets among them.
#[derive(Debug)]
struct Population {
    files: Files,
    sets: Vec<WorkingFiles>,
    run_blocks: u64,
}

impl FileServer {
    /// The server and its hosts, which have asked for nothing yet.
    ///
    /// # Errors
    /// A number out of range, or working sets larger than the total.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let threads = WorkingSet::new(settings.access)?;
        check_rate(settings.per_second)?;
        let files = match settings.content {
            Content::Blocks => None,
            Content::Files { run_blocks } => {
                check_range("a run in blocks", run_blocks, 1, LENGTH_BLOCKS_MAX)?;
                Some(Population::new(&settings.access, run_blocks)?)
            }
        };
        let chance = Chance::new(settings.access.seed, CLOCK_STREAM);
        Ok(Self { settings, threads, files, clock: Clock::new(), chance, turn: 0 })
    }

    /// Files and directories of the population; none if there are only blocks.
    pub fn population(&self) -> Option<(u64, u64)> {
        let files = &self.files.as_ref()?.files;
        Some((files.count(), files.directories()))
    }
}

impl Population {
    fn new(access: &working_set::Settings, run_blocks: u64) -> Result<Self, Error> {
        let mut chance = Chance::new(access.seed, FILES_STREAM);
        let files = Files::new(access.total_blocks, &mut chance)?;
        let sets = match access.sharing {
            Sharing::Shared => 1,
            Sharing::Private => access.hosts,
        };
        let set = |_| files.working_set(access.working_set_blocks, &mut chance);
        Ok(Self { sets: (0..sets).map(set).collect(), files, run_blocks })
    }

    /// Where on the server a block of the plain model is, and how much of its file is asked for.
    fn place(&self, access: &working_set::Access) -> (u64, u64) {
        let block = if access.outside {
            access.block
        } else {
            let set = access.host as usize % self.sets.len();
            let working = &self.sets[set];
            working.block(access.block - set as u64 * working.blocks())
        };
        (block, self.files.left(block).min(self.run_blocks))
    }
}

impl Iterator for FileServer {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let thread = self.turn;
        self.turn = (thread + 1) % self.settings.access.threads_of_all();
        let ts_us = self.clock.next_us(self.settings.per_second, &mut self.chance);
        let access = self.threads.next(thread);
        let (first, blocks) =
            self.files.as_ref().map_or((access.block, 1), |files| files.place(&access));
        let volume = match self.settings.volumes {
            Volumes::Server => 0,
            Volumes::Host => access.host,
            Volumes::Thread => thread,
        };
        Some(request(ts_us, volume, access.write, first, blocks))
    }
}
