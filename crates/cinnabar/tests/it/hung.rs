//! Storage that does not answer: a look at a file on it takes as long as that lasts.
//!
//! A file system over `/dev/fuse` whose server never answers. Mounting needs root; without it, or
//! without `/dev/fuse`, the tests say so and pass.

use super::rig::{MIB, Site, pattern};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::path::PathBuf;

/// A mounted file system; unmounted when it is dropped.
struct Hung {
    folder: PathBuf,
    _server: OwnedFd,
}

impl Hung {
    fn mount(site: &Site) -> Option<Self> {
        let folder = site.path("away");
        std::fs::create_dir(&folder).expect("a new folder");
        let server = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let mounted = server.and_then(|server| {
            let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
            let options = CString::new(options).expect("no zero byte");
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            mount("cinnabar-test", &folder, "fuse", flags, Some(&*options)).map(|()| server)
        });
        match mounted {
            Ok(server) => Some(Self { folder, _server: server }),
            Err(errno) => {
                eprintln!("left out: mounting a file system: {errno}");
                None
            }
        }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // By force first, which ends all that waits for the server.
        for flags in [UnmountFlags::FORCE, UnmountFlags::DETACH] {
            let _gone = unmount(&self.folder, flags);
        }
    }
}

/// Four volumes on storage that is away, and one that is not.
fn volumes() -> String {
    let volume = |name: &str, path: &str| {
        format!("[[volume]]\nname = \"{name}\"\nbackend = \"file:{path}\"\n")
    };
    let away = (0..4).map(|number| volume(&format!("a{number}"), &format!("away/{number}.raw")));
    away.chain([volume("vm1", "vm1.raw")]).collect()
}

#[test]
fn a_configuration_is_checked_though_files_do_not_answer() {
    let site = Site::new();
    let Some(_hung) = Hung::mount(&site) else { return };
    site.config(&volumes());
    let ended = site.run(&["config", "check", "c.toml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("fine") && ended.stdout.contains("5 volumes"), "{ended:?}");
    for number in 0..4 {
        let warning = format!("away/{number}.raw was not compared");
        assert!(ended.stderr.contains(&warning), "{ended:?}");
    }
    assert!(!ended.stderr.contains("vm1.raw"), "{ended:?}");
    // The same file twice is told by its path.
    site.config(&volumes().replace("3.raw", "0.raw"));
    let ended = site.run(&["config", "check", "c.toml"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("the backend of volume \"a0\" already"), "{ended:?}");
}

#[test]
fn a_daemon_serves_and_its_operators_are_answered_though_files_do_not_answer() {
    let site = Site::new();
    let Some(_hung) = Hung::mount(&site) else { return };
    for name in ["vm1.raw", "vm2.raw"] {
        site.disk(name, 8 * MIB);
    }
    site.config(&format!("device_timeout_s = 2\n{}", volumes()));
    let daemon = site.serve();
    let mut guest =
        super::nbd::Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    assert_eq!(guest.read(0, 4096).expect("it is served"), pattern(0, 4096));
    // Each is compared with those that are there.
    site.ask(&["volume", "add", "vm2", "--backend", "file:vm2.raw"]);
    let ended = site.run(&["cache", "replace", "away/new.img", "--size", "64MiB"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("away/new.img: it does not answer (2 s)"), "{ended:?}");
    assert!(ended.stderr.contains("hint: "), "{ended:?}");
    let status = site.status();
    assert_eq!(status["cache"]["state"], "serving", "{status}");
    site.ask(&["cache", "replace", "new.img", "--size", "64MiB"]);
    assert_eq!(guest.read(0, 4096).expect("it is served"), pattern(0, 4096));
    drop(guest);
    daemon.stop();
}

#[test]
fn a_daemon_serves_though_its_cache_device_does_not_answer() {
    let site = Site::new();
    let Some(_hung) = Hung::mount(&site) else { return };
    site.disk("vm1.raw", 8 * MIB);
    let cache = "[cache]\ndevice = \"away/cache.img\"\nsize = \"64MiB\"\ndevice_timeout_s = 2\n";
    let volume = "[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n";
    site.write("c.toml", &format!("{cache}{volume}"));
    let daemon = site.serve();
    let mut guest =
        super::nbd::Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    assert_eq!(guest.read(0, 4096).expect("it is served"), pattern(0, 4096));
    drop(guest);
    let status = site.status();
    assert_eq!(status["cache"]["state"], "degraded", "{status}");
    let reason = status["cache"]["reason"].as_str().expect("there is one");
    assert!(reason.contains("does not answer (2 s)"), "{reason}");
    daemon.stop();
    // Where it is required the daemon says so and ends.
    site.write("c.toml", &format!("{cache}required = true\n{volume}"));
    let ended = site.run(&["serve", "--config", "c.toml"]);
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("away/cache.img: it does not answer (2 s)"), "{ended:?}");
}
