//! Tests of the log's reader and of the images made from it.

use super::sample::{DISCARD, FLUSH, FUA, MARK, Sample, model, random};
use super::{Change, DiskLog, Entry, Piece, Replay, SECTOR, entries_so_far, survivors};
use crate::rng::Rng;
use anyhow::Result;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use tempfile::TempDir;

/// Sectors of the disks.
const DISK: u64 = 64;
/// Bytes that are never torn.
const WHOLE: Range<u64> = 5 * SECTOR..9 * SECTOR;

/// A folder with a log.
struct Place(TempDir);

impl Place {
    fn new(sample: &Sample) -> Result<Self> {
        let place = Self(tempfile::tempdir()?);
        std::fs::write(place.path("log"), &sample.bytes)?;
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn log(&self) -> Result<DiskLog> {
        DiskLog::open(&self.path("log"), DISK * SECTOR)
    }

    fn replay(&self) -> Result<Replay> {
        let base = self.path("base");
        File::create(&base)?.set_len(DISK * SECTOR)?;
        let base = File::options().read(true).write(true).open(base)?;
        Ok(Replay::new(self.log()?, base))
    }

    /// The image, a byte a sector; each sector must be whole.
    fn image(&self, replay: &Replay, pieces: &[Piece]) -> Result<Vec<u8>> {
        replay.image(&self.path("image"), pieces)?;
        let bytes = std::fs::read(self.path("image"))?;
        assert_eq!(bytes.len() as u64, DISK * SECTOR);
        let sectors = bytes.chunks(SECTOR as usize);
        assert!(sectors.clone().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        Ok(sectors.map(|sector| sector[0]).collect())
    }
}

fn refused(sample: &Sample) -> String {
    let place = Place::new(sample).expect("a folder");
    let error = place.log().expect_err("it was taken");
    format!("{error:#}")
}

#[test]
fn entries_are_read() -> Result<()> {
    for unit in [512, 4096] {
        let mut sample = Sample::new(unit);
        sample.write(2, 3, 0, 7);
        sample.entry(1, 1, DISCARD, 0);
        sample.entry(0, 0, MARK, 9);
        sample.entry(0, 0, FLUSH, 0);
        sample.write(0, 1, FLUSH | FUA, 8);
        let place = Place::new(&sample)?;
        let unit = unit as u64;
        let log = place.log()?;
        let at = |unit_number: u64| Some(unit_number * unit);
        let change = |first: u64, count: u64, data_at| {
            Some(Change { range: first * unit..(first + count) * unit, data_at })
        };
        let entry = |flushes, durable, change| Entry { flushes, durable, change };
        let expected = [
            entry(false, false, change(2, 3, at(2))),
            entry(false, false, change(1, 1, None)),
            entry(false, false, None),
            entry(true, false, None),
            entry(true, true, change(0, 1, at(9))),
        ];
        assert_eq!(log.entries(), expected);
        assert_eq!(log.points(), [0, 3, 4]);
        assert_eq!([0, 3, 4].map(|point| log.window(point)), [0..3, 3..4, 4..5]);
        assert_eq!(entries_so_far(&place.path("log"))?, 5);
    }
    Ok(())
}

#[test]
fn bad_logs_are_refused() {
    let good = random(DISK, 40, 1);
    let with = |change: &dyn Fn(&mut Sample)| {
        let mut bad = good.clone();
        change(&mut bad);
        refused(&bad)
    };
    assert!(with(&|bad| bad.set(0, 5)).contains("no log of writes"));
    assert!(with(&|bad| bad.set(1, 2)).contains("version 2"));
    assert!(with(&|bad| bad.set(2, 41)).contains("entry 40 of 41"));
    assert!(with(&|bad| bad.set(2, u64::MAX)).contains("more than"));
    for unit in [0, 256, 513, 8192] {
        assert!(with(&|bad| bad.set(3, unit)).contains("in sectors of"), "{unit}");
    }
    assert!(with(&|bad| bad.bytes.truncate(20)).contains("no superblock"));
    assert!(with(&|bad| bad.bytes.truncate(bad.bytes.len() - 1)).contains("the log ends"));
    assert!(with(&|bad| bad.entry(0, 0, 32, 0)).contains("unknown flags"));
    assert!(with(&|bad| bad.entry(0, 0, MARK, 481)).contains("a mark of 481 bytes"));
    for (first, count) in [(DISK, 1), (DISK - 1, 2), (u64::MAX, 1), (1, u64::MAX), (1 << 60, 1)] {
        let told = with(&|bad| bad.entry(first, count, DISCARD, 0));
        assert!(told.contains("of a disk of"), "{first} {count}: {told}");
    }
    // Data that would lie behind the log's end.
    assert!(with(&|bad| bad.entry(0, 4, 0, 0)).contains("amid its data"));
}

#[test]
fn no_bytes_make_the_reader_panic() -> Result<()> {
    let mut rng = Rng::new(7);
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut sample = random(DISK, 12, seed);
        for _ in 0..=rng.below(4) {
            let headers = sample.bytes.len() as u64 / 512;
            let at = rng.below(headers) * 512 + rng.below(32);
            sample.bytes[at as usize] = rng.roll() as u8;
        }
        let place = Place::new(&sample)?;
        match place.log() {
            Ok(log) => {
                taken += 1;
                log.points()
                    .into_iter()
                    .for_each(|point| assert!(log.window(point).start == point));
                let mut replay = place.replay()?;
                replay.advance(log.entries().len())?;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 20 && refused > 20, "{taken} taken, {refused} refused");
    Ok(())
}

#[test]
fn a_point_holds_what_its_flush_covers() -> Result<()> {
    for seed in 0..20 {
        let sample = random(DISK, 60, seed);
        let place = Place::new(&sample)?;
        let mut replay = place.replay()?;
        let entries = replay.log().entries().to_vec();
        for point in replay.log().points() {
            replay.advance(point)?;
            assert_eq!(place.image(&replay, &[])?, model(DISK, &sample, &entries[..point]));
        }
        replay.advance(entries.len())?;
        replay.image(&place.path("end"), &[])?;
        assert_eq!(replay.first_difference(&place.path("end"))?, None);
    }
    Ok(())
}

/// Each sector is as the point's flush left it, or as a write behind it did, and what was answered
/// as durable is there if anything behind it is.
#[test]
fn survivors_are_what_a_disk_may_hold() -> Result<()> {
    let (mut torn, mut lost, mut kept) = (0, 0, 0);
    for seed in 0..30 {
        let sample = random(DISK, 60, seed);
        let place = Place::new(&sample)?;
        let mut replay = place.replay()?;
        let entries = replay.log().entries().to_vec();
        for point in replay.log().points() {
            replay.advance(point)?;
            let window = replay.log().window(point);
            let mut rng = Rng::new(seed * 1000 + point as u64);
            let pieces = survivors(&entries, window.clone(), &WHOLE, &mut rng);
            let again = survivors(
                &entries,
                window.clone(),
                &WHOLE,
                &mut Rng::new(seed * 1000 + point as u64),
            );
            assert_eq!(pieces, again, "the same seed, the same image");
            assert!(pieces.iter().all(|piece| window.contains(&piece.entry)));
            for piece in pieces.iter().filter(|piece| piece.sectors.is_some()) {
                let range = entries[piece.entry].change.clone().expect("it changes the disk").range;
                assert!(range.end <= WHOLE.start || WHOLE.end <= range.start, "{range:?} is torn");
            }
            torn += pieces.iter().filter(|piece| piece.sectors.is_some()).count();
            kept += pieces.len();
            let changes = window.clone().filter(|&entry| entries[entry].change.is_some());
            lost += changes.count() - pieces.len();
            let last = pieces.last().map_or(0, |piece| piece.entry);
            let durable = window.clone().take_while(|&entry| entry < last);
            for entry in
                durable.filter(|&entry| entries[entry].durable && entries[entry].change.is_some())
            {
                assert!(pieces.contains(&Piece::whole(entry)), "entry {entry} was durable");
            }
            let found = place.image(&replay, &pieces)?;
            let mut right: Vec<BTreeSet<u8>> =
                model(DISK, &sample, &entries[..point]).iter().map(|&fill| [fill].into()).collect();
            for end in window.clone() {
                let so_far = model(DISK, &sample, &entries[..=end]);
                for (right, fill) in right.iter_mut().zip(so_far) {
                    right.insert(fill);
                }
            }
            let wrong = found.iter().zip(&right).position(|(fill, right)| !right.contains(fill));
            assert_eq!(wrong, None, "seed {seed}, point {point}");
        }
    }
    assert!(torn > 30 && lost > 100 && kept > 100, "{torn} torn, {lost} lost, {kept} kept");
    Ok(())
}

#[test]
fn a_torn_change_survives_by_sectors() -> Result<()> {
    let mut sample = Sample::new(512);
    sample.write(0, 4, 0, 1);
    sample.entry(0, 0, FLUSH, 0);
    sample.write(0, 4, 0, 2);
    sample.entry(0, 4, DISCARD, 0);
    let place = Place::new(&sample)?;
    let mut replay = place.replay()?;
    replay.advance(1)?;
    let torn = |entry, sectors: [bool; 4]| Piece { entry, sectors: Some(sectors.to_vec()) };
    let pieces = [torn(2, [true, true, false, false]), torn(3, [false, true, false, true])];
    assert_eq!(place.image(&replay, &pieces)?[..5], [2, 0, 1, 0, 0]);
    // What is on top is not in the base.
    assert_eq!(place.image(&replay, &[])?[..5], [1, 1, 1, 1, 0]);
    Ok(())
}

#[test]
fn differences_are_found() -> Result<()> {
    let mut sample = Sample::new(512);
    sample.write(3, 1, 0, 1);
    let place = Place::new(&sample)?;
    let mut replay = place.replay()?;
    replay.image(&place.path("before"), &[])?;
    replay.advance(1)?;
    assert_eq!(replay.first_difference(&place.path("before"))?, Some(3 * 512));
    File::options().write(true).open(place.path("before"))?.set_len(512)?;
    assert_eq!(replay.first_difference(&place.path("before"))?, Some(512));
    Ok(())
}
