//! Hybrid volumes as disks: jobs of a port, locks, proofs.

use crate::rig::{PATIENCE, Rig, everywhere, now, pattern, soon};
use cinnabar_backend::disk::{Disk, DiskErrorKind, OpenOptions};
use cinnabar_backend::hybrid::manage::create;
use cinnabar_backend::port::JobOp;
use cinnabar_backend::spec::{BackendSpec, Place};
use cinnabar_backend::{DiskKind, Proof};
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::volume::{Belief, Recorded};
use rustix::io::Errno;
use std::path::Path;
use std::time::Instant;

const SIZE: u64 = 1 << 20;
const EXTENT: u64 = 64 << 10;

fn spec(folder: &Path) -> BackendSpec {
    BackendSpec::parse("hybrid:fast=fast,slow=slow", folder).expect("well-formed")
}

fn made(folder: &Path) -> BackendSpec {
    let spec = spec(folder);
    let Place::Hybrid(volume) = &spec.place else { panic!("a hybrid volume") };
    create(volume, SIZE, EXTENT, SIZE / 4).expect("made");
    spec
}

#[test]
fn jobs_go_through() {
    everywhere(|mode, folder| {
        let spec = made(folder.path());
        let mut rig = Rig::of(mode, Disk::open_backend(&spec, &soon()).expect("it opens"));
        assert_eq!((rig.disk.kind(), rig.disk.size_bytes()), (DiskKind::Server, SIZE));
        // Over three extents.
        let bytes = pattern(136 << 10, 1);
        rig.write(60 << 10, &bytes, true);
        assert_eq!(rig.read(60 << 10, 136 << 10), bytes);
        assert!(rig.read(0, 60 << 10).iter().all(|byte| *byte == 0));
        let span = ByteSpan::new(64 << 10, 4096);
        for op in
            [JobOp::WriteZeroes { span, may_punch: false }, JobOp::Trim { span }, JobOp::Flush]
        {
            assert_eq!(rig.run(op).result, Ok(()));
        }
        assert!(rig.read(64 << 10, 4096).iter().all(|byte| *byte == 0));
        let past = ByteSpan::new(SIZE, 4096);
        assert_eq!(rig.run(JobOp::Trim { span: past }).result, Err(Errno::INVAL));
        let status = rig.disk.hybrid_status().expect("it is one");
        assert_eq!((status.size_bytes, status.extent_bytes), (SIZE, EXTENT));
    });
}

#[test]
fn it_has_one_owner_who_proves_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = made(folder.path());
    let open = |options: &OpenOptions| Disk::open_backend(&spec, options);
    let first = open(&soon()).expect("it opens");
    let error = open(&now()).expect_err("it is in use");
    assert!(matches!(error.kind, DiskErrorKind::InUse { .. }), "{error}");
    let proof = first.take_proof().expect("a proof");
    assert!(proof.is_some());
    drop(first);
    let recorded = Recorded { proof, written: true };
    let second = open(&soon()).expect("it opens again");
    let seen = second.read_proof().expect("a proof");
    assert_eq!(second.judge(&recorded, seen.as_ref()), Belief::Unchanged);
    drop(second);
    // Of the owner before the last one nothing is believed.
    let third = open(&soon()).expect("it opens again");
    let seen = third.read_proof().expect("a proof");
    assert_eq!(third.judge(&recorded, seen.as_ref()), Belief::Unknown);
}

#[test]
fn what_it_can_not_do_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let nothing = Disk::open_backend(&spec(folder.path()), &soon()).expect_err("nothing is there");
    assert!(nothing.to_string().contains("there is no hybrid volume"), "{nothing}");
    assert!(nothing.hint().contains("cinnabar hybrid create"), "{}", nothing.hint());
    let spec = made(folder.path());
    let clone = OpenOptions { is_clone: true, ..soon() };
    let error = Disk::open_backend(&spec, &clone).expect_err("no clone");
    assert_eq!(error.kind, DiskErrorKind::NoClone);
    let beside = OpenOptions { read_only: true, unlocked: true, ..soon() };
    assert!(Disk::open_backend(&spec, &beside).is_err(), "nothing is read beside its owner");
    let reader = OpenOptions { read_only: true, ..soon() };
    let started = Instant::now();
    let disk = Disk::open_backend(&spec, &reader).expect("it opens");
    assert!(started.elapsed() < PATIENCE);
    let mut rig = Rig::of(cinnabar_backend::port::IoMode::Threads, disk);
    let span = ByteSpan::new(0, 4096);
    assert_eq!(rig.run(JobOp::Trim { span }).result, Err(Errno::ROFS));
    assert!(rig.read(0, 4096).iter().all(|byte| *byte == 0));
}
