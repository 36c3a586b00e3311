//! What a server that works is asked, and what comes of it.

use super::server::{self, Deed, FLUSH, Manner, READ, Server, TRIM, WRITE, ZEROES};
use super::{MIB, Volume, both, connect, connect_as, place, read_op, scattered, write_op};
use crate::rig::{dirty, pattern};
use cinnabar_backend::disk::Identity;
use cinnabar_backend::port::{Extent, JobOp};
use cinnabar_backend::{DiskKind, Proof};
use cinnabar_engine::units::ByteSpan;
use rustix::io::Errno;

#[test]
fn data_go_and_come_over_both_ports_and_dialects() {
    both(|mode| {
        for structured in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, text) = place(&folder, "");
            let server = Server::start(&path, Manner { structured, ..Manner::of_size(2 * MIB) });
            let mut volume = Volume::open(mode, &text);
            let (disk, facts) = (&volume.disk, (DiskKind::Server, 2 * MIB, 512));
            assert_eq!((disk.kind(), disk.size_bytes(), disk.align_bytes()), facts);
            let bytes = pattern(300_000 / 512 * 512, 1);
            volume.well(write_op(512, &bytes, false));
            assert_eq!(volume.read(512, bytes.len() as u64), bytes);
            let (_memory, data) = scattered(&bytes, 512);
            volume.well(JobOp::Write { offset: MIB, pages: Vec::new(), data, fua: false });
            assert_eq!(server.contents()[MIB as usize..][..bytes.len()], bytes);
            let (memory, data) = scattered(&vec![0xee; bytes.len()], 512);
            volume.well(JobOp::Read { offset: MIB, pages: Vec::new(), data });
            let (_, places) = scattered(&bytes, 512);
            let found: Vec<u8> =
                places.iter().flat_map(|slice| memory.to_vec(slice.at, slice.len)).collect();
            assert_eq!(found, bytes);
            // Past the end there are zeros.
            let end = volume.read(2 * MIB - 512, 4096);
            assert!(end.iter().all(|byte| *byte == 0), "the end is not zeros");
            let past = volume.run(write_op(2 * MIB - 512, &[1; 1024], false));
            assert_eq!(past.0, Err(Errno::INVAL));
        }
    });
}

#[test]
fn flushes_trims_and_zeroes_reach_the_server() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let server = Server::start(&path, Manner::of_size(MIB));
        let mut volume = Volume::open(mode, &text);
        volume.well(write_op(0, &[1; 8192], false));
        assert_eq!(server.durable()[0], 0);
        volume.well(JobOp::Flush);
        assert_eq!(server.durable()[..8192], [1; 8192]);
        volume.well(write_op(8192, &[2; 4096], true));
        assert_eq!(server.durable()[8192..12288], [2; 4096], "FUA");
        volume.well(JobOp::Trim { span: ByteSpan::new(0, 4096) });
        volume.well(JobOp::WriteZeroes { span: ByteSpan::new(8192, 512), may_punch: false });
        volume.well(JobOp::WriteZeroes { span: ByteSpan::new(8704, 512), may_punch: true });
        let asked: Vec<_> =
            server.take_asked().iter().map(|one| (one.kind, one.flags, one.len)).collect();
        let expected = [
            (WRITE, 0, 8192),
            (FLUSH, 0, 0),
            (WRITE, 1, 4096),
            (TRIM, 0, 4096),
            (ZEROES, 2, 512),
            (ZEROES, 0, 512),
        ];
        assert_eq!(asked, expected);
        // The proof of a server is none; taking it flushes.
        assert_eq!(volume.disk.read_proof().expect("nothing to fail"), None);
        assert_eq!(volume.disk.prove().expect("it flushes"), None);
        assert_eq!(volume.disk.take_proof().expect("it flushes"), None);
        assert_eq!(server.take_asked().iter().filter(|one| one.kind == FLUSH).count(), 2);
        // Everything counts as data, and the server is not asked.
        volume.port.submit(cinnabar_backend::Job {
            token: 1,
            file: volume.file,
            op: JobOp::Extents { span: ByteSpan::new(512, 4096) },
        });
        let super::Told::Done(done) = volume.all(1).pop().expect("one") else {
            panic!("a restart")
        };
        assert_eq!(done.extents, [Extent { len: 4096, hole: false }]);
        assert!(server.take_asked().is_empty());
    });
}

