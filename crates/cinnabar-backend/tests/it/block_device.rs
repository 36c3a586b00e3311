//! Block devices, by way of loop devices; skipped with a message where there are none.

use crate::rig::{Rig, folders, now, pattern, soon};
use cinnabar_backend::disk::{
    CacheOptions, Disk, DiskErrorKind, DiskKind, OpenOptions, open_cache,
};
use cinnabar_backend::port::{Extent, IoMode, JobOp};
use cinnabar_backend::proof::Proof;
use cinnabar_engine::units::ByteSpan;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: u64 = 8 << 20;

/// A loop device, detached at the end.
struct Loop {
    device: PathBuf,
    _folder: tempfile::TempDir,
}

impl Loop {
    fn new(sector_bytes: u32) -> Option<Self> {
        Self::with(sector_bytes, &[])
    }

    fn with(sector_bytes: u32, more: &[&str]) -> Option<Self> {
        let folder = folders().pop().expect("there is one");
        let file = folder.path().join("loop.img");
        std::fs::write(&file, pattern(SIZE as usize, 1)).expect("a file");
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "--sector-size"])
            .arg(sector_bytes.to_string())
            .args(more)
            .arg(&file)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8_lossy(&output.stdout).trim().into();
                Some(Self { device, _folder: folder })
            }
            other => {
                eprintln!("skipped: no loop device here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

fn each(test: impl Fn(IoMode, u32, &Path)) {
    for sector_bytes in [512, 4096] {
        for mode in [IoMode::Uring, IoMode::Threads] {
            let Some(device) = Loop::new(sector_bytes) else { return };
            eprintln!("{mode:?}, sectors of {sector_bytes}");
            test(mode, sector_bytes, &device.device);
        }
    }
}

#[test]
fn devices_are_measured_read_and_written() {
    each(|mode, sector_bytes, device| {
        let mut rig = Rig::new(mode, device);
        assert_eq!((rig.disk.kind(), rig.disk.size_bytes()), (DiskKind::Block, SIZE));
        assert_eq!(rig.disk.align_bytes(), sector_bytes);
        assert!(rig.disk.is_direct());
        let bytes = pattern(SIZE as usize, 1);
        assert!(rig.read(4096, 65_536) == bytes[4096..4096 + 65_536]);
        rig.write(8192, &pattern(16_384, 2), true);
        assert!(rig.read(8192, 16_384) == pattern(16_384, 2));
        assert_eq!(rig.run(JobOp::Flush).result, Ok(()));
        let done = rig.run(JobOp::Extents { span: ByteSpan::new(0, SIZE) });
        assert_eq!(done.extents, [Extent { len: SIZE, hole: false }]);
    });
}

/// A write-protected LUN, a snapshot: in write-back mode writes would be acknowledged that can never reach it.
#[test]
fn a_device_that_is_set_read_only_is_not_opened_for_writing() {
    // `blockdev --setro` would last longer than the loop device does.
    let Some(device) = Loop::with(512, &["--read-only"]) else { return };
    let error = Disk::open(&device.device, &OpenOptions::default()).expect_err("it is read-only");
    assert!(matches!(error.kind, DiskErrorKind::ReadOnly), "{error}");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    assert_eq!(Disk::open(&device.device, &options).expect("it is read").size_bytes(), SIZE);
}

#[test]
fn devices_are_zeroed_and_trimmed() {
    each(|mode, _, device| {
        let mut rig = Rig::new(mode, device);
        let bytes = pattern(SIZE as usize, 1);
        for may_punch in [false, true] {
            let span = ByteSpan::new(1 << 20, 1 << 20);
            assert_eq!(rig.run(JobOp::WriteZeroes { span, may_punch }).result, Ok(()));
            assert!(rig.read(1 << 20, 1 << 20).iter().all(|&byte| byte == 0));
            assert!(rig.read(2 << 20, 4096) == bytes[2 << 20..(2 << 20) + 4096]);
            rig.write(1 << 20, &bytes[1 << 20..2 << 20], false);
        }
        let span = ByteSpan::new(4 << 20, 1 << 20);
        assert_eq!(rig.run(JobOp::Trim { span }).result, Ok(()));
        assert!(rig.read(5 << 20, 4096) == bytes[5 << 20..(5 << 20) + 4096]);
    });
}

#[test]
fn devices_have_no_proof_and_one_user() {
    each(|_, _, device| {
        let disk = Disk::open(device, &soon()).expect("it opens");
        assert_eq!((disk.read_proof(), disk.take_proof()), (Ok(None), Ok(None)));
        for read_only in [false, true] {
            let options = OpenOptions { read_only, ..now() };
            let error = Disk::open(device, &options).expect_err("it is locked");
            assert!(matches!(error.kind, DiskErrorKind::InUse { .. }), "{error}");
        }
    });
}

#[test]
fn a_mounted_device_is_in_use() {
    let Some(device) = Loop::new(512) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let at = device.device.as_os_str();
    if !run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), at])
        || !run("mount", &[at, folder.path().as_os_str()])
    {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    let options = CacheOptions { force: true, open: now(), ..CacheOptions::default() };
    let refused = open_cache(&device.device, &options);
    assert!(run("umount", &[folder.path().as_os_str()]), "it was mounted");
    let error = refused.expect_err("whatever force says");
    assert!(matches!(error.kind, DiskErrorKind::InUse { .. }), "{error}");
    let options = CacheOptions { force: false, ..options };
    let error = open_cache(&device.device, &options).expect_err("there is a file system");
    assert!(error.to_string().contains("ext4"), "{error}");
}
