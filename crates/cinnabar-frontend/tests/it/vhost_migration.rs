//! A guest that is migrated amid requests: what arrives is what it had.
//!
//! The destination's memory is kept beside the guest's own, the way QEMU does it: all of it is copied
//! when logging begins, and marked pages are copied again. What the guest writes by itself is copied at
//! once, for KVM would tell it. Whenever no read is under way beyond its request both must be equal: a
//! page that changed and was not marked is a difference.

use crate::memory::Heap;
use crate::vhost_guest::{
    HALF, LOG_ALL, LOG_BYTES, MEMORY, Memory, PROTOCOL, SECOND, SECOND_LOG, SIZE, log_file,
    numbers, pair,
};
use crate::vhost_host::{Host, export};
use crate::vhost_pair::{DATA, HEADER, Pair, kind};
use cinnabar_engine::seam::{Failure, IoError, Op};
use cinnabar_frontend::vhost::Command;
use cinnabar_frontend::vhost::{ExportId, Incoming, Limits};
use rustix::fd::OwnedFd;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: usize = 4096;
const QUEUES: usize = 2;
/// What the driver writes by itself: rings, headers and statuses.
const DRIVERS: [(u64, u64); 2] = [(0x1_0000, 0x2_0000), (HEADER, 0x1000)];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// All of a guest's memory, the second region behind the first.
fn image(memory: &Memory) -> Vec<u8> {
    [memory.read(0, HALF), memory.read(SECOND, HALF)].concat()
}

struct Migration {
    pair: Pair,
    random: Random,
    notes: (Vec<u8>, OwnedFd),
    log: OwnedFd,
    /// The destination's memory, while it is logged.
    copy: Option<Vec<u8>>,
    /// Reads that may still write though they were answered with an error.
    late: Vec<Incoming<Heap>>,
    /// First descriptors of the chains under way, and how many they have, by queue.
    chains: [Vec<(u16, u16)>; QUEUES],
    copied_pages: u64,
}

impl Migration {
    fn new(seed: u64) -> Self {
        let host = Host::serving(Limits::default(), export());
        let mut pair = Pair::strangers(host, QUEUES as u32);
        let (spec, notes) = pair.ask(31, &numbers(&[0, 0, 64 << 16 | QUEUES as u64]));
        let notes = (spec, notes.expect("memory for the notes"));
        let log = log_file(LOG_BYTES).0;
        let chains = [Vec::new(), Vec::new()];
        let (random, late) = (Random(seed), Vec::new());
        let mut all = Self { pair, random, notes, log, copy: None, late, chains, copied_pages: 0 };
        all.connect(false);
        all.pair.host.hold = true;
        all
    }

    /// What a front-end says that starts its device, amid a migration or not.
    fn connect(&mut self, log_first: bool) {
        let logs = self.copy.is_some();
        self.pair.ack(16, &numbers(&[PROTOCOL]), &[]);
        self.pair.ack(32, &self.notes.0, &[self.notes.1.as_fd()]);
        if logs && log_first {
            self.set_log();
        }
        let before = self.pair.features;
        self.pair.features |= if logs { LOG_ALL } else { 0 };
        self.pair.set_up(|_| 0);
        self.pair.features = before;
        if logs && !log_first {
            self.set_log();
        }
    }

