//! Devices that are silent: over a port that never does anything.

use super::{IoEvent, IoTable};
use crate::dataplane::replace::SILENCE_MAX;
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::port::{Interest, Port, PortEvent, Waker};
use cinnabar_backend::{Disk, Done, FileId, Job};
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{IoError, IoId, IoOp};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// Takes jobs.
#[derive(Default)]
pub(in super::super) struct Silent {
    files: u32,
    jobs: Vec<Job>,
}

impl Port for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }
    fn waker(&self) -> Waker {
        unreachable!("nobody waits")
    }
    fn register(&mut self, _: Arc<Disk>) -> rustix::io::Result<FileId> {
        self.files += 1;
        Ok(FileId(self.files))
    }
    fn unregister(&mut self, _: FileId) {}
    fn submit(&mut self, job: Job) {
        self.jobs.push(job);
    }
    fn watch(&mut self, _: RawFd, _: u64, _: Interest) {}
    fn unwatch(&mut self, _: u64) {}
    fn wait(&mut self, _: Option<Duration>, _: &mut Vec<PortEvent>) -> rustix::io::Result<()> {
        Ok(())
    }
    fn in_flight(&self) -> usize {
        self.jobs.len()
    }
}

const BOUND: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000_000)
}

struct Rig {
    io_table: IoTable,
    folder: tempfile::TempDir,
}

