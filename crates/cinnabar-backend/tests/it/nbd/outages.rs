//! Servers that go away and come back.

use super::server::{Deed, FLUSH, Manner, READ, Server, WRITE};
use super::{MIB, PATIENCE, Told, Volume, both, place, read_op, until, write_op};
use crate::rig::{dirty, pattern};
use cinnabar_backend::Proof;
use cinnabar_backend::port::{IoMode, JobOp};
use cinnabar_engine::units::ByteSpan;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[test]
fn what_was_under_way_is_asked_again() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let mut server = Server::start(&path, Manner::of_size(4 * MIB));
        let mut volume = Volume::open(mode, &text);
        let before = pattern(MIB as usize, 1);
        volume.well(write_op(0, &before, true));
        server.script(|_| Deed::Ignore);
        let bytes = pattern(MIB as usize, 2);
        let read = dirty(MIB);
        volume.submit(1, write_op(MIB, &bytes, false));
        volume.submit(2, read_op(0, &read, MIB));
        volume.submit(3, JobOp::Flush);
        volume.submit(4, JobOp::Trim { span: ByteSpan::new(3 * MIB, MIB) });
        until("all have come", || server.take_asked().iter().any(|one| one.kind == 4));
        server.kill();
        volume.submit(5, JobOp::WriteZeroes { span: ByteSpan::new(2 * MIB, MIB), may_punch: true });
        std::thread::sleep(Duration::from_millis(100));
        assert!(volume.disk.trouble().is_some());
        server.script(|_| Deed::Serve);
        server.revive();
        let all = volume.all(5);
        for told in &all {
            match told {
                Told::Done(done) => assert_eq!(done.result, Ok(()), "{}", done.token),
                Told::Restarted(ranges) => panic!("nothing was unflushed, and: {ranges:?}"),
            }
        }
        assert_eq!(read.to_vec(0, MIB), before);
        assert_eq!(server.contents()[MIB as usize..2 * MIB as usize], bytes);
        assert_eq!(volume.disk.trouble(), None);
    });
}

#[test]
fn what_was_not_flushed_is_told_before_anything_else() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let mut server = Server::start(&path, Manner::of_size(MIB));
        let mut volume = Volume::open(mode, &text);
        volume.well(write_op(0, &[1; 4096], false));
        volume.well(JobOp::Flush);
        volume.well(write_op(4096, &[2; 4096], true));
        volume.well(write_op(65_536 + 512, &[3; 512], false));
        volume.well(JobOp::Trim { span: ByteSpan::new(131_072, 8192) });
        volume.well(write_op(69_632, &[4; 4096], false));
        server.kill();
        server.revive();
        let data = dirty(4096);
        let (result, ranges) = volume.run(read_op(65_536, &data, 4096));
        assert_eq!(result, Ok(()));
        assert_eq!(ranges, [ByteSpan::new(65_536, 8192), ByteSpan::new(131_072, 8192)]);
        assert_eq!(data.to_vec(0, 4096), [0; 4096], "the server has lost it");
        // Once is enough.
        server.hang_up();
        volume.well(write_op(0, &[5; 4096], false));
        // A proof that flushes does so on the new connection, and after the word of it.
        server.kill();
        server.revive();
        assert_eq!(volume.disk.prove().expect("it flushes"), None);
        let told = volume.told(PATIENCE);
        let [Told::Restarted(ranges)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(ranges[..], [ByteSpan::new(0, 4096)]);
    });
}

