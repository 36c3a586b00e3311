//! Back ends and cache devices that are silent: an operator is answered all the same, and nothing else is
//! given up for them.

use super::degrade::invalidate;
use super::rig::{Rig, in_way};
use crate::dataplane::data_thread::ThreadEvent;
use crate::dataplane::io_table::IoEvent;
use crate::dataplane::plane::DataPlane;
use crate::dataplane::worker::WorkerEvent;
use cinnabar_backend::model::OpKind;
use cinnabar_backend::work::IoInfo;
use cinnabar_config::messages::{ByteRange, CommandErrorKind, IoMode, Message};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Three times the longest wait of an operator's command.
const SILENCE: &str = "packet=6s";

#[test]
fn who_drops_a_range_is_answered_though_a_write_to_it_hangs() {
    in_way(0, dropped_while_a_write_hangs);
}

#[test]
fn who_drops_a_range_is_answered_though_a_write_to_it_hangs_on_threads() {
    in_way(1, dropped_while_a_write_hangs);
}

#[test]
fn who_drops_a_range_is_answered_though_a_write_to_it_hangs_with_shards() {
    in_way(2, dropped_while_a_write_hangs);
}

fn dropped_while_a_write_hangs(io: IoMode) {
    let mut rig = Rig::new(io, &["slow", "good"]);
    let file = rig.config.volumes[0].backend.clone();
    rig.config.volumes[0].backend = format!("sim:network,{SILENCE}:{file}");
    // Guests wait for as long as it takes.
    rig.config.volumes[0].backend_timeout = Duration::ZERO;
    rig.start();
    let mut client = rig.client("slow");
    let write = std::thread::spawn(move || client.write(4096, &[9; 4096], false));
    while rig.status().volumes[0].oldest.is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    // Beside it nothing is waited for.
    assert_eq!(invalidate(&rig, "slow", Some((8192, 4096))), Ok(()));
    assert_eq!(invalidate(&rig, "good", None), Ok(()));
    let asked = [Some(ByteRange { offset: 4096, len: 1 }), None].map(|range| {
        let name = "slow".to_owned();
        rig.send(|answer| Message::Invalidate { name, range, answer })
    });
    for asked in asked {
        let error = asked.blocking_recv().expect("it is answered").expect_err("not in time");
        assert_eq!(error.kind, CommandErrorKind::Io, "{error}");
    }
    assert!(!write.is_finished(), "its guest is not told of that");
    assert_eq!(write.join().expect("no panic"), Ok(()));
    assert_eq!(invalidate(&rig, "slow", Some((4096, 1))), Ok(()));
    assert_eq!(rig.client("slow").read(4096, 4096), Ok(vec![9; 4096]));
    rig.stop();
}

/// A thread is late to say so, and another device has taken the silent one's place.
#[test]
fn a_device_is_not_given_up_for_what_hangs_on_the_one_before() {
    let rig = Rig::new(IoMode::Auto, &["vm1"]);
    let (mut plane, _commands) = DataPlane::start(&rig.config).expect("it starts");
    let hear = |plane: &mut DataPlane, disk| {
        let what = IoInfo { name: "write", kind: OpKind::Write, offset: 0, len: 4096 };
        let hangs = ThreadEvent::Io(IoEvent::Hangs(disk, what));
        plane.heard.push(WorkerEvent::DataThread(1, hangs));
        plane.turn().expect("it goes on");
        (plane.cache.hangs, plane.cache.losses)
    };
    assert_eq!(hear(&mut plane, Weak::new()), (false, 0));
    let own = Arc::downgrade(plane.cache.shared().expect("it is open"));
    assert_eq!(hear(&mut plane, own), (true, 1));
    plane.end();
}
