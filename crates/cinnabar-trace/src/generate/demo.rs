//! What the machines of the demonstration ([`crate::demo`]) ask of their disks, and when.
//!
//! All of it repeats: the same requests at the same times after each start.

use super::Lengths;
use super::zipf::{Settings, Zipf};
use crate::demo::{Guest, Work};
use crate::record::{Op, Record};
use std::iter::Peekable;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND_US: u64 = 1_000_000;

/// What a machine asks for, in order of time, without end.
pub type Requests = Box<dyn Iterator<Item = Record>>;

/// What this machine asks for.
pub fn requests(guest: &Guest) -> Requests {
    match guest.work {
        Work::Database => database(),
        Work::Desktops => desktops(),
        Work::Backup => backup(guest.disk_bytes),
        Work::Log => log(guest.disk_bytes),
    }
}

/// Orders all the time, and a query over older ones in 30 seconds of each 90.
fn database() -> Requests {
    let orders = zipf(
        0,
        32 * MIB,
        8 * KIB,
        &Settings { alpha: 0.9, write_share: 0.1, per_second: 120.0, ..seeded(1) },
    );
    let query = zipf(
        128 * MIB,
        64 * MIB,
        16 * KIB,
        &Settings { alpha: 0.5, write_share: 0.0, per_second: 90.0, ..seeded(2) },
    );
    let query = query.filter(|record| (35..65).contains(&(record.ts_us / SECOND_US % 90)));
    Box::new(Merged { first: orders.peekable(), second: query.peekable() })
}

/// A boot storm, in the same order each time, and what people do on a desktop.
fn desktops() -> Requests {
    const IMAGE: u64 = 24 * MIB;
    const PIECE: u64 = 64 * KIB;
    const PIECES: u64 = IMAGE / PIECE;
    let storms = (0_u64..).flat_map(|storm| {
        let begin = (8 + 30 * storm) * SECOND_US;
        (0..PIECES).map(move |step| {
            // Not one behind the other, or they would count as one long sequential read.
            let piece = step * 149 % PIECES;
            record(begin + step * 6 * SECOND_US / PIECES, Op::Read, piece * PIECE, PIECE)
        })
    });
    let work = zipf(
        64 * MIB,
        48 * MIB,
        4 * KIB,
        &Settings { alpha: 0.8, write_share: 0.3, per_second: 20.0, ..seeded(3) },
    );
    Box::new(Merged { first: storms.peekable(), second: work.peekable() })
}

/// 2 MiB a second, in order.
fn backup(disk_bytes: u64) -> Requests {
    const PIECE: u64 = 256 * KIB;
    let pieces = (0_u64..)
        .map(move |step| record(step * SECOND_US / 8, Op::Read, step * PIECE % disk_bytes, PIECE));
    Box::new(pieces)
}

/// 40 records a second, one behind the other and again from the start, and a look at an old one now
/// and then.
fn log(disk_bytes: u64) -> Requests {
    const RECORD: u64 = 8 * KIB;
    Box::new((0_u64..).map(move |step| {
        let is_read = step % 40 == 39;
        let (op, place) = if is_read { (Op::Read, step * 7919) } else { (Op::Write, step) };
        record(step * SECOND_US / 40, op, place * RECORD % disk_bytes, RECORD)
    }))
}

/// Chance that repeats.
fn seeded(seed: u64) -> Settings {
    Settings { seed, ..Settings::default() }
}

/// Requests of `each` bytes within `size` bytes of the disk from `start` on.
fn zipf(
    start: u64,
    size: u64,
    each: u64,
    settings: &Settings,
) -> impl Iterator<Item = Record> + use<> {
    let block = 4 * KIB;
    let lengths = Lengths::new(&[(each / block, 1.0)]).expect("one length, within bounds");
    let settings = Settings { footprint_blocks: size / block, lengths, ..*settings };
    Zipf::new(settings)
        .expect("constants within bounds")
        .map(move |record| Record { offset_bytes: start + record.offset_bytes, ..record })
}

const fn record(ts_us: u64, op: Op, offset_bytes: u64, length_bytes: u64) -> Record {
    Record { ts_us, volume: 0, op, offset_bytes, length_bytes }
}

/// Two streams as one, in order of time.
struct Merged<A: Iterator, B: Iterator> {
    first: Peekable<A>,
    second: Peekable<B>,
}

impl<A: Iterator<Item = Record>, B: Iterator<Item = Record>> Iterator for Merged<A, B> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        match (self.first.peek(), self.second.peek()) {
            (Some(first), Some(second)) if second.ts_us < first.ts_us => self.second.next(),
            (Some(_), _) => self.first.next(),
            (None, _) => self.second.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::GUESTS;

    #[test]
    fn requests_are_in_order_on_their_disks_and_few() {
        let mut total = 0;
        for guest in &GUESTS {
            let minutes = 5;
            let all: Vec<Record> = requests(guest)
                .take_while(|record| record.ts_us < minutes * 60 * SECOND_US)
                .collect();
            assert!(all.is_sorted_by_key(|record| record.ts_us), "{}", guest.name);
            let inside = |record: &Record| {
                record.length_bytes > 0
                    && record.offset_bytes + record.length_bytes <= guest.disk_bytes
            };
            assert!(all.iter().all(inside), "{}", guest.name);
            total += all.len() as u64 / (minutes * 60);
        }
        assert!((150..400).contains(&total), "{total} a second");
    }

    #[test]
    fn characters_differ() {
        let reads = |guest: &Guest| {
            let some = requests(guest).take(4000);
            let (writes, reads): (Vec<Record>, Vec<Record>) =
                some.partition(|record| record.op == Op::Write);
            let mut places: Vec<u64> = reads.iter().map(|record| record.offset_bytes).collect();
            places.sort_unstable();
            places.dedup();
            (writes.len(), reads.len(), places.len())
        };
        let [database, desktops, backup, log] = GUESTS.each_ref().map(reads);
        assert!(database.2 * 2 < database.1, "it comes back to its blocks: {database:?}");
        assert!(desktops.2 * 2 < desktops.1, "each storm reads the same: {desktops:?}");
        assert_eq!((backup.0, backup.2), (0, backup.1), "it never does");
        assert!(log.0 > 30 * log.1, "it writes: {log:?}");
    }
}
