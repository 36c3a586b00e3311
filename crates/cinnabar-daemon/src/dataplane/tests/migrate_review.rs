//! Hand-overs that meet something else: commands, clients that leave, broken peers, a fail-over.

use super::*;
use crate::dataplane::{disks, writes};
use cinnabar_backend::disk::OpenOptions;
use cinnabar_config::messages::VolumeConfig;
use cinnabar_driver::ownership::Record;

/// What a message is answered within a while; `None`: nothing.
fn within<T>(
    mut answered: tokio::sync::oneshot::Receiver<Result<T, CommandError>>,
) -> Option<Result<T, CommandError>> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match answered.try_recv() {
            Ok(result) => return Some(result),
            Err(tokio::sync::oneshot::error::TryRecvError::Closed) => return None,
            Err(_) if Instant::now() > until => return None,
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks a host for the volume as the other one does, without waiting.
fn give(host: &Host, other: &Host) -> tokio::sync::oneshot::Receiver<Result<Given, CommandError>> {
    let (name, from) = ("vm1".into(), Some(other.identity()));
    host.rig.send(|answer| Message::Give { name, epoch: 0, from, answer })
}

/// A daemon that gives everybody the same answer, whatever it is.
fn broken(reply: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let reply = reply.clone();
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(&reply);
                if reply.is_empty() {
                    std::thread::sleep(Duration::from_mins(1));
                }
            });
        }
    });
    address
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A standby whose other host gives this answer.
fn with_peer(reply: Vec<u8>) -> Host {
    let mut host = Host::new(IoMode::Auto);
    let mut volume = host.rig.volume("vm1");
    volume.peer = Some(Peer { address: broken(reply), ..host.peer() });
    host.rig.config.volumes.push(volume);
    host.start();
    host
}

#[test]
fn a_cancel_that_meets_a_hand_over_keeps_the_volume() {
    let (mut a, mut b) = two(IoMode::Auto);
    for _ in 0..20 {
        out(&a, &b);
        let cancel = a.rig.send(|answer| Message::MigrateCancel { name: "vm1".into(), answer });
        let given = give(&a, &b);
        let given = within(given).expect("it is answered");
        within(cancel).expect("it is answered").expect("it stays");
        assert!(given.is_err(), "{given:?}");
        let status = a.rig.status();
        assert_eq!(status.volumes.len(), 1);
        assert_eq!(status.volumes[0].state, State::Serving, "{:?}", status.volumes[0].reason);
        let mut client = a.client();
        client.write(0, &[1; 4096], true).expect("it is served");
    }
    a.stop();
    b.stop();
}

#[test]
fn a_removal_that_meets_a_migrate_out_leaves_nothing_behind() {
    let (mut a, mut b) = two(IoMode::Auto);
    for _ in 0..20 {
        let (name, peer) = ("vm1".to_owned(), b.peer());
        let out = a.rig.send(|answer| Message::MigrateOut { name, peer, answer });
        let remove = || {
            let (name, force, discard_dirty) = ("vm1".to_owned(), true, false);
            a.rig.send(|answer| Message::RemoveVolume { name, force, discard_dirty, answer })
        };
        let removed = remove();
        within(out).expect("it is answered").expect("it may move");
        if within(removed).expect("it is answered").is_err() {
            within(remove()).expect("it is answered").expect("it is removed");
        }
        let again = Box::new(a.rig.config.volumes[0].clone());
        a.rig.ask(|answer| Message::AddVolume(again, answer)).expect("it comes back");
        assert_eq!(a.rig.status().volumes[0].state, State::Serving);
    }
    a.stop();
    b.stop();
}

#[test]
fn an_operator_who_wants_a_volume_that_is_being_handed_over_is_answered() {
    let (mut a, mut b) = two(IoMode::Auto);
    out(&a, &b);
    // They know each other, and nobody is looked up.
    b.take(false).and_then(|()| a.take(false)).expect("it goes to and fro");
    let given = give(&a, &b);
    let (name, peer, take) = ("vm1".to_owned(), None, Some(false));
    let taken = a.rig.send(|answer| Message::MigrateIn { name, peer, take, answer });
    assert!(within(given).expect("it is answered").expect("it is").free);
    within(taken).expect("it is answered").expect("nobody else wants it");
    assert_eq!(a.migration().role, MigrationRole::Owner);
    a.stop();
    b.stop();
}