/// Each data thread has a port of its own: what its engine caches must not be covered by a flush of
/// the new server before it knows.
#[test]
fn every_port_is_told_before_anything_else() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let mut server = Server::start(&path, Manner::of_size(MIB));
        let mut one = Volume::open(mode, &text);
        let mut two = Volume { first: false, ..Volume::of(mode, Arc::clone(&one.disk)) };
        one.well(write_op(0, &[1; 4096], false));
        two.well(write_op(8192, &[2; 4096], false));
        two.well(write_op(65_536, &[3; 4096], false));
        server.kill();
        server.revive();
        let lost =
            [(0, 4096), (8192, 4096), (65_536, 4096)].map(|(at, len)| ByteSpan::new(at, len));
        assert_eq!(one.run(JobOp::Flush), (Ok(()), lost.to_vec()));
        assert_eq!(two.run(JobOp::Flush), (Ok(()), lost.to_vec()));
        // And once.
        one.well(JobOp::Flush);
        two.well(JobOp::Flush);
    });
}

/// A flush that was begun before a write ended does not cover it.
#[test]
fn a_flush_covers_what_ended_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, ",connections=1");
    let mut server = Server::start(&path, Manner::of_size(MIB));
    let mut volume = Volume::open(IoMode::Uring, &text);
    let cookie = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let held = Arc::clone(&cookie);
    server.script(move |asked| match asked.kind {
        FLUSH => {
            held.store(asked.cookie, SeqCst);
            Deed::Ignore
        }
        WRITE if held.load(SeqCst) != 0 => {
            // The write's answer first, then that of the flush.
            let answers = [
                super::server::simple(asked.cookie, 0),
                super::server::simple(held.load(SeqCst), 0),
            ];
            Deed::Say(answers.concat())
        }
        _ => Deed::Serve,
    });
    volume.well(write_op(0, &[1; 4096], false));
    volume.submit(1, JobOp::Flush);
    until("the flush has come", || cookie.load(SeqCst) != 0);
    volume.submit(2, write_op(8192, &[2; 4096], false));
    volume.all(2);
    server.script(|_| Deed::Serve);
    server.kill();
    server.revive();
    let (_, ranges) = volume.run(JobOp::Flush);
    assert_eq!(ranges, [ByteSpan::new(8192, 4096)]);
}

/// Half of a write was done when the server lost it: all of it is done again.
#[test]
fn a_write_in_parts_is_begun_again() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, ",connections=2");
        let blocks = Some([512, 4096, 65_536]);
        let mut server = Server::start(&path, Manner { blocks, ..Manner::of_size(MIB) });
        let mut volume = Volume::open(mode, &text);
        server.script(|asked| if asked.offset == 393_216 { Deed::Ignore } else { Deed::Serve });
        let bytes = pattern(512 << 10, 1);
        volume.submit(1, write_op(0, &bytes, true));
        until("all but one are done", || server.asked() == 8);
        std::thread::sleep(Duration::from_millis(50));
        server.kill();
        server.script(|_| Deed::Serve);
        server.revive();
        for told in volume.all(1) {
            assert!(matches!(told, Told::Done(done) if done.result == Ok(())));
        }
        assert_eq!(server.durable()[..bytes.len()], bytes);
    });
}

/// A write that is to be durable, of a server that has no FUA, which dies between write and flush.
#[test]
fn a_durable_write_without_fua_survives_a_restart_before_its_flush() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let flags = super::server::ALL & !super::server::SEND_FUA;
    let mut server = Server::start(&path, Manner { flags, ..Manner::of_size(MIB) });
    let mut volume = Volume::open(IoMode::Uring, &text);
    server.script(|asked| if asked.kind == FLUSH { Deed::Ignore } else { Deed::Serve });
    volume.submit(1, write_op(0, &[9; 4096], true));
    until("the flush has come", || server.take_asked().iter().any(|one| one.kind == FLUSH));
    server.kill();
    server.script(|_| Deed::Serve);
    server.revive();
    volume.all(1);
    assert_eq!(server.durable()[..4096], [9; 4096]);
}

