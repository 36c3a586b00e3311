//! A volume between two data planes, which share its file: who may serve it, and what is found there.

use super::client::Client;
use super::rig::{MIB, Rig, SIZE, both, pattern};
use super::warm::{Meddler, answer_hot, ask};
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, Commands, Given, IoMode, Message, MigrationRole,
    MigrationStatus, Peer, State, VolumeMode,
};
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A data plane, and as much of its control plane as the other one asks.
pub(super) struct Host {
    pub(super) rig: Rig,
    address: String,
    /// Keeps the address from other programs while nobody listens there.
    _port: TcpListener,
    ends: Arc<AtomicBool>,
    /// What is done with answers about blocks that are kept.
    pub(super) meddler: Meddler,
}

/// A socket with an address that sockets of this user may share; it does not listen yet.
fn bound(address: SocketAddr) -> TcpListener {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    set_socket_reuseport(&socket, true).expect("it is TCP's");
    bind(&socket, &address).expect("a port");
    socket.into()
}

impl Host {
    fn new(io: IoMode) -> Self {
        let port = bound(([127, 0, 0, 1], 0).into());
        let address = port.local_addr().expect("it has one").to_string();
        let rig = Rig::new(io, &[]);
        let token = rig.path("token");
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(token)
            .expect("a token");
        file.write_all(b"0123456789abcdef").expect("it is written");
        Self { rig, address, _port: port, ends: Arc::default(), meddler: Meddler::default() }
    }

    fn peer(&self) -> Peer {
        Peer { address: self.address.clone(), token_file: self.rig.path("token") }
    }

    pub(super) fn start(&mut self) {
        self.rig.start();
        let listener = bound(self.address.parse().expect("it is one"));
        rustix::net::listen(&listener, 128).expect("it is bound");
        let (commands, ends) = (self.rig.commands(), Arc::default());
        let meddler = Arc::clone(&self.meddler);
        self.ends = Arc::clone(&ends);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Relaxed) {
                    return;
                }
                let (commands, meddler) = (commands.clone(), Arc::clone(&meddler));
                let stream = stream.expect("a connection");
                std::thread::spawn(move || answer(stream, &commands, &meddler));
            }
        });
    }

    pub(super) fn stop(&mut self) {
        self.ends.store(true, Relaxed);
        drop(TcpStream::connect(&self.address));
        self.rig.stop();
    }

    pub(super) fn migration(&self) -> MigrationStatus {
        let status = self.rig.status();
        status.volumes[0].migration.clone().expect("it may move")
    }

    pub(super) fn take(&self, force: bool) -> Result<(), CommandError> {
        let (name, peer, take) = ("vm1".to_owned(), None, Some(force));
        self.rig.ask(|answer| Message::MigrateIn { name, peer, take, answer })
    }

    /// Which daemon it is.
    pub(super) fn identity(&self) -> String {
        self.rig.ask(Message::Identity).expect("it knows")
    }

    pub(super) fn client(&self) -> Client {
        self.rig.client("vm1")
    }
}

/// One request of the other host.
fn answer(mut stream: TcpStream, commands: &Commands, meddler: &Meddler) {
    let mut text = String::new();
    let mut piece = [0; 1024];
    let is_whole = |text: &str| {
        let end = if text.starts_with("GET ") { "\r\n\r\n" } else { "}" };
        text.ends_with(end)
    };
    while !is_whole(&text) {
        let count = stream.read(&mut piece).expect("a request");
        assert!(count > 0, "a whole request");
        text.push_str(std::str::from_utf8(&piece[..count]).expect("text"));
    }
    if text.contains("/v1/volumes/vm1/hot") {
        return answer_hot(stream, &text, commands, meddler);
    }
    assert!(text.contains("Authorization: Bearer 0123456789abcdef\r\n"), "{text}");
    let body = if text.starts_with("GET /v1/identity HTTP/1.1\r\n") {
        ask(commands, Message::Identity).map(|id| format!("{{\"id\":\"{id}\"}}"))
    } else {
        give_as_asked(&text, commands)
    };
    let (code, body) = match body {
        Ok(body) => (200, body),
        Err(error) => (409, format!("{{\"error\":{:?},\"hint\":\"\"}}", error.message)),
    };
    let length = body.len();
    // The asker may have given up.
    let _ = write!(stream, "HTTP/1.1 {code} X\r\ncontent-length: {length}\r\n\r\n{body}");
}