#[test]
fn what_a_client_that_has_left_wrote_is_not_written_later() {
    let (mut a, mut b) = two(IoMode::Auto);
    out(&a, &b);
    a.stop();
    let mut at_b = b.client();
    at_b.ask_to_write(0, &[1; 4096]);
    wait_for("it waits", || b.migration().held == 1);
    // Its virtual machine is killed, and runs on the other host.
    drop(at_b);
    wait_for("it has left", || b.rig.status().volumes[0].connections == 0);
    a.start();
    let mut at_a = a.client();
    at_a.write(0, &[2; 4096], true).expect("it is taken");
    // Longer than the other one waits before it tries again.
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        assert!(at_a.read(0, 4096).expect("it is read") == [2; 4096], "it was overwritten");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(a.migration().role, MigrationRole::Owner);
    assert_eq!(b.migration().held, 0);
    drop(at_a);
    a.stop();
    b.stop();
    assert!(std::fs::read(a.rig.path("vm1.raw")).expect("the file")[..4096] == [2; 4096]);
}

/// A server that proves nothing, and two hosts that may serve what it has.
fn two_on_a_server() -> (Rig, Host, Host) {
    let mut server = Rig::new(IoMode::Auto, &["vm1"]);
    server.config.volumes[0].shared = true;
    server.start();
    let backend = format!("nbd:unix:{}:vm1", server.path("vm1.sock").display());
    let (mut a, mut b) = (Host::new(IoMode::Auto), Host::new(IoMode::Auto));
    let of = |host: &Host, peer| VolumeConfig {
        backend: backend.clone(),
        exclusive: true,
        peer,
        ..host.rig.volume("vm1")
    };
    let (at_a, at_b) = (of(&a, None), of(&b, Some(a.peer())));
    a.rig.config.volumes.push(at_a);
    b.rig.config.volumes.push(at_b);
    a.start();
    b.start();
    (server, a, b)
}

#[test]
fn after_a_fail_over_the_word_exclusive_counts_for_nothing() {
    let (mut server, mut a, mut b) = two_on_a_server();
    out(&a, &b);
    let mut at_a = a.client();
    for _ in 0..8 {
        at_a.read(0, 1 << 20).expect("it is read");
    }
    at_a.write(0, &[1; 4096], true).expect("it is written");
    at_a.read(0, 4096).expect("it is cached");
    drop(at_a);
    a.stop();
    b.take(true).expect("the other one is dead");
    let mut at_b = b.client();
    let new = vec![2; 1 << 20];
    at_b.write(0, &new, true).expect("it is written");
    drop(at_b);
    // It is started again meanwhile: what it has only in memory is gone.
    b.stop();
    a.start();
    b.start();
    let mut at_a = a.client();
    a.take(false).expect("the other one does not serve it");
    assert!(at_a.read(0, 1 << 20).expect("it is read") == new, "stale blocks");
    drop(at_a);
    a.stop();
    b.stop();
    server.stop();
}

#[test]
fn a_flush_covers_what_the_other_host_was_asked_to_write() {
    let (mut server, mut a, mut b) = two_on_a_server();
    out(&a, &b);
    let flushes = || server.status().volumes[0].latencies.flush.count;
    let (mut at_a, mut at_b) = (a.client(), b.client());
    at_a.write(0, &[1; 4096], false).expect("it is written");
    let before = flushes();
    // The guest has moved.
    at_b.flush().expect("it is flushed");
    assert!(flushes() > before, "what it was acknowledged is durable");
    drop((at_a, at_b));
    a.stop();
    b.stop();
    server.stop();
}

#[test]
fn an_epoch_that_nobody_can_have_reached_breaks_nothing() {
    for epoch in [u64::MAX, (1 << 62) + 1, 1 << 62] {
        let body = format!("{{\"free\":true,\"epoch\":{epoch},\"owned\":0,\"reason\":\"\"}}");
        let mut host = with_peer(http("200 OK", &body));
        let refused = host.take(false).expect_err("it makes no sense");
        assert!(refused.message.contains("epoch"), "{refused:?}");
        host.stop();
        host.start();
        assert_eq!(host.migration().role, MigrationRole::Standby);
        host.stop();
    }
}

#[test]
fn the_other_hosts_words_are_shown_as_one_short_line() {
    let reason = "\\u001b[2J\\nroot:".repeat(4000);
    let body = format!("{{\"free\":false,\"epoch\":1,\"reason\":\"{reason}\"}}");
    assert!(body.len() < 64 << 10, "an answer of that length is read");
    let mut host = with_peer(http("200 OK", &body));
    host.take(false).expect_err("it is refused");
    let shown = host.migration().reason;
    assert!(shown.len() < 1000 && !shown.contains(char::is_control), "{} bytes", shown.len());
    assert!(shown.contains("root:"), "{shown}");
    host.stop();
}

#[test]
fn a_volume_that_the_other_host_does_not_know_is_taken_by_the_operators_word() {
    let body = "{\"error\":\"there is no volume \\\"vm1\\\"\",\"hint\":\"\"}";
    let mut host = with_peer(http("404 Not Found", body));
    let refused = host.take(false).expect_err("not by itself");
    assert!(refused.message.contains("no volume"), "{refused:?}");
    host.take(true).expect("the operator says that nobody has it");
    host.stop();
}

