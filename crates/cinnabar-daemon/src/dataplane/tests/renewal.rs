//! Back ends that fail flushes, of volumes in write-back mode.

use super::rig::Rig;
use super::write_back::{flush, has_claim, on_disk, remove, set, until};
use cinnabar_config::messages::{IoMode, State, VolumeMode};
use std::time::Duration;

/// From block to block: an epoch of blocks that follow one another is a single durable write.
const GAP: u64 = 8192;

/// Writes to 256 blocks in rounds, a flush behind each 16; what the disk holds in the end.
fn write(rig: &Rig, rounds: u8) -> Vec<u8> {
    let mut client = rig.client("vm1");
    let mut model = on_disk(rig);
    for round in 1..=rounds {
        for n in 0..256_u64 {
            let byte = round.wrapping_mul(31).wrapping_add(n as u8);
            assert_eq!(client.write(n * GAP, &[byte; 4096], false), Ok(()), "the log takes it");
            model[(n * GAP) as usize..][..4096].fill(byte);
            if n % 16 == 15 {
                assert_eq!(client.flush(), Ok(()), "the log has it");
            }
            if n % 5 == 0 {
                let at = n / 2 * GAP;
                let found = client.read(at, 4096).expect("it is read");
                assert!(found == model[at as usize..][..4096], "round {round}, block {}", n / 2);
            }
        }
    }
    client.leave();
    model
}

fn counted(rig: &Rig) -> [u64; 4] {
    let counters = rig.status().volumes[0].counters;
    [counters.backend_flushes, counters.backend_writes, counters.blocks_read, counters.flushes]
}

/// One write or flush in fifty fails: flushes fail for good then, unless the volume is attached again.
/// What the log holds never reached the back end.
#[test]
fn a_back_end_that_fails_flushes_now_and_then_gets_everything() {
    for io in [IoMode::Auto, IoMode::Threads] {
        let mut rig = Rig::write_back(io, &["vm1"]);
        rig.config.volumes[0].backend.insert_str(0, "sim:ssd,write_errors=0.02:");
        rig.start();
        until(&rig, "it joins", |status| status.volumes[0].state != State::Starting);
        while !has_claim(&rig) {
            // The flush at its joining has failed.
            let _refused = set(&rig, VolumeMode::WriteBack);
        }
        let mut before = counted(&rig);
        for _ in 0..3 {
            let model = write(&rig, 1);
            assert_eq!(flush(&rig), Ok(()));
            assert!(on_disk(&rig) == model, "the back end has it");
            let after = counted(&rig);
            assert!(
                after.iter().zip(before).all(|(now, then)| *now >= then),
                "{before:?}, {after:?}"
            );
            before = after;
        }
        assert_eq!(rig.status().volumes[0].size_bytes, super::rig::SIZE);
        rig.stop();
    }
}

/// Many fail: the volume is attached again all the time, and leaves in the middle of that.
#[test]
fn it_may_leave_at_any_moment() {
    for round in 0..6_u64 {
        let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
        rig.config.volumes[0].backend.insert_str(0, "sim:ssd,write_errors=0.15:");
        rig.config.cache.write_log.as_mut().expect("it is set").drain_on_stop = false;
        rig.start();
        while !has_claim(&rig) {
            let _refused = set(&rig, VolumeMode::WriteBack);
        }
        let mut client = rig.client("vm1");
        for n in 0..24_u64 {
            assert_eq!(client.write(n * GAP, &[7; 4096], n % 8 == 7), Ok(()));
        }
        std::thread::sleep(Duration::from_millis(round * 150));
        if round % 2 == 0 {
            client.leave();
            assert_eq!(remove(&rig, true), Ok(()));
            assert!(rig.status().volumes.is_empty() && !has_claim(&rig));
        } else {
            for n in 0..24_u64 {
                assert!(client.read(n * GAP, 4096) == Ok(vec![7; 4096]), "round {round}: {n}");
            }
            client.leave();
        }
        rig.stop();
    }
}
