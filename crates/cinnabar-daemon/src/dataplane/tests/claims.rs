//! Claims and the log that they name: an older copy of it in its place, and claims of earlier releases.

use super::rig::Rig;
use super::write_back::{SLOW, flush, has_claim, on_disk};
use cinnabar_config::messages::{IoMode, State, VolumeMode};
use std::path::PathBuf;

const FILES: [&str; 2] = ["writes.img", "older.img"];

fn rig() -> Rig {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend.insert_str(0, SLOW);
    rig.config.cache.write_log.as_mut().expect("it is set").drain_on_stop = false;
    rig
}

/// Writes a block, and stops while the back end lacks it or, if `flushed`, lacks the next one only.
fn write(rig: &mut Rig, value: u8, flushed: bool) {
    rig.start();
    let mut client = rig.client("vm1");
    assert_eq!(client.write(4096, &[value; 4096], true), Ok(()));
    if flushed {
        assert_eq!(flush(rig), Ok(()));
        assert_eq!(client.write(8192, &[value; 4096], true), Ok(()));
    }
    client.leave();
    rig.stop();
    assert!(has_claim(rig));
}

fn keep_log(rig: &Rig) {
    let [log, older] = FILES.map(|name| rig.path(name));
    std::fs::copy(log, older).expect("it can be copied");
}

/// The log and its copy change places.
fn exchange(rig: &Rig) {
    let [log, older] = FILES.map(|name| rig.path(name));
    let between = rig.path("between.img");
    for (from, to) in [(&log, &between), (&older, &log), (&between, &older)] {
        std::fs::rename(from, to).expect("it can be moved");
    }
}

fn claim(rig: &Rig) -> PathBuf {
    rig.path("vm1.raw.cinnabar-claim")
}

/// The volume waits, in either mode, and nothing is written to its back end.
fn refused(rig: &mut Rig) {
    let before = (on_disk(rig), std::fs::read(claim(rig)).expect("it is there"));
    // However often it is tried: the older one does not catch up.
    for mode in [VolumeMode::WriteBack, VolumeMode::WriteThrough, VolumeMode::WriteBack] {
        rig.config.volumes[0].mode = mode;
        rig.start();
        let status = &rig.status().volumes[0];
        assert_eq!(status.state, State::Waiting, "{}", status.reason);
        assert!(status.reason.contains("an older copy"), "{}", status.reason);
        rig.stop();
    }
    rig.config.volumes[0].mode = VolumeMode::WriteBack;
    assert!(before == (on_disk(rig), std::fs::read(claim(rig)).expect("it stays")));
}

fn reads(rig: &mut Rig, value: u8) {
    rig.start();
    assert_eq!(rig.client("vm1").read(4096, 4096), Ok(vec![value; 4096]));
    rig.stop();
}

/// What was destaged since the copy was made would be overwritten with what is older.
#[test]
fn an_older_copy_of_the_log_is_noticed() {
    let mut rig = rig();
    write(&mut rig, 1, false);
    keep_log(&rig);
    write(&mut rig, 2, true);
    assert_eq!(on_disk(&rig)[4096], 2);
    exchange(&rig);
    refused(&mut rig);
    exchange(&rig);
    reads(&mut rig, 2);
}

/// The claim looked as if the volume had left the log since, and was removed.
#[test]
fn a_copy_from_before_the_volume_came_is_noticed() {
    let mut rig = rig();
    rig.config.volumes[0].mode = VolumeMode::WriteThrough;
    rig.start();
    rig.stop();
    keep_log(&rig);
    rig.config.volumes[0].mode = VolumeMode::WriteBack;
    write(&mut rig, 2, false);
    exchange(&rig);
    refused(&mut rig);
    exchange(&rig);
    reads(&mut rig, 2);
}

#[test]
fn a_claim_of_an_earlier_release_is_believed_and_renewed() {
    let mut rig = rig();
    write(&mut rig, 1, false);
    let text = std::fs::read_to_string(claim(&rig)).expect("it is text");
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("number = ")).collect();
    assert_eq!(lines.len() + 1, text.lines().count(), "{text}");
    std::fs::write(claim(&rig), lines.join("\n")).expect("it is written");
    write(&mut rig, 2, false);
    let renewed = std::fs::read_to_string(claim(&rig)).expect("it is text");
    assert!(renewed.contains("number = 2"), "{renewed}");
    let since = |text: &str| text.lines().find(|line| line.starts_with("since")).map(str::to_owned);
    assert_eq!(since(&renewed), since(&text));
    reads(&mut rig, 2);
}
