//! Making, recognising and refusing cache devices.

use crate::fuse::Fuse;
use crate::rig::{folders, now, pattern, soon};
use cinnabar_backend::disk::{CacheDisk, CacheOptions, Contents, Disk, DiskErrorKind, open_cache};
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

const MIB: u64 = 1 << 20;

fn open(path: &Path, size: Option<u64>, force: bool) -> Result<CacheDisk, DiskErrorKind> {
    let options = CacheOptions { size_bytes: size, force, open: soon(), ..CacheOptions::default() };
    open_cache(path, &options).map_err(|error| {
        assert!(!error.hint().is_empty());
        error.kind
    })
}

#[test]
fn a_new_file_is_made_at_its_size_and_not_sparse() {
    for folder in folders() {
        let path = folder.path().join("cache.img");
        let cache = open(&path, Some(16 * MIB + 100), false).expect("it is made");
        assert_eq!((cache.disk.size_bytes(), cache.contents), (16 * MIB, Contents::Blank));
        let metadata = std::fs::metadata(&path).expect("it is there");
        assert_eq!(metadata.len(), 16 * MIB);
        assert!(metadata.blocks() * 512 >= 16 * MIB, "{} sectors", metadata.blocks());
        assert_eq!(metadata.mode() & 0o777, 0o600, "guests' data are private");
        drop(cache.disk);
        assert!(!path.exists(), "what was never formatted is not left behind");
        // Once it is formatted it stays.
        let cache = open(&path, Some(32 * MIB), false).expect("it is made");
        format(&cache.disk);
        drop(cache.disk);
        let again = open(&path, None, false).expect("it opens");
        assert!(matches!(again.contents, Contents::Ours(_)));
    }
}

fn format(disk: &Disk) {
    let geometry = Geometry::for_shards(disk.size_bytes(), 1).expect("it is large enough");
    let superblocks = cinnabar_backend::format::fresh(geometry).expect("random numbers");
    cinnabar_backend::format::write(disk, &superblocks).expect("it can be written");
}

/// Another file of that name is not removed for the one that was made.
#[test]
fn only_the_file_that_was_made_is_removed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    let cache = open(&path, Some(16 * MIB), false).expect("it is made");
    std::fs::rename(&path, folder.path().join("moved.img")).expect("it is a cache");
    std::fs::write(&path, "another").expect("a file");
    drop(cache);
    assert!(path.exists());
}

/// What the hint says: a cache cut short is formatted with `--force`, and only with it.
#[test]
fn force_formats_a_cache_that_was_cut_short() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    let cache = open(&path, Some(32 * MIB), false).expect("it is made");
    format(&cache.disk);
    drop(cache);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is there");
    file.set_len(24 * MIB).expect("a size");
    let short = open(&path, Some(32 * MIB), false).expect_err("it is cut short");
    assert_eq!(short, DiskErrorKind::Short { got: 24 * MIB, expected: 32 * MIB });
    let cache = open(&path, Some(32 * MIB), true).expect("that is what --force is for");
    assert_eq!((cache.disk.size_bytes(), cache.contents), (32 * MIB, Contents::Blank));
}

#[test]
fn a_new_file_needs_size_folder_and_room() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    assert_eq!(open(&path, None, false).expect_err("no size"), DiskErrorKind::NoSize);
    let below = folder.path().join("none/cache.img");
    let error = open(&below, Some(MIB), false).expect_err("no folder");
    assert_eq!(error, DiskErrorKind::NoFolder);
    // 4 TiB: a file could be that large, but here is no room for it.
    for huge in [1 << 42, 1 << 55] {
        let error = open(&path, Some(huge), false).expect_err("no room");
        assert_eq!(error, DiskErrorKind::NoSpace(huge));
        assert!(!path.exists(), "a failed attempt leaves nothing behind");
    }
    let device = Path::new("/dev/cinnabar-no-such-device");
    assert_eq!(open(device, Some(MIB), false).expect_err("none"), DiskErrorKind::NotFound);
}

#[test]
fn blank_files_take_the_size_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    for before in [0, 8 * MIB, 200 * MIB] {
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(before).expect("a size");
        let cache = open(&path, Some(32 * MIB), false).expect("it opens");
        assert_eq!((cache.disk.size_bytes(), cache.contents), (32 * MIB, Contents::Blank));
    }
}

#[test]
fn foreign_data_is_never_taken_without_force() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    let size = 200 * MIB;
    for (offset, bytes, says) in [
        (0, &b"QFI\xfb"[..], "qcow2"),
        (510, &[0x55, 0xaa][..], "boot sector"),
        (0x438, &[0x53, 0xef][..], "ext4"),
        (MIB - 1, b"x", "data at byte 1044480"),
        (size - 512, b"EFI PART", "data at byte"),
        (64 * MIB + 65_600, b"_BHRfS_M", "data at byte"),
        (128 * MIB + 1080, b"x", "data at byte"),
    ] {
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(size).expect("a size");
        file.write_all_at(bytes, offset).expect("it is written");
        let before = std::fs::metadata(&path).expect("it is there");
        match open(&path, Some(32 * MIB), false) {
            Err(DiskErrorKind::Foreign(what)) => assert!(what.contains(says), "{what}"),
            other => panic!("byte {offset}: {other:?}"),
        }
        let after = std::fs::metadata(&path).expect("it is there");
        assert_eq!((before.len(), before.mtime_nsec()), (after.len(), after.mtime_nsec()));
        let cache = open(&path, Some(32 * MIB), true).expect("force takes it");
        assert_eq!(cache.contents, Contents::Blank);
    }
}

