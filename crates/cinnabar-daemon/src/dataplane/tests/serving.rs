//! Data in, data out, restarts, slow and failing backends, stops.

use super::rig::{MIB, Rig, SIZE, both, pattern};
use cinnabar_config::messages::{IoMode, Message, State, VolumeChange};
use cinnabar_engine::volume::{DropReason, Warmth};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const EIO: u32 = 5;

#[test]
fn what_is_written_is_read_and_lands_on_the_backend() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        rig.start();
        let mut client = rig.client("vm1");
        assert!(client.read(MIB, 65_536) == Ok(pattern(MIB, 65_536)));
        let mut expected = pattern(0, SIZE as usize);
        for (offset, len, fua) in
            [(4096, 4096, false), (512, 1024, true), (2 * MIB - 512, 69_632, false)]
        {
            let data = vec![0xab; len];
            assert_eq!(client.write(offset, &data, fua), Ok(()));
            expected[offset as usize..][..len].copy_from_slice(&data);
            let around = offset.saturating_sub(4096) / 512 * 512;
            let expected = &expected[around as usize..][..len + 8192];
            assert!(client.read(around, len as u32 + 8192).as_deref() == Ok(expected));
        }
        assert_eq!(client.zero(5 * MIB, 100 * 512), Ok(()));
        expected[5 * MIB as usize..][..51_200].fill(0);
        assert_eq!(client.trim(7 * MIB, 8192), Ok(()));
        assert_eq!(client.flush(), Ok(()));
        assert!(client.read(0, 7 * MIB as u32).as_deref() == Ok(&expected[..7 * MIB as usize]));
        client.leave();
        let report = rig.stop();
        assert!(report.clean && report.cut_off == 0, "{report:?}");
        let on_disk = std::fs::read(rig.path("vm1.raw")).expect("the file is there");
        assert!(on_disk[..7 * MIB as usize] == expected[..7 * MIB as usize]);
    });
}

#[test]
fn bytes_are_served_and_what_is_refused_is_counted() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        rig.start();
        let mut client = rig.client("vm1");
        let mut expected = pattern(0, 8192);
        for (offset, len) in [(1, 1), (510, 4), (4095, 2), (100, 5000)] {
            let data = vec![0xcd; len];
            assert_eq!(client.write(offset as u64, &data, false), Ok(()));
            expected[offset..][..len].copy_from_slice(&data);
        }
        assert_eq!(client.zero(5, 2000), Ok(()));
        expected[5..2005].fill(0);
        assert!(client.read(0, 8192).as_deref() == Ok(&expected[..]));
        assert_eq!(client.read(4093, 5).as_deref(), Ok(&expected[4093..4098]));
        assert_eq!(rig.status().volumes[0].counters.refused, 0);
        for _ in 0..3 {
            assert!(client.read(SIZE, 512).is_err());
        }
        assert_eq!(rig.status().volumes[0].counters.refused, 3);
        client.leave();
        assert!(rig.stop().clean);
        let on_disk = std::fs::read(rig.path("vm1.raw")).expect("the file is there");
        assert!(on_disk[..8192] == expected[..]);
    });
}

#[test]
fn a_clean_restart_is_warm_and_a_changed_backend_is_not() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        rig.start();
        let mut client = rig.client("vm1");
        for _ in 0..3 {
            assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
        }
        client.leave();
        let kept = rig.stop().kept_blocks;
        assert!(kept >= 256, "{kept}");

        rig.start();
        let status = rig.loaded();
        assert_eq!(status.volumes[0].warmth, Warmth::Warm { blocks: kept });
        let mut client = rig.client("vm1");
        assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
        let counters = rig.status().volumes[0].counters;
        assert_eq!((counters.read_hits, counters.backend_reads), (256, 0));
        client.leave();
        assert!(rig.stop().clean);

        let file = std::fs::OpenOptions::new().write(true).open(rig.path("vm1.raw"));
        file.expect("it opens").write_all_at(b"changed!", 4096).expect("it is written");
        rig.start();
        let warmth = rig.loaded().volumes[0].warmth;
        let reason = DropReason::BackendChanged;
        assert!(matches!(warmth, Warmth::Dropped { reason: r, .. } if r == reason), "{warmth:?}");
        let mut client = rig.client("vm1");
        assert_eq!(client.read(4096, 512).expect("it is read")[..8], *b"changed!");
        client.leave();
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_model_slows_the_backend_down_and_the_cache_does_not_mind() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        let file = rig.config.volumes[0].backend.clone();
        rig.config.volumes[0].backend = format!("sim:network,packet=15ms:{file}");
        rig.start();
        let mut client = rig.client("vm1");
        let mut timed = |offset| {
            let start = Instant::now();
            assert!(client.read(offset, 4096) == Ok(pattern(offset, 4096)));
            start.elapsed()
        };
        let misses: Vec<Duration> = (0..4).map(|i| timed(i * 65_536)).collect();
        assert!(misses.iter().all(|took| *took >= Duration::from_millis(30)), "{misses:?}");
        for i in 0..4 {
            timed(i * 65_536);
        }
        let volume = &rig.status().volumes[0];
        assert_eq!((volume.counters.read_hits, volume.counters.backend_reads), (4, 4));
        assert_eq!(volume.latencies.read.count, 8);
        assert!(volume.latencies.read.p99_us >= 30_000, "{}", volume.latencies.read.p99_us);
        drop(client);
        assert!(rig.stop().clean);
    });
}

