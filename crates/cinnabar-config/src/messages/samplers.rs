//! Where data threads tell the manager of guests' requests: counts, and blocks that its samples want.
//!
//! A data thread counts each request where it is admitted, hashes its blocks, and puts those that pass
//! the volume's published filter into a buffer of fixed size. It never waits: what does not fit is
//! dropped and counted. Everything else is done by the manager's own thread. A filter that is out of
//! date lets more pass than the sample takes, so it changes no result.

use cinnabar_engine::seam::Op;
use cinnabar_engine::seam::units::Instant;
use cinnabar_policy::reuse::Filter;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests with sampled blocks that may wait for the manager, for each data thread: 2.5 MiB.
pub const BUFFER_ACCESSES: usize = 64 << 10;
/// Intervals that are kept apart until the manager has read them.
pub const SLOTS: usize = 4;
/// Blocks that one entry tells apart.
const MASK_BLOCKS: u64 = 64;

const _: () = assert!(size_of::<Access>() == 32, "a full buffer has 2 MiB of accesses");

/// Up to 64 blocks of a request, with those of the sample marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When the request came, in microseconds of the daemon's clock.
    pub at_us: u64,
    /// The first block.
    pub first: u64,
    /// Bit n is for the block n behind the first.
    pub mask: u64,
    /// The volume, by its number here.
    pub volume: u32,
    pub is_write: bool,
    /// The volume's first request.
    pub is_first: bool,
}

/// All that data threads and the manager share.
#[derive(Debug)]
pub struct Samplers {
    every_us: u64,
    filter: Filter,
    threads: Box<[Sampler]>,
    numbered: AtomicU32,
    /// Volumes, until the manager has let go of them. Locked when one comes, and by the manager.
    volumes: Mutex<Vec<Arc<SampledVolume>>>,
}

/// Of one data thread.
#[derive(Debug)]
struct Sampler {
    queue: SyncSender<Access>,
    dropped: AtomicU64,
}

/// The manager's end.
#[derive(Debug)]
pub struct SampleStreams {
    /// What both ends share.
    pub samplers: Arc<Samplers>,
    /// By data thread.
    pub queues: Vec<Receiver<Access>>,
    /// When the daemon's clock began.
    pub origin: std::time::Instant,
}

/// A volume that the manager looks at.
#[derive(Debug)]
pub struct SampledVolume {
    /// Its number; never another one's.
    pub number: u32,
    pub name: String,
    samplers: Arc<Samplers>,
    /// The largest hash that passes.
    top: AtomicU64,
    left: AtomicBool,
    /// By the first data thread, and by the one that serves it.
    counts: [Side; 2],
}

/// What one thread has counted; no other one writes it.
#[derive(Debug, Default)]
struct Side {
    /// The interval that is open here, and its end; 0: none was yet.
    current: AtomicU64,
    ends_us: AtomicU64,
    slots: [Slot; SLOTS],
}

/// An interval's counts.
#[derive(Debug, Default)]
struct Slot {
    /// The interval's number and one; 0: none.
    interval: AtomicU64,
    requests: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    last_us: AtomicU64,
}

/// What a volume's guests did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests of any kind.
    pub requests: u64,
    /// Blocks read.
    pub reads: u64,
    /// Blocks written.
    pub writes: u64,
    /// When the last request came.
    pub last_us: u64,
}

/// Both ends, for so many data threads.
pub fn samplers(
    threads: usize,
    every_us: u64,
    seed: u64,
    origin: std::time::Instant,
) -> SampleStreams {
    let (senders, queues): (Vec<_>, Vec<_>) =
        (0..threads.max(1)).map(|_| mpsc::sync_channel(BUFFER_ACCESSES)).unzip();
    let tap = |queue| Sampler { queue, dropped: AtomicU64::new(0) };
    let samplers = Arc::new(Samplers {
        every_us: every_us.max(1),
        filter: Filter::new(seed, u64::MAX),
        threads: senders.into_iter().map(tap).collect(),
        numbered: AtomicU32::new(0),
        volumes: Mutex::default(),
    });
    SampleStreams { samplers, queues, origin }
}

