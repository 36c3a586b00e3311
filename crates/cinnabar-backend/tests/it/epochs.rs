//! The proof that nobody wrote a file meanwhile.

use crate::rig::{Rig, file, folders, soon};
use cinnabar_backend::disk::{Disk, read_epoch, take_epoch};
use cinnabar_backend::port::IoMode;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn open(path: &Path) -> Disk {
    Disk::open(path, &soon()).expect("it opens")
}

/// What the next start sees.
fn seen(path: &Path) -> cinnabar_engine::volume::Epoch {
    read_epoch(&open(path)).expect("it can be read").expect("files have one")
}

fn each_folder(test: impl Fn(&tempfile::TempDir, &Path)) {
    for folder in folders() {
        let path = file(&folder, &vec![1; 65_536]);
        test(&folder, &path);
    }
}

#[test]
fn an_untouched_file_has_the_same_epoch() {
    each_folder(|folder, path| {
        let taken = take_epoch(&open(path)).expect("it works").expect("files have one");
        assert_eq!(seen(path), taken);
        // Reading and renaming its neighbours is not writing.
        std::fs::read(path).expect("it can be read");
        std::fs::write(folder.path().join("other"), b"x").expect("a file");
        assert_eq!(seen(path), taken);
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 2, "the clock's file is gone: {left:?}");
    });
}

#[test]
fn a_write_right_after_changes_it() {
    each_folder(|_, path| {
        // Many times, since a coarse clock would only hide some of the writes.
        for round in 0..25_u8 {
            let taken = take_epoch(&open(path)).expect("it works").expect("files have one");
            let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
            file.write_all_at(&[round], 4096).expect("it is written");
            drop(file);
            assert_ne!(seen(path), taken, "round {round}");
        }
    });
}

#[test]
fn our_own_writes_are_in_it() {
    each_folder(|_, path| {
        let mut rig = Rig::new(IoMode::Auto, path);
        rig.write(0, &[9; 4096], false);
        let taken = take_epoch(&rig.disk).expect("it works").expect("files have one");
        drop(rig);
        assert_eq!(seen(path), taken, "closing it changes nothing");
    });
}

#[test]
fn another_file_of_the_same_name_has_another() {
    each_folder(|folder, path| {
        let taken = take_epoch(&open(path)).expect("it works");
        let copy = folder.path().join("copy");
        std::fs::copy(path, &copy).expect("a copy");
        std::fs::rename(&copy, path).expect("it takes its place");
        assert_ne!(Some(seen(path)), taken);
    });
}

#[test]
fn another_size_has_another() {
    each_folder(|_, path| {
        let taken = take_epoch(&open(path)).expect("it works");
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
        file.set_len(131_072).expect("it grows");
        drop(file);
        assert_ne!(Some(seen(path)), taken);
    });
}

#[test]
fn going_back_to_an_old_modification_time_does_not_hide_a_write() {
    each_folder(|_, path| {
        let modified = std::fs::metadata(path).expect("it is there").modified().expect("a time");
        let taken = take_epoch(&open(path)).expect("it works");
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
        file.write_all_at(b"x", 0).expect("it is written");
        file.set_modified(modified).expect("it is set back");
        drop(file);
        assert_ne!(Some(seen(path)), taken);
    });
}
