//! A claim is made, read and removed; what is in its way; two hosts at the same time.

use super::file::{read, remove, write};
use super::record::utc;
use super::*;
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn at(folder: &TempDir) -> PathBuf {
    path_beside(&folder.path().join("vm1.raw"))
}

fn claim(log: u8, incarnation: u64) -> Claim {
    Claim::new([log; 16], Path::new("/dev/log"), "vm1", incarnation)
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).expect("it is read");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

fn kind(result: Result<impl std::fmt::Debug, ClaimError>) -> ClaimErrorKind {
    let error = result.expect_err("it is refused");
    let text = error.to_string();
    assert!(text.starts_with("claim /") && !text.contains('\n'), "{text}");
    assert!(!error.hint().is_empty());
    error.kind
}

/// Runs something without root's rights: those that a mode takes away count then.
fn unprivileged<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = || {
            if rustix::process::geteuid().is_root() {
                let (gid, uid) =
                    (rustix::process::Gid::from_raw(65534), rustix::process::Uid::from_raw(65534));
                set_thread_res_gid(gid, gid, gid).expect("another group");
                set_thread_res_uid(uid, uid, uid).expect("another account");
            }
            run()
        };
        scope.spawn(run).join().expect("it ends")
    })
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn a_claim_comes_back_and_goes() {
    let folder = folder();
    let path = at(&folder);
    assert_eq!(read(&path).expect("nothing is there"), None);
    let mut claim = claim(7, u64::MAX);
    claim.number = u64::MAX >> 1;
    claim.volume = "vm \"1\"\nversion = 2 # ä".to_owned();
    claim.device = PathBuf::from("/dev/disk/\u{1F4BE} \\x\"'");
    for _ in 0..2 {
        write(&path, &claim).expect("it is made, and once more");
        assert_eq!(read(&path).expect("it is read"), Some(claim.clone()));
        assert_eq!(names(&folder), ["vm1.raw.cinnabar-claim"]);
    }
    let text = fs::read_to_string(&path).expect("it is text");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with("# ") && first.contains("Don't delete"), "{first}");
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o444, 0o444);
    for _ in 0..2 {
        remove(&path, &claim).expect("it goes, and is gone");
        assert!(names(&folder).is_empty());
    }
}

#[test]
fn a_back_end_with_a_long_name_has_no_claim() {
    let folder = folder();
    let path = path_beside(&folder.path().join("v".repeat(250)));
    assert_eq!(read(&path).expect("there can be none"), None);
    assert!(matches!(kind(write(&path, &claim(1, 5))), ClaimErrorKind::Io { .. }));
}