impl Samplers {
    /// A volume comes.
    pub fn watch(self: &Arc<Self>, name: &str) -> Arc<SampledVolume> {
        let watched = Arc::new(SampledVolume {
            number: self.numbered.fetch_add(1, Relaxed),
            name: name.to_owned(),
            samplers: Arc::clone(self),
            top: AtomicU64::new(u64::MAX),
            left: AtomicBool::new(false),
            counts: Default::default(),
        });
        self.locked().push(Arc::clone(&watched));
        watched
    }

    /// The volumes there are, in the order in which they came.
    pub fn volumes(&self) -> Vec<Arc<SampledVolume>> {
        self.locked().clone()
    }

    /// Lets go of a volume that has left.
    pub fn forget(&self, number: u32) {
        self.locked().retain(|one| one.number != number);
    }

    /// Entries that did not fit, so far.
    pub fn dropped(&self) -> u64 {
        self.threads.iter().map(|tap| tap.dropped.load(Relaxed)).sum()
    }

    /// Length of an interval.
    pub const fn every_us(&self) -> u64 {
        self.every_us
    }

    /// Bytes of its buffers; beside each entry a queue keeps a number.
    pub fn ram_bytes(&self) -> usize {
        let buffer = BUFFER_ACCESSES * (size_of::<Access>() + size_of::<usize>());
        self.threads.len() * buffer + self.locked().len() * size_of::<SampledVolume>()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<SampledVolume>>> {
        // A list is whole at any time.
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SampledVolume {
    /// A request of a guest, seen by the data thread of this number. Never blocks.
    #[inline]
    pub fn note<P>(&self, thread: usize, now: Instant, op: &Op<P>) {
        let (span, is_write) = match op {
            Op::Read { span, .. } => (Some(span), false),
            Op::Write { span, .. } => (Some(span), true),
            Op::Trim { .. } | Op::WriteZeroes { .. } | Op::Flush => (None, false),
            Op::Invalidate { .. } => return,
        };
        let blocks = span.map_or(0..0, |span| span.first_block()..span.end_block());
        let at_us = now.0 / 1000;
        let is_first = self.count(thread, at_us, blocks.end - blocks.start, is_write);
        let mut access =
            Access { at_us, first: blocks.start, mask: 0, volume: self.number, is_write, is_first };
        let mut filter = self.samplers.filter;
        filter.top = self.top.load(Relaxed);
        while access.first < blocks.end {
            let count = (blocks.end - access.first).min(MASK_BLOCKS);
            let taken = |at: &u64| filter.takes(access.first + at);
            access.mask = (0..count).filter(taken).fold(0, |mask, at| mask | 1 << at);
            if access.mask != 0 || access.is_first {
                self.put(thread, access);
                access.is_first = false;
            }
            access.first += count;
        }
        if access.is_first {
            access.mask = 0;
            self.put(thread, access);
        }
    }

    fn put(&self, thread: usize, access: Access) {
        let tap = &self.samplers.threads[thread];
        if let Err(TrySendError::Full(_)) = tap.queue.try_send(access) {
            bump(&tap.dropped, 1);
        }
    }

    /// Counts a request; whether it is the first one seen from this side.
    fn count(&self, thread: usize, at_us: u64, blocks: u64, is_write: bool) -> bool {
        let side = &self.counts[usize::from(thread > 0)];
        let ends_us = side.ends_us.load(Relaxed);
        if at_us >= ends_us {
            side.enter(at_us / self.samplers.every_us, self.samplers.every_us);
        }
        let slot = &side.slots[side.current.load(Relaxed) as usize % SLOTS];
        bump(&slot.requests, 1);
        bump(if is_write { &slot.writes } else { &slot.reads }, blocks);
        slot.last_us.store(at_us, Relaxed);
        ends_us == 0
    }

    /// What was counted in an interval, as long as it is kept.
    pub fn counts(&self, interval: u64) -> Counts {
        let all = self.counts.iter().filter_map(|side| side.read(interval));
        all.fold(Counts::default(), |sum, one| Counts {
            requests: sum.requests + one.requests,
            reads: sum.reads + one.reads,
            writes: sum.writes + one.writes,
            last_us: sum.last_us.max(one.last_us),
        })
    }

    /// The first interval from this one on in which something was counted, as far as that is kept.
    pub fn next_interval(&self, from: u64) -> Option<u64> {
        let slots = self.counts.iter().flat_map(|side| &side.slots);
        let known = slots.filter_map(|slot| slot.interval.load(Acquire).checked_sub(1));
        known.filter(|number| *number >= from).min()
    }

    /// The interval of its last request.
    pub fn newest_interval(&self) -> u64 {
        self.counts.iter().map(|side| side.current.load(Relaxed)).max().unwrap_or(0)
    }

    /// Publishes which blocks the sample takes.
    pub fn publish(&self, filter: Filter) {
        self.top.store(filter.top, Relaxed);
    }

    /// It takes no more requests.
    pub fn leave(&self) {
        self.left.store(true, SeqCst);
    }

    pub fn has_left(&self) -> bool {
        self.left.load(SeqCst)
    }
}

impl Side {
    #[cold]
    fn enter(&self, number: u64, every_us: u64) {
        let slot = &self.slots[number as usize % SLOTS];
        // Who reads what was there finds in the end that it is another one's.
        slot.interval.store(0, Relaxed);
        fence(Release);
        for count in [&slot.requests, &slot.reads, &slot.writes, &slot.last_us] {
            count.store(0, Relaxed);
        }
        slot.interval.store(number + 1, Release);
        self.current.store(number, Relaxed);
        self.ends_us.store((number + 1).saturating_mul(every_us), Relaxed);
    }

    fn read(&self, interval: u64) -> Option<Counts> {
        let slot = &self.slots[interval as usize % SLOTS];
        if slot.interval.load(Acquire) != interval + 1 {
            return None;
        }
        let counts = Counts {
            requests: slot.requests.load(Relaxed),
            reads: slot.reads.load(Relaxed),
            writes: slot.writes.load(Relaxed),
            last_us: slot.last_us.load(Relaxed),
        };
        fence(Acquire);
        (slot.interval.load(Relaxed) == interval + 1).then_some(counts)
    }
}

/// Adds to a counter that no other thread writes.
fn bump(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_engine::seam::units::ByteSpan;

    fn streams() -> (SampleStreams, Arc<SampledVolume>) {
        let streams = samplers(1, 1000, 1, std::time::Instant::now());
        let watched = streams.samplers.watch("vm1");
        (streams, watched)
    }

    fn read(first: u64, count: u64) -> Op<()> {
        Op::Read { span: ByteSpan::new(first * 4096, count * 4096), data: () }
    }

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    #[test]
    fn all_is_counted_and_what_passes_is_told() {
        let (streams, watched) = streams();
        watched.note(0, at(5), &Op::<()>::Flush);
        watched.note(0, at(7), &read(3, 100));
        let told: Vec<Access> = streams.queues[0].try_iter().collect();
        assert_eq!(told.len(), 3, "the first request, and a hundred blocks in two parts");
        assert!(told[0].is_first && told[0].mask == 0, "a volume is known by any request");
        assert_eq!((told[1].first, told[1].mask, told[1].is_first), (3, u64::MAX, false));
        assert_eq!((told[2].first, told[2].mask), (67, (1 << 36) - 1));
        let counts = Counts { requests: 2, reads: 100, writes: 0, last_us: 7 };
        assert_eq!(watched.counts(0), counts);
        watched.publish(Filter::new(1, 0));
        watched.note(0, at(2500), &read(0, 64));
        assert_eq!(streams.queues[0].try_iter().count(), 0, "nothing of it is in the sample");
        assert_eq!((watched.next_interval(0), watched.next_interval(1)), (Some(0), Some(2)));
        assert_eq!(watched.counts(2).reads, 64);
    }

    #[test]
    fn a_full_buffer_drops_and_counts() {
        let (streams, watched) = streams();
        for n in 0..BUFFER_ACCESSES as u64 + 10 {
            watched.note(0, at(1), &read(n, 1));
        }
        assert_eq!(streams.samplers.dropped(), 10);
        assert_eq!(watched.counts(0).requests, BUFFER_ACCESSES as u64 + 10, "counts are exact");
    }

    #[test]
    fn an_interval_that_was_not_read_in_time_is_not_another_one() {
        let (_feeds, watched) = streams();
        for interval in 0..6 {
            watched.note(0, at(interval * 1000), &read(0, 1));
        }
        assert_eq!(watched.counts(0), Counts::default(), "its place is that of 4 now");
        assert_eq!(watched.counts(4).requests, 1);
        assert_eq!(watched.next_interval(0), Some(2));
    }
}