#[test]
fn files_of_random_bytes_are_foreign() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    std::fs::write(&path, pattern(MIB as usize, 1)).expect("a file");
    assert!(matches!(open(&path, None, false), Err(DiskErrorKind::Foreign(_))));
}

#[test]
fn metadata_areas_are_written_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    let cache = open(&path, Some(8 * MIB), false).expect("it is made").disk;
    let page = cinnabar_engine::metadata::MetaPage([7; 4096]);
    cache.write_pages(MIB, &[page.clone(), page]).expect("it is written");
    cache.write_zeros(MIB + 4096, 3 * MIB).expect("it is written");
    let bytes = std::fs::read(&path).expect("it is there");
    assert!(bytes[MIB as usize..][..4096].iter().all(|&byte| byte == 7));
    assert!(bytes[MIB as usize + 4096..].iter().all(|&byte| byte == 0));
    assert_eq!(bytes.len() as u64, 8 * MIB);
}

#[test]
fn what_is_ours_is_kept_even_by_force_unless_it_is_to_be_new() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    let cache = open(&path, Some(32 * MIB), false).expect("it is made").disk;
    let geometry = Geometry::for_device(32 * MIB).expect("large enough");
    let superblock = Superblock::format([3; 16], geometry);
    cinnabar_backend::format::write(&cache, std::slice::from_ref(&superblock))
        .expect("it is written");
    drop(cache);
    for force in [false, true] {
        let ours = open(&path, None, force).expect("it opens").contents;
        assert_eq!(ours, Contents::Ours(superblock.clone()));
    }
    let options = CacheOptions {
        size_bytes: Some(40 * MIB),
        format: true,
        open: soon(),
        ..CacheOptions::default()
    };
    let formatted = open_cache(&path, &options).expect("it opens");
    assert_eq!((formatted.disk.size_bytes(), formatted.contents), (40 * MIB, Contents::Blank));
}

/// It was made here, and another daemon took its lock before this one did.
#[test]
fn a_new_file_that_another_process_has_locked_stays() {
    let Some(fuse) = Fuse::mount() else { return };
    fuse.knobs.locked_elsewhere.store(true, SeqCst);
    let options =
        CacheOptions { size_bytes: Some(1 << 20), open: now(), ..CacheOptions::default() };
    let error = open_cache(&fuse.folder().join("cache.img"), &options).expect_err("it is locked");
    assert!(matches!(error.kind, DiskErrorKind::InUse { .. }), "{error}");
    assert!(fuse.has("cache.img"), "the other one's file is gone");
}

/// The same, and that daemon has formatted it and gone again before this one's patience ended.
#[test]
fn a_new_file_that_another_process_has_formatted_is_not_taken_for_blank() {
    let Some(fuse) = Fuse::mount() else { return };
    let path = fuse.folder().join("cache.img");
    fuse.knobs.locked_elsewhere.store(true, SeqCst);
    let options =
        CacheOptions { size_bytes: Some(1 << 20), open: soon(), ..CacheOptions::default() };
    let found = std::thread::scope(|scope| {
        let opening = scope.spawn(|| open_cache(&path, &options));
        let until = std::time::Instant::now() + crate::rig::PATIENCE;
        while !fuse.has("cache.img") && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        std::fs::write(&path, [7; 8192]).expect("the other one writes");
        fuse.knobs.locked_elsewhere.store(false, SeqCst);
        opening.join().expect("no panic")
    });
    let error = found.expect_err("what is there is looked at");
    assert!(matches!(error.kind, DiskErrorKind::Foreign(_)), "{error}");
}

#[test]
fn a_new_file_whose_room_is_refused_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    let options =
        CacheOptions { size_bytes: Some(1 << 60), open: now(), ..CacheOptions::default() };
    open_cache(&path, &options).expect_err("no such room");
    assert!(!path.exists());
}

#[test]
fn a_file_system_that_does_not_tell_its_room_is_tried() {
    let Some(fuse) = Fuse::mount() else { return };
    fuse.knobs.tells_no_room.store(true, SeqCst);
    let options =
        CacheOptions { size_bytes: Some(1 << 20), open: soon(), ..CacheOptions::default() };
    let cache = open_cache(&fuse.folder().join("cache.img"), &options).expect("there is room");
    assert_eq!(cache.disk.size_bytes(), 1 << 20);
}

#[test]
fn a_link_that_leads_nowhere_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache.img");
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &path).expect("a link");
    let error = open(&path, Some(32 * MIB), false).expect_err("nothing is there");
    assert!(matches!(error, DiskErrorKind::Io { .. }), "{error:?}");
}