#[test]
fn a_claim_of_another_log_or_incarnation_stays() {
    let folder = folder();
    let path = at(&folder);
    let first = claim(1, 5);
    write(&path, &first).expect("it is made");
    for other in [claim(2, 5), claim(1, 6)] {
        for refused in [write(&path, &other), remove(&path, &other)] {
            let ClaimErrorKind::Held(held) = kind(refused) else { panic!("it is held") };
            assert_eq!(*held, first);
        }
    }
    assert_eq!(read(&path).expect("it is read"), Some(first));
    assert_eq!(names(&folder).len(), 1);
    let error = write(&path, &claim(2, 5)).expect_err("it is held");
    for part in ["\"vm1\"", "\"/dev/log\"", "of host", "since 2"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn what_is_no_claim_is_an_error_and_stays() {
    let folder = folder();
    let path = at(&folder);
    let good = {
        write(&path, &claim(1, 5)).expect("it is made");
        fs::read_to_string(&path).expect("it is text")
    };
    let without = |key: &str| {
        let lines = good.lines().filter(|line| !line.starts_with(key));
        lines.collect::<Vec<_>>().join("\n").into_bytes()
    };
    let cases: [(Vec<u8>, &str); 12] = [
        (Vec::new(), "version"),
        (b"\0\0\0\0".to_vec(), ""),
        (vec![0xFF; 100], "not text"),
        (vec![b'#'; 1 << 20], "more than 16384 bytes"),
        (good.as_bytes()[..good.len() / 2].to_vec(), "version"),
        (without("incarnation"), "incarnation"),
        (without("host"), "host"),
        (format!("{good}more = 1\n").into_bytes(), "more"),
        (good.replace("0101", "01").into_bytes(), "write_log"),
        (good.replace("0000005\"", "000000g\"").into_bytes(), "incarnation"),
        (good.replace("\"vm1\"", "\"\"").into_bytes(), "volume"),
        (good.replace("\"vm1\"", &format!("\"{}\"", "a".repeat(65))).into_bytes(), "volume"),
    ];
    for (bytes, part) in cases {
        fs::write(&path, &bytes).expect("it is written");
        for refused in
            [read(&path).map(drop), write(&path, &claim(1, 5)), remove(&path, &claim(1, 5))]
        {
            let ClaimErrorKind::Damaged(reason) = kind(refused) else { panic!("{part}") };
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert!(fs::read(&path).expect("it is there") == bytes, "it stays");
    }
    // An earlier release had no number in it.
    fs::write(&path, &good).expect("it is written");
    assert!(!good.contains("number"));
    assert!(read(&path).is_ok_and(|of| of.is_some_and(|of| of.number == 0)));
    // A later version may have other keys.
    let later = good.replace("version = 1", "version = 2\nmirror = \"x\"");
    fs::write(&path, later).expect("it is written");
    assert!(matches!(kind(read(&path)), ClaimErrorKind::Version(2)));
}

#[test]
fn what_is_no_file_is_an_error() {
    let folder = folder();
    let path = at(&folder);
    fs::create_dir(&path).expect("a folder in its place");
    assert!(matches!(kind(read(&path)), ClaimErrorKind::WrongKind));
    assert!(matches!(kind(write(&path, &claim(1, 5))), ClaimErrorKind::WrongKind));
    fs::remove_dir(&path).expect("it goes");

    // Opening a pipe would wait for its other end.
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, mode, 0).expect("a pipe");
    assert!(matches!(kind(read(&path)), ClaimErrorKind::WrongKind));
    fs::remove_file(&path).expect("it goes");

    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    assert!(matches!(kind(read(&path)), ClaimErrorKind::WrongKind));
    fs::remove_file(&path).expect("it goes");

    // Not the same as nothing there.
    std::os::unix::fs::symlink(&path, &path).expect("a link to itself");
    assert!(matches!(kind(read(&path)), ClaimErrorKind::Io { during: "open", .. }));
    let below = path_beside(&folder.path().join("vm1.raw")).join("x");
    assert!(matches!(kind(read(&below)), ClaimErrorKind::Io { .. }));
}

#[test]
fn what_a_crash_has_left_of_a_new_claim_does_not_matter() {
    let folder = folder();
    let path = at(&folder);
    let claim = claim(0xAB, 5);
    let torn = folder.path().join("vm1.raw.cinnabar-claim.abababab.new");
    fs::write(&torn, "x".repeat(10_000)).expect("it is written");
    assert_eq!(read(&path).expect("nothing is there"), None);
    write(&path, &claim).expect("it is made");
    assert_eq!(read(&path).expect("it is read"), Some(claim.clone()));
    assert_eq!(names(&folder).len(), 1);
    // Two names of one file, from a crash between them.
    fs::hard_link(&path, &torn).expect("a link");
    write(&path, &claim).expect("it is made");
    assert_eq!(read(&path).expect("it is read"), Some(claim.clone()));
    fs::write(&torn, "x").expect("it is written");
    remove(&path, &claim).expect("it goes");
    assert!(names(&folder).is_empty());
    // A new one that is a link would write something else.
    fs::write(folder.path().join("other"), "other").expect("it is written");
    std::os::unix::fs::symlink(folder.path().join("other"), &torn).expect("a link");
    assert!(matches!(kind(write(&path, &claim)), ClaimErrorKind::Io { during: "create", .. }));
    assert_eq!(fs::read(folder.path().join("other")).expect("it is there"), b"other");
}

#[test]
fn without_the_right_to_it_nothing_is_claimed_or_taken_for_free() {
    let folder = folder();
    let path = at(&folder);
    allow(folder.path(), 0o555);
    unprivileged(|| {
        let refused = kind(write(&path, &claim(1, 5)));
        assert!(matches!(refused, ClaimErrorKind::Io { during: "create", .. }), "{refused:?}");
        assert_eq!(read(&path).expect("nothing is there"), None);
    });
    allow(folder.path(), 0o755);
    write(&path, &claim(1, 5)).expect("it is made");
    allow(folder.path(), 0o555);
    unprivileged(|| {
        let refused = kind(remove(&path, &claim(1, 5)));
        assert!(matches!(refused, ClaimErrorKind::Io { during: "remove", .. }), "{refused:?}");
    });
    allow(&path, 0o000);
    unprivileged(|| {
        assert!(matches!(kind(read(&path)), ClaimErrorKind::Io { during: "open", .. }));
    });
    allow(folder.path(), 0o755);
    assert_eq!(names(&folder).len(), 1);
    // The folder is not there at all.
    let nowhere = folder.path().join("none/vm1.raw.cinnabar-claim");
    assert!(matches!(kind(write(&nowhere, &claim(1, 5))), ClaimErrorKind::Io { .. }));
}

#[test]
fn of_hosts_that_try_at_the_same_time_one_wins() {
    for _ in 0..20 {
        let folder = folder();
        let path = at(&folder);
        let tries = |log| {
            let path = path.clone();
            std::thread::spawn(move || write(&path, &claim(log, 5)).map(|()| log))
        };
        let threads: Vec<_> = (1..=4).map(tries).collect();
        let won: Vec<u8> =
            threads.into_iter().filter_map(|thread| thread.join().expect("it ends").ok()).collect();
        assert_eq!(won.len(), 1, "{won:?}");
        let found = read(&path).expect("it is read").expect("it is there");
        assert_eq!(found.write_log, [won[0]; 16]);
        assert_eq!(names(&folder).len(), 1);
    }
}

#[test]
fn a_disk_has_one_claim_whatever_it_is_called() {
    let folder = folder();
    let real = folder.path().canonicalize().expect("its path");
    fs::write(real.join("disk"), "x").expect("it is written");
    std::os::unix::fs::symlink("disk", real.join("vm1.raw")).expect("a link");
    assert_eq!(path_beside(&real.join("vm1.raw")), real.join("disk.cinnabar-claim"));
    assert_eq!(path_beside(&real.join("./disk")), real.join("disk.cinnabar-claim"));
    assert_eq!(path_beside(&real.join("none.raw")), real.join("none.raw.cinnabar-claim"));
}

#[test]
fn a_disk_with_two_names_is_not_claimed_by_one_of_them() {
    let folder = folder();
    let (disk, other) = (folder.path().join("vm1.raw"), folder.path().join("other.raw"));
    fs::write(&disk, "x").expect("it is written");
    fs::hard_link(&disk, &other).expect("a link");
    let path = path_beside(&disk);
    assert!(matches!(kind(write(&path, &claim(1, 5))), ClaimErrorKind::Names(2)));
    // By a path that every host is told it is found.
    write(&folder.path().join("claim"), &claim(1, 5)).expect("it is made");
    fs::remove_file(other).expect("it goes");
    write(&path, &claim(1, 5)).expect("it has one name");
    fs::hard_link(&disk, folder.path().join("later")).expect("a link");
    write(&path, &claim(1, 5)).expect("it is there already");
}

#[test]
fn a_claim_says_which_host_and_when() {
    let claim = Claim::new([1; 16], Path::new("log"), "vm1", 3);
    assert!(!claim.host.is_empty() && claim.device.is_absolute());
    assert_eq!((claim.since.len(), &claim.since[..2]), (20, "20"));
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_709_251_200, "2024-03-01T00:00:00Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (1_798_761_599, "2026-12-31T23:59:59Z"),
    ] {
        assert_eq!(utc(seconds), text);
    }
}
