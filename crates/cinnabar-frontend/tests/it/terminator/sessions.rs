//! Sessions from their handshake to their end.

use crate::terminator::authority::{Authority, Valid, client, client_of};
use crate::terminator::nbd::{ACK, ERR_POLICY, World, go, read, reply, secure, send, write};
use cinnabar_frontend::nbd::{DisconnectReason, ExportId};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(step).collect()
}

#[test]
fn a_disk_is_written_and_read_over_tls() {
    let world = World::new(&["host-a"]);
    let own = world.authority.sign("host-a", false, Valid::Now);
    let mut stream = world.secure(client(&world.authority, Some(&own)));
    assert_eq!(go(&mut stream).expect("an answer").0, ACK);
    let data = noise(1 << 20);
    write(&mut stream, 0, &data).expect("it is written");
    for len in [1 << 20, 512, 4096, 300 << 10] {
        assert!(read(&mut stream, 0, len).expect("it is read") == data[..len], "{len} bytes");
    }
    // Many at a time, both ways.
    for piece in data.chunks(64 << 10) {
        write(&mut stream, 0, piece).expect("it is written");
    }
    stream.conn.send_close_notify();
    stream.flush().expect("it reads");
    assert_eq!(stream.read(&mut [0; 1]).expect("an end that TLS vouches for"), 0);
    assert!(world.running.ended(DisconnectReason::PeerClosed, 1));
    assert!(world.terminator.finish(Duration::from_secs(10)), "nothing is left");
    assert!(world.running.nothing_is_held());
}

#[test]
fn a_stop_says_its_last_word_over_tls() {
    let world = World::new(&[]);
    let own = world.authority.sign("host-a", false, Valid::Now);
    let mut stream = world.secure(client(&world.authority, Some(&own)));
    assert_eq!(go(&mut stream).expect("an answer").0, ACK);
    write(&mut stream, 0, &[1; 4096]).expect("it is written");
    world.running.run(|host| host.server.drain(&mut host.pool));
    assert_eq!(stream.read(&mut [0; 1]).expect("an end that TLS vouches for"), 0);
    drop(stream);
    assert!(world.terminator.finish(Duration::from_secs(10)), "nothing is left");
}

/// An end without TLS's good-bye may be another's doing.
#[test]
fn a_connection_that_is_cut_has_not_ended() {
    let world = World::new(&[]);
    let own = world.authority.sign("host-a", false, Valid::Now);
    let mut stream = world.secure(client(&world.authority, Some(&own)));
    assert_eq!(go(&mut stream).expect("an answer").0, ACK);
    stream.sock.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert!(world.running.ended(DisconnectReason::Broken, 1));
    assert_eq!(world.running.stats().disconnects(DisconnectReason::PeerClosed), 0);
    assert!(world.terminator.finish(Duration::from_secs(10)), "nothing is left");
}

/// A client that its certificate does not let in: what it is told, and how the server counts it.
#[test]
fn certificates_that_will_not_do_are_refused_by_name() {
    let world = World::new(&[]);
    let stranger = Authority::new();
    let strange = stranger.sign("host-a", false, Valid::Now);
    let expired = world.authority.sign("host-a", false, Valid::Past);
    let early = world.authority.sign("host-a", false, Valid::Future);
    let server = world.authority.sign("host-a", true, Valid::Now);
    for (count, (own, told)) in [
        (None, "CertificateRequired"),
        (Some(&strange), "UnknownCA"),
        (Some(&expired), "CertificateExpired"),
        (Some(&early), "CertificateExpired"),
        // Not made for clients.
        (Some(&server), "UnsupportedCertificate"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut stream = world.secure(client(&world.authority, own));
        let error = go(&mut stream).expect_err("it is refused").to_string();
        // A client that still writes may find the connection gone before it reads the alert.
        let gone = ["reset", "pipe"].iter().any(|word| error.to_lowercase().contains(word));
        assert!(error.contains(told) || gone, "{told}: {error}");
        assert!(world.running.ended(DisconnectReason::TlsFailed, count as u64 + 1), "{told}");
    }
    assert!(world.terminator.finish(Duration::from_secs(10)), "nothing is left");
    assert_eq!(world.running.stats().connections, 0);
}

#[test]
fn a_right_certificate_of_another_host_opens_nothing() {
    let world = World::new(&["host-a", "host-c.example"]);
    let own = world.authority.sign("host-b", false, Valid::Now);
    let mut stream = world.secure(client(&world.authority, Some(&own)));
    let (kind, why) = go(&mut stream).expect("an answer");
    assert_eq!(kind, ERR_POLICY);
    assert!(String::from_utf8_lossy(&why).contains("none of its names is in tls_allow"));
    send(&mut stream, 3, &[]).expect("it reads");
    assert_eq!(reply(&mut stream).expect("an answer").0, ERR_POLICY);
    assert_eq!(world.running.run(|host| host.server.connections(ExportId(1))), 0);
}

/// Bytes that are no TLS, and bytes of the protocol without it.
#[test]
fn garbage_in_place_of_a_handshake_ends_the_connection() {
    let world = World::new(&[]);
    let mut option = b"IHAVEOPT\0\0\0\x07\0\0\0\x09".to_vec();
    option.extend(b"\0\0\0\x03vm1\0\0");
    for (count, bytes) in [noise(4096), option, vec![0x16, 3, 1, 0xff, 0xff], vec![0; 1 << 20]]
        .into_iter()
        .enumerate()
    {
        let mut stream = world.starttls();
        let _ = stream.write_all(&bytes);
        // What TLS says to it, if anything, and the end.
        let mut rest = Vec::new();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 100, "{} bytes", rest.len());
        assert!(world.running.ended(DisconnectReason::TlsFailed, count as u64 + 1), "{count}");
    }
    assert!(world.terminator.finish(Duration::from_secs(10)), "nothing is left");
}

