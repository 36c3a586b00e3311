//! A volume that goes over between two daemons again and again, under guests that know what they wrote;
//! its owner killed, or frozen and woken.
//!
//! `CINNABAR_MIGRATIONS` is how many hand-overs are asked for; there is a kill for five of them and a
//! frozen owner for ten.

use super::{config, role, token};
use crate::crash::load::{self, Shared};
use anyhow::{Context, Result, ensure};
use e2e::books::Books;
use e2e::nbd::Client;
use e2e::rng::Rng;
use e2e::{Config, Daemon, MIB, Site, Volume, daemon::free_port, stamps};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const VARIABLE: &str = "CINNABAR_MIGRATIONS";
const HAND_OVERS: u64 = 15;
const NAME: &str = "vm1";
const DISK: u64 = 16 * MIB;
const CACHE: u64 = 48 * MIB;
/// Connections of a guest.
const CONNECTIONS: u64 = 4;

/// See the module.
pub(super) fn many() -> Result<()> {
    let asked = std::env::var(VARIABLE).ok().map(|number| number.parse()).transpose()?;
    let asked: u64 = asked.unwrap_or(HAND_OVERS);
    let mut world = World::new()?;
    for round in 0..asked {
        world.hand_over().with_context(|| format!("hand-over {round}"))?;
    }
    let storms = world.storm()?;
    for round in 0..asked / 5 {
        world.fail_over().with_context(|| format!("fail-over {round}"))?;
    }
    for round in 0..asked / 10 {
        world.freeze().with_context(|| format!("frozen owner {round}"))?;
    }
    let requests = world.shared.answered.load(Ordering::Relaxed);
    println!(
        "{asked} hand-overs one after the other, {storms} by guests of both hosts at a time, {} owners \
         killed, {} frozen; {requests} requests, the longest wait for the volume {:.3} s",
        asked / 5,
        asked / 10,
        world.longest_s
    );
    world.stop()
}

/// The hosts, the image, and what it must hold.
struct World {
    sites: [Site; 2],
    configs: [Config; 2],
    daemons: [Option<Daemon>; 2],
    image: PathBuf,
    books: Books,
    shared: Shared,
    rng: Rng,
    /// Where the volume is.
    owner: usize,
    longest_s: f64,
    /// Holds image and token.
    _folder: Site,
}

impl World {
    fn new() -> Result<Self> {
        let (folder, sites) = (Site::new()?, [Site::new()?, Site::new()?]);
        let (token, a, b) = (token(&folder)?, free_port()?, free_port()?);
        let shared = Shared::default();
        let (first, sectors) = (shared.next_version(), DISK / stamps::SECTOR as u64);
        let image = folder.path("image.raw");
        std::fs::write(&image, stamps::made(1, 0, sectors, first))?;
        let backend = format!("file:{}", image.display());
        let volume = || {
            Volume::new(NAME, &backend).key("bypass_sequential = \"0\"").key("bypass_large = \"0\"")
        };
        let configs =
            [config(CACHE, [volume()], (a, b), &token), config(CACHE, [volume()], (b, a), &token)];
        let daemons = [Some(sites[0].serve(&configs[0])?), Some(sites[1].serve(&configs[1])?)];
        let (books, rng) = (Books::new(1, sectors, first), Rng::new(1));
        let (owner, longest_s) = (0, 0.0);
        let world = Self {
            sites,
            configs,
            daemons,
            image,
            books,
            shared,
            rng,
            owner,
            longest_s,
            _folder: folder,
        };
        world.daemon(0)?.command(&["migrate", "in", NAME, "--take"])?;
        Ok(world)
    }

    fn daemon(&self, host: usize) -> Result<&Daemon> {
        self.daemons[host].as_ref().context("that daemon is dead")
    }

    fn connect(&self, host: usize) -> Result<Client> {
        Client::connect(&self.sites[host].path(&format!("{NAME}.sock")), NAME)
    }

    /// Guests at these hosts work while `meanwhile` runs, and end behind it.
    fn work<T>(
        &mut self,
        hosts: &[usize],
        meanwhile: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let mut clients = Vec::new();
        for &host in hosts {
            for _ in 0..CONNECTIONS {
                clients.push((self.connect(host)?, Rng::new(self.rng.roll())));
            }
        }
        self.shared.stop.store(false, Ordering::Relaxed);
        let Self { books, shared, .. } = &*self;
        thread::scope(|scope| {
            let guests: Vec<_> = clients
                .into_iter()
                .map(|(client, rng)| {
                    scope.spawn(move || load::run(client, books, shared, rng, Duration::ZERO))
                })
                .collect();
            let done = meanwhile(self);
            shared.stop.store(true, Ordering::Relaxed);
            for guest in guests {
                guest.join().expect("no panic in a guest")?;
            }
            done
        })
    }