#[test]
fn requests_are_given_up_in_the_end() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, ",give_up_s=1");
        let mut server = Server::start(&path, Manner::of_size(MIB));
        let mut volume = Volume::open(mode, &text);
        // Silent, then away.
        server.script(|asked| if asked.kind == READ { Deed::Serve } else { Deed::Ignore });
        for away in [false, true] {
            if away {
                server.kill();
            }
            let begun = Instant::now();
            volume.submit(1, write_op(0, &[1; 4096], false));
            let Some(Told::Done(done)) = volume.all(1).pop() else { panic!("a restart") };
            assert_eq!(done.result, Err(Errno::TIMEDOUT));
            let took = begun.elapsed();
            assert!((Duration::from_secs(1)..Duration::from_secs(4)).contains(&took), "{took:?}");
        }
        assert_eq!(
            volume.disk.prove().expect_err("it is away").to_string(),
            "flushing: Connection timed out (os error 110)"
        );
        server.script(|_| Deed::Serve);
        server.revive();
        volume.well(write_op(0, &[2; 4096], false));
    });
}

/// A volume that is removed by force waits no longer than it is told to.
#[test]
fn a_server_is_given_up_for_good() {
    both(|mode| {
        for away in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, text) = place(&folder, "");
            let mut server = Server::start(&path, Manner::of_size(MIB));
            let mut volume = Volume::open(mode, &text);
            server.script(|_| Deed::Ignore);
            volume.submit(1, write_op(0, &[1; 4096], false));
            volume.submit(2, JobOp::Flush);
            until("it has come", || !server.take_asked().is_empty());
            if away {
                server.kill();
                until("it is noticed", || volume.disk.trouble().is_some());
            }
            assert!(volume.disk.give_up());
            for told in volume.all(2) {
                let Told::Done(done) = told else { panic!("a restart") };
                assert_eq!(done.result, Err(Errno::TIMEDOUT));
            }
            // It does not come back, even if the server does.
            server.script(|_| Deed::Serve);
            if away {
                server.revive();
            }
            std::thread::sleep(Duration::from_millis(300));
            volume.submit(3, write_op(0, &[2; 4096], false));
            let Some(Told::Done(done)) = volume.all(1).pop() else { panic!("a restart") };
            assert_eq!(done.result, Err(Errno::IO));
        }
    });
}

#[test]
fn a_server_that_has_shrunk_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let server = Server::start(&path, Manner::of_size(2 * MIB));
    let mut volume = Volume::open(IoMode::Uring, &text);
    volume.well(write_op(0, &[1; 4096], true));
    server.change(|manner| manner.size = MIB);
    server.hang_up();
    let begun = Instant::now();
    let data = dirty(4096);
    assert_eq!(volume.run(read_op(0, &data, 4096)).0, Err(Errno::IO));
    assert!(begun.elapsed() < Duration::from_secs(5), "nothing waits for what won't come");
    let reason = volume.disk.trouble().expect("it is refused");
    assert!(reason.contains("1048576 bytes now and had 2097152 before"), "{reason}");
    server.change(|manner| manner.size = 2 * MIB);
    until("it is the old one again", || volume.disk.trouble().is_none());
    assert_eq!(volume.read(0, 4096), [1; 4096]);
}

#[test]
fn a_server_that_has_grown_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let server = Server::start(&path, Manner::of_size(MIB));
    let mut volume = Volume::open(IoMode::Uring, &text);
    volume.well(write_op(0, &[1; 4096], true));
    assert_eq!(volume.disk.measure().expect("it is there"), MIB);
    server.change(|manner| manner.size = 2 * MIB);
    server.hang_up();
    assert_eq!(volume.read(0, 4096), [1; 4096]);
    assert_eq!(volume.disk.size_bytes(), MIB, "until it is reported");
    assert_eq!(volume.disk.measure().expect("it is there"), 2 * MIB);
    volume.disk.grow_to(2 * MIB);
    assert_eq!(volume.disk.size_bytes(), 2 * MIB);
}

