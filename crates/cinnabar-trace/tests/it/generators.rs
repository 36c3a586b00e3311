//! The generators with few parameters: the trace has the requested properties, and stays the same
//! between versions.

use cinnabar_trace::generate::boot_storm::{self, BootStorm};
use cinnabar_trace::generate::file_server::{self, Content, FileServer, Volumes};
use cinnabar_trace::generate::mix::{self, Mix};
use cinnabar_trace::generate::sixteen::{self, Kind, Sixteen, VOLUMES};
use cinnabar_trace::generate::working_set::{self, Sharing};
use cinnabar_trace::generate::zipf::{self, Zipf};
use cinnabar_trace::generate::{Error, Lengths};
use cinnabar_trace::{Op, Record};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// FNV-1a over every field of the first so many requests.
fn digest(records: impl Iterator<Item = Record>) -> u64 {
    records.take(20_000).fold(0xcbf2_9ce4_8422_2325_u64, |digest, record| {
        let Record { ts_us, volume, op, offset_bytes, length_bytes } = record;
        [ts_us, u64::from(volume), op as u64, offset_bytes, length_bytes]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .fold(digest, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    })
}

const FILES: file_server::Settings = file_server::Settings {
    access: working_set::Settings {
        hosts: 2,
        threads: 3,
        working_set_blocks: 1 << 16,
        total_blocks: 1 << 20,
        outside_share: 0.2,
        write_share: 0.3,
        sharing: Sharing::Shared,
        seed: 1,
    },
    content: Content::Files { run_blocks: 16 },
    volumes: Volumes::Server,
    per_second: 1000.0,
};

/// Each generator with a seed, by name.
fn all(seed: u64) -> [(&'static str, Box<dyn Iterator<Item = Record>>); 6] {
    let access = working_set::Settings { seed, ..FILES.access };
    let files = file_server::Settings { access, ..FILES };
    let blocks = file_server::Settings { content: Content::Blocks, ..files };
    let good = "good settings";
    [
        ("zipf", Box::new(Zipf::new(zipf::Settings { seed, ..Default::default() }).expect(good))),
        ("mix", Box::new(Mix::new(mix::Settings { seed, ..Default::default() }).expect(good))),
        (
            "sixteen",
            Box::new(Sixteen::new(sixteen::Settings { seed, ..Default::default() }).expect(good)),
        ),
        ("file-server", Box::new(FileServer::new(blocks).expect(good))),
        ("files", Box::new(FileServer::new(files).expect(good))),
        (
            "boot-storm",
            Box::new(
                BootStorm::new(boot_storm::Settings { seed, ..Default::default() }).expect(good),
            ),
        ),
    ]
}

#[test]
fn a_seed_gives_the_same_requests_for_ever() {
    let digests = |seed| all(seed).map(|(name, records)| (name, digest(records)));
    assert_eq!(
        digests(1),
        [
            ("zipf", 12_582_709_562_047_130_390),
            ("mix", 12_817_398_460_196_707_943),
            ("sixteen", 2_707_571_556_411_130_861),
            ("file-server", 17_450_264_208_834_997_567),
            ("files", 14_765_563_334_612_644_743),
            ("boot-storm", 7_797_384_626_527_628_915),
        ],
        "a model changed: say so in the changelog"
    );
    for ((name, one), (_, two)) in digests(1).iter().zip(digests(2)) {
        assert_ne!(*one, two, "{name}");
    }
}

#[test]
fn requests_are_in_order_and_whole_blocks() {
    for (name, records) in all(3) {
        let mut last = 0;
        for record in records.take(50_000) {
            assert!(record.ts_us >= last, "{name}");
            last = record.ts_us;
            assert!(record.offset_bytes % 4096 == 0 && record.length_bytes % 4096 == 0, "{name}");
            assert!(record.length_bytes > 0, "{name}");
        }
    }
}

fn share<'a>(records: impl IntoIterator<Item = &'a Record>, of: impl Fn(&Record) -> bool) -> f64 {
    let (mut some, mut all) = (0_u32, 0_u32);
    for record in records {
        some += u32::from(of(record));
        all += 1;
    }
    f64::from(some) / f64::from(all.max(1))
}

fn is_write(record: &Record) -> bool {
    record.op == Op::Write
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The slope of frequency over rank, on a log scale, is the exponent.
    #[test]
    fn zipf_is_zipf(alpha in 0.3..1.6_f64, write_share in 0.0..=1.0_f64, seed: u64) {
        let lengths = Lengths::new(&[(1, 1.0)]).expect("a length");
        let settings = zipf::Settings {
            footprint_blocks: 10_000, alpha, write_share, lengths, per_second: 200.0, seed,
        };
        let records: Vec<Record> = Zipf::new(settings).expect("good").take(200_000).collect();
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        for record in &records {
            *counts.entry(record.offset_bytes).or_default() += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by_key(|count| u32::MAX - count);
        // The first blocks, in two groups far apart, so that chance is small in each.
        let sum = |ranks: std::ops::Range<usize>| counts[ranks].iter().sum::<u32>();
        let expected = |ranks: std::ops::RangeInclusive<u32>| -> f64 {
            ranks.map(|rank| f64::from(rank).powf(-alpha)).sum()
        };
        let measured = f64::from(sum(0..10)) / f64::from(sum(0..100));
        let wanted = expected(1..=10) / expected(1..=100);
        // Sorting by count moves chance's favourites up, which matters where all are nearly alike.
        prop_assert!((measured / wanted - 1.0).abs() < 0.1, "{} {}", measured, wanted);
        prop_assert!((share(&records, is_write) - write_share).abs() < 0.006);
        let seconds = records.last().map_or(0.0, |last| last.ts_us as f64 / 1e6);
        prop_assert!((200_000.0 / seconds / 200.0 - 1.0).abs() < 0.012, "{}", seconds);
    }

    #[test]
    fn a_mix_has_its_shares(loop_share in 0.0..0.5_f64, scan_share in 0.0..0.5_f64, seed: u64) {
        let settings = mix::Settings {
            loop_blocks: 4096, loop_share, scan_blocks: 512, scan_share, seed,
            zipf_blocks: 8192, lengths: Lengths::new(&[(1, 1.0)]).expect("a length"),
            ..mix::Settings::default()
        };
        let records: Vec<Record> = Mix::new(settings).expect("good").take(50_000).collect();
        prop_assert!((share(&records, is_write) - 0.2).abs() < 0.01);
        let background = 8192 * 4096;
        let writes_stay = records.iter().filter(|record| is_write(record));
        prop_assert!(writes_stay.clone().all(|record| record.offset_bytes < background));
        let reads: Vec<Record> = records.into_iter().filter(|record| !is_write(record)).collect();
        // Loops and scans ask for 64 KiB but for a last piece; the background for 4 KiB.
        let long = share(&reads, |record| record.length_bytes > 4096);
        prop_assert!((long - loop_share - scan_share).abs() < 0.015, "{}", long);
        // The loop goes on where it was, whatever comes between.
        let looped: Vec<&Record> =
            reads.iter().filter(|record| record.offset_bytes >= background).collect();
        let steps = looped.windows(2).filter(|pair| {
            let next = pair[0].offset_bytes + pair[0].length_bytes;
            pair[1].offset_bytes == next || pair[1].offset_bytes == background
        });
        // Scans come into the loop's area, too.
        if scan_share == 0.0 && looped.len() > 1 {
            prop_assert_eq!(steps.count(), looped.len() - 1);
        }
    }
}

#[test]
fn the_sixteen_are_what_the_table_says() {
    let settings = sixteen::Settings { scale: 0.02, days: 1, seed: 9 };
    let mut by_volume: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
    for record in Sixteen::new(settings).expect("good settings") {
        by_volume.entry(record.volume as usize).or_default().push(record);
    }
    assert_eq!(by_volume.len(), VOLUMES.len());
    for (number, records) in &by_volume {
        let row = &VOLUMES[*number];
        let expected = row.per_second * settings.scale * 86_400.0;
        let count = records.len() as f64;
        assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{}: {count}", row.name);
        let writes = share(records, is_write);
        let error = 5.0 * (0.25 / count).sqrt();
        assert!((writes - f64::from(row.write_percent) / 100.0).abs() < error, "{}", row.name);
        let end = records.iter().map(|record| record.offset_bytes + record.length_bytes).max();
        let whole = row.footprint_blocks(settings.scale) * 4096;
        assert!(end.is_some_and(|end| end <= whole && end > whole / 10 * 4), "{}", row.name);
        // Three times as many in a busy hour as in another.
        let busy_hours = f64::from(row.busy.1 - row.busy.0);
        let is_busy = |record: &Record| {
            let hour = (record.ts_us / 3_600_000_000) as u32;
            (row.busy.0..row.busy.1).contains(&hour)
        };
        let wanted = busy_hours * 3.0 / (busy_hours * 3.0 + 24.0 - busy_hours);
        assert!((share(records, is_busy) - wanted).abs() < error, "{}", row.name);
    }
}

/// What the issue asks of the set.
#[test]
fn the_sixteen_are_of_three_kinds() {
    let of = |kind| VOLUMES.iter().filter(move |row| row.kind == kind);
    let count = |kind| of(kind).count();
    assert_eq!([count(Kind::Written), count(Kind::Read), count(Kind::Mixed)], [8, 4, 4]);
    assert!(of(Kind::Written).all(|row| (60..=95).contains(&row.write_percent)));
    assert!(of(Kind::Read).all(|row| row.write_percent < 50 && row.looped_percent >= 40));
    assert!(VOLUMES.iter().all(|row| (0.5..=20.0).contains(&row.footprint_gib)));
    let names: BTreeSet<&str> = VOLUMES.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), 16);
    for row in &VOLUMES {
        assert!(row.busy.0 < row.busy.1 && row.busy.1 <= 24, "{}", row.name);
        assert!(row.looped_percent + row.scanned_percent + row.read_back_percent <= 100);
        assert!(row.written_percent + row.loop_percent <= 100);
    }
}