#[test]
fn failing_backends_fail_requests_and_nothing_else() {
    let mut rig = Rig::new(IoMode::Auto, &["bad", "good"]);
    let file = rig.config.volumes[0].backend.clone();
    rig.config.volumes[0].backend = format!("sim:ssd,errors=1:{file}");
    rig.start();
    let (mut bad, mut good) = (rig.client("bad"), rig.client("good"));
    assert_eq!(bad.read(0, 4096), Err(EIO));
    assert_eq!(bad.write(0, &[1; 4096], false), Err(EIO));
    assert_eq!(bad.flush(), Err(EIO));
    assert!(good.read(0, 4096) == Ok(pattern(0, 4096)));
    assert!(rig.status().volumes[0].counters.backend_errors >= 3);
    // Its last flush fails, too: the others are kept all the same.
    assert!(rig.stop().clean);
}

#[test]
fn a_stop_answers_what_was_asked() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        let file = rig.config.volumes[0].backend.clone();
        rig.config.volumes[0].backend = format!("sim:network,packet=100ms:{file}");
        rig.start();
        let mut idle = rig.client("vm1");
        let mut client = rig.client("vm1");
        for i in 0..8 {
            client.ask(i * 65_536, 4096);
        }
        // Until the last of them has arrived, there is nothing to finish.
        while rig.status().volumes[0].counters.reads < 8 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let report = rig.stop();
        assert!(report.clean && report.cut_off == 0, "{report:?}");
        for _ in 0..8 {
            let (cookie, data) = client.answer(4096);
            assert!(data == Ok(pattern((cookie - 1) * 65_536, 4096)), "{cookie}");
        }
        assert!(client.is_closed() && idle.is_closed());
    });
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        let file = rig.config.volumes[0].backend.clone();
        rig.config.volumes[0].backend = format!("sim:network,packet=500s:{file}");
        rig.start();
        let mut client = rig.client("vm1");
        client.ask(0, 4096);
        while rig.status().volumes[0].counters.reads < 1 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let start = Instant::now();
        let report = rig.stop_within(Duration::from_millis(400));
        assert!(start.elapsed() < Duration::from_secs(20));
        assert!(!report.clean && report.cut_off == 1, "{report:?}");
        assert!(client.is_closed());
        // Cold, but it starts.
        rig.config.volumes.clear();
        rig.start();
        assert!(rig.stop().clean);
    });
}

#[test]
fn many_requests_are_under_way_at_once() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        let file = rig.config.volumes[0].backend.clone();
        rig.config.volumes[0].backend = format!("sim:network,packet=30ms,link=0:{file}");
        rig.start();
        let mut client = rig.client("vm1");
        let start = Instant::now();
        let offsets: Vec<u64> = (0..200).map(|i| i * 37 % 2000 * 4096).collect();
        for offset in &offsets {
            client.ask(*offset, 4096);
        }
        for _ in &offsets {
            let (cookie, data) = client.answer(4096);
            assert!(data == Ok(pattern(offsets[cookie as usize - 1], 4096)), "{cookie}");
        }
        // One after the other they would take 12 s.
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        client.leave();
        assert!(rig.stop().clean);
    });
}

