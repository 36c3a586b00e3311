//! Each edge of what is believed.

use super::*;
use cinnabar_driver::change_proof::{PERIOD_NS, WINDOW_NS};

const S: i64 = 1_000_000_000;
/// When the file was last changed, and when that was recorded.
const THEN: Stamped = Stamped {
    seen: Seen { device: 1, inode: 2, birth_ns: 3 * S, size_bytes: 4096, change_ns: 100 * S },
    now_ns: 101 * S,
};

fn recorded(then: Stamped, written: bool) -> Recorded {
    Recorded { proof: Some(then.pack()), written }
}

/// What is believed of a file that was left as `THEN` and then looks like `seen`.
fn belief(written: bool, seen: Seen) -> Belief {
    // The time of the attach does not matter.
    judge(&recorded(THEN, written), Some(&seen.at(1_000_000 * S).pack()))
}

fn changed_at(change_ns: i64) -> Seen {
    Seen { change_ns, ..THEN.seen }
}

#[test]
fn what_is_packed_is_unpacked() {
    let odd = Stamped {
        seen: Seen { device: u64::MAX, inode: 1, birth_ns: -5, size_bytes: 0, change_ns: i64::MIN },
        now_ns: i64::MAX,
    };
    for stamped in [THEN, odd] {
        assert_eq!(Stamped::unpack(&stamped.pack()), Some(stamped));
    }
    assert_eq!(Stamped::unpack(&ProofToken([0; 64])), None);
    let mut other = THEN.pack();
    other.0[63] = 1;
    assert_eq!(Stamped::unpack(&other), Some(THEN), "the last field is the driver's");
    other.0[0] += 1;
    assert_eq!(Stamped::unpack(&other), None, "a later layout");
}

#[test]
fn after_a_clean_detach_only_equality_is_believed() {
    assert_eq!(belief(false, THEN.seen), Belief::Unchanged);
    for change_ns in [100 * S - 1, 100 * S + 1, 102 * S] {
        assert_eq!(belief(false, changed_at(change_ns)), Belief::Changed, "{change_ns}");
    }
}

#[test]
fn after_a_crash_the_window_is_believed_and_no_more() {
    let end = THEN.now_ns + 3 * S;
    for change_ns in [100 * S, 100 * S + 1, 101 * S, end - 1, end] {
        assert_eq!(belief(true, changed_at(change_ns)), Belief::Unchanged, "{change_ns}");
    }
    for change_ns in [end + 1, end + 1000 * S, i64::MAX] {
        assert_eq!(belief(true, changed_at(change_ns)), Belief::Unknown, "{change_ns}");
    }
    for change_ns in [100 * S - 1, 0, i64::MIN] {
        assert_eq!(belief(true, changed_at(change_ns)), Belief::Changed, "{change_ns}");
    }
}

#[test]
fn another_file_is_never_believed() {
    let others = [
        Seen { device: 9, ..THEN.seen },
        Seen { inode: 9, ..THEN.seen },
        // Deleted and made again under the same inode number.
        Seen { birth_ns: 99 * S, ..THEN.seen },
        Seen { size_bytes: 8192, ..THEN.seen },
    ];
    for other in others {
        for written in [false, true] {
            assert_eq!(belief(written, other), Belief::Changed, "{other:?}");
            // Not even within the window.
            let later = Seen { change_ns: 101 * S, ..other };
            assert_eq!(belief(written, later), Belief::Changed, "{later:?}");
        }
    }
}

#[test]
fn without_a_proof_nothing_is_known() {
    let now = THEN.pack();
    for written in [false, true] {
        let nothing = Recorded { proof: None, written };
        assert_eq!(judge(&nothing, Some(&now)), Belief::Unknown);
        assert_eq!(judge(&recorded(THEN, written), None), Belief::Unknown);
        let foreign = Recorded { proof: Some(ProofToken([7; 64])), written };
        assert_eq!(judge(&foreign, Some(&now)), Belief::Unknown);
    }
}

/// A clock that counts seconds (or two) stamps a write right after the proof as the one before it.
#[test]
fn equality_proves_nothing_while_the_clock_stands_still() {
    let standing = Stamped { now_ns: THEN.seen.change_ns, ..THEN };
    let same = judge(&recorded(standing, false), Some(&standing.pack()));
    assert_eq!(same, Belief::Unknown);
    let moved = Stamped { now_ns: THEN.seen.change_ns + 1, ..THEN };
    assert_eq!(judge(&recorded(moved, false), Some(&moved.pack())), Belief::Unchanged);
    // After a crash the window is what counts, from the time that was told.
    let crashed = recorded(standing, true);
    let at = |change_ns| judge(&crashed, Some(&changed_at(change_ns).at(0).pack()));
    assert_eq!(at(standing.now_ns + 3 * S), Belief::Unchanged);
    assert_eq!(at(standing.now_ns + 3 * S + 1), Belief::Unknown);
}

/// Both the heartbeat's time and the change time are cut down to whole seconds.
#[test]
fn the_window_holds_on_file_systems_that_count_seconds() {
    let cut = |ns: i64| ns / S * S;
    for tenths in 0..10 {
        let now_ns = 101 * S + tenths * S / 10;
        let then = Stamped { now_ns: cut(now_ns), ..THEN };
        // Our last write, as late as it may be.
        let last = changed_at(cut(now_ns + WINDOW_NS));
        let crashed = recorded(then, true);
        assert_eq!(judge(&crashed, Some(&last.at(0).pack())), Belief::Unchanged, "{tenths}");
    }
}

#[test]
fn times_at_the_ends_of_the_scale_do_not_overflow() {
    let end = Stamped { now_ns: i64::MAX, ..THEN };
    let crashed = recorded(end, true);
    assert_eq!(judge(&crashed, Some(&changed_at(i64::MAX).at(0).pack())), Belief::Unchanged);
}

/// The window is worth nothing if the engine asks less often.
#[test]
fn the_period_is_the_engines() {
    let heartbeat_ns = cinnabar_engine::Config::default().heartbeat_ns;
    assert_eq!(i64::try_from(heartbeat_ns), Ok(PERIOD_NS));
}

#[test]
fn another_host_may_number_the_device_otherwise_and_nothing_else() {
    let now = THEN.pack();
    let of = |then: Stamped| judge_elsewhere(&recorded(then, false), Some(&now));
    let with = |change: fn(&mut Seen)| {
        let mut seen = THEN.seen;
        change(&mut seen);
        Stamped { seen, ..THEN }
    };
    assert_eq!(of(THEN), Belief::Unchanged);
    assert_eq!(of(with(|seen| seen.device += 1)), Belief::Unchanged);
    assert_eq!(judge(&recorded(with(|seen| seen.device += 1), false), Some(&now)), Belief::Changed);
    for change in [
        (|seen: &mut Seen| seen.inode += 1) as fn(&mut Seen),
        |seen| seen.birth_ns += 1,
        |seen| seen.size_bytes += 512,
        |seen| seen.change_ns += 1,
        |seen| seen.change_ns -= 1,
    ] {
        assert_eq!(of(with(change)), Belief::Changed);
    }
    // A clock that had not moved past the last write proves nothing.
    let same = Stamped { now_ns: THEN.seen.change_ns, ..THEN };
    assert_eq!(of(same), Belief::Unknown);
    let none = Recorded { proof: None, written: false };
    assert_eq!(judge_elsewhere(&none, Some(&now)), Belief::Unknown);
    assert_eq!(judge_elsewhere(&recorded(THEN, false), None), Belief::Unknown);
}
