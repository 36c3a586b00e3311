//! A state folder that does not answer, or can't be written.

use super::rig::{Rig, pattern};
use crate::dataplane::plane::DataPlane;
use cinnabar_backend::generations::Ledger;
use cinnabar_config::messages::{IoMode, Message, State};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Has the state folder hang until what it gives is dropped.
fn hang(ledger: Ledger) -> (mpsc::SyncSender<()>, JoinHandle<()>) {
    let (begin, begun) = mpsc::sync_channel(0);
    let (release, released) = mpsc::sync_channel::<()>(0);
    let hanging = std::thread::spawn(move || {
        ledger.with(|_| {
            begin.send(()).expect("the test waits");
            let _released = released.recv();
        });
    });
    begun.recv().expect("it hangs");
    (release, hanging)
}

/// A write after a loss of the cache device waits for the state folder; with no time-out of the volume's
/// it waited for ever.
#[test]
fn a_write_does_not_wait_without_end_for_a_state_folder_that_hangs() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend_timeout = Duration::ZERO;
    let (mut plane, commands) = DataPlane::start(&rig.config).expect("it starts");
    let ledger = plane.ledger.clone();
    rig.adopt(commands);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (release, hanging) = hang(ledger);
            let mut client = rig.client("vm1");
            assert_eq!(rig.ask(Message::AbandonCache), Ok(()));
            assert!(client.write(0, &[7; 4096], false).is_err(), "it ends with an error");
            assert!(client.write(4096, &[7; 4096], false).is_err(), "and so does the next");
            let cache = rig.status().cache;
            assert_eq!(cache.state, State::Degraded);
            assert!(cache.reason.contains("the state folder has not answered"), "{}", cache.reason);
            drop(release);
            hanging.join().expect("no panic");
            while client.write(0, &[8; 4096], false).is_err() {
                std::thread::sleep(Duration::from_millis(2));
            }
            let reason = rig.status().cache.reason;
            assert!(!reason.contains("state folder"), "{reason}");
            let deadline = Duration::from_mins(1);
            assert!(rig.ask(|answer| Message::Stop { deadline, answer }).is_ok());
        });
        assert_eq!(plane.run(), Ok(()));
        plane.end();
    });
}

#[test]
fn the_status_says_that_the_state_folder_can_not_be_written() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.start();
    let mut client = rig.client("vm1");
    // Its file can't be replaced by another one then.
    let state = rig.config.cache.state_dir.clone();
    let moved = state.with_extension("moved");
    std::fs::rename(&state, &moved).expect("it is there");
    assert_eq!(rig.ask(Message::AbandonCache), Ok(()));
    assert!(client.write(0, &[7; 4096], false).is_err());
    let reason = rig.status().cache.reason;
    assert!(reason.contains("volumes can't be written"), "{reason}");
    std::fs::rename(&moved, &state).expect("it is there");
    assert_eq!(client.write(0, &[8; 4096], false), Ok(()));
    let reason = rig.status().cache.reason;
    assert!(!reason.contains("can't be written"), "{reason}");
    rig.stop();
}

/// Guests of four volumes write after a loss of the cache device, while the state folder goes, comes back and
/// hangs, as a seed has it.
fn drawn(seed: u64) {
    eprintln!("seed {seed}");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let names = ["vm0", "vm1", "vm2", "vm3"];
    let mut rig = Rig::new(IoMode::Auto, &names);
    let (mut plane, commands) = DataPlane::start(&rig.config).expect("it starts");
    let ledger = plane.ledger.clone();
    rig.adopt(commands);
    let guests = move || {
        assert_eq!(rig.ask(Message::AbandonCache), Ok(()));
        let state = rig.config.cache.state_dir.clone();
        let away = state.with_extension("away");
        let mut clients = names.map(|name| rig.client(name));
        // What may be read, and whether a generation was kept.
        let mut blocks = names.map(|_| (vec![pattern(0, 4096)], false));
        let hangs_at = rng.random_range(0..40);
        for number in 1..40 {
            match rng.random_range(0..6) {
                0 if state.exists() => std::fs::rename(&state, &away).expect("it goes"),
                1 if away.exists() => std::fs::rename(&away, &state).expect("it comes back"),
                _ => {}
            }
            let at = rng.random_range(0..names.len());
            let (may_be, is_kept) = &mut blocks[at];
            let hung = (number == hangs_at).then(|| hang(ledger.clone()));
            let data = vec![number; 4096];
            let written = clients[at].write(0, &data, false);
            let may = *is_kept || state.exists() && hung.is_none();
            if let Some((release, hanging)) = hung {
                drop(release);
                hanging.join().expect("no panic");
                // The generation may be kept after all, or the next write wait for that.
                assert!(written.is_err() || *is_kept, "seed {seed}, {number}");
                while state.exists() && clients[at].write(0, &data, false).is_err() {}
                may_be.push(data);
                *is_kept |= state.exists();
            } else if hangs_at > number || may {
                assert_eq!(written.is_ok(), may, "seed {seed}, {number}: {written:?}");
                if written.is_ok() {
                    (*may_be, *is_kept) = (vec![data], true);
                }
            } else {
                may_be.push(data);
            }
            let read = clients[at].read(0, 4096).expect("it can always be read");
            assert!(may_be.contains(&read), "seed {seed}, {number}: {}", read[0]);
        }
        if away.exists() {
            std::fs::rename(&away, &state).expect("it comes back");
        }
        for client in &mut clients {
            while client.write(0, &[200; 4096], true).is_err() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let deadline = Duration::from_mins(1);
        assert!(rig.ask(|answer| Message::Stop { deadline, answer }).is_ok());
    };
    std::thread::scope(|scope| {
        scope.spawn(guests);
        assert_eq!(plane.run(), Ok(()));
        plane.end();
    });
}

/// `CINNABAR_RUNS` says of how many seeds.
#[test]
fn whatever_becomes_of_the_state_folder_writes_end_and_nothing_stale_is_read() {
    let seeds = std::env::var("CINNABAR_RUNS").map_or(3, |n| n.parse().expect("a number"));
    (0..seeds).for_each(drawn);
}