impl Rig {
    /// With this time-out of cache devices.
    fn new(timeout: Duration) -> Self {
        let io_table = IoTable::new(Box::new(Silent::default()), timeout);
        Self { io_table, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Another device, and an I/O on it that never ends.
    fn install(&mut self, now: Instant, name: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, [0; 4096]).expect("a file");
        let disk = Disk::open(&path, &OpenOptions::default()).expect("it opens");
        self.io_table.install_cache(Arc::new(disk)).expect("there is room");
        self.io_table.cache_io(now, (0, IoId(7)), IoOp::Flush);
    }

    /// What is told when the time has come to this: engines of I/O, and the plane of a device.
    fn told(&mut self, now: Instant) -> (usize, usize) {
        // What is due was not done at the look after its time, either.
        self.io_table.look_at_time(now);
        self.io_table.look_at_time(now);
        let told = std::mem::take(&mut self.io_table.told);
        let hangs = told.iter().filter(|told| matches!(told, IoEvent::Hangs(..))).count();
        let overdue = told.iter().filter(|told| matches!(told, IoEvent::Overdue(..))).count();
        assert_eq!(hangs + overdue, told.len());
        (overdue, hangs)
    }
}

#[test]
fn a_silent_device_is_told_of_once() {
    let mut rig = Rig::new(BOUND);
    rig.install(at(0), "a");
    assert_eq!(rig.told(at(29)), (0, 0));
    assert_eq!(rig.told(at(31)), (1, 1));
    assert_eq!(rig.told(at(99)), (0, 0));
}

/// What hangs on a device that was left may never end.
#[test]
fn a_device_that_was_left_does_not_condemn_the_next() {
    for timeout in [Duration::ZERO, BOUND] {
        let mut rig = Rig::new(timeout);
        rig.install(at(0), "a");
        rig.io_table.hurry_cache(at(0), BOUND);
        assert_eq!(rig.told(at(31)), (1, 1));
        rig.io_table.close_cache();
        // The next one answers, and an operator takes a third.
        rig.install(at(40), "b");
        let done = Done { token: 1, result: Ok(()), pages: Vec::new(), extents: Vec::new() };
        rig.io_table.io_done(at(40), done);
        rig.io_table.told.clear();
        rig.io_table.hurry_cache(at(41), BOUND);
        assert_eq!(rig.told(at(99)), (0, 0), "{timeout:?}");
    }
}

/// Its time-out is for I/O that was begun before it was left, too.
#[test]
fn a_device_is_left_before_its_time_is_over() {
    let mut rig = Rig::new(BOUND);
    rig.install(at(0), "a");
    rig.io_table.leave_cache();
    rig.install(at(20), "b");
    assert_eq!(rig.told(at(31)), (0, 0), "only the first is over its time");
    assert_eq!(rig.told(at(51)), (1, 1), "the second");
}

/// A large discard may take a sound device longer than any read or write.
#[test]
fn a_device_that_discards_slowly_is_not_given_up() {
    let mut rig = Rig::new(BOUND);
    rig.install(at(0), "a");
    let done = Done { token: 0, result: Ok(()), pages: Vec::new(), extents: Vec::new() };
    rig.io_table.io_done(at(1), done);
    rig.io_table.told.clear();
    for op in [
        IoOp::Trim { span: ByteSpan::new(0, 256 << 20) },
        IoOp::MakeRoom { span: ByteSpan::new(0, 256 << 20) },
    ] {
        rig.io_table.cache_io(at(1), (0, IoId(8)), op);
    }
    assert_eq!(rig.told(at(119)), (0, 0));
    rig.io_table.cache_io(at(120), (0, IoId(9)), IoOp::Flush);
    assert_eq!(rig.told(at(122)), (2, 2), "nor is it waited for without end");
    assert_eq!(rig.told(at(151)), (1, 1), "anything else has its usual time");
}

/// Each half of the write log has its own time.
#[test]
fn an_overdue_half_of_the_log_is_told_apart_from_the_other_one() {
    halves_are_overdue(BOUND, 30);
}

/// A half that hangs must not keep the other one from being used, whatever was configured.
#[test]
fn a_half_of_the_log_has_a_time_out_even_if_there_is_none() {
    halves_are_overdue(Duration::ZERO, SILENCE_MAX.as_secs());
}

fn halves_are_overdue(timeout: Duration, seconds: u64) {
    let mut rig = Rig::new(timeout);
    rig.install(at(0), "cache");
    let mut begins = Vec::new();
    for (half, name) in ["log", "mirror"].iter().enumerate() {
        let path = rig.folder.path().join(name);
        std::fs::write(&path, [0; 4096]).expect("a file");
        let disk = Disk::open(&path, &OpenOptions::default()).expect("it opens");
        rig.io_table.install_log(half, Arc::new(disk)).expect("there is room");
        let begun = at(half as u64);
        begins.push((half, begun));
    }
    for (half, begun) in begins {
        rig.io_table.log_io(begun, (half, IoId(40)), IoOp::Flush);
    }
    // A cache device that is left takes nothing of theirs with it.
    rig.io_table.leave_cache();
    let mut told = |now| {
        rig.io_table.look_at_time(now);
        rig.io_table.look_at_time(now);
        let told = std::mem::take(&mut rig.io_table.told).into_iter().map(|told| match told {
            IoEvent::Log(half, done) => (half, done.id, done.result),
            _ => panic!("only the log is told"),
        });
        told.collect::<Vec<_>>()
    };
    let late = |half| vec![(half, IoId(40), Err(IoError::TimedOut))];
    let shortly = |seconds, before: bool| {
        let Instant(ns) = at(seconds);
        Instant(if before { ns - 1_000_000 } else { ns + 1_000_000 })
    };
    assert_eq!(told(shortly(seconds, true)), vec![]);
    assert_eq!(told(shortly(seconds, false)), late(0));
    assert_eq!(told(shortly(seconds + 1, false)), late(1));
    assert_eq!(told(at(seconds + 99)), vec![]);
}

#[test]
fn a_device_without_a_time_out_has_one_while_it_is_opened() {
    for eased in [false, true] {
        let mut rig = Rig::new(Duration::ZERO);
        rig.install(at(0), "a");
        rig.io_table.hurry_cache(at(0), BOUND);
        rig.io_table.cache_io(at(1), (0, IoId(8)), IoOp::Flush);
        if eased {
            rig.io_table.ease_cache();
            rig.io_table.cache_io(at(2), (0, IoId(9)), IoOp::Flush);
        }
        assert_eq!(rig.told(at(99)), if eased { (0, 0) } else { (2, 2) });
    }
}
