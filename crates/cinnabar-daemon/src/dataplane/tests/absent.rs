//! Back ends that are not there: others are served, and the volume is as soon as it can be.

use super::rig::{MIB, Rig, SIZE, both, pattern};
use super::write_back::SLOW;
use cinnabar_backend::disk::{Disk, OpenOptions};
use cinnabar_config::messages::{
    CommandErrorKind, DataStatus, IoMode, Message, NewCache, State, VolumeStatus,
};
use cinnabar_engine::volume::Warmth;
use std::time::Duration;

fn volume<'s>(status: &'s DataStatus, name: &str) -> &'s VolumeStatus {
    status.volumes.iter().find(|v| v.config.name == name).expect("it is in the status")
}

/// The status once a volume is served.
fn once_served(rig: &Rig, name: &str) -> DataStatus {
    loop {
        let status = rig.status();
        if volume(&status, name).state == State::Serving {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_absent_back_end_keeps_no_other_volume_from_being_served() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1", "vm2"]);
        std::fs::rename(rig.path("vm1.raw"), rig.path("away")).expect("it goes");
        rig.start();
        assert!(rig.client("vm2").read(0, 4096) == Ok(pattern(0, 4096)), "the other is served");
        let status = rig.status();
        let vm1 = volume(&status, "vm1");
        assert_eq!(vm1.state, State::Waiting);
        assert!(vm1.reason.contains("no such file"), "{}", vm1.reason);
        let waiting = vm1.waiting.expect("it waits");
        assert!(waiting.tries > 0, "{waiting:?}");
        assert_eq!(volume(&status, "vm2").waiting, None);

        // Commands know of it.
        let again = rig.config.volumes[0].clone();
        let error = rig.ask(|answer| Message::AddVolume(Box::new(again), answer));
        assert_eq!(error.map_err(|e| e.kind), Err(CommandErrorKind::Exists));
        let (name, range) = ("vm1".to_owned(), None);
        let none = rig.ask(|answer| Message::Invalidate { name, range, answer });
        assert_eq!(none.map_err(|e| e.kind), Err(CommandErrorKind::NotFound), "nothing is cached");

        std::fs::rename(rig.path("away"), rig.path("vm1.raw")).expect("it comes back");
        let status = once_served(&rig, "vm1");
        assert_eq!(volume(&status, "vm1").size_bytes, SIZE);
        let mut client = rig.client("vm1");
        assert!(client.read(4096, 4096) == Ok(pattern(4096, 4096)));
        assert_eq!(client.write(0, &[7; 4096], true), Ok(()));
        client.leave();
        assert!(rig.stop().clean);
    });
}

#[test]
fn clients_of_a_volume_that_waits_are_turned_away_with_the_reason() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    std::fs::remove_file(rig.path("vm1.raw")).expect("it was there");
    rig.start();
    let refused = super::client::Client::refusal(&rig.path("vm1.sock"), "vm1");
    assert!(refused.contains("is waiting, not served yet"), "{refused}");
    assert!(refused.contains("no such file"), "{refused}");
    assert_eq!(rig.remove("vm1", false), Ok(()), "it can be given up");
    assert!(!rig.path("vm1.sock").exists());
    assert!(rig.status().volumes.is_empty());
    assert_eq!(rig.remove("vm1", false), Err(CommandErrorKind::NotFound));
    assert!(rig.stop().clean);
}

#[test]
fn an_image_is_served_as_it_is_if_the_operator_says_that_it_is_raw() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let header = [&b"KDMV"[..], &[0; 8192 - 4]].concat();
    std::fs::write(rig.path("vm1.raw"), &header).expect("a file");
    rig.config.volumes[0].raw = true;
    rig.start();
    assert!(rig.client("vm1").read(0, 4096) == Ok(header[..4096].to_vec()));
    assert!(rig.stop().clean);
}

/// What the reason says, and what brings it about.
type Break<'b> = (&'static str, &'b dyn Fn(&Rig));

#[test]
fn whatever_may_pass_is_waited_for() {
    let cases: [Break<'_>; 5] = [
        ("it is a qcow2 image", &|rig| {
            let header = [&b"QFI\xfb\0\0\0\x03"[..], &[0; 8192 - 8]].concat();
            std::fs::write(rig.path("vm1.raw"), header).expect("a file");
        }),
        ("is empty", &|rig| std::fs::write(rig.path("vm1.raw"), []).expect("a file")),
        ("not a multiple", &|rig| std::fs::write(rig.path("vm1.raw"), [0; 1000]).expect("a file")),
        ("no such file", &|rig| std::fs::remove_file(rig.path("vm1.raw")).expect("a file")),
        ("director", &|rig| {
            std::fs::remove_file(rig.path("vm1.raw")).expect("a file");
            std::fs::create_dir(rig.path("vm1.raw")).expect("a folder");
        }),
    ];
    for (part, break_it) in cases {
        let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
        break_it(&rig);
        rig.start();
        let status = rig.status();
        assert_eq!(volume(&status, "vm1").state, State::Waiting, "{part}");
        let reason = &volume(&status, "vm1").reason;
        assert!(reason.contains(part), "{part}: {reason}");
        assert_eq!(volume(&status, "vm2").state, State::Serving);
        assert!(rig.stop().clean, "a stop does not wait for it");
    }
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend = format!("nbd:unix:{}:vm1", rig.path("none.sock").display());
    rig.start();
    assert_eq!(rig.status().volumes[0].state, State::Waiting, "a server that is down");
    assert!(rig.stop().clean);
}

