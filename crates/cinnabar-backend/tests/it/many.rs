//! Many jobs at once, and a port that goes while they are under way.

use crate::rig::{Rig, dirty, everywhere, file, pattern, slices};
use cinnabar_backend::port::{IoMode, JobOp};
use cinnabar_backend::{Disk, Memory, Port, port};
use cinnabar_engine::Payload;
use std::collections::HashSet;
use std::sync::Arc;

#[test]
fn thousands_in_flight_each_come_back_once() {
    everywhere(|mode, folder| {
        let blocks = 512_u64;
        let bytes = pattern((blocks * 4096) as usize, 11);
        let mut rig = Rig::new(mode, &file(folder, &bytes));
        // More than the submission queue (256) and the completion queue (4096) hold.
        let jobs = 6000_u64;
        let buffers: Vec<Memory> = (0..jobs).map(|_| dirty(4096)).collect();
        for (token, data) in (0_u64..).zip(&buffers) {
            let offset = token * 7 % blocks * 4096;
            let data = slices(data, 4096);
            rig.submit(token, JobOp::Read { offset, pages: Vec::new(), data });
        }
        assert_eq!(rig.port.in_flight(), jobs as usize);
        let done = rig.finish(jobs as usize);
        assert!(done.iter().all(|done| done.result == Ok(())));
        let tokens: HashSet<u64> = done.iter().map(|done| done.token).collect();
        assert_eq!(tokens.len(), jobs as usize);
        for (token, data) in (0_u64..).zip(&buffers) {
            let at = (token * 7 % blocks * 4096) as usize;
            assert!(data.to_vec(0, 4096) == bytes[at..at + 4096], "{token}");
        }
        assert_eq!(rig.port.in_flight(), 0);
    });
}

#[test]
fn dropping_a_port_waits_for_its_jobs() {
    everywhere(|mode, folder| {
        let path = file(folder, &vec![0; 4 << 20]);
        let mut rig = Rig::new(mode, &path);
        let data = Memory::alloc(1024);
        data.write_at(0, &pattern(4 << 20, 12));
        for token in 0..64 {
            let data = slices(&data, 4 << 20);
            rig.submit(token, JobOp::Write { offset: 0, pages: Vec::new(), data, fua: true });
        }
        let mut events = Vec::new();
        rig.port.wait(Some(std::time::Duration::ZERO), &mut events).expect("the port works");
        drop(rig.port);
        drop(rig.disk);
        // The lock is free and the bytes are there: nothing is under way any more.
        let again = Disk::open(&path, &crate::rig::soon()).expect("it is not locked");
        drop(again);
        assert!(std::fs::read(&path).expect("the file is there") == data.to_vec(0, 4 << 20));
    });
}

#[test]
fn places_of_disks_are_used_again() {
    everywhere(|mode, folder| {
        let path = file(folder, &pattern(8192, 13));
        let mut port: Box<dyn Port> = port::open(mode).expect("a port");
        for _ in 0..100 {
            let disk = Disk::open(&path, &crate::rig::soon()).expect("the lock went with the disk");
            let disk = Arc::new(disk);
            let file = port.register(Arc::clone(&disk)).expect("there is room");
            assert_eq!(file.0, 0);
            let mut rig = Rig { port, file, disk };
            assert!(rig.read(0, 8192) == pattern(8192, 13));
            rig.port.unregister(rig.file);
            port = rig.port;
        }
    });
}

#[test]
#[should_panic(expected = "in flight on a disk that is to go")]
fn a_busy_disk_does_not_go() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut rig = Rig::new(IoMode::Threads, &file(&folder, &[0; 4096]));
    rig.submit(1, JobOp::Flush);
    rig.port.unregister(rig.file);
}
