//! A server that is left for a while, so that it has places for others.

use super::server::{Deed, Manner, READ, Server};
use super::{MIB, Volume, both, connect, place, read_op, until, write_op};
use crate::rig::{dirty, pattern};
use cinnabar_backend::BackendSpec;
use cinnabar_backend::disk::{Disk, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_server_that_was_left_is_dialed_when_something_is_asked() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let server = Server::start(&path, Manner::of_size(2 * MIB));
        let mut volume = Volume::open(mode, &text);
        until("all are there", || server.live() == 4);
        let bytes = pattern(65536, 1);
        volume.well(write_op(0, &bytes, true));
        for _ in 0..3 {
            volume.disk.rest();
            until("none is there", || server.live() == 0);
            assert_eq!(volume.disk.trouble(), None);
            assert_eq!(volume.read(0, 65536), bytes);
            until("all are there again", || server.live() == 4);
        }
        // It goes on with a server that is started again meanwhile, or has grown.
        volume.disk.rest();
        server.change(|manner| manner.size = 4 * MIB);
        assert_eq!(volume.read(0, 65536), bytes);
        volume.disk.rest();
        drop(volume);
        assert_eq!(connect(&text).expect("it connects").size_bytes(), 4 * MIB);
    });
}

#[test]
fn what_is_under_way_is_answered_before_a_server_is_left() {
    both(|mode| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, text) = place(&folder, "");
        let server = Server::start(&path, Manner::of_size(MIB));
        let mut volume = Volume::open(mode, &text);
        until("all are there", || server.live() == 4);
        server.script(|asked| {
            if asked.kind == READ {
                std::thread::sleep(Duration::from_millis(300));
            }
            Deed::Serve
        });
        let data = dirty(4096);
        let begun = Instant::now();
        volume.submit(1, read_op(0, &data, 4096));
        until("it is asked", || server.asked() > 0);
        let disk = Arc::clone(&volume.disk);
        let rests = std::thread::spawn(move || disk.rest());
        assert_eq!(volume.all(1).len(), 1);
        rests.join().expect("it rests");
        assert!(begun.elapsed() >= Duration::from_millis(300), "it was not waited for");
        assert!(data.to_vec(0, 4096).iter().all(|byte| *byte == 0), "the answer");
        until("none is there", || server.live() == 0);
        assert_eq!(server.connections(), 4, "nothing was asked again");
    });
}

#[test]
fn a_standby_takes_one_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = place(&folder, "");
    let server = Server::start(&path, Manner::of_size(MIB));
    let spec = BackendSpec::parse(&text, Path::new("/")).expect("well-formed");
    let options = OpenOptions { read_only: true, unlocked: true, ..OpenOptions::default() };
    let disk = Disk::open_backend(&spec, &options).expect("it connects");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(server.connections(), 1);
    drop(disk);
}
