//! The volumes, the books of what they hold, and the daemon that comes and goes between them.

use super::load::{self, Shared};
use super::meddle::TAIL_BYTES;
use anyhow::{Context, Result, ensure};
use e2e::books::Books;
use e2e::nbd::Client;
use e2e::rng::Rng;
use e2e::{Config, Daemon, MIB, Site, Status, Volume, stamps};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a volume that guests use.
pub(super) const DISK: u64 = 24 * MIB;
const GUESTS: u64 = 3;
/// Connections to each volume.
const CONNECTIONS: u64 = 4;
/// What was written to flash this long ago must be there after a crash: a block waits at most a
/// second for its chunk, and as long again for the heartbeat that flushes the back end; the third
/// is for slow disks.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(3);
/// The volume that fio verifies.
pub(super) const FIO_VOLUME: &str = "fio";
pub(super) const FIO_DISK: u64 = 16 * MIB;

/// A volume and what it must hold.
pub(super) struct Guest {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) books: Books,
}

/// Everything that outlives the daemon, and the daemon.
pub(super) struct World {
    pub(super) site: Site,
    pub(super) guests: Vec<Guest>,
    pub(super) shared: Shared,
    pub(super) rng: Rng,
    config: Config,
    daemon: Option<Daemon>,
    notes: Vec<Note>,
}

/// Blocks written to flash so far in this run of the daemon.
#[derive(Clone, Copy, Debug)]
struct Note {
    at: Instant,
    flash_blocks: u64,
}

/// What a crash must leave, seen just before.
#[derive(Clone, Debug)]
pub(super) struct Before {
    /// Blocks that had reached the SSD, of all volumes.
    pub(super) resident: u64,
    /// Blocks of each guest, RAM included.
    pub(super) cached: Vec<u64>,
    /// Blocks that were on their way at the kill: written to flash lately, in active regions, or
    /// written by guests since this was seen.
    pub(super) in_flight: u64,
    /// Blocks evicted in this run of the daemon.
    pub(super) evicted: u64,
}

/// How guests end their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// They are asked to stop.
    Stop,
    /// The daemon is killed under them.
    Kill,
    /// The daemon is asked to end under them.
    Ask,
}

impl World {
    /// Volumes full of stamps and a cache of `cache` bytes; nothing is started.
    pub(super) fn new(cache: u64, seed: u64) -> Result<Self> {
        let site = Site::new()?;
        let shared = Shared::default();
        let first = shared.next_version();
        // Reading a disk from end to end must not count as a scan that bypasses the cache.
        let volume = |name: &str, file: &str| {
            Volume::new(name, &format!("file:{file}"))
                .key("bypass_sequential = \"0\"")
                .key("bypass_large = \"0\"")
        };
        let mut config = Config::new(cache).volume(volume(FIO_VOLUME, "fio.raw"));
        site.sparse("fio.raw", FIO_DISK)?;
        let mut guests = Vec::new();
        for number in 1..=GUESTS {
            let (name, file) = (format!("vm{number}"), format!("vm{number}.raw"));
            config = config.volume(volume(&name, &file));
            let sectors = DISK / stamps::SECTOR as u64;
            let mut data = stamps::made(number, 0, sectors, first);
            data.resize(data.len() + TAIL_BYTES as usize, 0);
            let path = site.path(&file);
            std::fs::write(&path, data)?;
            guests.push(Guest { name, path, books: Books::new(number, sectors, first) });
        }
        let rng = Rng::new(seed);
        Ok(Self { site, guests, shared, rng, config, daemon: None, notes: Vec::new() })
    }

    /// Adds a setting of the cache.
    pub(super) fn set(&mut self, line: &str) {
        self.config = self.config.clone().cache_key(line);
    }

