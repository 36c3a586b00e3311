//! Holland's working sets: shares, who asks where, and that the order of asking changes nothing.

use cinnabar_trace::generate::Error;
use cinnabar_trace::generate::working_set::{Access, Settings, Sharing, THREADS_MAX, WorkingSet};
use proptest::prelude::*;

const SMALL: Settings = Settings {
    hosts: 3,
    threads: 4,
    working_set_blocks: 1000,
    total_blocks: 100_000,
    outside_share: 0.2,
    write_share: 0.3,
    sharing: Sharing::Private,
    seed: 5,
};

fn of(settings: Settings) -> WorkingSet {
    WorkingSet::new(settings).expect("good settings")
}

/// FNV-1a over what twelve threads ask for in turn.
#[test]
fn a_seed_gives_the_same_accesses_for_ever() {
    let digest = |settings| {
        let mut set = of(settings);
        (0..24_000_u32).fold(0xcbf2_9ce4_8422_2325_u64, |digest, number| {
            let Access { host, block, write, .. } = set.next(number % 12);
            [u64::from(host), block, u64::from(write)]
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .fold(digest, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        })
    };
    assert_eq!(
        digest(SMALL),
        8_352_889_181_656_207_142,
        "the model changed: say so in the changelog"
    );
    assert_ne!(digest(Settings { seed: 6, ..SMALL }), digest(SMALL));
}

#[test]
fn the_order_of_asking_changes_nothing() {
    let by_turns = {
        let mut set = of(SMALL);
        let mut asked = vec![Vec::new(); 12];
        for number in 0..1200_u32 {
            asked[(number % 12) as usize].push(set.next(number % 12));
        }
        asked
    };
    let mut set = of(SMALL);
    for thread in (0..12).rev() {
        let alone: Vec<Access> = (0..100).map(|_| set.next(thread)).collect();
        assert_eq!(alone, by_turns[thread as usize], "thread {thread}");
        assert!(alone.iter().all(|access| access.host == thread / 4));
    }
}

#[test]
fn no_two_threads_ask_for_the_same() {
    let mut set = of(Settings { sharing: Sharing::Shared, ..SMALL });
    let first: Vec<Vec<u64>> =
        (0..12).map(|thread| (0..8).map(|_| set.next(thread).block).collect()).collect();
    for (number, blocks) in first.iter().enumerate() {
        assert!(!first[..number].contains(blocks), "{blocks:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Five standard deviations of 100,000 draws are below 0.008; writes and places are independent.
    #[test]
    fn shares_are_what_was_asked_for(
        outside_share in 0.0..=1.0,
        write_share in 0.0..=1.0,
        seed: u64,
        shared: bool,
    ) {
        let sharing = if shared { Sharing::Shared } else { Sharing::Private };
        let mut set = of(Settings { outside_share, write_share, seed, sharing, ..SMALL });
        let draws = 100_008;
        let (mut writes, mut inside, mut writes_inside, mut sum) = (0, 0, 0, 0.0);
        for number in 0..draws {
            let Access { host, block, write, .. } = set.next(number % 12);
            prop_assert!(block < SMALL.total_blocks && host < SMALL.hosts);
            let first = if shared { 0 } else { u64::from(host) * SMALL.working_set_blocks };
            let is_inside = (first..first + SMALL.working_set_blocks).contains(&block);
            writes += u32::from(write);
            inside += u32::from(is_inside);
            writes_inside += u32::from(write && is_inside);
            sum += if is_inside { (block - first) as f64 } else { 0.0 };
        }
        let share = |count: u32| f64::from(count) / f64::from(draws);
        prop_assert!((share(writes) - write_share).abs() < 0.008);
        // What goes anywhere meets the working set, too: 1 % of it here.
        let expected_inside = 1.0 - outside_share * 0.99;
        prop_assert!((share(inside) - expected_inside).abs() < 0.008);
        prop_assert!((share(writes_inside) - write_share * expected_inside).abs() < 0.008);
        // All blocks of the set alike: their mean is in its middle.
        let deviation = 1000.0 / 12.0_f64.sqrt() / f64::from(inside.max(1)).sqrt();
        prop_assert!((sum / f64::from(inside.max(1)) - 499.5).abs() < 5.0 * deviation);
    }
}

#[test]
fn what_can_not_be_is_refused() {
    let cases = [
        (Settings { hosts: 0, ..SMALL }, "a number of hosts of 0"),
        (Settings { threads: 0, ..SMALL }, "threads a host of 0"),
        (Settings { hosts: 2, threads: THREADS_MAX, ..SMALL }, "threads a host of 65536"),
        (Settings { working_set_blocks: 0, ..SMALL }, "a working set in blocks of 0"),
        (Settings { total_blocks: 0, ..SMALL }, "a total in blocks of 0"),
        (Settings { total_blocks: 1 << 41, ..SMALL }, "a total in blocks of 2199023255552"),
        (Settings { total_blocks: 2999, ..SMALL }, "working sets need 3000 blocks"),
        (Settings { outside_share: 1.5, ..SMALL }, "a share outside the working set of 1.5"),
        (Settings { write_share: -0.1, ..SMALL }, "a share of writes of -0.1"),
        (Settings { write_share: f64::NAN, ..SMALL }, "a share of writes of NaN"),
    ];
    for (settings, words) in cases {
        let error: Error = WorkingSet::new(settings).expect_err(words);
        assert!(error.to_string().starts_with(words), "{error}");
        assert!(!error.hint().is_empty());
    }
    // All share one: it fits.
    of(Settings { total_blocks: 1000, sharing: Sharing::Shared, ..SMALL });
}