#[test]
fn a_stop_does_not_wait_for_the_other_host() {
    let mut host = with_peer(Vec::new());
    let mut client = host.client();
    client.ask_to_write(0, &[1; 4096]);
    wait_for("it asks", || host.migration().role == MigrationRole::Taking);
    let report = host.rig.stop_within(Duration::from_secs(6));
    assert!(report.clean, "{report:?}");
}

#[test]
fn a_volume_that_waits_goes_on_waiting_if_it_cannot_stand_by() {
    let mut host = Host::new(IoMode::Auto);
    let volume = host.rig.volume("vm1");
    std::fs::rename(host.rig.path("vm1.raw"), host.rig.path("away")).expect("it is there");
    host.rig.config.volumes.push(volume);
    host.rig.config.lock_wait_max = Duration::ZERO;
    host.start();
    assert_eq!(host.rig.status().volumes[0].state, State::Waiting);
    let (name, peer) = ("vm1".to_owned(), Some(host.peer()));
    let _its_back_end_is_away =
        host.rig.ask(|answer| Message::MigrateIn { name, peer, take: None, answer });
    std::fs::rename(host.rig.path("away"), host.rig.path("vm1.raw")).expect("it comes back");
    wait_for("it is tried again", || {
        let status = host.rig.status();
        status.volumes.first().is_some_and(|volume| volume.state == State::Standby)
    });
    host.stop();
}

#[test]
fn another_host_takes_no_standbys_place_unnoticed() {
    let (mut a, mut b) = two(IoMode::Auto);
    out(&a, &b);
    let (name, peer) = ("vm1".to_owned(), Peer { address: "127.0.0.1:1".into(), ..b.peer() });
    let refused = a.rig.ask(|answer| Message::MigrateOut { name, peer, answer });
    let refused = refused.expect_err("it moves to and from the other one");
    assert_eq!(refused.kind, CommandErrorKind::Busy, "{refused:?}");
    assert_eq!(a.migration().peer, b.address);
    a.stop();
    b.stop();
}

#[test]
fn a_standby_that_is_wanted_in_vain_can_be_removed() {
    let body = "{\"error\":\"no\",\"hint\":\"\"}";
    let mut host = with_peer(http("403 Forbidden", body));
    let mut client = host.client();
    client.ask_to_write(0, &[1; 4096]);
    wait_for("it has failed", || !host.migration().reason.is_empty());
    let (name, discard_dirty) = ("vm1".to_owned(), false);
    wait_for("it is removed", || {
        let name = name.clone();
        let message = |answer| Message::RemoveVolume { name, force: true, discard_dirty, answer };
        host.rig.ask(message).is_ok()
    });
    assert!(host.rig.status().volumes.is_empty());
    host.stop();
}

#[test]
fn a_volume_that_moves_shares_an_address_with_one_that_does_not() {
    super::super::rig::on_threads(|threads| {
        if threads == 1 {
            return;
        }
        let mut host = Host::new(IoMode::Auto);
        let first = host.rig.volume("vm0");
        let mut second = host.rig.volume("vm1");
        second.nbd.clone_from(&first.nbd);
        second.peer = Some(Peer { address: broken(http("403 Forbidden", "")), ..host.peer() });
        let path = host.rig.path("vm0.sock");
        host.rig.config.volumes.extend([first, second]);
        host.start();
        let mut one = Client::connect(&path, "vm0");
        let mut two = Client::connect(&path, "vm1");
        let status = host.rig.status();
        let names: Vec<_> = status.volumes.iter().map(|v| v.config.name.as_str()).collect();
        assert_eq!(names, ["vm0", "vm1"]);
        one.write(0, &[1; 4096], true).expect("it is served");
        assert!(two.read(0, 4096) == Ok(pattern(0, 4096)), "it stands by");
        // One that comes where another thread listens has to have an address of its own.
        let of = |name: &str, at: &str, peer: Option<Peer>| {
            let nbd = Some(cinnabar_config::messages::NbdAddress::Unix(host.rig.path(at)));
            Box::new(VolumeConfig { nbd, peer, ..host.rig.volume(name) })
        };
        let peer = host.rig.config.volumes[1].peer.clone();
        let add = |volume| host.rig.ask(|answer| Message::AddVolume(volume, answer));
        add(of("vm2", "vm2.sock", None)).expect("it has a thread of its own");
        let refused = add(of("vm3", "vm2.sock", peer.clone())).expect_err("it has to have that");
        assert!(refused.message.contains("data thread"), "{refused:?}");
        add(of("vm3", "vm3.sock", peer)).expect("it has an address of its own");
        drop((one, two));
        host.stop();
    });
}

