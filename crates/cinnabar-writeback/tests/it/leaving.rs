//! A volume leaves the log while its guest writes as fast as it is let.

use crate::rig::Rig;
use cinnabar_writeback::{Command, Config, LogVolumeId};

/// Blocks of a write, and writes under way at a time.
const BLOCKS: u64 = 100;
const WRITES: u64 = 32;

/// A guest that has so many writes under way, whatever ends.
struct Guest {
    place: LogVolumeId,
    open: Vec<cinnabar_engine::RequestId>,
    next: u64,
}

impl Guest {
    fn go_on(&mut self, rig: &mut Rig) {
        self.open.retain(|id| !rig.replies.contains_key(id));
        while (self.open.len() as u64) < WRITES {
            let block = self.next * BLOCKS % 16_000;
            self.next += 1;
            self.open.push(rig.write(self.place, block, BLOCKS, self.next));
        }
    }

    /// Drains its volume, and writes meanwhile; what is dirty then, in blocks.
    fn drain(&mut self, rig: &mut Rig) -> u64 {
        let drained = rig.control(Command::Drain(self.place));
        while !rig.answers.contains_key(&drained) {
            rig.settle_log();
            self.go_on(rig);
            if !rig.end_engine()
                && let Some(at) = rig.wake.take()
            {
                rig.now = rig.now.max(at);
                rig.apply(cinnabar_writeback::Event::Wake);
            }
        }
        assert!(rig.answers[&drained].is_ok(), "{:?}", rig.answers[&drained]);
        dirty(rig, self.place)
    }
}

fn dirty(rig: &Rig, place: LogVolumeId) -> u64 {
    rig.log.status(place).expect("it is there").dirty_bytes / 4096
}

fn full() -> (Rig, Guest) {
    let mut rig = Rig::new(Config { destage_after_ns: u64::MAX / 2, ..Config::default() });
    let place = rig.attach("a", 16_384, 1);
    for n in 0..12 {
        rig.write(place, n * BLOCKS, BLOCKS, n + 1);
        rig.settle_log();
    }
    (rig, Guest { place, open: Vec::new(), next: 12 })
}

#[test]
fn each_drain_leaves_less_while_writers_are_slowed_down() {
    let (mut rig, mut guest) = full();
    rig.control(Command::Slow { place: guest.place, slow: true });
    let mut left = dirty(&rig, guest.place);
    assert!(left > 1000, "{left} blocks are dirty");
    let mut drains = 0;
    // A write may go as soon as half a block has room.
    let least = 256 + BLOCKS * 2;
    while left > least {
        let next = guest.drain(&mut rig);
        assert!(next <= left * 3 / 4 + least, "of {left} blocks {next} are left");
        (left, drains) = (next, drains + 1);
        assert!(drains < 20, "it goes on and on with {left} blocks");
    }
    let written = guest.next;
    assert!(written > 20, "its guest was not stopped: {written} writes");
    // Nothing is dirty, or slow, for good.
    rig.control(Command::Slow { place: guest.place, slow: false });
    rig.control(Command::Drain(guest.place));
    rig.settle();
    assert!(guest.open.iter().all(|id| rig.ok(*id)), "all of them are answered");
}

#[test]
fn without_that_a_drain_leaves_what_its_guest_has_written_meanwhile() {
    let (mut rig, mut guest) = full();
    let before = dirty(&rig, guest.place);
    let left = guest.drain(&mut rig);
    assert!(left > before / 2, "the tests' guest is too slow: of {before} blocks {left} are left");
}

#[test]
fn a_slowed_writer_goes_on_once_nothing_is_dirty() {
    let mut rig = Rig::new(Config::default());
    let place = rig.attach("a", 16_384, 1);
    rig.control(Command::Slow { place, slow: true });
    // More than is let through at once: the rest follows the destage, which it hurries.
    let ids: Vec<_> = (0..16).map(|n| rig.write(place, n * BLOCKS, BLOCKS, 7)).collect();
    rig.settle_log();
    assert!(!ids.iter().all(|id| rig.ok(*id)), "some wait");
    rig.settle();
    assert!(ids.iter().all(|id| rig.ok(*id)), "none is forgotten");
}