#[test]
fn hosts_and_threads_are_volumes_if_asked_to_be() {
    for (volumes, most) in [(Volumes::Server, 1), (Volumes::Host, 2), (Volumes::Thread, 6)] {
        let settings = file_server::Settings { volumes, ..FILES };
        let server = FileServer::new(settings).expect("good settings");
        let seen: BTreeSet<u32> = server.take(100).map(|record| record.volume).collect();
        assert!(seen.into_iter().eq(0..most), "{volumes:?}");
    }
}

#[test]
fn files_are_those_of_impressions() {
    let access = working_set::Settings { total_blocks: 1 << 25, ..FILES.access };
    let settings = file_server::Settings { access, ..FILES };
    let mut server = FileServer::new(settings).expect("good settings");
    let (files, directories) = server.population().expect("there are files");
    let per_directory = files as f64 / directories as f64;
    assert!((9.8..10.6).contains(&per_directory), "{per_directory}");
    // 128 GiB: lognormal files have 268 KB on average, the tail adds as much again or more.
    let mean = (1_u64 << 37) as f64 / files as f64;
    assert!((200e3..900e3).contains(&mean), "{mean}");
    let records: Vec<Record> = server.by_ref().take(60_000).collect();
    assert!((share(&records, is_write) - 0.3).abs() < 0.01);
    assert!(records.iter().all(|record| record.length_bytes <= 16 * 4096));
    assert!(share(&records, |record| record.length_bytes == 16 * 4096) > 0.5);
    // Four of five requests fall into a 512th of everything.
    let mut touched: BTreeMap<u64, u32> = BTreeMap::new();
    for record in &records {
        *touched.entry(record.offset_bytes >> 22).or_default() += 1;
    }
    let mut counts: Vec<u32> = touched.into_values().collect();
    counts.sort_unstable_by_key(|count| u32::MAX - count);
    // A working set of 256 MiB is some 400 directories: 4 MiB pieces that hold a part of it are few.
    let hot: u32 = counts.iter().take(1000).sum();
    assert!(f64::from(hot) / 60_000.0 > 0.75, "{hot}");
}