#[test]
fn one_that_another_process_holds_is_served_when_that_lets_go() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    rig.config.lock_wait_max = Duration::from_millis(100);
    let held = Disk::open(&rig.path("vm1.raw"), &OpenOptions::default()).expect("it is free");
    rig.start();
    let status = rig.status();
    assert_eq!(volume(&status, "vm1").state, State::Waiting);
    assert!(volume(&status, "vm1").reason.contains("in use"), "{:?}", volume(&status, "vm1"));
    drop(held);
    once_served(&rig, "vm1");
    assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
    assert!(rig.stop().clean);
}

#[test]
fn blocks_of_a_volume_that_had_to_wait_are_served_again() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        rig.start();
        let mut client = rig.client("vm1");
        for _ in 0..3 {
            assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
        }
        client.leave();
        assert!(rig.stop().clean);
        std::fs::rename(rig.path("vm1.raw"), rig.path("away")).expect("it goes");
        rig.start();
        std::fs::rename(rig.path("away"), rig.path("vm1.raw")).expect("it comes back");
        once_served(&rig, "vm1");
        let warmth = rig.loaded().volumes[0].warmth;
        // A rename changes the time of change, which is all that a proof has: only that is said.
        assert!(!matches!(warmth, Warmth::New), "{warmth:?}");
        assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_cache_is_replaced_while_a_volume_waits() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    std::fs::rename(rig.path("vm1.raw"), rig.path("away")).expect("it goes");
    rig.start();
    let new = NewCache { device: rig.path("other.img"), size_bytes: Some(64 * MIB), format: false };
    rig.ask(|answer| Message::ReplaceCache { new, answer }).expect("it is replaced");
    std::fs::rename(rig.path("away"), rig.path("vm1.raw")).expect("it comes back");
    once_served(&rig, "vm1");
    let mut client = rig.client("vm1");
    for _ in 0..3 {
        assert!(client.read(0, 4096) == Ok(pattern(0, 4096)));
    }
    assert!(rig.stop().clean);
}

/// What a volume that waits has in the write log stays there. Others' writes find no room for all of theirs, go at the
/// pace of their back ends, and none is lost.
#[test]
fn a_log_that_a_waiting_volume_has_filled_stops_nobodys_writes() {
    const LEN: u64 = 256 << 10;
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1", "vm2"]);
    rig.config.cache.write_log.as_mut().expect("it is set").drain_on_stop = false;
    rig.config.volumes[0].backend.insert_str(0, SLOW);
    rig.start();
    let write = |client: &mut super::client::Client, number: u64| {
        let data = vec![(number % 251) as u8; LEN as usize];
        assert_eq!(client.write(number * LEN % SIZE, &data, false), Ok(()), "{number}");
    };
    let mut client = rig.client("vm1");
    (0..72).for_each(|number| write(&mut client, number));
    client.leave();
    rig.stop();
    std::fs::rename(rig.path("vm1.raw"), rig.path("away")).expect("it goes");
    rig.start();
    let log = |rig: &Rig| rig.status().cache.write_log.expect("it has one");
    let (before, room) = (log(&rig).used_bytes, log(&rig).size_bytes);
    assert_eq!(volume(&rig.status(), "vm1").state, State::Waiting);
    assert!(before > room / 3, "{before} of {room} bytes");
    let mut client = rig.client("vm2");
    // Twice as much as there is room for.
    let count = 2 * room / LEN;
    (0..count).for_each(|number| write(&mut client, number));
    assert!(log(&rig).used_bytes >= before, "it stays");
    assert_eq!(volume(&rig.status(), "vm1").state, State::Waiting);
    std::fs::rename(rig.path("away"), rig.path("vm1.raw")).expect("it comes back");
    once_served(&rig, "vm1");
    for (name, count) in [("vm1", 72), ("vm2", count)] {
        let mut client = rig.client(name);
        for number in count - SIZE / LEN..count {
            let data = vec![(number % 251) as u8; LEN as usize];
            assert!(client.read(number * LEN % SIZE, LEN as u32) == Ok(data), "{name}, {number}");
        }
        client.leave();
    }
    rig.stop();
}
