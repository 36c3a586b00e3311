//! The proof that a file was not written meanwhile.

use crate::rig::{Rig, file, folders, soon};
use cinnabar_backend::disk::Disk;
use cinnabar_backend::port::IoMode;
use cinnabar_backend::proof::Proof;
use cinnabar_engine::volume::{Belief, ProofToken, Recorded};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn open(path: &Path) -> Disk {
    Disk::open(path, &soon()).expect("it opens")
}

/// What the next start sees.
fn seen(path: &Path) -> ProofToken {
    seen_by(&open(path))
}

/// What the next start believes of a proof that was left by a clean detach.
fn belief(path: &Path, taken: ProofToken) -> Belief {
    let recorded = Recorded { proof: Some(taken), written: false };
    let disk = open(path);
    disk.judge(&recorded, Some(&seen_by(&disk)))
}

fn each_folder(test: impl Fn(&tempfile::TempDir, &Path)) {
    for folder in folders() {
        let path = file(&folder, &vec![1; 65_536]);
        test(&folder, &path);
    }
}

#[test]
fn an_untouched_file_has_the_same_proof() {
    each_folder(|folder, path| {
        let taken = open(path).take_proof().expect("it works").expect("files have one");
        assert_eq!(belief(path, taken.clone()), Belief::Unchanged);
        // Reading and renaming its neighbours is not writing.
        std::fs::read(path).expect("it can be read");
        std::fs::write(folder.path().join("other"), b"x").expect("a file");
        assert_eq!(belief(path, taken), Belief::Unchanged);
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 2, "the clock's file is gone: {left:?}");
    });
}

#[test]
fn a_write_right_after_changes_it() {
    each_folder(|_, path| {
        // Many times, since a coarse clock would only hide some of the writes.
        for round in 0..25_u8 {
            let taken = open(path).take_proof().expect("it works").expect("files have one");
            let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
            file.write_all_at(&[round], 4096).expect("it is written");
            drop(file);
            assert_eq!(belief(path, taken), Belief::Changed, "round {round}");
        }
    });
}

#[test]
fn our_own_writes_are_in_it() {
    each_folder(|_, path| {
        let mut rig = Rig::new(IoMode::Auto, path);
        rig.write(0, &[9; 4096], false);
        let taken = rig.disk.take_proof().expect("it works").expect("files have one");
        drop(rig);
        assert_eq!(belief(path, taken), Belief::Unchanged, "closing it changes nothing");
    });
}

#[test]
fn another_file_of_the_same_name_has_another() {
    each_folder(|folder, path| {
        let taken = open(path).take_proof().expect("it works").expect("files have one");
        let copy = folder.path().join("copy");
        std::fs::copy(path, &copy).expect("a copy");
        std::fs::rename(&copy, path).expect("it takes its place");
        assert_eq!(belief(path, taken), Belief::Changed);
    });
}

#[test]
fn another_size_has_another() {
    each_folder(|_, path| {
        let taken = open(path).take_proof().expect("it works").expect("files have one");
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
        file.set_len(131_072).expect("it grows");
        drop(file);
        assert_eq!(belief(path, taken), Belief::Changed);
    });
}

#[test]
fn going_back_to_an_old_modification_time_does_not_hide_a_write() {
    each_folder(|_, path| {
        let modified = std::fs::metadata(path).expect("it is there").modified().expect("a time");
        let taken = open(path).take_proof().expect("it works").expect("files have one");
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
        file.write_all_at(b"x", 0).expect("it is written");
        file.set_modified(modified).expect("it is set back");
        drop(file);
        assert_eq!(belief(path, taken), Belief::Changed);
    });
}

/// A heartbeat, then a crash.
#[test]
fn after_a_crash_our_own_last_writes_are_believed() {
    each_folder(|_, path| {
        let mut rig = Rig::new(IoMode::Auto, path);
        rig.write(0, &[9; 4096], false);
        let proved = rig.disk.prove().expect("it works").expect("files have one");
        rig.write(4096, &[8; 4096], false);
        drop(rig);
        let now = seen(path);
        let crashed = Recorded { proof: Some(proved.clone()), written: true };
        assert_eq!(open(path).judge(&crashed, Some(&now)), Belief::Unchanged);
        let clean = Recorded { proof: Some(proved), written: false };
        assert_eq!(open(path).judge(&clean, Some(&now)), Belief::Changed, "the write shows");
    });
}

#[test]
fn after_a_crash_a_write_beyond_the_window_is_not_believed() {
    each_folder(|folder, path| {
        let rig = Rig::new(IoMode::Auto, path);
        let proved = rig.disk.prove().expect("it works").expect("files have one");
        drop(rig);
        std::thread::sleep(std::time::Duration::from_millis(3100));
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
        file.write_all_at(b"x", 0).expect("it is written");
        drop(file);
        let crashed = Recorded { proof: Some(proved), written: true };
        let disk = open(path);
        assert_eq!(disk.judge(&crashed, Some(&seen_by(&disk))), Belief::Unknown);
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 1, "the clock's files are gone: {left:?}");
    });
}

fn seen_by(disk: &Disk) -> ProofToken {
    disk.read_proof().expect("it can be read").expect("files have one")
}