#[test]
fn machines_of_a_storm_boot_alike() {
    let settings = boot_storm::Settings { machines: 20, ..boot_storm::Settings::default() };
    let storm = BootStorm::new(settings).expect("good settings");
    let expected = storm.requests_expected() as f64;
    let records: Vec<Record> = storm.collect();
    assert!((records.len() as f64 / expected - 1.0).abs() < 0.01, "{expected}");
    let writes = share(&records, is_write);
    assert!((0.155..0.165).contains(&writes), "{writes}");
    assert!(records.iter().all(|record| !is_write(record) || record.volume > 0));
    let image = |record: &&Record| record.volume == 0;
    let unique: BTreeSet<u64> = records.iter().filter(image).flat_map(Record::blocks).collect();
    let read: u64 = records.iter().filter(image).map(|record| record.length_bytes / 4096).sum();
    // One boot is what was asked for; 20 of them read the same.
    let one = settings.read_blocks as f64;
    assert!((unique.len() as f64 / one - 1.0).abs() < 0.02, "{}", unique.len());
    assert!((read as f64 / one / 20.0 - 0.95).abs() < 0.02, "{read}");
    assert!(records.iter().all(|record| record.offset_bytes < settings.image_blocks * 4096));
    let volumes: BTreeSet<u32> = records.iter().map(|record| record.volume).collect();
    assert!(volumes.into_iter().eq(0..=20));
    let first = records.iter().find(|record| record.ts_us > settings.window_us);
    assert!(first.is_some(), "the last machine is up after the window");
}

