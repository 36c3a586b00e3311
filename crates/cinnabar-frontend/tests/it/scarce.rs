//! Connections that come and go while memory, places and descriptors run out, drawn by a seed.
//!
//! The server and its sockets are the real ones, the process really has no more descriptors; only time is put forward.
//! Whatever others do: an export has what is kept for it, within a few turns; nobody has more than its part; and
//! what was held is there again afterwards, for everyone.

use crate::client::{info_data, option, request};
use crate::host::{Disk, Host};
use crate::sample::export;
use cinnabar_engine::seam::{Op, RawMemory};
use cinnabar_frontend::nbd::limits::SECOND_NS;
use cinnabar_frontend::nbd::mutant::{Mutant, Mutants};
use cinnabar_frontend::nbd::proto::{command as cmd, option as opt};
use cinnabar_frontend::nbd::{
    Address, Command, DisconnectReason as Reason, Export, ExportId, Limits,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The bugs that seeds must find.
pub(crate) const BUGS: &[Mutant] =
    &[Mutant::FloorLent, Mutant::BudgetByConnection, Mutant::PlaceKept, Mutant::ListenerForgotten];
const EXPORTS: u32 = 5;
/// Nobody but the test's own questions uses it.
const VICTIM: u32 = 0;
const HALF_OPEN: usize = 8;
const PLACES: usize = 4;
/// Turns of a loop that reports sixteen sockets at a time, takes a new client in each, and sends 64 KiB of an export.
const TURNS_MAX: usize = 32;
const MIB: u64 = 1 << 20;
/// Of how many seeds the other process is to be.
const SEEDS: &str = "NBD_TEST_SEEDS";

type Checked = Result<(), String>;

fn check(is_so: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

/// A client that never waits.
struct Guest {
    stream: UnixStream,
    export: u32,
    /// What it has not sent yet.
    out: Vec<u8>,
    /// What it has received of a message that is not whole.
    rest: Vec<u8>,
    is_greeted: bool,
    /// It was let in, or not.
    entered: Option<bool>,
    /// It takes what it is sent.
    reads: bool,
    /// Bytes of its unanswered requests' replies, by cookie.
    asked: BTreeMap<u64, usize>,
    next: u64,
    is_closed: bool,
}

impl Guest {
    fn ask(&mut self, command: u16, len: u32, payload: u32) {
        let data = if command == cmd::READ { len as usize } else { 0 };
        self.asked.insert(self.next, data);
        self.out.extend(request(command, self.next, 0, len));
        self.out.resize(self.out.len() + payload as usize, 7);
        self.next += 1;
    }

    /// Sends and receives what goes without waiting.
    fn pump(&mut self) {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(sent) => drop(self.out.drain(..sent)),
                Err(error) => {
                    self.is_closed |= error.kind() != ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        let mut bytes = vec![0; 1 << 18];
        while self.reads {
            match self.stream.read(&mut bytes) {
                Ok(len) if len > 0 => self.rest.extend(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => {
                    self.is_closed = true;
                    break;
                }
            }
        }
        let mut at = 0;
        while let Some(len) = self.message(at).filter(|len| at + len <= self.rest.len()) {
            at += len;
        }
        self.rest.drain(..at);
    }

    /// The length of the message at `at`, if its head is there.
    fn message(&mut self, at: usize) -> Option<usize> {
        let bytes = self.rest.get(at..)?;
        let number = |at: usize| {
            bytes.get(at..at + 4).map(|four| u32::from_be_bytes(four.try_into().expect("4")))
        };
        if !self.is_greeted {
            self.is_greeted = bytes.len() >= 18;
            return self.is_greeted.then_some(18);
        }
        if self.entered.is_none() {
            let (kind, len) = (number(12)?, number(16)? as usize);
            if bytes.len() >= 20 + len && kind != 3 {
                self.entered = Some(kind == 1);
            }
            return Some(20 + len);
        }
        let cookie = u64::from(number(8)?) << 32 | u64::from(number(12)?);
        let data = *self.asked.get(&cookie).expect("it was asked");
        let len = 16 + if number(4)? == 0 { data } else { 0 };
        if bytes.len() >= len {
            self.asked.remove(&cookie);
        }
        Some(len)
    }
}

struct World {
    rng: Xoshiro256PlusPlus,
    limits: Limits,
    host: Host,
    guests: Vec<Guest>,
    socket: PathBuf,
    /// Descriptors that the server can have beside those it has.
    descriptors: Option<u64>,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(seed: u64, mutants: Mutants) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let limits = Limits {
            connections_max: PLACES * EXPORTS as usize + rng.random_range(0..8),
            handshakes_max: HALF_OPEN + rng.random_range(0..4),
            origin_handshakes_max: HALF_OPEN,
            requests_max: if rng.random() { 8192 } else { 128 },
            bytes_max: 96 * MIB + 24 * 1024,
            mutants,
            ..Limits::default()
        };
        let mut host = Host::edge_triggered(limits.clone());
        for id in 0..EXPORTS {
            let disk = Export { size_bytes: 64 * MIB, ..export(id, &format!("vm{id}")) };
            host.add(disk, Disk::Held(vec![0; 64 << 20]));
        }
        let folder = tempfile::tempdir().expect("a temporary directory");
        let socket = folder.path().join("nbd.sock");
        let ids: Vec<_> = (0..EXPORTS).map(ExportId).collect();
        host.server.listen(&Address::Unix(socket.clone()), &ids).expect("the socket is free");
        Self { rng, limits, host, guests: Vec::new(), socket, descriptors: None, _folder: folder }
    }

    /// What each export has for itself: requests and bytes.
    fn floor(&self) -> (u64, u64) {
        let part = |total: u64| total / 4 / u64::from(EXPORTS);
        (part(u64::from(self.limits.requests_max)).min(16), part(self.limits.bytes_max).min(MIB))
    }

    /// A client connects, and asks for an export or says nothing.
    fn connect(&mut self, export: u32, says: bool) {
        let stream = UnixStream::connect(&self.socket).expect("the server listens");
        stream.set_nonblocking(true).expect("a socket");
        let mut out = Vec::new();
        if says {
            out.extend(3_u32.to_be_bytes());
            out.extend(option(opt::GO, &info_data(&format!("vm{export}"), &[])));
        }
        let (rest, asked) = (Vec::new(), BTreeMap::new());
        let (is_greeted, entered, reads, next, is_closed) = (false, None, true, 0, false);
        self.guests.push(Guest {
            stream,
            export,
            out,
            rest,
            is_greeted,
            entered,
            reads,
            asked,
            next,
            is_closed,
        });
    }

    /// A turn, in which the process can have so many descriptors more.
    fn turn(&mut self) {
        self.guests.iter_mut().for_each(Guest::pump);
        let all = getrlimit(Resource::Nofile);
        if let Some(more) = self.descriptors {
            let lowest = rustix::io::dup(std::io::stdin()).expect("there are enough").as_raw_fd();
            let current = Some(u64::from(lowest.cast_unsigned()) + more);
            setrlimit(Resource::Nofile, Rlimit { current, maximum: all.maximum })
                .expect("less is allowed");
        }
        self.host.turn(0);
        setrlimit(Resource::Nofile, all).expect("as it was");
        self.guests.iter_mut().for_each(Guest::pump);
    }

    fn of(&mut self, export: u32) -> impl Iterator<Item = &mut Guest> {
        self.guests.iter_mut().filter(move |guest| guest.export == export)
    }

    /// Requests of an export that the engine has, and their bytes.
    fn in_engine(&self, export: u32) -> (u64, u64) {
        let of_it = self.host.held.iter().filter(|request| request.export == ExportId(export));
        of_it.fold((0, 0), |(count, bytes), request| match &request.command {
            Command::Engine(Op::Read { data, .. } | Op::Write { data, .. }) => {
                (count + 1, bytes + data.len_bytes())
            }
            _ => (count + 1, bytes),
        })
    }

    /// The engine answers the requests that are meant.
    fn answer(&mut self, is_meant: impl Fn(&mut Self, u32) -> bool) {
        for request in std::mem::take(&mut self.host.held) {
            let rest = std::mem::take(&mut self.host.held);
            let is_meant = is_meant(self, request.export.0);
            self.host.held.push(request);
            if is_meant {
                self.host.answer_held();
            }
            self.host.held.splice(0..0, rest);
        }
    }

    fn step(&mut self) {
        let guests = self.guests.len();
        match self.rng.random_range(0..20) {
            0..4 if guests < 60 => {
                let (export, says) = (self.rng.random_range(1..EXPORTS), self.rng.random_bool(0.8));
                self.connect(export, says);
            }
            4..9 if guests > 0 => self.ask(),
            9..11 if guests > 0 => {
                let at = self.rng.random_range(0..guests);
                self.guests[at].reads ^= true;
            }
            11..13 if guests > 0 => {
                let at = self.rng.random_range(0..guests);
                drop(self.guests.swap_remove(at));
            }
            13 => {
                let ms = self.rng.random_range(0..3000);
                self.host.skipped_ns += ms * (SECOND_NS / 1000);
            }
            14 => self.answer(|world, _| world.rng.random()),
            15 => self.descriptors = [None, Some(0), Some(0), Some(2)][self.rng.random_range(0..4)],
            _ => self.turn(),
        }
        self.guests.retain(|guest| !guest.is_closed && guest.entered != Some(false));
    }

    /// A client asks for much, or for little.
    fn ask(&mut self) {
        let at = self.rng.random_range(0..self.guests.len());
        let len = [4096, 64 << 10, 1 << 20, 8 << 20][self.rng.random_range(0..4)];
        let payload = if self.rng.random() { len } else { len / 2 };
        let writes = self.rng.random_bool(0.2) && len < 8 << 20;
        let count = self.rng.random_range(1..6);
        let guest = &mut self.guests[at];
        if guest.entered != Some(true) || guest.out.len() > 1 << 20 {
            return;
        }
        match writes {
            // What follows half a payload would be taken for its rest.
            true if guest.asked.is_empty() => guest.ask(cmd::WRITE, len, payload),
            true => {}
            false => (0..count).for_each(|_| guest.ask(cmd::READ, len, 0)),
        }
    }

    fn check_bounds(&self) -> Checked {
        let stats = self.host.server.stats();
        let (requests, bytes) = (stats.held_requests, stats.held_bytes);
        let Limits { requests_max, bytes_max, .. } = self.limits;
        check(requests <= u64::from(requests_max) && bytes <= bytes_max, || {
            format!("{requests} requests with {bytes} bytes are held")
        })?;
        let entered = (0..EXPORTS).map(|id| self.host.server.connections(ExportId(id)) as u64);
        let half_open = stats.connections.saturating_sub(entered.sum());
        check(half_open <= HALF_OPEN as u64, || format!("{half_open} are half open"))?;
        let floor = self.floor().1;
        let part = floor + (self.limits.bytes_max - floor * u64::from(EXPORTS)) / 2;
        let of_all = (0..EXPORTS).map(|id| (id, self.in_engine(id).1));
        let greedy = of_all.max_by_key(|(_, bytes)| *bytes).expect("there are exports");
        check(greedy.1 <= part, || format!("export {} has {} bytes", greedy.0, greedy.1))
    }

    /// As many clients as are always let in come to an export, and ask for as much as is kept for it.
    fn question(&mut self, export: u32) -> Checked {
        // A listener that was out of descriptors tries again.
        (self.descriptors, self.host.skipped_ns) = (None, self.host.skipped_ns + SECOND_NS);
        (0..TURNS_MAX).for_each(|_| self.turn());
        let is_kept = |guest: &&Guest| guest.reads && !guest.is_greeted && !guest.is_closed;
        let waiting = self.guests.iter().filter(is_kept).count();
        check(waiting == 0, || format!("{waiting} clients are not accepted"))?;
        (0..PLACES).for_each(|_| self.connect(export, true));
        (0..TURNS_MAX).for_each(|_| self.turn());
        let entered = self.of(export).filter(|guest| guest.entered == Some(true)).count();
        check(entered == PLACES, || format!("{entered} clients were let in to export {export}"))?;
        let (requests, bytes) = self.floor();
        let (each, len) = (requests / PLACES as u64, bytes / requests / 4096 * 4096);
        for guest in self.of(export) {
            (0..each).for_each(|_| guest.ask(cmd::READ, u32::try_from(len).expect("small"), 0));
        }
        let turns = (1..=TURNS_MAX).find(|_| {
            self.turn();
            self.in_engine(export).0 == each * PLACES as u64
        });
        let (served, _) = self.in_engine(export);
        check(turns.is_some(), || format!("of the floor of export {export} {served} are served"))?;
        self.answer(|_, of| of == export);
        (0..TURNS_MAX).for_each(|_| self.turn());
        let left: usize = self.of(export).map(|guest| guest.asked.len()).sum();
        check(left == 0, || format!("{left} of export {export} are not answered"))?;
        self.guests.retain(|guest| guest.export != export);
        self.turn();
        self.check_bounds()
    }

    /// All go, and the engine answers everything: then everyone can have everything again.
    fn end(&mut self) -> Checked {
        self.guests.clear();
        self.descriptors = None;
        for _ in 0..3 * TURNS_MAX {
            self.host.skipped_ns += SECOND_NS;
            self.answer(|_, _| true);
            self.turn();
        }
        let stats = self.host.server.stats();
        let left = (stats.connections, stats.held_requests, stats.held_bytes, self.host.pool.out());
        check(left == (0, 0, 0, 0), || format!("connections, requests, bytes, buffers: {left:?}"))?;
        for export in 0..EXPORTS {
            self.question(export)?;
            self.connect(export, true);
            (0..TURNS_MAX).for_each(|_| self.turn());
            self.of(export).for_each(|guest| guest.ask(cmd::READ, 32 << 20, 0));
            (0..TURNS_MAX).for_each(|_| self.turn());
            let bytes = self.in_engine(export).1;
            check(bytes == 32 * MIB, || format!("{bytes} bytes of 32 MiB for export {export}"))?;
            self.guests.clear();
            self.answer(|_, _| true);
            (0..TURNS_MAX).for_each(|_| self.turn());
        }
        let before = self.host.server.stats().disconnects(Reason::TooManyConnections);
        for _ in 0..HALF_OPEN {
            self.connect(1, false);
            self.turn();
        }
        let ended = self.host.server.stats().disconnects(Reason::TooManyConnections) - before;
        check(ended == 0, || format!("{ended} of as many as have places were ended"))
    }
}

fn search(seed: u64, mutants: Mutants) -> Checked {
    let mut world = World::new(seed, mutants);
    for step in 0..400 {
        world.step();
        world.check_bounds().map_err(|wrong| format!("step {step}: {wrong}"))?;
        if step % 40 == 39 {
            world.question(VICTIM).map_err(|wrong| format!("step {step}: {wrong}"))?;
        }
    }
    world.end()
}

/// Not a test of its own: what descriptors a process can have is a matter of all of its threads.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn in_a_process_of_its_own() {
    let Some(seeds) = std::env::var_os(SEEDS) else { return };
    let seeds = seeds.to_str().and_then(|seeds| seeds.parse().ok()).expect("a number");
    for seed in 0..seeds {
        search(seed, Mutants::NONE).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    for bug in BUGS {
        let found = (0..10).find_map(|seed| Some((seed, search(seed, Mutants::only(*bug)).err()?)));
        let (seed, wrong) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: seed {seed}: {wrong}");
    }
}

/// `CINNABAR_RUNS` says of how many seeds.
#[test]
fn whatever_runs_out_exports_have_what_is_kept_for_them_and_all_comes_back() {
    let seeds = std::env::var("CINNABAR_RUNS").unwrap_or_else(|_| "6".into());
    let output = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "scarce::in_a_process_of_its_own", "--ignored", "--nocapture"])
        .env(SEEDS, seeds)
        .output()
        .expect("this test can be started");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    println!("{}", String::from_utf8_lossy(&said));
}
