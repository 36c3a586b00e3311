//! Volumes that can't go over, servers that take few clients, and daemons that are not the peer.

use super::*;
use cinnabar_backend::hybrid::manage;
use cinnabar_backend::spec::{BackendSpec, Place};
use cinnabar_config::messages::VolumeConfig;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;

#[test]
fn a_hybrid_volume_stays_and_is_served_whatever_was_recorded_of_it() {
    let mut host = Host::new(IoMode::Auto);
    let (fast, slow) = (host.rig.path("fast"), host.rig.path("slow"));
    let mut volume = host.rig.volume("vm1");
    volume.backend = format!("hybrid:fast={},slow={}", fast.display(), slow.display());
    let spec = BackendSpec::parse(&volume.backend, Path::new("/")).expect("two folders");
    let Place::Hybrid(spec) = spec.place else { panic!("{spec:?}") };
    manage::create(&spec, SIZE, 1 << 20, SIZE / 2).expect("it is made");
    host.rig.config.volumes.push(volume);
    // As an earlier release has left it.
    let moves = host.rig.path("state/moves");
    std::fs::create_dir_all(&moves).expect("a folder");
    let kept = "cinnabar migration 1\nepoch 1\nowned 1\nother 0\npeer b:1\ntoken_file /t\n";
    std::fs::write(moves.join("vm1.moves"), kept).expect("it is written");
    host.start();
    let status = host.rig.status();
    assert_eq!(status.volumes[0].state, State::Serving, "{:?}", status.volumes[0].reason);
    assert!(status.volumes[0].migration.is_none());
    let (name, peer) = ("vm1".to_owned(), host.peer());
    let refused = host.rig.ask(|answer| Message::MigrateOut { name, peer, answer });
    let refused = refused.expect_err("no other host can read it");
    assert_eq!(refused.kind, CommandErrorKind::Invalid);
    assert!(refused.message.contains("hybrid") && !refused.hint.is_empty(), "{refused:?}");
    host.client().write(0, &[1; 4096], true).expect("it is served");
    host.stop();
}

#[test]
fn a_host_that_cannot_stand_by_serves_on() {
    both(|io| {
        let (mut a, mut b) = two(io);
        out(&a, &b);
        let mut model = Model::new();
        let (mut at_a, mut at_b) = (a.client(), b.client());
        model.write(&mut at_a, 0, 65536, 1, false);
        model.check(&mut at_a, "the owner");
        // Its path is gone, which the open files do not notice.
        std::fs::rename(a.rig.path("vm1.raw"), a.rig.path("away")).expect("it is there");
        for round in 0..3 {
            let refused = b.take(false).expect_err("it stays there");
            assert!(refused.message.contains("standby"), "{refused:?}");
            model.check(&mut at_a, "the owner still");
            model.write(&mut at_a, 8192 * round, 4096, 2 + round, true);
            assert_eq!(a.migration().role, MigrationRole::Owner);
        }
        std::fs::rename(a.rig.path("away"), a.rig.path("vm1.raw")).expect("it comes back");
        b.take(false).expect("nothing is in the way");
        model.check(&mut at_b, "the new owner");
        model.check(&mut at_a, "the new standby");
        drop((at_a, at_b));
        a.stop();
        b.stop();
        assert!(std::fs::read(a.rig.path("vm1.raw")).expect("the file") == model.0);
    });
}

/// What lies before a server and lets so many clients through at a time.
struct Gate {
    limit: AtomicUsize,
    inside: AtomicUsize,
    /// One too many is turned away; else it waits, as with `qemu-nbd --shared`.
    refuses: bool,
}

impl Gate {
    fn start(path: &Path, server: &Path, limit: usize, refuses: bool) -> Arc<Self> {
        let gate = Self { limit: limit.into(), inside: AtomicUsize::new(0), refuses };
        let (gate, listener) = (Arc::new(gate), UnixListener::bind(path).expect("a socket"));
        let (given, server) = (Arc::clone(&gate), server.to_owned());
        std::thread::spawn(move || {
            let is_full = || gate.inside.load(Relaxed) >= gate.limit.load(Relaxed);
            loop {
                while !gate.refuses && is_full() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let (client, _) = listener.accept().expect("a client");
                if !is_full() {
                    gate.inside.fetch_add(1, Relaxed);
                    let (gate, server) = (Arc::clone(&gate), server.clone());
                    std::thread::spawn(move || gate.let_through(&client, &server));
                }
            }
        });
        given
    }

    fn let_through(&self, mut client: &UnixStream, server: &Path) {
        let mut inner = UnixStream::connect(server).expect("the server is there");
        let (mut from, mut to) =
            (client.try_clone().expect("a handle"), inner.try_clone().expect("a handle"));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
        let _ = std::io::copy(&mut inner, &mut client);
        self.inside.fetch_sub(1, Relaxed);
        let _ = client.shutdown(Shutdown::Both);
    }
}

/// A server, and its socket.
fn server() -> (Rig, PathBuf) {
    let mut server = Rig::new(IoMode::Auto, &["vm1"]);
    server.config.volumes[0].shared = true;
    server.start();
    let path = server.path("vm1.sock");
    (server, path)
}

/// Hosts over what is at a socket, each with another one as its peer. They begin as standbys.
fn hosts<const COUNT: usize>(path: &Path, peers: [usize; COUNT]) -> [Host; COUNT] {
    let mut hosts = std::array::from_fn(|_| Host::new(IoMode::Auto));
    let named = hosts.each_ref().map(Host::peer);
    for (host, peer) in hosts.iter_mut().zip(peers) {
        let backend = format!("nbd:unix:{}:vm1", path.display());
        let peer = Some(named[peer].clone());
        let volume = VolumeConfig { backend, peer, ..host.rig.volume("vm1") };
        host.rig.config.volumes.push(volume);
        host.start();
    }
    hosts
}