#[test]
fn a_poor_server_is_asked_for_what_it_can() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let flags = 1 | server::SEND_FLUSH;
        let server = Server::start(&path, Manner { flags, ..Manner::of_size(MIB) });
        let mut volume = Volume::open(mode, &text);
        volume.well(write_op(0, &[1; 4096], true));
        assert_eq!(server.durable()[..4096], [1; 4096], "a flush does for FUA");
        volume.well(JobOp::Trim { span: ByteSpan::new(0, 4096) });
        let zeroes = JobOp::WriteZeroes { span: ByteSpan::new(0, 4096), may_punch: true };
        assert_eq!(volume.run(zeroes).0, Err(Errno::OPNOTSUPP), "written by the engine then");
        let asked: Vec<_> = server.take_asked().iter().map(|one| (one.kind, one.flags)).collect();
        assert_eq!(asked, [(WRITE, 0), (FLUSH, 0)]);
        drop((volume, server));
        let server = Server::start(&path, Manner { flags: 1, ..Manner::of_size(MIB) });
        let mut volume = Volume::open(mode, &text);
        volume.well(write_op(0, &[1; 4096], true));
        volume.well(JobOp::Flush);
        let asked: Vec<_> = server.take_asked().iter().map(|one| (one.kind, one.flags)).collect();
        assert_eq!(asked, [(WRITE, 0)], "it can't flush");
    });
}

#[test]
fn requests_keep_to_the_servers_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let blocks = Some([4096, 4096, 69_000]);
    let server = Server::start(&path, Manner { blocks, ..Manner::of_size(MIB) });
    let mut volume = Volume::open(cinnabar_backend::port::IoMode::Uring, &text);
    assert_eq!(volume.disk.align_bytes(), 4096);
    let bytes = pattern(512 << 10, 2);
    volume.well(write_op(4096, &bytes, true));
    assert_eq!(volume.read(4096, bytes.len() as u64), bytes);
    let asked = server.take_asked();
    assert!(asked.len() >= 16, "{} requests", asked.len());
    for one in asked {
        assert!(one.offset % 4096 == 0 && one.len % 4096 == 0 && one.len <= 69_000, "{one:?}");
        assert!(one.kind == READ || one.flags == 1, "durable in each part: {one:?}");
    }
}

#[test]
fn errors_are_those_of_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let blocks = Some([512, 4096, 65_536]);
    let server = Server::start(&path, Manner { blocks, ..Manner::of_size(MIB) });
    let mut volume = Volume::open(cinnabar_backend::port::IoMode::Uring, &text);
    for (number, errno) in [
        (5, Errno::IO),
        (28, Errno::NOSPC),
        (1, Errno::PERM),
        (95, Errno::OPNOTSUPP),
        (77, Errno::IO),
    ] {
        server.script(move |asked| match asked.offset {
            65_536 => Deed::Fail(number),
            _ => Deed::Serve,
        });
        let data = dirty(4096);
        assert_eq!(volume.run(read_op(65_536, &data, 4096)).0, Err(errno));
        // One part of many.
        assert_eq!(volume.run(write_op(0, &pattern(512 << 10, 3), false)).0, Err(errno));
        volume.well(write_op(0, &[1; 4096], false));
    }
    assert_eq!(server.connections(), 4, "an error is no reason to connect again");
}