#[test]
fn what_can_not_be_made_is_refused() {
    let zipf = |settings| Zipf::new(settings).expect_err("bad settings").to_string();
    let base = zipf::Settings::default;
    assert!(zipf(zipf::Settings { footprint_blocks: 0, ..base() }).contains("from 16 to"));
    assert!(zipf(zipf::Settings { alpha: -1.0, ..base() }).starts_with("an exponent of -1"));
    assert!(zipf(zipf::Settings { alpha: f64::NAN, ..base() }).contains("NaN"));
    assert!(zipf(zipf::Settings { per_second: 0.0, ..base() }).contains("requests a second of 0"));
    assert!(zipf(zipf::Settings { write_share: 2.0, ..base() }).contains("writes of 2"));
    let mix = mix::Settings { loop_share: 0.7, scan_share: 0.7, ..mix::Settings::default() };
    let error = Mix::new(mix).expect_err("too much");
    assert_eq!(error, Error::Shares("the shares of loop and scans"));
    assert!(!error.hint().is_empty());
    for scale in [0.0, -1.0, 1e9, f64::INFINITY] {
        let settings = sixteen::Settings { scale, ..sixteen::Settings::default() };
        assert!(Sixteen::new(settings).is_err(), "{scale}");
    }
    let boot = |change: fn(&mut boot_storm::Settings)| {
        let mut settings = boot_storm::Settings::default();
        change(&mut settings);
        BootStorm::new(settings).expect_err("bad settings").to_string()
    };
    assert!(boot(|settings| settings.machines = 0).starts_with("machines of 0"));
    assert!(boot(|settings| settings.image_blocks = 1 << 14).contains("four times"));
    assert!(boot(|settings| settings.image_blocks = 1 << 33).contains("an image in blocks"));
    assert!(boot(|settings| settings.window_us = u64::MAX).contains("a window"));
    let bad = file_server::Settings { content: Content::Files { run_blocks: 0 }, ..FILES };
    assert!(FileServer::new(bad).is_err());
    for weights in [&[][..], &[(0, 1.0)], &[(1, 0.0)], &[(5000, 1.0)], &[(1, f64::NAN)]] {
        assert!(Lengths::new(weights).is_err(), "{weights:?}");
    }
}

const GUIDE: &str = include_str!("../../../../docs/guide/traces.md");

/// The guide's tables are the code's.
#[test]
fn the_guide_has_the_same_numbers() {
    for (number, row) in VOLUMES.iter().enumerate() {
        let line = format!(
            "| {number} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} to {} |",
            row.name,
            row.kind.name(),
            row.footprint_gib,
            row.per_second,
            row.write_percent,
            row.alpha,
            row.written_percent,
            row.log_percent,
            row.read_back_percent,
            row.loop_percent,
            row.looped_percent,
            row.scanned_percent,
            row.busy.0,
            row.busy.1
        );
        assert!(GUIDE.contains(&line), "the guide lacks: {line}");
    }
    for phase in boot_storm::PHASES {
        let percent = |share: f64| (share * 1000.0).round() / 10.0;
        let line = format!(
            "| {} | {} % | {} % | {} | {} |",
            phase.name,
            percent(phase.read_share),
            percent(phase.write_share),
            phase.per_second,
            phase.run
        );
        assert!(GUIDE.contains(&line), "the guide lacks: {line}");
    }
    for format in cinnabar_trace::Format::ALL {
        assert!(GUIDE.contains(&format!("`{format}`")), "the guide lacks {format}");
    }
    for number in [file_server::SIZE_MU, file_server::SIZE_SIGMA, file_server::BODY_SHARE] {
        assert!(GUIDE.contains(&number.to_string()), "the guide lacks {number}");
    }
    let gib: f64 = VOLUMES.iter().map(|row| row.footprint_gib).sum();
    let a_day: f64 = VOLUMES.iter().map(|row| row.per_second * 86.4e-3).sum();
    let sums = format!("{gib} GiB and {a_day:.0} million requests a day");
    let words: Vec<&str> = GUIDE.split_whitespace().collect();
    assert!(words.join(" ").contains(&sums), "the guide lacks: {sums}");
}
