//! The SPC-1-like workload against the check values of the public generators: shares, lengths, rate. The
//! hit ratios that only the right walk gives are `cinnabar-study`'s tests, which have caches.

use cinnabar_trace::generate::spc1::{Generator, Io, Mix, STREAMS, Settings, Spc1Error};

const GIB_BLOCKS: u64 = (1 << 30) / 4096;

fn settings(bsu: u32) -> Settings {
    Settings { bsu, mix: Mix::Pblio, asu_blocks: [9, 9, 2].map(|gib| gib * GIB_BLOCKS), seed: 2 }
}

fn ios(settings: Settings, count: usize) -> impl Iterator<Item = Io> {
    Generator::new(settings).expect("sound settings").take(count)
}

/// Within half a per cent.
fn near(what: &str, measured: f64, expected: f64) {
    let off = measured / expected - 1.0;
    println!("{what:12} {measured:.5} for {expected:.5} ({:+.2} %)", off * 100.0);
    assert!(off.abs() <= 0.005, "{what}: {measured} for {expected}");
}

#[test]
fn shares_lengths_and_rate_are_the_published_ones() {
    let count = 4_000_000;
    let mut by_stream = [0_u32; 8];
    let mut smix = [0_u32; 17];
    let (mut reads, mut blocks, mut last_ns) = (0_u32, 0_u64, 0);
    for io in ios(settings(100), count) {
        by_stream[usize::from(io.stream)] += 1;
        if STREAMS[usize::from(io.stream)].sequential() {
            smix[io.blocks as usize] += 1;
        }
        reads += u32::from(!io.write);
        blocks += u64::from(io.blocks);
        assert!(io.at_ns >= last_ns, "times go back");
        last_ns = io.at_ns;
    }
    let share = |part: u32, of: f64| f64::from(part) / of;
    let of = count as f64;
    for (row, ios) in STREAMS.iter().zip(by_stream) {
        near(row.name, share(ios, of), row.intensity);
    }
    let asu = |range: std::ops::Range<usize>| by_stream[range].iter().sum();
    near("ASU1", share(asu(0..4), of), 0.596);
    near("ASU2", share(asu(4..7), of), 0.123);
    near("ASU3", share(asu(7..8), of), 0.281);
    near("reads", share(reads, of), 0.552);
    let sequential = f64::from(smix.iter().sum::<u32>());
    for (blocks, expected) in [(1, 0.400), (2, 0.240), (4, 0.200), (8, 0.080), (16, 0.080)] {
        near("SMIX", share(smix[blocks], sequential), expected);
    }
    near("mean blocks", blocks as f64 / of, 2.00);
    near("IOPS", of / (last_ns as f64 / 1e9), 5000.0);
}

#[test]
fn the_mix_of_spc1_reads_less() {
    let spc1 = Settings { mix: Mix::Spc1, ..settings(100) };
    let reads = ios(spc1, 2_000_000).filter(|io| !io.write).count();
    near("reads", reads as f64 / 2e6, 0.3944);
}

#[test]
fn every_io_lies_in_its_asu() {
    for blocks in [160, 11_520, 20_480, 9 * GIB_BLOCKS] {
        let asu_blocks = [blocks, blocks, (2 * blocks).div_ceil(9).max(60)];
        for io in ios(Settings { asu_blocks, ..settings(250) }, 300_000) {
            assert!(io.block + u64::from(io.blocks) <= asu_blocks[usize::from(io.asu)], "{io:?}");
        }
    }
}

#[test]
fn a_seed_is_a_workload() {
    let digest = |seed| {
        ios(Settings { seed, ..settings(150) }, 10_000)
            .fold(0_u64, |sum, io| sum.rotate_left(5) ^ io.at_ns ^ io.block ^ u64::from(io.write))
    };
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
    // What was once published stays what it was.
    assert_eq!(digest(7), PUBLISHED);
}

const PUBLISHED: u64 = 2_467_589_554_270_702_518;

#[test]
fn more_units_go_on_where_fewer_were() {
    let mut generator = Generator::new(settings(10)).expect("sound");
    let before = (0..1000).map(|_| generator.next_io().at_ns).last().expect("a thousand");
    generator.set_bsu(150).expect("sound");
    let last = (0..150_000).map(|_| generator.next_io()).last().expect("many");
    near("IOPS", 150_000.0 / ((last.at_ns - before) as f64 / 1e9), 7500.0);
    assert_eq!(generator.set_bsu(0), Err(Spc1Error::Units(0)));
    assert_eq!(generator.settings().bsu, 150);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |settings: Settings| Generator::new(settings).expect_err("no workload");
    let sizes = |asu_blocks| Settings { asu_blocks, ..settings(1) };
    for (settings, part) in [
        (settings(0), "from 1 to"),
        (settings(20_001), "from 1 to"),
        (sizes([159, 159, 60]), "without a leaf"),
        (sizes([160, 160, 0]), "at least 2/9"),
        (sizes([160, 160, 40]), "without room"),
        (sizes([11_520, 11_521, 2560]), "one size"),
        (sizes([11_520, 11_520, 2558]), "at least 2/9"),
        (sizes([1 << 41, 1 << 41, 1 << 40]), "too many"),
        (Settings { bsu: 20_000, ..sizes([1 << 38, 1 << 38, 1 << 37]) }, "RAM for the walk"),
    ] {
        let error = refused(settings);
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.hint().is_empty());
    }
}