/// A server behind a gate, and two hosts.
fn two_behind_a_gate(limit: usize, refuses: bool) -> (Rig, Arc<Gate>, Host, Host) {
    let (server, inner) = server();
    let path = server.path("gate.sock");
    let gate = Gate::start(&path, &inner, limit, refuses);
    let [a, b] = hosts(&path, [1, 0]);
    (server, gate, a, b)
}

#[test]
fn a_server_that_takes_few_clients_keeps_no_volume_from_moving() {
    for (limit, refuses) in [(8, false), (5, false), (2, false), (5, true), (2, true)] {
        eprintln!("{limit} clients, refuses: {refuses}");
        let (mut server, _gate, mut a, mut b) = two_behind_a_gate(limit, refuses);
        let mut model = Model::new();
        let (mut at_a, mut at_b) = (a.client(), b.client());
        for round in 0..4 {
            let (to, other) =
                if round % 2 == 0 { (&mut at_a, &mut at_b) } else { (&mut at_b, &mut at_a) };
            let begun = Instant::now();
            model.write(to, round * 65536, 8192, round + 1, true);
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            model.check(to, "the owner");
            model.check(other, "the standby");
        }
        assert_eq!(b.migration().role, MigrationRole::Owner);
        drop((at_a, at_b));
        a.stop();
        b.stop();
        server.stop();
    }
}

#[test]
fn a_hand_over_that_fails_at_a_full_server_leaves_both_hosts_as_they_were() {
    let (mut server, gate, mut a, mut b) = two_behind_a_gate(5, true);
    let mut model = Model::new();
    let (mut at_a, mut at_b) = (a.client(), b.client());
    // The standby is left without a place, and without the volume.
    gate.limit.store(1, Relaxed);
    let refused = b.take(false).expect_err("there is no place");
    assert!(refused.message.contains("no further client"), "{refused:?}");
    gate.limit.store(5, Relaxed);
    model.check(&mut at_b, "the standby has a connection again");
    model.write(&mut at_a, 0, 65536, 1, true);
    // The owner that was asked for it finds no place as a standby.
    gate.limit.store(0, Relaxed);
    let refused = b.take(false).expect_err("it stays there");
    assert!(refused.message.contains("standby"), "{refused:?}");
    gate.limit.store(5, Relaxed);
    model.check(&mut at_a, "the owner has its connections again");
    model.write(&mut at_a, 4096, 65536, 2, true);
    assert_eq!(a.migration().role, MigrationRole::Owner);
    // Once more, with room.
    model.write(&mut at_b, 8192, 65536, 3, true);
    model.check(&mut at_b, "the new owner");
    model.check(&mut at_a, "the new standby");
    drop((at_a, at_b));
    a.stop();
    b.stop();
    server.stop();
}

#[test]
fn a_third_daemon_gets_nothing_from_a_pair() {
    let (mut server, path) = server();
    let [mut a, mut b, mut c] = hosts(&path, [1, 0, 0]);
    let mut model = Model::new();
    let (mut at_a, mut at_b) = (a.client(), b.client());
    // From a standby, and from the owner; by force, too, for it has answered.
    for force in [false, true] {
        let refused = c.take(force).expect_err("it is no peer of that one");
        assert!(refused.message.contains("alone: another daemon asks"), "{refused:?}");
        model.write(&mut at_a, 0, 65536, 1 + u64::from(force), true);
    }
    assert_eq!((a.migration().role, a.migration().given), (MigrationRole::Owner, 0));
    model.write(&mut at_b, 4096, 4096, 3, true);
    // A daemon that is started again is another one, and is known again.
    drop(at_b);
    b.stop();
    b.start();
    model.write(&mut at_a, 8192, 4096, 4, true);
    model.write(&mut b.client(), 12288, 4096, 5, true);
    model.check(&mut at_a, "the pair goes on");
    drop(at_a);
    for host in [&mut a, &mut b, &mut c] {
        host.stop();
    }
    server.stop();
}

#[test]
fn a_ring_of_daemons_has_no_two_owners() {
    let (mut server, path) = server();
    let mut ring = hosts(&path, [1, 2, 0]);
    for host in &ring {
        let refused = host.take(false).expect_err("it asks one that has another peer");
        assert!(refused.message.contains("alone: another daemon asks"), "{refused:?}");
        assert_eq!(host.migration().taken, 0);
    }
    ring.iter_mut().for_each(Host::stop);
    server.stop();
}

#[test]
fn a_daemon_that_does_not_say_who_it_is_gets_no_volume_without_a_lock() {
    let (mut server, path) = server();
    let [mut a, mut b] = hosts(&path, [1, 0]);
    a.take(false).expect("the other one does not serve it");
    let give = |from: Option<String>| {
        let name = "vm1".to_owned();
        a.rig.ask(|answer| Message::Give { name, epoch: 0, from, answer })
    };
    let refused = give(None).expect_err("of an earlier release, or a stranger");
    assert!(refused.message.contains("does not say which it is"), "{refused:?}");
    // The other one can't be asked who it is.
    let other = b.identity();
    b.stop();
    let refused = give(Some("0".into())).expect_err("nobody vouches for it");
    assert!(refused.message.contains("does not say who it is"), "{refused:?}");
    assert_eq!(a.migration().role, MigrationRole::Owner);
    assert!(give(Some(other)).is_err(), "that one had never asked");
    a.stop();
    server.stop();
}
