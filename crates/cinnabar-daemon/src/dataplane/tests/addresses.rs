//! Addresses that something else has: that volume waits, others are served. A tenant may own the folder of its
//! socket, and any account may take a port.

use super::rig::{Rig, both, pattern};
use cinnabar_config::messages::{
    IoMode, NbdAddress, Share, StartErrorKind, State, Subject, VolumeStatus,
};
use rustix::fs::inotify;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

fn of(rig: &Rig, name: &str) -> VolumeStatus {
    let volumes = rig.status().volumes;
    volumes.into_iter().find(|volume| volume.config.name == name).expect("it is there")
}

fn once_served(rig: &Rig, name: &str) {
    while of(rig, name).state != State::Serving {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What is put at a path, and kept while it is to be there.
type Put = fn(&Path) -> Option<UnixListener>;

const IN_THE_WAY: [(&str, &str, Put); 4] = [
    ("a file", "not a socket", |path| {
        std::fs::write(path, []).expect("a file");
        None
    }),
    ("a link", "not a socket", |path| {
        std::os::unix::fs::symlink("/etc/passwd", path).expect("a link");
        None
    }),
    ("a folder", "not a socket", |path| {
        std::fs::create_dir(path).expect("a folder");
        None
    }),
    ("a process", "in use", |path| Some(UnixListener::bind(path).expect("a socket"))),
];

fn clear(path: &Path) {
    let gone = if path.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
    gone.expect("it was there");
}

#[test]
fn what_is_in_the_way_of_a_socket_costs_that_volume_its_service_and_no_other() {
    for (what, reason, put) in IN_THE_WAY {
        for vhost in [false, true] {
            let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
            let path = rig.path("vm2.sock");
            if vhost {
                let volume = &mut rig.config.volumes[1];
                (volume.nbd, volume.vhost_user) = (None, Some(path.clone()));
            }
            let kept = put(&path);
            rig.start();
            assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)), "{what}");
            let vm2 = of(&rig, "vm2");
            assert_eq!(vm2.state, State::Waiting, "{what}");
            assert!(vm2.reason.contains(reason) && vm2.waiting.is_some(), "{what}: {vm2:?}");
            drop(kept);
            clear(&path);
            once_served(&rig, "vm2");
            if !vhost {
                assert!(rig.client("vm2").read(0, 4096) == Ok(pattern(0, 4096)), "{what}");
            }
            assert!(rig.stop().clean, "{what}");
        }
    }
}

#[test]
fn a_port_that_is_taken_and_a_folder_that_is_not_there_are_waited_for() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1", "vm2", "vm3"]);
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = held.local_addr().expect("it is bound");
        rig.config.volumes[1].nbd = Some(NbdAddress::Tcp(at));
        rig.config.volumes[2].nbd = Some(NbdAddress::Unix(rig.path("later/vm3.sock")));
        rig.start();
        assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
        for (name, reason) in [("vm2", "in use"), ("vm3", "can't listen")] {
            let volume = of(&rig, name);
            assert_eq!(volume.state, State::Waiting, "{name}");
            assert!(volume.reason.contains(reason), "{name}: {}", volume.reason);
        }
        drop(held);
        std::fs::create_dir(rig.path("later")).expect("a folder");
        once_served(&rig, "vm2");
        once_served(&rig, "vm3");
        assert!(rig.stop().clean);
    });
}

/// Neither the back end nor the address is there; clients are turned away as soon as there is a socket.
#[test]
fn a_volume_may_wait_for_both() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    let (path, disk) = (rig.path("vm2.sock"), rig.path("vm2.raw"));
    std::fs::write(&path, []).expect("a file");
    std::fs::rename(&disk, rig.path("away")).expect("it goes");
    rig.start();
    assert!(of(&rig, "vm2").reason.contains("no such file"), "its back end comes first");
    clear(&path);
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let refused = super::client::Client::refusal(&path, "vm2");
    assert!(refused.contains("no such file"), "{refused}");
    std::fs::rename(rig.path("away"), &disk).expect("it comes back");
    once_served(&rig, "vm2");
    assert!(rig.client("vm2").read(0, 4096) == Ok(pattern(0, 4096)));
    assert!(rig.stop().clean);
}

#[test]
fn a_mistake_in_the_configuration_still_ends_the_start() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    rig.config.volumes[1].socket.group = Some("no-such-group-of-cinnabar".into());
    let error = rig.try_start().expect_err("there is no such group");
    assert_eq!(error.kind, StartErrorKind::AddressInvalid, "{error}");
    assert_eq!((error.subject, error.kind.exit_code()), (Subject::Volume("vm2".into()), 2));
}

/// They passed the start, and the volume waited without end for room that there never was.
#[test]
fn minimums_of_volumes_that_wait_count_at_the_start() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    for volume in &mut rig.config.volumes {
        volume.share_min = Share::Percent(50.0);
    }
    let path = rig.path("vm1.sock");
    std::fs::write(&path, []).expect("a file");
    let error = rig.try_start().expect_err("they sum to more than there is");
    assert_eq!((error.kind, error.kind.exit_code()), (StartErrorKind::Settings, 2), "{error}");
    assert!(error.message.contains("the minimums of all volumes"), "{error}");
    assert!(!rig.path("vm2.sock").exists(), "nothing is left behind");
    for volume in &mut rig.config.volumes {
        volume.share_min = Share::Percent(30.0);
    }
    rig.start();
    clear(&path);
    once_served(&rig, "vm1");
    assert!(rig.stop().clean);
}

/// Each try makes a folder beside the socket, in what may be a tenant's folder. It made two: the one that stands in for
/// a volume that waits was refused for the same reason.
#[test]
fn an_address_that_is_refused_is_not_tried_twice_at_a_time() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    let folder = rig.path("tenant");
    std::fs::create_dir(&folder).expect("a folder");
    let path = folder.join("vm2.sock");
    std::fs::write(&path, []).expect("a file");
    rig.config.volumes[1].nbd = Some(NbdAddress::Unix(path.clone()));
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let made = inotify::init(flags).expect("the kernel has it");
    inotify::add_watch(&made, &folder, inotify::WatchFlags::CREATE).expect("it is there");
    rig.start();
    let tries = || of(&rig, "vm2").waiting.expect("it waits").tries;
    while tries() < 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(&made, &mut buffer);
    let folders = std::iter::from_fn(|| reader.next().ok().map(drop)).count();
    let tries = tries();
    assert!((2..=tries as usize).contains(&folders), "{folders} folders in {tries} tries");
    clear(&path);
    once_served(&rig, "vm2");
    assert!(rig.stop().clean);
}
