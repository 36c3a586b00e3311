//! What *durable* means on each file system, and what becomes of a flush that failed.

use crate::fuse::Fuse;
use crate::rig::{Rig, dirty, slices, soon};
use cinnabar_backend::disk::{CacheOptions, OpenOptions, open_cache};
use cinnabar_backend::port::{self, IoMode, JobOp};
use cinnabar_backend::{Proof, ProofError};
use rustix::io::Errno;
use std::sync::atomic::Ordering::SeqCst;

const MODES: [IoMode; 2] = [IoMode::Uring, IoMode::Threads];

fn write(rig: &mut Rig, fua: bool) -> Result<(), Errno> {
    let data = slices(&dirty(8192), 8192);
    rig.run(JobOp::Write { offset: 4096, pages: Vec::new(), data, fua }).result
}

#[test]
fn a_durable_write_is_flushed_where_the_file_system_does_not_do_it_by_itself() {
    let Some(fuse) = Fuse::mount() else { return };
    for mode in MODES {
        let mut rig = Rig::new(mode, &fuse.file("disk", 65_536));
        let flushes = || fuse.knobs.flushes.load(SeqCst);
        let before = flushes();
        assert_eq!(write(&mut rig, false), Ok(()));
        assert_eq!(flushes(), before, "no flush was asked for");
        assert_eq!(write(&mut rig, true), Ok(()));
        assert!(flushes() > before, "{mode:?}: the write was not made durable");
    }
}

#[test]
fn a_durable_write_whose_flush_fails_fails() {
    let Some(fuse) = Fuse::mount() else { return };
    for mode in MODES {
        let mut rig = Rig::new(mode, &fuse.file("disk", 65_536));
        fuse.knobs.failing_flushes.store(1, SeqCst);
        assert_eq!(write(&mut rig, true), Err(Errno::IO), "{mode:?}");
    }
}

/// Linux reports a failed write-back once for each open file: the next caller is answered that all
/// is well.
#[test]
fn a_flush_that_failed_is_not_forgotten() {
    let Some(fuse) = Fuse::mount() else { return };
    for mode in MODES {
        let path = fuse.file("disk", 65_536);
        let mut rig = Rig::new(mode, &path);
        assert_eq!(write(&mut rig, false), Ok(()));
        fuse.knobs.failing_flushes.store(1, SeqCst);
        // The heartbeat's, which is the first to ask.
        assert!(matches!(rig.disk.prove(), Err(ProofError::Flush(Errno::IO))));
        assert_eq!(rig.run(JobOp::Flush).result, Err(Errno::IO), "{mode:?}: the guest's flush");
        assert_eq!(rig.run(JobOp::Flush).result, Err(Errno::IO), "{mode:?}: and the next one");
        assert_eq!(write(&mut rig, true), Err(Errno::IO), "{mode:?}: a durable write is a flush");
        assert!(matches!(rig.disk.prove(), Err(ProofError::Flush(Errno::IO))));
        assert!(matches!(rig.disk.take_proof(), Err(ProofError::Flush(Errno::IO))));
        assert_eq!(write(&mut rig, false), Ok(()), "others are the kernel's to judge");
        // Opened again, what it holds is what there is.
        drop(rig);
        let mut rig = Rig::new(mode, &path);
        assert_eq!(rig.run(JobOp::Flush).result, Ok(()));
    }
}

/// Each shard asks by itself, and all of them must hear of it.
#[test]
fn every_one_of_several_flushes_hears_of_a_failure() {
    let Some(fuse) = Fuse::mount() else { return };
    for mode in MODES {
        let mut rig = Rig::new(mode, &fuse.file("disk", 65_536));
        fuse.hang(Some("disk"));
        fuse.knobs.failing_flushes.store(1, SeqCst);
        for token in 0..8 {
            rig.submit(token, JobOp::Flush);
        }
        let mut events = Vec::new();
        let soon = std::time::Duration::from_millis(1);
        rig.port.wait(Some(soon), &mut events).expect("the port works");
        fuse.await_waiting(1);
        fuse.hang(None);
        let results: Vec<_> = rig.finish(8).into_iter().map(|done| done.result).collect();
        assert_eq!(results, [Err(Errno::IO); 8], "{mode:?}");
    }
}

/// Over the page cache one shard's flush would take the error of the other's durable mark.
#[test]
fn a_flush_of_a_cache_device_that_failed_is_not_forgotten_over_the_page_cache() {
    let Some(fuse) = Fuse::mount() else { return };
    for (direct, then) in [(false, Err(Errno::IO)), (true, Ok(()))] {
        let open = OpenOptions { direct, ..soon() };
        let options = CacheOptions { size_bytes: Some(1 << 20), open, ..CacheOptions::default() };
        let cache = open_cache(&fuse.folder().join("cache.img"), &options).expect("it opens");
        assert_eq!(cache.disk.is_direct(), direct);
        let disk = std::sync::Arc::new(cache.disk);
        let mut port = port::open(IoMode::Threads).expect("a port");
        let file = port.register(std::sync::Arc::clone(&disk)).expect("it registers");
        let mut rig = Rig { port, file, disk };
        fuse.knobs.failing_flushes.store(1, SeqCst);
        assert_eq!(rig.run(JobOp::Flush).result, Err(Errno::IO));
        assert_eq!(write(&mut rig, true), then, "direct: {direct}");
        assert_eq!(rig.run(JobOp::Flush).result, then, "direct: {direct}");
    }
}
