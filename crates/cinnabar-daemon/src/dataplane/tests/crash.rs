//! A crash: the cache device as it was at some moment, and a backend that went on, or not.
//!
//! A thread can't be killed, but a device can be put back to what it was while the daemon ran: that
//! is what a crash leaves behind.

use super::rig::{MIB, Rig, both, pattern};
use cinnabar_config::messages::{DataStatus, EvictionMode, IoMode, Message};
use cinnabar_engine::health::Start;
use cinnabar_engine::volume::{DropReason, Warmth};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// What the heartbeat's window leaves open, and a little more.
const BEYOND_THE_WINDOW: Duration = Duration::from_millis(4500);

/// A rig where every miss goes to flash.
fn rig(io: IoMode) -> Rig {
    let mut rig = Rig::new(io, &["vm1"]);
    rig.config.cache.eviction = EvictionMode::Clock;
    rig
}

/// Reads the first MiB until it is on flash, and the volume's proof with it; then crashes.
fn crashed(rig: &mut Rig) {
    let mut client = rig.client("vm1");
    let since = Instant::now();
    let used = |status: &DataStatus| {
        status.cache.counters.cached_blocks - status.cache.counters.ram_blocks
    };
    while used(&rig.status()) < 200 {
        assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", rig.status().cache);
        std::thread::sleep(Duration::from_millis(50));
    }
    // The chunk is written after a second at the latest, and the log flushed a second later.
    std::thread::sleep(Duration::from_millis(2500));
    crash(rig);
}

/// Puts the device back to what it is now.
fn crash(rig: &mut Rig) {
    let image = rig.path("image");
    std::fs::copy(&rig.config.cache.device, &image).expect("it can be copied");
    rig.stop();
    std::fs::rename(&image, &rig.config.cache.device).expect("it takes its place");
}

fn write_behind_its_back(rig: &Rig) {
    let file = std::fs::OpenOptions::new().write(true).open(rig.path("vm1.raw"));
    file.expect("it opens").write_all_at(b"changed!", 4096).expect("it is written");
}

#[test]
fn after_a_crash_it_is_warm() {
    both(|io| {
        let mut rig = rig(io);
        rig.start();
        crashed(&mut rig);
        rig.start();
        let status = rig.loaded();
        let report = status.cache.loaded.expect("it is loaded").report;
        assert_eq!(report.start, Start::Crashed, "{report:?}");
        let warmth = status.volumes[0].warmth;
        assert!(matches!(warmth, Warmth::Warm { blocks: 200.. }), "{warmth:?}");
        let mut client = rig.client("vm1");
        assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
        let counters = rig.status().volumes[0].counters;
        assert!(counters.read_hits >= 200, "{counters:?}");
        client.leave();
        assert!(rig.stop().clean);
    });
}

#[test]
fn what_was_written_beyond_the_window_is_not_believed_unless_the_operator_says_so() {
    for exclusive in [false, true] {
        let mut rig = rig(IoMode::Auto);
        rig.config.volumes[0].exclusive = exclusive;
        rig.start();
        crashed(&mut rig);
        std::thread::sleep(BEYOND_THE_WINDOW);
        write_behind_its_back(&rig);
        rig.start();
        let warmth = rig.loaded().volumes[0].warmth;
        if exclusive {
            assert!(matches!(warmth, Warmth::Warm { .. }), "the operator vouches: {warmth:?}");
        } else {
            let reason = DropReason::NoProof;
            assert!(
                matches!(warmth, Warmth::Dropped { reason: r, .. } if r == reason),
                "{warmth:?}"
            );
            let mut client = rig.client("vm1");
            assert_eq!(client.read(4096, 512).expect("it is read")[..8], *b"changed!");
            client.leave();
        }
        assert!(rig.stop().clean);
    }
}

#[test]
fn another_file_is_not_believed_whatever_the_operator_says() {
    let mut rig = rig(IoMode::Auto);
    rig.config.volumes[0].exclusive = true;
    rig.start();
    crashed(&mut rig);
    let (old, new) = (rig.path("vm1.raw"), rig.path("new.raw"));
    std::fs::copy(&old, &new).expect("a copy");
    std::fs::rename(&new, &old).expect("it takes its place");
    rig.start();
    let warmth = rig.loaded().volumes[0].warmth;
    let reason = DropReason::BackendChanged;
    assert!(matches!(warmth, Warmth::Dropped { reason: r, .. } if r == reason), "{warmth:?}");
    assert!(rig.stop().clean);
}

#[test]
fn without_its_state_the_cache_is_cold() {
    let mut rig = rig(IoMode::Auto);
    rig.start();
    crashed(&mut rig);
    std::fs::write(rig.config.cache.state_dir.join("generations.json"), "{").expect("a file");
    rig.start();
    let warmth = rig.loaded().volumes[0].warmth;
    let reason = DropReason::WrittenWithoutCache;
    assert!(matches!(warmth, Warmth::Dropped { reason: r, .. } if r == reason), "{warmth:?}");
    assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
    assert!(rig.stop().clean);
}

/// A stop right after the start, before the index can be loaded; and a crash as early.
#[test]
fn a_stop_or_a_crash_while_loading_costs_no_warmth() {
    both(|io| {
        let mut rig = rig(io);
        rig.start();
        crashed(&mut rig);
        for _ in 0..3 {
            rig.start();
            assert!(rig.stop().clean);
            rig.start();
            crash(&mut rig);
        }
        rig.start();
        let warmth = rig.loaded().volumes[0].warmth;
        assert!(matches!(warmth, Warmth::Warm { blocks: 200.. }), "{warmth:?}");
        assert!(rig.client("vm1").read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_volume_that_has_grown_is_warm_after_a_crash() {
    both(|io| {
        let mut rig = rig(io);
        rig.start();
        let disk = std::fs::File::options().write(true).open(rig.path("vm1.raw"));
        disk.expect("it opens").set_len(16 * MIB).expect("it grows");
        let name = "vm1".to_owned();
        let grown = rig.ask(|answer| Message::ResizeVolume { name, answer });
        assert_eq!(grown, Ok(16 * MIB));
        crashed(&mut rig);
        rig.start();
        let status = rig.loaded();
        assert_eq!(status.cache.loaded.expect("it is loaded").report.start, Start::Crashed);
        let warmth = status.volumes[0].warmth;
        assert!(matches!(warmth, Warmth::Warm { blocks: 200.. }), "{warmth:?}");
        assert!(rig.client("vm1").read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
        assert!(rig.stop().clean);
    });
}