fn give_as_asked(text: &str, commands: &Commands) -> Result<String, CommandError> {
    let query = text.strip_prefix("POST /v1/volumes/vm1/give?from=").expect("no other route");
    let from = query.split(' ').next().map(str::to_owned);
    let epoch = text.split("{\"epoch\":").nth(1).expect("its body").trim_end_matches('}');
    let (name, epoch) = ("vm1".to_owned(), epoch.parse().expect("a number"));
    let given = ask(commands, |answer| Message::Give { name, epoch, from, answer })?;
    let Given { free, epoch, owned, reason } = given;
    Ok(format!("{{\"free\":{free},\"epoch\":{epoch},\"owned\":{owned},\"reason\":\"{reason}\"}}"))
}

/// Two hosts with a volume on one file, the first of which serves it.
pub(super) fn two(io: IoMode) -> (Host, Host) {
    let (mut a, mut b) = (Host::new(io), Host::new(io));
    let volume = a.rig.volume("vm1");
    let mut at_b = b.rig.volume("vm1");
    at_b.backend.clone_from(&volume.backend);
    at_b.peer = Some(a.peer());
    let mut volume = volume;
    // Other threads than the first serve no volume that may move.
    if a.rig.config.cache.threads > 1 {
        volume.peer = Some(b.peer());
    }
    a.rig.config.volumes.push(volume);
    b.rig.config.volumes.push(at_b);
    a.start();
    b.start();
    (a, b)
}

/// The volume may move, if that is not in the configuration.
pub(super) fn out(a: &Host, b: &Host) {
    if a.rig.config.volumes[0].peer.is_some() {
        return;
    }
    let (name, peer) = ("vm1".to_owned(), b.peer());
    a.rig.ask(|answer| Message::MigrateOut { name, peer, answer }).expect("it may move");
}

/// What the disk must hold.
pub(super) struct Model(pub(super) Vec<u8>);

impl Model {
    pub(super) fn new() -> Self {
        Self(pattern(0, SIZE as usize))
    }

    pub(super) fn write(
        &mut self,
        client: &mut Client,
        at: u64,
        len: usize,
        stamp: u64,
        fua: bool,
    ) {
        let data: Vec<u8> = (0..len as u64 / 8)
            .flat_map(|i| ((stamp << 32) | (at / 8 + i)).to_le_bytes())
            .collect();
        client.write(at, &data, fua).expect("it is written");
        self.0[at as usize..at as usize + len].copy_from_slice(&data);
    }

    pub(super) fn check(&self, client: &mut Client, what: &str) {
        for at in (0..SIZE).step_by(MIB as usize) {
            let found = client.read(at, MIB as u32).expect("it is read");
            assert!(found == self.0[at as usize..(at + MIB) as usize], "{what}, at {at}");
        }
    }
}

