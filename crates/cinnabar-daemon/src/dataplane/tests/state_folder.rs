//! A state folder that does not answer, or can't be written.

use super::rig::Rig;
use crate::dataplane::plane::Plane;
use cinnabar_messages::{IoMode, Message, State};
use std::sync::mpsc;
use std::time::Duration;

/// A write after a loss of the cache device waits for the state folder; with no time-out of the volume's
/// it waited for ever.
#[test]
fn a_write_does_not_wait_without_end_for_a_state_folder_that_hangs() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend_timeout = Duration::ZERO;
    let (mut plane, commands) = Plane::start(&rig.config).expect("it starts");
    let ledger = plane.ledger.clone();
    rig.adopt(commands);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (begin, begun) = mpsc::sync_channel(0);
            let (release, released) = mpsc::sync_channel::<()>(0);
            let hanging = std::thread::spawn(move || {
                ledger.with(|_| {
                    begin.send(()).expect("the test waits");
                    let _released = released.recv();
                });
            });
            begun.recv().expect("it hangs");
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