    /// Starts the daemon and waits until guests can connect.
    pub(super) fn start(&mut self) -> Result<()> {
        let daemon = self.site.serve(&self.config)?;
        self.notes = vec![Note { at: Instant::now(), flash_blocks: 0 }];
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Starts the daemon and kills it `later`, wherever it has got to.
    pub(super) fn start_and_kill(&mut self, later: Duration) -> Result<()> {
        let daemon = self.site.launch(&self.config)?;
        thread::sleep(later);
        daemon.crash()
    }

    pub(super) fn daemon(&self) -> Result<&Daemon> {
        self.daemon.as_ref().context("there is no daemon now")
    }

    /// Waits until the index is loaded, and hands back the status then.
    pub(super) fn loaded(&self) -> Result<Status> {
        self.daemon()?.loaded()
    }

    /// Reads all of a guest's volume, compares it, and hands back how many blocks were hits.
    pub(super) fn read_all(&self, guest: &Guest) -> Result<u64> {
        self.hits(&guest.name, |client| load::read_all(client, &guest.books))
    }

    /// Reads all of the volume that fio verifies; how many blocks were hits.
    pub(super) fn read_all_of_fio(&self) -> Result<u64> {
        self.hits(FIO_VOLUME, |client| {
            (0..FIO_DISK).step_by(64 << 10).try_for_each(|at| client.read(at, 64 << 10).map(drop))
        })
    }

    fn hits(&self, name: &str, read: impl FnOnce(&mut Client) -> Result<()>) -> Result<u64> {
        let hits = || self.daemon()?.glance()?.count(name, "read_hits");
        let before = hits()?;
        read(&mut self.client(name)?).with_context(|| name.to_owned())?;
        Ok(hits()? - before)
    }

    /// Lets guests work on all volumes for a while, with a `pause` after each request. Hands back
    /// what was there at the end, seen just before the kill if there was one.
    pub(super) fn work(&mut self, time: Duration, pause: Duration, end: End) -> Result<Before> {
        self.note()?;
        self.shared.stop.store(false, Ordering::Relaxed);
        let seed = self.rng.roll();
        let answered = self.shared.answered.load(Ordering::Relaxed);
        let clients = (0..GUESTS * CONNECTIONS)
            .map(|number| Ok((number, self.client(&self.guest_of(number).name)?)))
            .collect::<Result<Vec<_>>>()?;
        let daemon = self.daemon.take().context("there is no daemon now")?;
        let (last, daemon) = thread::scope(|scope| -> Result<_> {
            let (guests, shared) = (&self.guests, &self.shared);
            let workers: Vec<_> = clients
                .into_iter()
                .map(|(number, client)| {
                    let books = &guests[(number % GUESTS) as usize].books;
                    let rng = Rng::new(seed ^ number);
                    scope.spawn(move || load::run(client, books, shared, rng, pause))
                })
                .collect();
            let ended = watch(daemon, time, end, shared, &mut self.notes);
            shared.stop.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().expect("the worker does not panic")?;
            }
            ended
        })?;
        self.daemon = daemon;
        let answered = self.shared.answered.load(Ordering::Relaxed) - answered;
        ensure!(answered > 50, "only {answered} requests were answered");
        let touched = self.shared.touched_blocks.load(Ordering::Relaxed) - last.touched_blocks;
        self.before(&last.status, touched)
    }

    /// What a crash now must leave, when nothing is under way.
    pub(super) fn at_rest(&self) -> Result<Before> {
        self.before(&self.daemon()?.glance()?, 0)
    }

    /// Kills the daemon.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.daemon.take().context("there is no daemon now")?.crash()
    }

    /// Stops it the clean way.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.daemon.take().context("there is no daemon now")?.stop()
    }

    /// Remembers how much has been written to flash by now.
    pub(super) fn note(&mut self) -> Result<()> {
        let note = Note::new(&self.daemon()?.glance()?)?;
        self.notes.push(note);
        Ok(())
    }

    fn before(&self, status: &Status, touched_blocks: u64) -> Result<Before> {
        let now = Note::new(status)?;
        let settled = |note: &&Note| now.at.duration_since(note.at) > IN_FLIGHT;
        let settled = self.notes.iter().rev().find(settled).map_or(0, |note| note.flash_blocks);
        let cached = |guest: &Guest| status.count(&guest.name, "cached_blocks");
        Ok(Before {
            resident: status.cache("cached_blocks")? - status.cache("ram_blocks")?,
            cached: self.guests.iter().map(cached).collect::<Result<_>>()?,
            in_flight: now.flash_blocks - settled + status.cache("doubt_blocks")? + touched_blocks,
            evicted: status.cache("evicted_blocks")?,
        })
    }

    fn guest_of(&self, connection: u64) -> &Guest {
        &self.guests[(connection % GUESTS) as usize]
    }

    fn client(&self, name: &str) -> Result<Client> {
        let socket = self.site.path(&format!("{name}.sock"));
        Client::connect(&socket, name).with_context(|| format!("to {name}"))
    }
}

impl Note {
    fn new(status: &Status) -> Result<Self> {
        let admitted = status.0["cache"]["admitted"].as_object().context("no admitted blocks")?;
        let admitted: u64 = admitted.values().filter_map(serde_json::Value::as_u64).sum();
        let flash_blocks = admitted + status.cache("reinserted_blocks")?;
        Ok(Self { at: Instant::now(), flash_blocks })
    }
}

/// The last look at a daemon, and the blocks that guests had touched until then.
struct Last {
    status: Status,
    touched_blocks: u64,
}

/// Waits, keeping notes, then kills the daemon if that is wanted.
fn watch(
    daemon: Daemon,
    time: Duration,
    end: End,
    shared: &Shared,
    notes: &mut Vec<Note>,
) -> Result<(Last, Option<Daemon>)> {
    let start = Instant::now();
    while start.elapsed() < time {
        thread::sleep(Duration::from_millis(250).min(time.saturating_sub(start.elapsed())));
        notes.push(Note::new(&daemon.glance()?)?);
    }
    let touched_blocks = shared.touched_blocks.load(Ordering::Relaxed);
    let last = Last { status: daemon.glance()?, touched_blocks };
    match end {
        End::Stop => Ok((last, Some(daemon))),
        End::Kill => daemon.crash().map(|()| (last, None)),
        End::Ask => daemon.stop().map(|()| (last, None)),
    }
}