    /// Reads all of it at a host.
    fn check(&self, host: usize) -> Result<()> {
        load::read_all(&mut self.connect(host)?, &self.books)
            .with_context(|| format!("at host {host}"))
    }

    /// How often the volume went over to a host, and the last wait for it.
    fn taken(&mut self, host: usize) -> Result<u64> {
        let status = self.daemon(host)?.status()?;
        let moves = &status.volume(NAME)?["migration"];
        let last_s = moves["last_take_s"].as_f64().unwrap_or(0.0);
        self.longest_s = self.longest_s.max(last_s);
        moves["taken"].as_u64().context("no count")
    }

    /// The guest works here, pauses, and goes on there, where it was read before.
    fn hand_over(&mut self) -> Result<()> {
        let (from, to) = (self.owner, 1 - self.owner);
        self.work(&[from], |world| {
            thread::sleep(Duration::from_millis(60));
            load::read_all(&mut world.connect(to)?, &world.books).context("at the standby")
        })?;
        let before = self.taken(to)?;
        self.work(&[to], |_| {
            thread::sleep(Duration::from_millis(100));
            Ok(())
        })?;
        ensure!(self.taken(to)? == before + 1, "host {to} has not taken it once");
        ensure!(role(self.daemon(from)?, NAME)? == "standby", "host {from} has it still");
        self.owner = to;
        self.check(from)
    }

    /// Guests of both hosts at a time; gives how often the volume went over.
    fn storm(&mut self) -> Result<u64> {
        let before = self.taken(0)? + self.taken(1)?;
        self.work(&[0, 1], |_| {
            thread::sleep(Duration::from_secs(3));
            Ok(())
        })?;
        for host in 0..2 {
            self.check(host)?;
        }
        self.owner = usize::from(role(self.daemon(1)?, NAME)? == "owner");
        let taken = self.taken(0)? + self.taken(1)? - before;
        ensure!(taken > 4, "it went over {taken} times only");
        Ok(taken)
    }

    /// The owner is killed under its guests; the other host takes the volume by the operator's word.
    fn fail_over(&mut self) -> Result<()> {
        let (dead, to) = (self.owner, 1 - self.owner);
        let victim = self.daemons[dead].take().context("that daemon is dead")?;
        self.work(&[dead], |_| {
            thread::sleep(Duration::from_millis(100));
            victim.crash()
        })?;
        let taken = self.daemon(to)?.command(&["migrate", "in", NAME, "--take"]);
        ensure!(taken.is_err(), "taken though the owner says nothing");
        self.daemon(to)?.command(&["migrate", "in", NAME, "--take", "--force"])?;
        self.owner = to;
        self.check(to)?;
        self.daemons[dead] = Some(self.sites[dead].serve(&self.configs[dead])?);
        ensure!(role(self.daemon(dead)?, NAME)? == "standby", "it does not know who had it since");
        self.work(&[to], |world| world.check(dead))
    }

    /// The owner is frozen under its guests, and can't be robbed of the file's lock; it wakes, goes on, and hands the
    /// volume over.
    fn freeze(&mut self) -> Result<()> {
        let (frozen, to) = (self.owner, 1 - self.owner);
        self.work(&[frozen], |world| {
            thread::sleep(Duration::from_millis(60));
            let pid = world.daemon(frozen)?.running.pid().cast_signed();
            let pid = Pid::from_raw(pid).context("a process")?;
            kill_process(pid, Signal::STOP)?;
            let forced = world.daemon(to)?.command(&["migrate", "in", NAME, "--take", "--force"]);
            kill_process(pid, Signal::CONT)?;
            let forced = format!("{:#}", forced.err().context("it has the lock")?);
            ensure!(forced.contains("in use by process"), "{forced}");
            Ok(())
        })?;
        self.work(&[to], |_| {
            thread::sleep(Duration::from_millis(100));
            Ok(())
        })?;
        self.owner = to;
        ensure!(role(self.daemon(to)?, NAME)? == "owner", "host {to} has not taken it");
        self.check(frozen)?;
        self.check(to)
    }

    fn stop(self) -> Result<()> {
        for daemon in self.daemons {
            daemon.context("a daemon is dead")?.stop()?;
        }
        let sectors = self.books.sectors();
        self.books.hold(0..sectors).check(&std::fs::read(self.image)?).context("at the back end")
    }
}