/// Clients that begin and say nothing more hold places of their own address for a while; nothing else waits for
/// them.
#[test]
fn handshakes_that_stall_are_bounded_and_end() {
    let world = World::new(&[]);
    let begun = Instant::now();
    let stalled: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = world.starttls();
            stream.write_all(&[0x16, 3, 1]).expect("it reads");
            stream
        })
        .collect();
    // Another host is served at once.
    let own = world.authority.sign("host-a", false, Valid::Now);
    let config = client(&world.authority, Some(&own));
    let mut other = secure(config, world.starttls_from([127, 0, 0, 2]));
    assert_eq!(go(&mut other).expect("an answer").0, ACK);
    assert!(begun.elapsed() < Duration::from_secs(9), "the machine is too slow for this test");
    for mut stream in stalled {
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
    assert!(begun.elapsed() < Duration::from_secs(16), "{:?}", begun.elapsed());
    drop(other);
    // Their places are free again.
    assert!(world.terminator.finish(Duration::from_secs(10)));
    let mut stream = world.secure(client(&world.authority, Some(&own)));
    assert_eq!(go(&mut stream).expect("an answer").0, ACK);
}

/// What TLS 1.2 encrypts with one key is bounded, and it can't change keys.
#[test]
fn volumes_are_served_over_tls_1_3_only() {
    let world = World::new(&[]);
    let own = world.authority.sign("host-a", false, Valid::Now);
    let old = client_of(&world.authority, Some(&own), &[&rustls::version::TLS12]);
    assert!(go(&mut world.secure(old)).is_err());
    assert!(world.running.ended(DisconnectReason::TlsFailed, 1));
}

/// A client that reads nothing holds up nobody but itself, and bounded memory.
#[test]
fn a_client_that_reads_nothing_is_ended() {
    let world = World::new(&[]);
    let own = world.authority.sign("host-a", false, Valid::Now);
    let mut lazy = world.secure(client(&world.authority, Some(&own)));
    assert_eq!(go(&mut lazy).expect("an answer").0, ACK);
    lazy.sock.set_write_timeout(Some(Duration::from_millis(200))).expect("a time");
    let ask = |at: u64| {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend([0; 12]);
        bytes.extend(at.to_be_bytes());
        bytes.extend((1_u32 << 20).to_be_bytes());
        bytes
    };
    for _ in 0..200 {
        if lazy.write_all(&ask(0)).and_then(|()| lazy.flush()).is_err() {
            break;
        }
    }
    // It is sent what fits, and then nothing more.
    let mut sent = 0;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = world.running.stats().sent_bytes;
        if now == sent && now > 1 << 10 {
            break;
        }
        sent = now;
    }
    assert!(sent < 16 << 20, "{sent} bytes are on their way to a client that reads nothing");
    world.running.run(|host| host.skipped_ns += 61_000_000_000);
    assert!(world.running.ended(DisconnectReason::OutputStalled, 1));
    assert!(world.running.nothing_is_held());
    // What is on its way to it is given up soon after, not when each piece of it has waited for a minute.
    assert!(world.terminator.finish(Duration::from_secs(15)), "a session outlives its connection");
}
