//! Servers that say what they should not: a wrong byte never gets out, nothing hangs, and a server
//! that comes to its senses is used again.

use super::server::{Asked, Deed, Manner, Server, chunk, simple};
use super::{MIB, Told, Volume, both, connect, place, read_op, write_op};
use crate::rig::{dirty, pattern};
use cinnabar_backend::port::JobOp;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

type Nonsense = (&'static str, fn(&Asked) -> Vec<u8>);

/// What is said in place of an answer to a read.
const NONSENSE: [Nonsense; 16] = [
    ("garbage", |_| vec![0xa5; 100]),
    ("another's cookie", |asked| simple(asked.cookie ^ 1 << 33, 0)),
    ("a simple reply", |asked| [simple(asked.cookie, 0), vec![1; asked.len as usize]].concat()),
    ("no data", |asked| chunk(asked.cookie, 1, 0, &[])),
    ("data of a wild length", |asked| {
        let mut bytes = data(asked, 1, 0, 512);
        bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        bytes
    }),
    ("data elsewhere", |asked| data(asked, 1, 1 << 40, asked.len)),
    ("data before", |asked| data(asked, 1, 0_u64.wrapping_sub(512), asked.len)),
    ("too much", |asked| data(asked, 1, 0, asked.len + 512)),
    ("too little", |asked| data(asked, 1, 0, asked.len - 512)),
    ("twice the same", |asked| [data(asked, 0, 0, 512), data(asked, 1, 0, asked.len)].concat()),
    ("a hole too long", |asked| {
        let hole = [&asked.offset.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat();
        chunk(asked.cookie, 1, 2, &hole)
    }),
    ("extents", |asked| chunk(asked.cookie, 1, 5, &[0; 12])),
    ("an unknown chunk", |asked| chunk(asked.cookie, 1, 999, &[0; 64])),
    ("an error of a wild length", |asked| {
        let mut bytes = chunk(asked.cookie, 1, 0x8001, &[0, 0, 0, 5, 0, 0]);
        bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        bytes
    }),
    ("an answer twice", |asked| {
        [data(asked, 1, 0, asked.len), data(asked, 1, 0, asked.len)].concat()
    }),
    ("half an answer, then another", |asked| {
        [data(asked, 0, 0, 512), simple(asked.cookie, 0)].concat()
    }),
];

/// `len` bytes of data, from this far behind what was asked for, all wrong.
fn data(asked: &Asked, flags: u16, at: u64, len: u32) -> Vec<u8> {
    let offset = asked.offset.wrapping_add(at);
    chunk(asked.cookie, flags, 1, &[&offset.to_be_bytes()[..], &vec![0x66; len as usize]].concat())
}

#[test]
fn nonsense_ends_the_connection_and_nothing_else() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let server = Server::start(&path, Manner::of_size(MIB));
        let mut volume = Volume::open(mode, &text);
        let bytes = pattern(8192, 1);
        volume.well(write_op(0, &bytes, true));
        for (what, nonsense) in NONSENSE {
            let before = server.connections();
            let mut said = false;
            server.script(move |asked| {
                if asked.kind == 0 && !std::mem::replace(&mut said, true) {
                    return Deed::Say(nonsense(asked));
                }
                Deed::Serve
            });
            let memory = dirty(8192);
            let (result, _) = volume.run(read_op(0, &memory, 8192));
            assert_eq!(result, Ok(()), "{what}");
            if what != "an answer twice" {
                // There the first one was as good as any.
                assert!(memory.to_vec(0, 8192) == bytes, "{what}: wrong bytes");
            }
            assert!(volume.read(0, 8192) == bytes, "{what}: wrong bytes afterwards");
            assert!(server.connections() > before, "{what}: taken for an answer");
        }
    });
}

/// A server that never makes sense costs its requests an error in time, and little of the processor.
#[test]
fn endless_nonsense_ends_in_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, ",give_up_s=2");
    let server = Server::start(&path, Manner::of_size(MIB));
    let mut volume = Volume::open(cinnabar_backend::port::IoMode::Uring, &text);
    // An error that never ends its reply: every chunk is sound.
    server.script(|asked| {
        Deed::Say(chunk(asked.cookie, 0, 0x8001, &[0, 0, 0, 5, 0, 0]).repeat(10_000))
    });
    volume.submit(1, JobOp::Flush);
    let Some(Told::Done(done)) = volume.all(1).pop() else { panic!("a restart") };
    assert!(done.result.is_err());
    server.script(|_| Deed::Say(vec![0; 64]));
    volume.submit(2, write_op(0, &[1; 4096], false));
    let Some(Told::Done(done)) = volume.all(1).pop() else { panic!("a restart") };
    assert!(done.result.is_err());
    assert!(server.connections() < 60, "{} connections", server.connections());
}

/// Whatever greets instead of an NBD server: a reason, soon, and no memory for it.
#[test]
fn greetings_of_strangers() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let mut long_reply = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    long_reply.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
    long_reply.extend([0, 0, 0, 8, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff]);
    long_reply.extend(vec![0; 100_000]);
    let mut endless = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    let ack = [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &[0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0]];
    endless.extend(ack.concat());
    let info =
        [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &[0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 2, 0, 9]];
    endless.extend(info.concat().repeat(10_000));
    for (said, part) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "no NBD server"),
        (b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53".to_vec(), "old style"),
        (long_reply, "a reply that is too long"),
        (endless, "too many replies"),
        (Vec::new(), "the connection ended during the handshake"),
    ] {
        let listener = UnixListener::bind(&path).expect("a socket");
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            // A client that has heard enough hangs up.
            let _ = stream.write_all(&said);
            let _ = stream.set_read_timeout(Some(Duration::from_millis(300)));
            let _ = stream.read(&mut [0; 1000]);
        });
        let begun = Instant::now();
        let error = connect(&text).expect_err(part);
        assert!(error.to_string().contains(part), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        thread.join().expect("no panic");
        std::fs::remove_file(&path).expect("it was there");
    }
}

/// One that says nothing at all is waited for, and not without end.
#[test]
fn silence_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let _listener = UnixListener::bind(&path).expect("a socket");
    let begun = Instant::now();
    let error = connect(&text).expect_err("no answer");
    assert!(error.to_string().contains("no answer within 10 s"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
