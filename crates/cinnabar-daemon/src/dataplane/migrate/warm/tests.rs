//! What is made of lists and answers, without another host.

use super::*;

fn warming(blocks: u64) -> Warming {
    let size_bytes = blocks * BLOCK_BYTES;
    let door = Arc::new(Door::new(size_bytes));
    let settings = WarmSettings { rate_bytes: 1 << 20, ..WarmSettings::default() };
    Warming::new(door, 1, size_bytes, settings, Instant(0))
}

fn block(byte: u8) -> Memory {
    let data = Memory::alloc(1);
    data.write_at(0, &[byte; 4096]);
    data
}

#[test]
fn what_was_changed_or_is_no_block_is_not_asked_for() {
    let mut warm = warming(1000);
    let write = ByteSpan::new(5 * BLOCK_BYTES, 2 * BLOCK_BYTES);
    warm.door.note(&Op::Trim { span: write, fua: false });
    warm.listed = [9, 5, 3, 1000, u64::MAX, 6, 3, 7].into();
    assert_eq!(warm.next_blocks(), [3, 7, 9]);
    assert_eq!(warm.status.skipped, 5);
    warm.listed = (0..1000).filter(|block| *block != 5 && *block != 6).collect();
    let first = warm.next_blocks();
    assert_eq!((first.len(), warm.listed.len()), (wire::BLOCKS_MAX, 998 - wire::BLOCKS_MAX));
}

#[test]
fn neighbours_go_together_within_a_stripe_and_backwards() {
    let mut warm = warming(1000);
    let numbers = [1, 2, 3, 4, 5, 9, 20, 21, 22];
    warm.keep(numbers.map(|number| (number, block(number as u8))).into(), 4);
    let runs: Vec<(u64, Vec<u8>)> = warm
        .runs
        .iter()
        .map(|(first, data)| {
            let count = cinnabar_engine::RawMemory::len_bytes(data) / BLOCK_BYTES;
            (*first, (0..count).map(|at| data.to_vec(at * BLOCK_BYTES, 1)[0]).collect())
        })
        .collect();
    let expected: [(u64, &[u8]); 4] =
        [(20, &[20, 21, 22]), (9, &[9]), (4, &[4, 5]), (1, &[1, 2, 3])];
    assert_eq!(runs, expected.map(|(first, bytes)| (first, bytes.to_vec())));
}

#[test]
fn requests_keep_the_rate() {
    let mut warm = warming(1000);
    let mut now = Instant(5_000_000_000);
    for _ in 0..10 {
        warm.pace(now, 1 << 18);
        now = warm.next_at;
    }
    // Ten times a quarter of a MiB, at a MiB a second.
    assert_eq!(now, Instant(7_500_000_000));
    // Time in which nothing was asked for is not made up for.
    warm.pace(Instant(20_000_000_000), 1 << 20);
    assert_eq!(warm.next_at, Instant(21_000_000_000));
}

#[test]
fn proofs_are_read_back() {
    let each: Vec<String> = (0..64).map(|byte| format!("{byte:02x}")).collect();
    let text = each.concat();
    let mut bytes = [0; 64];
    bytes.iter_mut().zip(0..).for_each(|(byte, number)| *byte = number);
    assert_eq!(proof_of(&text), Some(ProofToken(bytes)));
    let umlauts = "\u{e4}".repeat(64);
    for bad in ["", "00", &text[2..], &text.replace('0', "g"), &umlauts, &format!("{text}0")] {
        assert_eq!(proof_of(bad), None, "{bad:?}");
    }
}

#[test]
fn a_host_that_answers_others_is_asked_again_and_again() {
    let mut warm = warming(1000);
    warm.listed = [7, 8].into();
    let refused = |again, busy| Refused { reason: String::new(), again, busy };
    for _ in 0..2 * FAILURES_MAX {
        assert!(warm.goes_on(Instant(5), &refused(true, true), vec![3, 4]));
        assert_eq!(warm.next_at, after(Instant(5), BUSY_PAUSE));
        assert_eq!(warm.listed, [3, 4, 7, 8]);
        warm.listed.drain(..2);
    }
    assert_eq!((warm.status.skipped, warm.failures), (0, 0));
    for _ in 1..FAILURES_MAX {
        assert!(warm.goes_on(Instant(5), &refused(true, false), vec![3]));
    }
    assert!(!warm.goes_on(Instant(5), &refused(true, false), vec![4]));
    assert_eq!((warm.status.skipped, warm.listed.len()), (u64::from(FAILURES_MAX), 2));
    assert!(!warming(1).goes_on(Instant(5), &refused(false, false), vec![]));
}

#[test]
fn what_is_offered_is_no_large_or_sequential_read() {
    for (limits, most) in [
        ([0, 0], RUN_BLOCKS_MAX),
        ([1 << 20, 0], RUN_BLOCKS_MAX),
        ([65_536, 0], 8),
        ([0, 65_537], RUN_BLOCKS_MAX),
        ([1 << 20, 32_768], 4),
        ([4096, 0], 1),
        ([1, u64::MAX], 1),
    ] {
        assert_eq!(run_blocks_max(limits), most, "{limits:?}");
    }
}
