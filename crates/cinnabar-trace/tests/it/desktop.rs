//! The desktop generator: what `docs/guide/replay.md` says of its days is so.

use crate::reference::lru;
use cinnabar_trace::generate::desktop::{Desktop, DesktopError, Settings, parameters};
use cinnabar_trace::{Op, Record, TraceError, references};
use std::collections::{HashMap, HashSet};

fn days(settings: Settings) -> Vec<Vec<Record>> {
    let mut days = vec![Vec::new(); settings.days as usize];
    for record in Desktop::new(settings).expect("good settings") {
        days[(record.ts_us / settings.day_us) as usize].push(record);
    }
    days
}

/// FNV-1a over every field.
fn digest(settings: Settings) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for record in Desktop::new(settings).expect("good settings") {
        let Record { ts_us, volume, op, offset_bytes, length_bytes } = record;
        for number in [ts_us, u64::from(volume), op as u64, offset_bytes, length_bytes] {
            for byte in number.to_le_bytes() {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    digest
}

fn reads_and_writes(day: &[Record]) -> impl Iterator<Item = &Record> + Clone {
    day.iter().filter(|record| matches!(record.op, Op::Read | Op::Write))
}

fn blocks<'a>(records: impl Iterator<Item = &'a Record>) -> HashSet<u64> {
    records.flat_map(Record::blocks).collect()
}

/// Part of what was read that was also in `before`.
fn overlap(day: &[Record], before: &[Vec<Record>]) -> f64 {
    let read = blocks(day.iter().filter(|record| record.op == Op::Read));
    let seen = blocks(before.iter().flat_map(|day| reads_and_writes(day)));
    read.intersection(&seen).count() as f64 / read.len() as f64
}

const FIVE_SEEDS: std::ops::Range<u64> = 1..6;

#[test]
fn a_seed_gives_the_same_days_for_ever() {
    let settings = Settings { days: 2, ..Settings::default() };
    assert_eq!(
        digest(settings),
        3_534_416_817_757_587_395,
        "the model changed: say so in the changelog"
    );
    assert_ne!(digest(Settings { seed: 2, ..settings }), digest(settings));
}

#[test]
fn a_day_reads_and_writes_what_desktops_do() {
    for seed in FIVE_SEEDS {
        for day in days(Settings { days: 3, seed, ..Settings::default() }) {
            let count = reads_and_writes(&day).count() as f64;
            assert!((39_000.0..=51_000.0).contains(&count), "{count}");
            let of = |op| reads_and_writes(&day).filter(move |record| record.op == op);
            let bytes = |op| of(op).map(|record| record.length_bytes).sum::<u64>() as f64;
            let reads = of(Op::Read).count() as f64 / count;
            assert!((0.53..=0.57).contains(&reads), "{reads}");
            let read = bytes(Op::Read) / (bytes(Op::Read) + bytes(Op::Write));
            assert!((0.64..=0.70).contains(&read), "{read}");
            let mean = (bytes(Op::Read) + bytes(Op::Write)) / count;
            assert!((14_000.0..=18_000.0).contains(&mean), "{mean}");
            assert!(day.len() as f64 > count, "flushes are among them");
        }
    }
}

#[test]
fn most_of_what_a_day_reads_was_seen_in_the_three_days_before() {
    for seed in FIVE_SEEDS {
        let all = days(Settings { days: 10, seed, ..Settings::default() });
        let seen: Vec<f64> = (3..10).map(|day| overlap(&all[day], &all[day - 3..day])).collect();
        assert!(seen.iter().all(|seen| (0.80..=0.97).contains(seen)), "{seen:?}");
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        assert!((0.85..=0.95).contains(&mean), "{seen:?}");
        // One day before is less: what is new is a matter of days, not of a clean cut.
        let one: f64 = (3..10).map(|day| overlap(&all[day], &all[day - 1..day])).sum::<f64>() / 7.0;
        assert!((0.65..mean - 0.05).contains(&one), "{one} after {mean}");
    }
}

#[test]
fn about_half_of_what_is_written_is_written_again_within_a_day() {
    let settings = Settings { days: 6, ..Settings::default() };
    let mut written: HashMap<u64, u64> = HashMap::new();
    let (mut again, mut all) = (0_u64, 0_u64);
    for record in Desktop::new(settings).expect("good settings") {
        for block in record.blocks().filter(|_| record.op == Op::Write) {
            all += 1;
            let before = written.insert(block, record.ts_us);
            let soon = |ts_us| record.ts_us - ts_us <= settings.day_us;
            again += u64::from(before.is_some_and(soon));
        }
    }
    let share = again as f64 / all as f64;
    assert!((0.40..=0.55).contains(&share), "{share}");
}

/// The baseline: what a plain cache of 4 GiB would make of the fourth day.
#[test]
fn an_lru_cache_gets_warm_in_three_days() {
    let all = days(Settings::default());
    let misses = |from: usize, to: usize| {
        let records = all[from..to].iter().flatten().map(|record| Ok::<_, TraceError>(*record));
        let references: Vec<_> =
            references(records).collect::<Result<_, _>>().expect("records are no errors");
        let reads = references.iter().filter(|reference| !reference.write).count() as f64;
        (lru(&references, 1 << 20).read_misses as f64, reads)
    };
    let (cold, reads) = misses(3, 4);
    let (all_misses, _) = misses(0, 4);
    let warm = all_misses - misses(0, 3).0;
    assert!(cold / reads > 0.8, "a guest's memory keeps what it needs: {cold} of {reads}");
    assert!(warm / reads < 0.15, "{warm} of {reads}");
}

#[test]
fn every_morning_reads_the_same_files_first() {
    let all = days(Settings::default());
    let boot =
        |day: &[Record]| blocks(day.iter().filter(|record| record.op == Op::Read).take(5000));
    for pair in all.windows(2) {
        let (before, now) = (boot(&pair[0]), boot(&pair[1]));
        let same = now.intersection(&before).count() as f64 / now.len() as f64;
        assert!((0.9..1.0).contains(&same), "{same}");
    }
}

#[test]
fn records_are_in_order_on_the_disk_and_by_day() {
    let hour_us = 3_600_000_000;
    let cases = [
        Settings { days: 3, ..Settings::default() },
        Settings {
            days: 3,
            requests_per_day: 1000,
            disk_bytes: 128_000 << 10,
            ..Settings::default()
        },
        Settings {
            days: 30,
            requests_per_day: 2000,
            disk_bytes: 256_000 << 10,
            ..Settings::default()
        },
        Settings { days: 2, requests_per_day: 300_000, ..Settings::default() },
    ];
    for settings in cases {
        let mut last = 0;
        let mut partial = 0;
        let mut single = 0;
        for record in Desktop::new(settings).expect("good settings") {
            assert!(record.ts_us >= last && record.volume == 0, "{record:?}");
            last = record.ts_us;
            let of_day = record.ts_us % settings.day_us;
            assert!((8 * hour_us..19 * hour_us).contains(&of_day), "{record:?}");
            assert!(record.offset_bytes + record.length_bytes <= settings.disk_bytes);
            assert!(record.length_bytes <= 64 << 10 && record.offset_bytes.is_multiple_of(512));
            if record.op == Op::Flush {
                continue;
            }
            assert!(record.length_bytes > 0 && record.length_bytes.is_multiple_of(512));
            let whole = record.offset_bytes.is_multiple_of(4096)
                && record.length_bytes.is_multiple_of(4096);
            assert!(whole || (record.op == Op::Write && record.blocks().count() == 1));
            partial += u32::from(!whole);
            single += u32::from(record.op == Op::Write && record.blocks().count() == 1);
        }
        assert_eq!(last / settings.day_us, u64::from(settings.days) - 1);
        // An eighth of an eighth of the partial ones is whole by chance.
        let share = f64::from(partial) / f64::from(single);
        assert!((0.03..=0.07).contains(&share), "{share}");
    }
    let whole = Settings { partial_writes: 0.0, ..cases[1] };
    let aligned = |record: Record| (record.offset_bytes | record.length_bytes).is_multiple_of(4096);
    assert!(Desktop::new(whole).expect("good settings").all(aligned));
}

#[test]
fn a_shorter_day_is_the_same_day() {
    let long = Settings { days: 2, ..Settings::default() };
    let short = Settings { day_us: 3_600_000_000, ..long };
    let requests = |settings: Settings| {
        let mut all: Vec<_> = Desktop::new(settings)
            .expect("good settings")
            .map(|record| {
                (record.ts_us / settings.day_us, record.offset_bytes, record.length_bytes)
            })
            .collect();
        all.sort_unstable();
        all
    };
    assert_eq!(requests(long), requests(short));
}

#[test]
fn a_scan_comes_on_top_and_only_if_asked_for() {
    let scanned = days(Settings { days: 4, scan_every_days: 2, ..Settings::default() });
    let plain = days(Settings { days: 4, ..Settings::default() });
    for (nth, (scanned, plain)) in scanned.iter().zip(&plain).enumerate() {
        let more = scanned.len() - plain.len();
        // A tenth of 40 GiB in pieces of 64 KiB.
        assert!(if nth % 2 == 1 { (65_000..66_000).contains(&more) } else { more == 0 }, "{more}");
    }
    let last = scanned[1].last().expect("records");
    assert_eq!((last.op, last.length_bytes), (Op::Read, 64 << 10));
}

#[test]
fn what_no_desktop_can_have_is_refused() {
    let good = Settings::default();
    let too_many = parameters::REQUESTS_MAX + 1;
    let small = DesktopError::SmallDisk {
        disk_bytes: 5 << 30,
        requests_per_day: 45_000,
        bytes_min: 45_000 * parameters::DISK_BYTES_PER_REQUEST,
    };
    let cases = [
        (Settings { days: 0, ..good }, DesktopError::Days(0)),
        (Settings { days: 3661, ..good }, DesktopError::Days(3661)),
        (Settings { requests_per_day: 999, ..good }, DesktopError::Requests(999)),
        (Settings { requests_per_day: too_many, ..good }, DesktopError::Requests(too_many)),
        (Settings { disk_bytes: 5 << 30, ..good }, small),
        (Settings { disk_bytes: 1 << 53, ..good }, DesktopError::LargeDisk(1 << 53)),
        (Settings { day_us: 0, ..good }, DesktopError::Day(0)),
        (Settings { day_us: u64::MAX, ..good }, DesktopError::Day(u64::MAX)),
        (Settings { partial_writes: 1.5, ..good }, DesktopError::PartialWrites(1.5)),
    ];
    for (bad, error) in cases {
        assert_eq!(Desktop::new(bad).err(), Some(error));
    }
    let not_a_number = Settings { partial_writes: f64::NAN, ..good };
    assert!(matches!(Desktop::new(not_a_number), Err(DesktopError::PartialWrites(_))));
}

#[test]
fn shares_are_the_whole_of_a_day() {
    let shares = parameters::SHARES;
    let sum = shares.boot_reads
        + shares.boot_writes
        + shares.logon_reads
        + shares.logon_writes
        + shares.application_reads
        + shares.document_reads
        + shares.document_writes
        + shares.browser_reads
        + shares.browser_writes
        + shares.background_reads
        + shares.journal_writes
        + shares.metadata_writes
        + shares.paging_writes
        + shares.update_writes;
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
}