/// A server over a page cache tells of a lost write once.
#[test]
fn a_flush_that_a_server_fails_is_not_forgotten() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let server = Server::start(&path, Manner::of_size(MIB));
        let mut volume = Volume::open(mode, &text);
        volume.well(write_op(0, &[1; 4096], false));
        server.script(|asked| match asked.kind {
            FLUSH => Deed::FailAndForget(5),
            _ => Deed::Serve,
        });
        assert_eq!(volume.run(JobOp::Flush).0, Err(Errno::IO));
        assert!(server.contents().iter().all(|byte| *byte == 0), "the write is lost");
        server.script(|_| Deed::Serve);
        assert_eq!(volume.run(JobOp::Flush).0, Err(Errno::IO), "the next one");
        assert!(volume.disk.prove().is_err(), "and the heartbeat's");
        let trouble = volume.disk.trouble().expect("the operator sees it");
        assert!(trouble.contains("a flush of the backend failed"), "{trouble}");
        volume.well(write_op(0, &[2; 4096], false));
        assert_eq!(volume.run(JobOp::Flush).0, Err(Errno::IO), "until all is written again");
        volume.disk.forget_failed_flush();
        volume.well(JobOp::Flush);
        assert_eq!((volume.disk.sync_failure(), server.durable()[0]), (None, 2));
        drop(volume);
        Volume::open(mode, &text).well(JobOp::Flush);
    });
}

#[test]
fn connections_are_as_many_as_the_server_allows() {
    for (options, flags, expected) in [
        ("", server::ALL, 4),
        (",connections=1", server::ALL, 1),
        (",connections=7", server::ALL, 7),
        (",connections=7", server::ALL & !server::MULTI, 1),
    ] {
        // Of its own: a volume before may still dial its server.
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, options);
        let server = Server::start(&path, Manner { flags, ..Manner::of_size(MIB) });
        let mut volume = Volume::open(cinnabar_backend::port::IoMode::Uring, &text);
        // Held back until all are there, so that every connection gets some.
        server.script(|_| Deed::Ignore);
        for token in 0..20 {
            volume.submit(token, write_op(token * 4096, &[1; 4096], false));
        }
        let mut asked = Vec::new();
        while asked.len() < 20 {
            asked.extend(server.take_asked().into_iter().map(|one| one.connection));
            std::thread::yield_now();
        }
        server.script(|_| Deed::Serve);
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked.len() as u64, expected, "{text}");
        assert_eq!(server.connections(), expected, "{text}");
        server.hang_up();
        volume.all(20);
    }
}

#[test]
fn one_disk_is_used_by_several_ports() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let server = Server::start(&path, Manner::of_size(MIB));
    let disk = std::sync::Arc::new(connect(&text).expect("it connects"));
    let threads: Vec<_> = (0..4_u64)
        .map(|index| {
            let disk = std::sync::Arc::clone(&disk);
            std::thread::spawn(move || {
                let mode = if index % 2 == 0 {
                    cinnabar_backend::port::IoMode::Uring
                } else {
                    cinnabar_backend::port::IoMode::Threads
                };
                let mut volume = Volume::of(mode, disk);
                for round in 0..100 {
                    let bytes = pattern(4096, index * 1000 + round);
                    volume.well(write_op(index * 65_536, &bytes, false));
                    assert_eq!(volume.read(index * 65_536, 4096), bytes);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(server.take_asked().len(), 800);
}

#[test]
fn what_will_not_do_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let refused = |manner: Manner, part: &str| {
        let _server = Server::start(&path, manner);
        let error = connect(&text).expect_err(part);
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.hint().is_empty());
    };
    let error = connect(&text).expect_err("nothing listens");
    assert!(error.to_string().contains("No such file"), "{error}");
    refused(Manner::of_size(0), "it has no bytes");
    refused(Manner::of_size(1000), "1000 bytes is not a multiple of 512");
    let blocks = Some([8192, 8192, 65_536]);
    refused(Manner { blocks, ..Manner::of_size(MIB) }, "8192 bytes is larger than 4096");
    let flags = server::ALL | server::READ_ONLY;
    let read_only = || Manner { flags, ..Manner::of_size(MIB) };
    refused(read_only(), "it can only be read");
    let _server = Server::start(&path, read_only());
    let disk = connect_as(&text, true).expect("it is not written");
    assert!(matches!(disk.identity(), Identity::Server(place) if place.contains("nbd.sock")));
}