    fn set_log(&mut self) {
        self.pair.ack(6, &numbers(&[LOG_BYTES, 0]), &[self.log.as_fd()]);
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..12 => self.offer(),
            12..18 => self.kick(),
            18..30 => self.answer(),
            30 => self.pair.host.pool.direct = self.random.one_in(2),
            31 => {
                let polling = self.random.one_in(2);
                self.pair.host.server.set_polling(polling);
            }
            32 => drop(self.pair.host.poll_rings()),
            33 => self.let_go(),
            34 if self.random.one_in(2) => self.switch(),
            35 if self.random.one_in(3) => self.reconnect(),
            36 if self.copy.is_some() && self.random.one_in(3) => {
                // The old one is read once more when the new one was answered.
                let old = std::mem::replace(&mut self.log, log_file(LOG_BYTES).0);
                self.set_log();
                self.transfer(&old);
            }
            _ => self.check(),
        }
        self.reap();
    }

    /// Does what the guest does by itself, at both ends.
    fn by_driver(&mut self, act: impl FnOnce(&mut Self)) {
        let see = |pair: &Pair| DRIVERS.map(|(at, len)| pair.memory.read(at, len));
        let before = see(&self.pair);
        act(self);
        let after = see(&self.pair);
        let Some(copy) = &mut self.copy else { return };
        for ((base, _), (before, after)) in DRIVERS.into_iter().zip(before.iter().zip(&after)) {
            let changed = (base as usize..).zip(before.iter().zip(after));
            changed.filter(|(_, (old, new))| old != new).for_each(|(at, (_, new))| copy[at] = *new);
        }
    }

    fn offer(&mut self) {
        let queue = self.random.below(QUEUES as u64) as usize;
        let sectors = 1 + self.random.below(24);
        let bytes = (sectors * 512) as u32;
        let base = if self.random.one_in(2) { DATA } else { SECOND };
        let fits = if base == DATA { HALF - DATA } else { HALF } - u64::from(bytes);
        let mut at = base + self.random.below(fits);
        let mut bytes = bytes;
        if self.random.one_in(2) {
            (at, bytes) = (at & !4095, bytes.next_multiple_of(4096));
            at = at.min(if base == DATA { HALF } else { SECOND + HALF } - u64::from(bytes));
        }
        let sector = 8 * self.random.below(200);
        let split = 1 + self.random.below(u64::from(bytes) - 1) as u32;
        let (kind, data) = match self.random.below(10) {
            0..4 => (kind::READ, vec![(at, bytes, true)]),
            4 | 5 => {
                let pieces = vec![(at, split, true), (at + u64::from(split), bytes - split, true)];
                (kind::READ, pieces)
            }
            6 | 7 => (kind::WRITE, vec![(at, bytes, false)]),
            8 => (kind::GET_ID, vec![(at, 20, true)]),
            _ => ([kind::FLUSH, 99][self.random.below(2) as usize], vec![]),
        };
        let (first, count) = (self.pair.rings[queue].next % SIZE, data.len() as u16 + 2);
        let apart = |(other, len): &(u16, u16)| {
            (first.wrapping_sub(*other) % SIZE) >= *len
                && (other.wrapping_sub(first) % SIZE) >= count
        };
        if self.chains[queue].iter().all(apart) {
            self.chains[queue].push((first, count));
            self.by_driver(|all| {
                all.pair.offer_in(queue, kind, sector, &data);
            });
        }
    }

    fn kick(&mut self) {
        let queue = self.random.below(QUEUES as u64) as usize;
        self.pair.rings[queue].ring_bell();
        self.pair.host.turn(0);
    }

    fn answer(&mut self) {
        if self.pair.host.held.is_empty() {
            return;
        }
        let at = self.random.below(self.pair.host.held.len() as u64) as usize;
        let request = self.pair.host.held.remove(at);
        match self.random.below(8) {
            0 => self.pair.host.fail(request, Failure::Io(IoError::Io)),
            1 => {
                self.late.push(request.clone());
                self.pair.host.fail(request, Failure::Io(IoError::TimedOut));
            }
            _ => self.pair.host.answer(request),
        }
        if self.random.one_in(2) {
            self.pair.host.turn(0);
        }
    }

    /// Reads that were given up end at last, having written something.
    fn let_go(&mut self) {
        for request in self.late.drain(..) {
            if let Command::Engine(Op::Read { data, .. }) = &request.command {
                data.fill(0, &[self.random.below(256) as u8; 512]);
            }
        }
        self.pair.host.settle();
    }

    /// The front-end begins to migrate, or gives up.
    fn switch(&mut self) {
        if self.copy.take().is_some() {
            self.pair.ack(2, &numbers(&[self.pair.features]), &[]);
            return;
        }
        self.log = log_file(LOG_BYTES).0;
        self.set_log();
        self.pair.ack(2, &numbers(&[self.pair.features | LOG_ALL]), &[]);
        if self.random.one_in(2) {
            for queue in 0..QUEUES {
                let rings = &mut self.pair.rings[queue];
                rings.log = Some(rings.used());
                let addresses = rings.addresses(queue as u32);
                self.pair.ack(9, &addresses, &[]);
            }
        }
        self.copy = Some(image(&self.pair.memory));
    }

    /// The connection breaks, or the server dies.
    fn reconnect(&mut self) {
        if self.random.one_in(2) {
            let disk = std::mem::take(&mut self.pair.host.disk);
            let direct = self.pair.host.pool.direct;
            self.late.clear();
            self.pair.host = Host::serving(Limits::default(), export());
            (self.pair.host.disk, self.pair.host.hold) = (disk, true);
            self.pair.host.pool.direct = direct;
        } else {
            let _ = rustix::net::shutdown(&self.pair.link.0, rustix::net::Shutdown::Both);
            self.pair.host.settle();
        }
        self.pair.reconnect();
        let log_first = self.random.one_in(2);
        self.connect(log_first);
    }

    /// Copies the pages that this log has, and takes their bits away.
    fn transfer(&mut self, log: &OwnedFd) {
        let Some(copy) = &mut self.copy else { return };
        for (at, base) in [(0, 0), (SECOND_LOG, SECOND)] {
            let mut bits = vec![0; (HALF / 4096 / 8) as usize];
            rustix::io::pread(log, &mut bits[..], at).expect("readable");
            rustix::io::pwrite(log, &vec![0; bits.len()], at).expect("writable");
            let to = if base == 0 { 0 } else { HALF as usize };
            for page in (0..bits.len() * 8).filter(|page| bits[page / 8] >> (page % 8) & 1 == 1) {
                let bytes = self.pair.memory.read(base + (page * PAGE) as u64, PAGE as u64);
                copy[to + page * PAGE..][..PAGE].copy_from_slice(&bytes);
                self.copied_pages += 1;
            }
        }
    }

    fn check(&mut self) {
        // Reads of a connection that is gone are marked in the next turn.
        self.pair.host.settle();
        let log = self.log.try_clone().expect("a handle");
        self.transfer(&log);
        let Some(copy) = self.copy.as_ref().filter(|_| self.late.is_empty()) else { return };
        let source = image(&self.pair.memory);
        let pages = (0..MEMORY as usize / PAGE).map(|page| page * PAGE);
        let differs = |at: &usize| source[*at..][..PAGE] != copy[*at..][..PAGE];
        let pages: Vec<String> = pages.filter(differs).map(|at| format!("{at:#x}")).collect();
        assert!(pages.is_empty(), "these pages changed and are not marked: {pages:?}");
    }

    /// Chains given back may be made again.
    fn reap(&mut self) {
        for queue in 0..QUEUES {
            for (head, _) in self.pair.rings[queue].take_used(&self.pair.memory) {
                self.chains[queue].retain(|(first, _)| u32::from(*first) != head);
            }
        }
    }

    /// The last part of a migration: the rings stop, and what is left is copied.
    fn end(mut self) -> u64 {
        if self.copy.is_none() {
            self.switch();
        }
        for queue in 0..QUEUES as u32 {
            self.pair.tell(11, &pair(queue, 0), &[]);
            for _ in 0..100 {
                self.let_go();
                self.pair.host.answer_held(true);
            }
            self.pair.host.settle();
            assert_eq!(self.pair.link.receive().map(|answer| answer.0), Some(11));
        }
        self.check();
        // Nothing comes behind.
        self.pair.host.server.set_polling(true);
        self.pair.host.poll_rings();
        self.pair.host.settle();
        let copy = self.copy.take().expect("it is logged");
        assert!(copy == image(&self.pair.memory), "written after the stop");
        assert_eq!(self.pair.host.server.connections(ExportId(1)), 1);
        assert!(self.pair.host.is_clear());
        self.copied_pages
    }
}

