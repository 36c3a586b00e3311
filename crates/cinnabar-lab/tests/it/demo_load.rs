//! The machines of a demonstration: they try while their disks are not there, and end with their input.

use super::rig::{PATIENCE, Site};
use std::fs::File;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(10);

#[test]
fn machines_end_when_their_input_does() {
    let site = Site::new();
    let log = site.path("machines.log");
    let mut machines = site
        .command(&["demo-load", "."])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(File::create(&log).expect("a log"))
        .spawn()
        .expect("it starts");
    let begun = Instant::now();
    let said = || std::fs::read_to_string(&log).expect("its log");
    // Each of them misses its disk, and goes on.
    while said().matches("lost its disk, and tries again").count() < 4 {
        assert!(begun.elapsed() < PATIENCE, "{}", said());
        assert!(machines.try_wait().expect("our child").is_none(), "it ended: {}", said());
        thread::sleep(STEP);
    }
    drop(machines.stdin.take());
    while machines.try_wait().expect("our child").is_none() {
        if begun.elapsed() > PATIENCE {
            machines.kill().expect("our child");
            panic!("it does not end: {}", said());
        }
        thread::sleep(STEP);
    }
    assert!(machines.wait().expect("our child").success(), "{}", said());
}
