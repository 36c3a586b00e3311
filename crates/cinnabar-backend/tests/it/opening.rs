//! What can be a disk and what can't.

use crate::rig::{file, now, soon};
use cinnabar_backend::disk::{Disk, DiskErrorKind, DiskKind, OpenOptions};
use std::path::Path;

fn refused(path: &Path) -> DiskErrorKind {
    let error = Disk::open(path, &now()).expect_err("it can't be opened");
    let text = error.to_string();
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    assert!(!error.hint().is_empty());
    error.kind
}

#[test]
fn bad_disks_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    assert_eq!(refused(&at("none")), DiskErrorKind::NotFound);
    assert_eq!(refused(folder.path()), DiskErrorKind::WrongKind("directory"));
    assert_eq!(refused(Path::new("/dev/null")), DiskErrorKind::WrongKind("character device"));
    std::fs::write(at("empty"), []).expect("a file");
    assert_eq!(refused(&at("empty")), DiskErrorKind::Empty);
    std::fs::write(at("odd"), [0; 1000]).expect("a file");
    assert_eq!(refused(&at("odd")), DiskErrorKind::OddSize(1000));
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
    assert_eq!(refused(&at("socket")), DiskErrorKind::WrongKind("socket"));
    std::fs::write(at("file"), [0; 512]).expect("a file");
    assert_eq!(refused(&at("file/below")), DiskErrorKind::NotFound);
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0)
        .expect("a pipe");
    assert_eq!(refused(&at("pipe")), DiskErrorKind::WrongKind("pipe"), "without waiting for it");
}

#[test]
fn files_are_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = file(&folder, &[0; 5120]);
    let disk = Disk::open(&path, &soon()).expect("it opens");
    assert_eq!((disk.kind(), disk.size_bytes()), (DiskKind::File, 5120));
    assert!(matches!(disk.align_bytes(), 512 | 4096));
    assert!(!disk.is_read_only());
    assert_eq!(disk.path(), path);
}

#[test]
fn a_file_system_without_direct_io_gets_the_page_cache() {
    // /proc has files, and no direct I/O.
    let path = Path::new("/proc/self/attr/current");
    let options = OpenOptions { read_only: true, ..now() };
    // Its size is 0, so it gets as far as that: opening it went well.
    let error = Disk::open(path, &options).expect_err("it has no size");
    assert_eq!(error.kind, DiskErrorKind::Empty);
}

#[test]
fn a_size_that_direct_io_cannot_reach_gets_the_page_cache() {
    // Whatever the file system's alignment: what is opened can be used to its last sector.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = Disk::open(&file(&folder, &[0; 4608]), &soon()).expect("it opens");
    assert!(disk.align_bytes() == 512 || disk.size_bytes().is_multiple_of(4096));
}