#[test]
fn a_volume_goes_to_and_fro_and_nothing_is_lost_or_stale() {
    both(|io| {
        let (mut a, mut b) = two(io);
        let mut model = Model::new();
        let (mut at_a, mut at_b) = (a.client(), b.client());
        model.write(&mut at_a, 4096, 8192, 1, false);
        model.check(&mut at_b, "the standby before the migration");
        out(&a, &b);
        assert_eq!(a.migration().role, MigrationRole::Owner);
        assert_eq!(b.migration().role, MigrationRole::Standby);
        assert_eq!(b.rig.status().volumes[0].state, State::Standby);
        for round in 0..24_u64 {
            let (from, to) =
                if round % 2 == 0 { (&mut at_a, &mut at_b) } else { (&mut at_b, &mut at_a) };
            for i in 0..20_u64 {
                let at = (round * 7919 + i * 104_729) % (SIZE / 4096 - 4) * 4096;
                let len = 512 * (1 + i as usize % 16);
                model.write(from, at + 512 * (i % 3), len, 2 + round * 64 + i, i % 5 == 0);
                // Cached where it is written, read where it is not.
                let read = to.read(at, 16384).expect("a standby reads");
                assert!(read == model.0[at as usize..at as usize + 16384], "round {round}, {i}");
            }
            from.flush().expect("it is flushed");
            to.flush().expect("it is taken for that");
            model.write(to, round * 65536, 4096, 3000 + round, false);
            model.check(to, "the new owner");
            model.check(from, "the new standby");
            let (giver, taker) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
            assert_eq!(giver.migration().role, MigrationRole::Standby, "round {round}");
            assert_eq!(taker.migration().role, MigrationRole::Owner, "round {round}");
        }
        let (of_a, of_b) = (a.migration(), b.migration());
        // A host that begins as a standby takes it, too.
        let first = u64::from(a.rig.config.volumes[0].peer.is_some());
        let counts = (of_a.given, of_a.taken, of_b.given, of_b.taken);
        assert_eq!(counts, (12, 12 + first, 12, 12));
        assert!(of_a.epoch == 25 && of_a.held == 0, "{of_a:?}");
        drop((at_a, at_b));
        b.stop();
        a.stop();
        assert!(std::fs::read(a.rig.path("vm1.raw")).expect("the file") == model.0);
    });
}

#[test]
fn two_writers_at_a_time_lose_nothing() {
    let (mut a, mut b) = two(IoMode::Auto);
    out(&a, &b);
    let until = Instant::now() + Duration::from_secs(6);
    let run = |mut client: Client, half: u64| {
        std::thread::spawn(move || {
            let mut seen = vec![0_u64; 64];
            let mut count = 0_u64;
            while Instant::now() < until || count == 0 {
                count += 1;
                let block = (count * 37 % 64) as usize;
                let at = half * (SIZE / 2) + block as u64 * 4096;
                if seen[block] > 0 {
                    let found = client.read(at, 4096).expect("it is read");
                    let stamp = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
                    assert_eq!(stamp, seen[block], "half {half}, block {block}");
                }
                client
                    .write(at, &count.to_le_bytes().repeat(512), count.is_multiple_of(7))
                    .expect("written");
                seen[block] = count;
            }
            client.flush().expect("flushed");
            seen
        })
    };
    let (one, two) = (run(a.client(), 0), run(b.client(), 1));
    let seen = [one.join().expect("no stale read"), two.join().expect("no stale read")];
    let (of_a, of_b) = (a.migration(), b.migration());
    assert!(of_a.given + of_b.given >= 20, "{of_a:?} {of_b:?}");
    a.stop();
    b.stop();
    let file = std::fs::read(a.rig.path("vm1.raw")).expect("the file");
    for (half, seen) in seen.iter().enumerate() {
        for (block, stamp) in seen.iter().enumerate().filter(|(_, stamp)| **stamp > 0) {
            let at = half * (SIZE as usize / 2) + block * 4096;
            assert_eq!(file[at..at + 8], stamp.to_le_bytes(), "half {half}, block {block}");
        }
    }
}

