//! Garbage on the NBD socket at every phase: the client is thrown out with a logged reason, and
//! nobody else notices.

use super::nbd::{Client, FLAGS, greet, option, request};
use super::rig::{MIB, Site, pattern};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;

/// Pseudo-random bytes, the same each time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Phase, and what is sent after the greeting.
fn insults() -> Vec<(&'static str, Vec<u8>)> {
    let attached = [FLAGS.to_vec(), option(1, b"vm1")].concat();
    let then = |more: Vec<u8>| [attached.clone(), more].concat();
    let mut wrong_magic = request(0, 1, 0, 4096);
    wrong_magic[0] ^= 0xFF;
    let mut long_option = FLAGS.to_vec();
    long_option.extend(&option(7, b"")[..12]);
    long_option.extend(u32::MAX.to_be_bytes());
    vec![
        ("nothing at all", Vec::new()),
        ("client flags: unknown bits", vec![0xFF; 4]),
        ("client flags: half of them", vec![0, 0]),
        ("options: no magic", [FLAGS.to_vec(), noise(4096)].concat()),
        ("options: HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("options: endless", long_option),
        ("options: GO with lengths that lie", [FLAGS.to_vec(), option(7, &[0xFF; 10])].concat()),
        ("options: unknown export", [FLAGS.to_vec(), option(1, b"no such")].concat()),
        ("options: half of one", [FLAGS.to_vec(), option(1, b"vm1")[..9].to_vec()].concat()),
        ("transmission: noise", then(noise(65_536))),
        ("transmission: wrong magic", then(wrong_magic)),
        ("transmission: past the end", then(request(0, 1, u64::MAX - 511, 512))),
        ("transmission: too long", then(request(1, 1, 0, u32::MAX))),
        ("transmission: unknown command", then(request(99, 1, 0, 512))),
        ("transmission: misaligned write", then(request(1, 1, 3, 5))),
        ("transmission: half a request", then(request(1, 1, 0, 512)[..20].to_vec())),
        ("transmission: half a payload", then([request(1, 1, 0, 4096), noise(100)].concat())),
    ]
}

/// Says it, says no more, and waits to be thrown out.
fn insult(socket: &Path, bytes: &[u8]) {
    let Ok(mut stream) = greet(socket) else { panic!("not even greeted") };
    // It may be thrown out before it has finished.
    let _thrown_out = stream.write_all(bytes);
    let _thrown_out = stream.shutdown(Shutdown::Write);
    let mut rest = Vec::new();
    let _thrown_out = stream.read_to_end(&mut rest);
}

#[test]
fn garbage_ends_a_connection_and_nothing_else() {
    let site = Site::new();
    let disk = site.disk("vm1.raw", 8 * MIB);
    // Shared, for insults come while somebody else works.
    site.config("[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\nshared = true\n");
    let mut daemon = site.serve();
    let socket = site.path("vm1.sock");
    let mut client = Client::attach(&socket, "vm1").expect("a good client is let in");
    client.write(4 * MIB, &[7; 4096]).expect("it writes");
    let mut logged = 0;
    for (phase, bytes) in insults() {
        insult(&socket, &bytes);
        assert!(daemon.is_running(), "{phase}: {}", daemon.log());
        let data = client.read(MIB, 4096).unwrap_or_else(|error| panic!("{phase}: {error}"));
        assert_eq!(data, pattern(MIB, 4096), "{phase}");
        assert_eq!(client.read(4 * MIB, 4096).expect(phase), [7; 4096], "{phase}");
        logged = logged.max(daemon.log().lines().count());
    }
    client.flush().expect("it flushes");
    drop(client);
    let log = daemon.stop();
    assert!(log.contains("disconnect"), "the reasons are logged: {log}");
    assert!(logged < 200, "no flood of lines: {log}");
    let mut expected = pattern(0, 8 * MIB);
    expected[4 << 20..(4 << 20) + 4096].fill(7);
    assert!(std::fs::read(disk).expect("the disk") == expected, "only the good write landed");
}