#[test]
fn status_tells_what_is_there() {
    let mut rig = Rig::new(IoMode::Threads, &["vm1", "vm2"]);
    rig.start();
    let status = rig.loaded();
    assert_eq!(status.cache.state, State::Serving);
    assert!(status.cache.io.starts_with("threads, "), "{}", status.cache.io);
    assert!(status.cache.counters.capacity_blocks > 6000);
    let names: Vec<_> = status.volumes.iter().map(|v| v.config.name.as_str()).collect();
    assert_eq!(names, ["vm1", "vm2"]);
    for volume in &status.volumes {
        assert_eq!((volume.state, volume.size_bytes), (State::Serving, SIZE));
        assert_eq!(volume.warmth, Warmth::New);
    }
    assert!(rig.stop().clean);
}

#[test]
fn nothing_goes_to_flash_while_a_budget_is_spent() {
    let mut rig = Rig::new(IoMode::Threads, &["vm1"]);
    rig.config.cache.probation_bytes = Some(MIB);
    rig.start();
    rig.loaded();
    let mut client = rig.client("vm1");
    for admits in [false, true] {
        assert_eq!(rig.ask(|answer| Message::AdoptAdmission { admits, answer }), Ok(()));
        for offset in (0..SIZE).step_by(65_536) {
            assert!(client.read(offset, 65_536) == Ok(pattern(offset, 65_536)), "at {offset}");
        }
        let cache = rig.status().cache;
        assert_eq!(cache.throttled, !admits);
        let admitted = cache.counters.admitted;
        let let_in = admitted.filling + admitted.referenced + admitted.ghost;
        assert_eq!(let_in > 0, admits, "{let_in} blocks");
        assert!(cache.counters.throttled_blocks > 0);
    }
    client.leave();
    assert!(rig.stop().clean);
}

/// A block a second, over two shards; then as fast as it comes.
#[test]
fn a_volume_is_filled_no_faster_than_its_limit_and_serves_what_was_written() {
    let mut rig = Rig::new(IoMode::Threads, &["vm1", "vm2"]);
    rig.config.cache.probation_bytes = Some(MIB);
    rig.config.volumes[0].fill_limit_bytes = 4096;
    rig.start();
    rig.loaded();
    let begun = Instant::now();
    let (mut client, mut other) = (rig.client("vm1"), rig.client("vm2"));
    let mut expected = pattern(0, SIZE as usize);
    let mut passes = |expected: &[u8]| {
        for _ in 0..2 {
            for (offset, part) in (0..).step_by(65_536).zip(expected.chunks(65_536)) {
                assert!(client.read(offset, 65_536).as_deref() == Ok(part), "at {offset}");
            }
        }
        // What is written is in RAM or on flash, and may not be filled again.
        assert_eq!(client.write(8192, &[7; 4096], false), Ok(()));
    };
    let on_flash = |rig: &Rig| {
        let cache = rig.status().cache.counters;
        cache.cached_blocks - cache.ram_blocks
    };
    passes(&expected);
    expected[8192..][..4096].fill(7);
    passes(&expected);
    let most = begun.elapsed().as_secs() + 4;
    let few = on_flash(&rig);
    assert!(few <= most, "{few} blocks on flash, {most} may be");
    let capped = rig.status().volumes[0].counters.capped_blocks;
    assert!(capped > SIZE / 4096 / 2, "{capped} blocks were kept off");

    for offset in (0..SIZE).step_by(65_536) {
        assert!(other.read(offset, 65_536) == Ok(pattern(offset, 65_536)), "at {offset}");
    }
    let others = on_flash(&rig);
    assert!(others > SIZE / 4096 / 2, "another volume has no limit: {others} blocks on flash");
    assert_eq!(rig.status().volumes[1].counters.capped_blocks, 0);

    let change = VolumeChange { fill_limit_bytes: Some(0), ..VolumeChange::default() };
    let name = "vm1".to_owned();
    assert_eq!(rig.ask(|answer| Message::SetVolume { name, change, answer }), Ok(()));
    passes(&expected);
    assert!(on_flash(&rig) > others + SIZE / 4096 / 4, "{} blocks", on_flash(&rig));
    client.leave();
    other.leave();
    assert!(rig.stop().clean);
}

#[test]
fn the_thread_stops_when_the_control_plane_is_gone() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let handle = super::super::start(rig.config.clone()).expect("it starts");
    let ended = handle.ended;
    drop(handle.commands);
    assert_eq!(ended.blocking_recv().expect("it says how it ended"), Ok(()));
    rig.config.cancel = std::sync::Arc::default();
    rig.start();
    assert!(rig.stop().clean);
}
