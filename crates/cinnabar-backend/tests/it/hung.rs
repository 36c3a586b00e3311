//! A back end that does not answer, beside others that do, on one port.

use crate::fuse::Fuse;
use crate::rig::{PATIENCE, dirty, file, slices, soon};
use cinnabar_backend::disk::Disk;
use cinnabar_backend::port::{self, FileId, IoMode, Job, JobOp, Port, PortEvent};
use cinnabar_engine::units::ByteSpan;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// More than any port has workers.
const MANY: u64 = 100;

fn register(port: &mut dyn Port, path: &Path) -> FileId {
    let disk = Arc::new(Disk::open(path, &soon()).expect("it opens"));
    port.register(disk).expect("it registers")
}

fn read(offset: u64, len: u64) -> JobOp {
    JobOp::Read { offset, pages: Vec::new(), data: slices(&dirty(len), len) }
}

fn write(offset: u64, fua: bool) -> JobOp {
    JobOp::Write { offset, pages: Vec::new(), data: slices(&dirty(4096), 4096), fua }
}

/// Waits for the completion of exactly this job.
fn finish(port: &mut dyn Port, token: u64, what: &str) {
    let mut events = Vec::new();
    loop {
        port.wait(Some(PATIENCE), &mut events).expect("the port works");
        assert!(!events.is_empty(), "a {what} waits behind another back end");
        for event in events.drain(..) {
            let PortEvent::Done(done) = event else { panic!("unexpected: {event:?}") };
            assert_eq!(done.result, Ok(()), "{what}");
            if done.token == token {
                return;
            }
        }
    }
}

/// Everything that a healthy disk is asked for.
fn all() -> Vec<(&'static str, JobOp)> {
    let span = ByteSpan::new(0, 4096);
    vec![
        ("read", read(0, 4096)),
        ("write", write(0, false)),
        ("durable write", write(4096, true)),
        ("flush", JobOp::Flush),
        ("trim", JobOp::Trim { span }),
        ("zeroing", JobOp::WriteZeroes { span, may_punch: false }),
        ("question", JobOp::Extents { span }),
    ]
}

#[test]
fn a_back_end_that_hangs_keeps_no_other_from_its_work() {
    for mode in [IoMode::Uring, IoMode::Threads] {
        let Some(fuse) = Fuse::mount() else { return };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut port = port::open(mode).expect("a port");
        let healthy = register(&mut *port, &file(&folder, &vec![1; 65_536]));
        let beside = register(&mut *port, &fuse.file("beside", 65_536));
        let hung = register(&mut *port, &fuse.file("hung", 1 << 20));
        fuse.hang(Some("hung"));
        let mut submitted = 0;
        // Each kind by itself: any of them may have workers, or a turn, of its own.
        let span = ByteSpan::new(0, 4096);
        for token in 0..MANY {
            let ops = [
                read(token * 4096, 4096),
                write(token * 4096, false),
                JobOp::Flush,
                JobOp::WriteZeroes { span, may_punch: false },
                JobOp::Trim { span },
            ];
            for op in ops {
                port.submit(Job { token: 1, file: hung, op });
                submitted += 1;
            }
        }
        let mut events = Vec::new();
        port.wait(Some(std::time::Duration::from_millis(1)), &mut events).expect("it works");
        assert!(events.is_empty());
        fuse.await_waiting(1);
        for disk in [healthy, beside] {
            for (token, (what, op)) in (1000..).zip(all()) {
                port.submit(Job { token, file: disk, op });
                eprintln!("{mode:?}: {what}");
                finish(&mut *port, token, what);
            }
        }
        assert_eq!(port.in_flight(), submitted, "what hangs is still under way");
        fuse.hang(None);
        while port.in_flight() > 0 {
            port.wait(Some(PATIENCE), &mut events).expect("the port works");
            assert!(!events.is_empty(), "{} jobs are under way", port.in_flight());
            events.clear();
        }
        assert_eq!(fuse.knobs.waiting.load(SeqCst), 0);
        drop(port);
    }
}

/// As on a server that is gone: all of its files hang, not one.
#[test]
fn many_back_ends_that_hang_keep_no_other_from_its_work() {
    for mode in [IoMode::Uring, IoMode::Threads] {
        let mounts: Vec<_> = (0..24).map_while(|_| Fuse::mount()).collect();
        if mounts.len() < 24 {
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut port = port::open(mode).expect("a port");
        let healthy = register(&mut *port, &file(&folder, &vec![1; 65_536]));
        for fuse in &mounts {
            let hung = register(&mut *port, &fuse.file("hung", 65_536));
            fuse.hang(Some("hung"));
            for _ in 0..8 {
                port.submit(Job { token: 1, file: hung, op: read(0, 4096) });
                port.submit(Job { token: 1, file: hung, op: JobOp::Flush });
            }
        }
        let mut events = Vec::new();
        port.wait(Some(std::time::Duration::from_millis(1)), &mut events).expect("it works");
        for fuse in &mounts {
            fuse.await_waiting(1);
        }
        for (token, (what, op)) in (1000..).zip(all()) {
            port.submit(Job { token, file: healthy, op });
            finish(&mut *port, token, what);
        }
        for fuse in &mounts {
            fuse.hang(None);
        }
        while port.in_flight() > 0 {
            port.wait(Some(PATIENCE), &mut events).expect("the port works");
            assert!(!events.is_empty(), "{} jobs are under way", port.in_flight());
            events.clear();
        }
        drop(port);
    }
}
