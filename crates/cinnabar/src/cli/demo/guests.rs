//! The four machines of the demonstration: what each asks of its disk, and when.
//!
//! Their characters differ so that their shares of the cache do. All of it repeats: the same requests at the same
//! times after each start.

use cinnabar_bench::drive::Timed;
use cinnabar_trace::generate::Lengths;
use cinnabar_trace::generate::zipf::{Settings, Zipf};
use cinnabar_trace::{Op, Record};
use std::iter::Peekable;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;
/// Of the log, which begins again at its end.
const LOG: u64 = 64 * MIB;

/// A simulated machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    /// Name of its volume.
    pub(super) name: &'static str,
    /// What a reader should know of it, in one line.
    pub(super) about: &'static str,
    /// Size of its disk in bytes.
    pub(super) disk_bytes: u64,
    /// Lines of its `[[volume]]` beside name and back end.
    pub(super) keys: &'static str,
    ios: fn() -> Ios,
}

/// What a machine asks for, in order of time, without end.
pub(super) type Ios = Box<dyn Iterator<Item = Timed>>;

/// All of them.
pub(super) const GUESTS: [Guest; 4] = [
    Guest {
        name: "database",
        about: "random reads, some blocks far more often than others; a wide query from second 35 to 65 of each 90",
        disk_bytes: 256 * MIB,
        keys: "",
        ios: database,
    },
    Guest {
        name: "desktops",
        about: "machines of one image: a boot storm every 30 s, little in between",
        disk_bytes: 256 * MIB,
        keys: "",
        ios: desktops,
    },
    Guest {
        name: "backup",
        about: "reads its disk from end to end: caching it would be a waste",
        disk_bytes: 1024 * MIB,
        keys: "",
        ios: backup,
    },
    Guest {
        name: "log",
        about: "writes, and hardly ever reads: its writes are not worth any room",
        disk_bytes: LOG,
        keys: "auto_mode = true\n",
        ios: log,
    },
];

impl Guest {
    /// What it asks for.
    pub(super) fn ios(&self) -> Ios {
        (self.ios)()
    }
}

/// Orders all the time, and a query over older ones in 30 seconds of each 90.
fn database() -> Ios {
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
    let query = query.filter(|io| (35..65).contains(&(io.at_ns / SECOND_NS % 90)));
    Box::new(Merged { first: orders.peekable(), second: query.peekable() })
}

/// A boot storm, in the same order each time, and what people do on a desktop.
fn desktops() -> Ios {
    const IMAGE: u64 = 24 * MIB;
    const PIECE: u64 = 64 * KIB;
    const PIECES: u64 = IMAGE / PIECE;
    let storms = (0_u64..).flat_map(|storm| {
        let begin = (8 + 30 * storm) * SECOND_NS;
        (0..PIECES).map(move |step| {
            // Not one behind the other, or they would count as one long sequential read.
            let piece = step * 149 % PIECES;
            io(begin + step * 6 * SECOND_NS / PIECES, false, piece * PIECE, PIECE)
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
fn backup() -> Ios {
    const PIECE: u64 = 256 * KIB;
    let pieces =
        (0_u64..).map(|step| io(step * SECOND_NS / 8, false, step * PIECE % (1024 * MIB), PIECE));
    Box::new(pieces)
}

/// 40 records a second, one behind the other, and a look at an old one now and then.
fn log() -> Ios {
    const RECORD: u64 = 8 * KIB;
    Box::new((0_u64..).map(|step| {
        let is_read = step % 40 == 39;
        let record = if is_read { step * 7919 } else { step };
        io(step * SECOND_NS / 40, !is_read, record * RECORD % LOG, RECORD)
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
) -> impl Iterator<Item = Timed> + use<> {
    let block = 4 * KIB;
    let lengths = Lengths::new(&[(each / block, 1.0)]).expect("one length, within bounds");
    let settings = Settings { footprint_blocks: size / block, lengths, ..*settings };
    Zipf::new(settings).expect("constants within bounds").map(move |record| {
        let Record { ts_us, op, offset_bytes, length_bytes, .. } = record;
        io(ts_us * 1000, op == Op::Write, start + offset_bytes, length_bytes)
    })
}

const fn io(at_ns: u64, write: bool, offset: u64, len: u64) -> Timed {
    Timed { at_ns, unit: 0, write, offset, len, stream: 0 }
}

/// Two streams as one, in order of time.
struct Merged<A: Iterator, B: Iterator> {
    first: Peekable<A>,
    second: Peekable<B>,
}

impl<A: Iterator<Item = Timed>, B: Iterator<Item = Timed>> Iterator for Merged<A, B> {
    type Item = Timed;

    fn next(&mut self) -> Option<Timed> {
        match (self.first.peek(), self.second.peek()) {
            (Some(first), Some(second)) if second.at_ns < first.at_ns => self.second.next(),
            (Some(_), _) => self.first.next(),
            (None, _) => self.second.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_in_order_on_their_disks_and_few() {
        let mut total = 0;
        for guest in GUESTS {
            let minutes = 5;
            let ios: Vec<Timed> =
                guest.ios().take_while(|io| io.at_ns < minutes * 60 * SECOND_NS).collect();
            assert!(ios.is_sorted_by_key(|io| io.at_ns), "{}", guest.name);
            let inside = |io: &Timed| io.len > 0 && io.offset + io.len <= guest.disk_bytes;
            assert!(ios.iter().all(inside), "{}", guest.name);
            total += ios.len() as u64 / (minutes * 60);
        }
        assert!((150..400).contains(&total), "{total} a second");
    }

    #[test]
    fn characters_differ() {
        let reads = |guest: &Guest| {
            let ios = guest.ios().take(4000);
            let (writes, reads): (Vec<Timed>, Vec<Timed>) = ios.partition(|io| io.write);
            let mut places: Vec<u64> = reads.iter().map(|io| io.offset).collect();
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