/// A server of `SIZE` bytes without any flag but the one that says that there are flags.
fn server_of_few_words() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                // The client is gone at some time.
                let _ = few_words(&mut stream);
            });
        }
    });
    address
}

fn few_words(stream: &mut TcpStream) -> std::io::Result<()> {
    const GO: u32 = 7;
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header)?;
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four"));
        let (option, len) = (number(8), number(12));
        stream.read_exact(&mut vec![0; len as usize])?;
        let mut reply = |kind: u32, data: &[u8]| {
            let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
            for number in [option, kind, data.len() as u32] {
                bytes.extend(number.to_be_bytes());
            }
            bytes.extend(data);
            stream.write_all(&bytes)
        };
        if option == GO {
            let mut info = vec![0, 0];
            info.extend(SIZE.to_be_bytes());
            info.extend([0, 1]);
            reply(3, &info)?;
            reply(1, &[])?;
        } else {
            reply(0x8000_0001, &[])?;
        }
    }
}

#[test]
fn a_standby_reads_no_copy_that_the_owner_does_not_write() {
    let rig = Rig::new(IoMode::Auto, &[]);
    let open = |backend: Option<String>, direct| {
        let mut volume = rig.volume("vm1");
        volume.backend = backend.unwrap_or(volume.backend);
        let options = OpenOptions { direct, ..OpenOptions::default() };
        let known = writes::Known::default();
        disks::open_standby(&volume, &options, &[], &known, Record::default())
            .map(drop)
            .map_err(|error| error.message)
    };
    open(None, true).expect("past the page cache");
    let refused = open(None, false).expect_err("by way of the page cache");
    assert!(refused.contains("page cache"), "{refused}");
    let refused = open(Some(format!("nbd:tcp:{}", server_of_few_words())), true);
    let refused = refused.expect_err("each connection has a cache of its own");
    assert!(refused.contains("CAN_MULTI_CONN"), "{refused}");
}

#[test]
fn a_stop_in_any_step_of_a_hand_over_is_a_clean_one() {
    let (mut a, mut b) = two(IoMode::Auto);
    out(&a, &b);
    let mut model = Model::new();
    for (round, pause_us) in (1..).zip([0, 100, 300, 600, 1000, 2000, 4000, 8000, 16_000, 40_000]) {
        let (giver, taker) = if round % 2 == 0 { (&mut b, &mut a) } else { (&mut a, &mut b) };
        wait_for("it is here", || giver.take(false).is_ok());
        let mut client = giver.client();
        model.write(&mut client, round * 8192, 8192, round, false);
        drop(client);
        let (name, peer, take) = ("vm1".to_owned(), None, Some(false));
        let taken = taker.rig.send(|answer| Message::MigrateIn { name, peer, take, answer });
        std::thread::sleep(Duration::from_micros(pause_us));
        let stops = if round % 4 < 2 { giver } else { taker };
        stops.ends.store(true, Relaxed);
        drop(TcpStream::connect(&stops.address));
        let report = stops.rig.stop_within(Duration::from_secs(30));
        assert!(report.clean, "round {round}: {report:?}");
        drop(taken);
        stops.start();
        assert_eq!(stops.migration().role, MigrationRole::Standby, "round {round}");
    }
    wait_for("it is here", || a.take(false).is_ok());
    let mut client = a.client();
    model.check(&mut client, "after all stops");
    drop(client);
    a.stop();
    b.stop();
    assert!(std::fs::read(a.rig.path("vm1.raw")).expect("the file") == model.0);
}

#[test]
fn a_write_whose_time_is_over_is_not_written_later() {
    let mut a = Host::new(IoMode::Auto);
    let mut b = Host::new(IoMode::Auto);
    let mut volume = a.rig.volume("vm1");
    volume.peer = Some(b.peer());
    let backend = volume.backend.clone();
    a.rig.config.volumes.push(volume);
    let at_b = VolumeConfig {
        backend,
        peer: Some(a.peer()),
        backend_timeout: Duration::from_secs(1),
        ..b.rig.volume("vm1")
    };
    b.rig.config.volumes.push(at_b);
    b.start();
    let mut client = b.client();
    assert!(client.write(0, &[1; 4096], true).is_err(), "nobody answers for it");
    assert!(client.zero(4096, 4096).is_err() && client.trim(8192, 4096).is_err());
    wait_for("nothing wants it", || client.read(0, 4096).is_ok());
    a.start();
    b.take(false).expect("the other one does not serve it");
    assert!(client.read(0, 65536) == Ok(pattern(0, 65536)), "none was written");
    assert_eq!(b.migration().held, 0);
    drop(client);
    a.stop();
    b.stop();
}