#[test]
fn a_guest_arrives_as_it_was_whatever_happens_meanwhile() {
    let mut copied = 0;
    for seed in 0..40 {
        let mut migration = Migration::new(seed);
        for _ in 0..400 {
            migration.step();
        }
        copied += migration.end();
    }
    assert!(copied > 5000, "only {copied} pages were copied");
}

/// A destination that copies without a pause, on a thread of its own: what is marked before it is
/// written is copied too early now and then.
#[test]
fn a_mark_never_comes_before_what_it_is_for() {
    let mut pair = Pair::new();
    let (log, payload) = log_file(LOG_BYTES);
    pair.ack(6, &payload, &[log.as_fd()]);
    pair.ack(2, &numbers(&[pair.features | LOG_ALL]), &[]);
    let (source, bits) = (pair.memory.map(), Memory::over(&log));
    let (source, bits) = (source.words(0, HALF / 8), bits.words(0, HALF / 4096 / 64));
    let copy: Vec<AtomicU64> =
        std::iter::repeat_with(AtomicU64::default).take(HALF as usize / 8).collect();
    let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (word, place) in (0..).zip(bits) {
                    let mut marked = if place.load(Ordering::Relaxed) == 0 {
                        0
                    } else {
                        place.swap(0, Ordering::SeqCst)
                    };
                    while marked != 0 {
                        let page = 64 * word + marked.trailing_zeros() as usize;
                        marked &= marked - 1;
                        for at in page * 512..(page + 1) * 512 {
                            copy[at].store(source[at].load(Ordering::Relaxed), Ordering::Relaxed);
                        }
                    }
                }
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        let wait = || {
            let begin = rounds.load(Ordering::SeqCst);
            while rounds.load(Ordering::SeqCst) < begin + 2 {
                std::hint::spin_loop();
            }
        };
        for round in 0..20_000_u64 {
            let sector = round % 64 * 8;
            pair.host.disk[(sector * 512) as usize..][..4096].fill(round as u8 ^ 0x5a);
            let status = pair.offer(kind::READ, sector, &[(DATA + round % 100 * 4096, 4096, true)]);
            pair.kick();
            pair.rings[0].take_used(&pair.memory);
            wait();
            for at in [DATA + round % 100 * 4096, status & !7, pair.rings[0].used()] {
                let len = if at >= DATA {
                    4096
                } else if at == status & !7 {
                    8
                } else {
                    518
                };
                let seen: Vec<u8> = copy[at as usize / 8..][..(len as usize).div_ceil(8)]
                    .iter()
                    .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
                    .collect();
                // The driver's own writes to the page of the statuses are no business of the log.
                let right = pair.memory.read(at, len);
                let place = (status & 7) as usize;
                let same = if len == 8 {
                    seen[place] == right[place]
                } else {
                    seen[..right.len()] == right
                };
                assert!(same, "round {round}: {at:#x} was marked too early");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
