//! What kind of guest to record, on what kind of daemon, and what happens to them.

use super::super::disk::{Attach, Disk, over_nbd, over_vhost_user};
use super::backend::EXPORT;
use e2e::rng::Rng;
use e2e::{Config, MIB, Volume};
use std::fmt::{self, Display};

/// The volume, and the guest's disk.
pub(super) const VOLUME: &str = "vm1";
const CACHE: u64 = 64 * MIB;
/// The mode in which the back end may lag behind the guest.
const WRITE_BACK: &str = "write-back";
/// A back end that takes its time.
const SLOW: &str = "sim:hdd,seed=1:";

/// What to record.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The volume's.
    pub(super) mode: String,
    pub(super) seed: u64,
    /// Transactions of the guest.
    pub(super) commits: u64,
    /// What happens meanwhile.
    pub(super) incidents: Vec<Incident>,
    /// Whether the guest's flushes get to its disk.
    pub(super) flushes: bool,
}

/// What a guest must not notice.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incident {
    /// The daemon is killed and started again.
    Kill,
    /// The daemon is stopped, the clean way, and started again.
    Stop,
    /// The back end's server is started again. In write-back it has lost all that was not flushed; in
    /// other modes that would be the guest's loss, too.
    Server,
    /// Both at once.
    Both,
    /// The volume's mode is changed to write-through, or back.
    Mode,
}

/// So many incidents, some of each kind.
pub(super) fn incidents(mode: &str, count: u64, seed: u64) -> Vec<Incident> {
    let mut rng = Rng::new(seed);
    let kinds = [Incident::Kill, Incident::Stop, Incident::Server, Incident::Both, Incident::Mode];
    let kinds = if mode == WRITE_BACK { &kinds[..] } else { &kinds[..4] };
    (0..count).map(|_| kinds[rng.below(kinds.len() as u64) as usize]).collect()
}

impl Setting {
    /// Whether what the guest was told is at the back end at once.
    pub(super) fn is_synchronous(&self) -> bool {
        self.mode != WRITE_BACK
    }

    /// How the disk comes to the guest.
    pub(super) fn attach(&self) -> (&'static str, Attach) {
        match self.seed % 2 {
            0 => ("vhost-user", over_vhost_user),
            _ => ("NBD", over_nbd),
        }
    }

    /// The daemon's, with this disk.
    pub(super) fn config(&self, disk: &Disk) -> Config {
        let mut config = Config::new(CACHE);
        // In write-back, some lag behind.
        let pace = if self.is_synchronous() || self.seed.is_multiple_of(3) { "" } else { SLOW };
        let mut volume = Volume::new(VOLUME, &format!("{pace}nbd:unix:server:{EXPORT}"))
            .key("exclusive = true")
            .key(&format!("mode = \"{}\"", self.mode));
        if self.seed % 4 < 2 {
            config = config.cache_key("shards = 3\nthreads = 2");
        }
        if !self.is_synchronous() {
            config = config
                .cache_key("write_log = \"wl.img\"\nwrite_log_size = \"64MiB\"")
                .cache_key(&format!("drain_on_stop = {}", self.seed.is_multiple_of(4)));
            volume = volume.key("claim = \"claim\"");
        }
        config.volume(disk.configure(volume))
    }
}

impl Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, seed, commits, incidents, flushes } = self;
        let front = self.attach().0;
        write!(formatter, "{mode}, seed {seed}: {commits} commits over {front}, {incidents:?}")?;
        if *flushes { Ok(()) } else { write!(formatter, ", without flushes") }
    }
}