/// A server goes on with what came over a connection that is gone: a write that is under way is not
/// asked for twice while the server is well.
#[test]
fn new_connections_for_a_grown_export_wait_for_the_writes_under_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, ",connections=1");
    let server = Server::start(&path, Manner::of_size(MIB));
    let mut volume = Volume::open(IoMode::Uring, &text);
    server.script(|asked| if asked.offset == 0 { Deed::Ignore } else { Deed::Serve });
    volume.submit(1, write_op(0, &[1; 4096], false));
    until("the write has come", || server.asked() == 1);
    server.change(|manner| manner.size = 2 * MIB);
    volume.disk.grow_to(2 * MIB);
    volume.submit(2, write_op(MIB, &[2; 4096], false));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.asked(), 1, "the write is asked for once, and nothing beyond the old end");
    server.script(|_| Deed::Serve);
    server.hang_up();
    volume.all(2);
    assert_eq!(server.contents()[MIB as usize..][..4096], [2; 4096]);
    // Nothing is under way: the new connections come at once.
    let before = server.connections();
    volume.disk.grow_to(2 * MIB + 4096);
    until("there is a new connection", || server.connections() > before);
    assert_eq!(volume.run(write_op(MIB, &[3; 4096], false)).0, Ok(()));
}

/// A server that ends each connection is not asked as fast as it can go.
#[test]
fn a_server_that_hangs_up_is_not_hammered() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, ",connections=1");
    let server = Server::start(&path, Manner::of_size(MIB));
    let mut volume = Volume::open(IoMode::Uring, &text);
    server.script(|_| Deed::HangUp);
    volume.submit(1, write_op(0, &[1; 4096], false));
    std::thread::sleep(Duration::from_millis(1500));
    let connections = server.connections();
    assert!((4..20).contains(&connections), "{connections} connections in 1.5 s");
    server.script(|_| Deed::Serve);
    volume.all(1);
}

/// Requests whose answers are lost are done twice, and it makes no difference.
#[test]
fn chaos_changes_nothing() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let server = Server::start(&path, Manner::of_size(MIB));
        let mut volume = Volume::open(mode, &text);
        let count = AtomicU32::new(0);
        server.script(move |_| match count.fetch_add(1, SeqCst) % 37 {
            11 => Deed::ServeAndHangUp,
            23 => Deed::HangUp,
            29 => Deed::Fail(108),
            _ => Deed::Serve,
        });
        let mut expected = vec![0; MIB as usize];
        let mut restarts = 0;
        for round in 0..30_u64 {
            for slot in 0..16_u64 {
                let bytes = pattern(4096, round * 100 + slot);
                let at = slot * 65_536 + round % 4 * 4096;
                expected[at as usize..][..4096].copy_from_slice(&bytes);
                volume.port.submit(cinnabar_backend::Job {
                    token: slot,
                    file: volume.file,
                    op: write_op(at, &bytes, false),
                });
            }
            for told in volume.all(16) {
                match told {
                    Told::Done(done) => assert_eq!(done.result, Ok(())),
                    Told::Restarted(_) => restarts += 1,
                }
            }
        }
        assert!(restarts >= 10, "only {restarts} restarts with something to tell");
        let data = dirty(MIB);
        assert_eq!(volume.run(read_op(0, &data, MIB)).0, Ok(()));
        assert!(data.to_vec(0, MIB) == expected, "the disk differs");
        assert!(server.contents() == expected, "the server differs");
    });
}

/// A disk that is not needed any more lets go at once, whatever is under way.
#[test]
fn closing_waits_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let mut server = Server::start(&path, Manner::of_size(MIB));
    for away in [false, true] {
        let mut volume = Volume::open(IoMode::Uring, &text);
        server.script(|_| Deed::Ignore);
        volume.submit(1, write_op(0, &[1; 4096], false));
        if away {
            server.kill();
            until("it is noticed", || volume.disk.trouble().is_some());
        }
        let begun = Instant::now();
        drop(volume);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