#[test]
fn an_owner_that_is_gone_is_taken_from_by_the_operators_word_alone() {
    let (mut a, mut b) = two(IoMode::Auto);
    let mut model = Model::new();
    let mut at_a = a.client();
    // Before it may move it stays.
    let refused = b.take(false).expect_err("it may not move");
    assert!(refused.message.contains("may not move"), "{refused:?}");
    out(&a, &b);
    model.write(&mut at_a, 0, 4096, 7, false);
    drop(at_a);
    a.stop();
    let refused = b.take(false).expect_err("nobody answers");
    assert_eq!(refused.kind, CommandErrorKind::Busy);
    assert!(refused.hint.contains("--force"), "{refused:?}");
    // A write waits; reads of it must not overtake it.
    let mut at_b = b.client();
    model.check(&mut at_b, "a standby without an owner");
    let write = at_b.ask_to_write(4096, &[9; 4096]);
    model.0[4096..8192].fill(9);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(b.migration().held, 1);
    b.take(true).expect("by the operator's word");
    assert_eq!(at_b.answer(0), (write, Ok(vec![])));
    model.check(&mut at_b, "after the fail-over");
    // The old owner comes back as a standby, whatever it was, and asks.
    a.start();
    assert_eq!(a.migration().role, MigrationRole::Standby);
    let mut at_a = a.client();
    model.check(&mut at_a, "back as a standby");
    model.write(&mut at_a, 1 << 20, 4096, 8, true);
    model.check(&mut at_a, "the owner again");
    model.check(&mut at_b, "the standby again");
    assert_eq!(
        (a.migration().role, b.migration().role),
        (MigrationRole::Owner, MigrationRole::Standby)
    );
    drop((at_a, at_b));
    a.stop();
    b.stop();
    assert!(std::fs::read(a.rig.path("vm1.raw")).expect("the file") == model.0);
}

#[test]
fn an_owner_that_lives_keeps_its_lock_against_the_operators_word() {
    let (mut a, mut b) = two(IoMode::Auto);
    out(&a, &b);
    // It serves on, and does not answer: as one that is cut off.
    a.ends.store(true, Relaxed);
    drop(TcpStream::connect(&a.address));
    std::thread::sleep(Duration::from_millis(100));
    b.rig.config.lock_wait_max = Duration::ZERO;
    let refused = b.take(true).expect_err("it is locked");
    assert!(refused.message.contains("in use"), "{refused:?}");
    let mut model = Model::new();
    let (mut at_a, mut at_b) = (a.client(), b.client());
    model.write(&mut at_a, 0, 4096, 1, true);
    model.check(&mut at_b, "still a standby");
    a.stop();
    b.stop();
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    let (mut a, mut b) = two(IoMode::Auto);
    let mode = |host: &Host, mode| {
        let change =
            cinnabar_config::messages::VolumeChange { mode: Some(mode), ..Default::default() };
        host.rig.ask(|answer| Message::SetVolume { name: "vm1".into(), change, answer })
    };
    mode(&a, VolumeMode::WriteAround).expect("it does not move");
    out(&a, &b);
    for (host, kind) in [(&a, VolumeMode::WriteThrough), (&b, VolumeMode::WriteThrough)] {
        let refused = mode(host, kind).expect_err("its mode stays");
        assert_eq!(refused.kind, CommandErrorKind::Busy, "{refused:?}");
    }
    let cancel =
        |host: &Host| host.rig.ask(|answer| Message::MigrateCancel { name: "vm1".into(), answer });
    assert!(cancel(&b).expect_err("a standby").message.contains("standby"));
    cancel(&a).expect("it stays");
    assert!(a.rig.status().volumes[0].migration.is_none());
    assert!(b.take(false).expect_err("it stays").message.contains("may not move"));
    let remove = |host: &Host| {
        let (name, force, discard_dirty) = ("vm1".to_owned(), false, false);
        host.rig.ask(|answer| Message::RemoveVolume { name, force, discard_dirty, answer })
    };
    // The failed attempt is over in a moment.
    let until = Instant::now() + Duration::from_secs(5);
    while !b.rig.status().volumes[0].reason.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    remove(&b).expect("a standby is removed");
    assert!(b.rig.status().volumes.is_empty());
    a.stop();
    b.stop();
    // It was not to move any more: it is served at the start.
    a.start();
    assert_eq!(a.rig.status().volumes[0].state, State::Serving);
    a.stop();
    assert!(Path::new(&a.rig.path("state/moves/vm1.moves")).exists());
}

#[path = "migrate_review.rs"]
mod review;

#[path = "migrate_limits.rs"]
mod limits;
