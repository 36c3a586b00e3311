//! The log of dirty pages: which pages of the guest's memory this device has written.
//!
//! A front-end that migrates its guest copies the memory while the guest runs, and copies again what
//! was written meanwhile. It learns what the processor wrote from KVM, and what the device wrote from
//! this log: a bit for each page of 4 KiB of guest physical addresses, in memory that it shares with
//! the devices of the guest. After "Migration" of the vhost-user protocol.
//!
//! A page is marked after it was written, never before: the front-end takes the bits away and sends
//! the pages then, so a bit that comes first could be taken with the page's old content. Several
//! devices of a guest, each on a thread of its own, mark pages in the same memory.

use super::budget::Account;
use super::mapping::Mapping;
use super::proto::LogSpec;
use super::reason::DisconnectReason;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Bytes of guest memory that a bit stands for (`VHOST_LOG_PAGE`).
const PAGE_BYTES: u64 = 4096;
/// Pages of a byte of the log.
const BYTE_PAGES: u64 = 8;
/// Pages of eight bytes of the log.
const WORD_PAGES: u64 = 64;

/// A log that is mapped.
#[derive(Debug)]
pub(super) struct Log {
    mapping: Mapping,
    /// Pages that it has bits for.
    pages: u64,
    /// A bit was set since this was last asked.
    news: AtomicBool,
}

impl Log {
    /// Maps it for `account`.
    ///
    /// # Errors
    /// Memory that is not shared, not there, or too much.
    pub(super) fn open(
        account: &Arc<Account>,
        spec: &LogSpec,
        fd: BorrowedFd<'_>,
    ) -> Result<Self, DisconnectReason> {
        let mapping = Mapping::new(account, fd, spec.offset, spec.len);
        let mapping = mapping.map_err(|_| DisconnectReason::LogMemory)?;
        let pages = (mapping.len() as u64).saturating_mul(BYTE_PAGES);
        Ok(Self { mapping, pages, news: AtomicBool::new(false) })
    }

    /// Whether it has a bit for each page below the guest physical address `end`.
    pub(super) const fn covers(&self, end: u64) -> bool {
        end.div_ceil(PAGE_BYTES) <= self.pages
    }

    /// Marks the pages of `len` bytes at the guest physical address `at`, which have been written.
    /// Pages beyond the log are in memory that the guest has no more: it covers all that it has.
    pub(super) fn mark(&self, at: u64, len: u64) {
        let Some(more) = len.checked_sub(1) else { return };
        let last = (at.saturating_add(more) / PAGE_BYTES).min(self.pages - 1);
        let mut page = at / PAGE_BYTES;
        while page <= last {
            page = self.mark_some(page, last);
        }
        self.news.store(true, Ordering::Relaxed);
    }

    /// Marks pages from `page` on, at most up to `last`, which is in the log; returns the next.
    ///
    /// The bit is set even if it is set: a look at it, instead, could come before the page's content
    /// does, and the front-end take both the bit and the old content in between.
    fn mark_some(&self, page: u64, last: u64) -> u64 {
        // Less than the length of the mapping.
        let place = self.mapping.first().wrapping_add((page / BYTE_PAGES) as usize);
        let whole = page.is_multiple_of(BYTE_PAGES) && last - page >= WORD_PAGES - 1;
        if whole && place.addr().is_multiple_of(size_of::<u64>()) {
            // SAFETY: eight bytes within the mapping (`last` is), aligned; others set bits there with
            // atomic operations, too.
            unsafe { AtomicU64::from_ptr(place.cast()) }.fetch_or(u64::MAX, Ordering::Release);
            return page + WORD_PAGES;
        }
        let end = last.min(page / BYTE_PAGES * BYTE_PAGES + BYTE_PAGES - 1);
        let bits = (0xff_u8 << (page % BYTE_PAGES)) & (0xff >> (BYTE_PAGES - 1 - end % BYTE_PAGES));
        // SAFETY: a byte within the mapping.
        unsafe { AtomicU8::from_ptr(place) }.fetch_or(bits, Ordering::Release);
        end + 1
    }

    /// Whether anything was marked since it was last asked.
    pub(super) fn take_news(&self) -> bool {
        self.has_news() && self.news.swap(false, Ordering::Relaxed)
    }

    /// The same, to be asked again.
    pub(super) fn has_news(&self) -> bool {
        self.news.load(Ordering::Relaxed)
    }

    /// Whether its file was truncated, or its memory failed: what is marked goes nowhere.
    pub(super) fn is_broken(&self) -> bool {
        self.mapping.is_broken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::collections::BTreeSet;
    use std::os::fd::AsFd;

    fn file(len: u64) -> OwnedFd {
        let file = memfd_create("log", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, len).expect("room");
        file
    }

    fn open(file: &OwnedFd, offset: u64, len: u64) -> Result<Log, DisconnectReason> {
        Log::open(&Arc::default(), &LogSpec { len, offset }, file.as_fd())
    }

    /// The pages marked in a file whose log begins at `offset`.
    fn marked(file: &OwnedFd, offset: u64) -> BTreeSet<u64> {
        let len = rustix::fs::fstat(file).expect("its size").st_size.cast_unsigned() as usize;
        let mut bytes = vec![0; len];
        rustix::io::pread(file, &mut bytes[..], 0).expect("readable");
        let is_set = |bit: &u64| bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1;
        (0..8 * len as u64).filter(is_set).map(|bit| bit.wrapping_sub(8 * offset)).collect()
    }

    #[test]
    fn exactly_the_pages_that_were_touched_are_marked() {
        let mut random = 1_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for round in 0..300 {
            // At any offset, aligned or not.
            let (offset, len) = (draw(40), 64 + draw(64));
            let file = file(200);
            let log = open(&file, offset, len).expect("mapped");
            let mut expected = BTreeSet::new();
            for _ in 0..draw(4) {
                let at = draw(len * 8 * PAGE_BYTES + 9000);
                let bytes = draw(if round % 2 == 0 { 9000 } else { 400 * PAGE_BYTES });
                log.mark(at, bytes);
                let pages = at / PAGE_BYTES..(at + bytes).div_ceil(PAGE_BYTES);
                let pages = if bytes == 0 { 0..0 } else { pages };
                expected.extend(pages.filter(|page| *page < 8 * len));
            }
            assert_eq!(marked(&file, offset), expected, "{offset} {len}");
        }
    }

    #[test]
    fn what_is_beyond_is_ignored_and_what_wraps_around_ends() {
        let file = file(4096);
        let log = open(&file, 0, 16).expect("mapped");
        for (at, len) in [(128 << 12, 1), (u64::MAX, 1), (u64::MAX, u64::MAX), (5, 0)] {
            log.mark(at, len);
        }
        assert_eq!(marked(&file, 0), BTreeSet::new());
        log.mark(127 << 12, u64::MAX);
        assert_eq!(marked(&file, 0), BTreeSet::from([127]));
        assert!(log.covers(128 << 12) && !log.covers((128 << 12) + 1));
    }

    #[test]
    fn a_log_is_shared_memory_that_is_there() {
        let file = file(4096);
        let (pipe, _end) = std::io::pipe().expect("a pipe");
        for (offset, len) in [(0, 4097), (4096, 1), (0, 0), (u64::MAX, 2)] {
            assert_eq!(open(&file, offset, len).err(), Some(DisconnectReason::LogMemory));
        }
        let spec = LogSpec { len: 1, offset: 0 };
        let refused = Log::open(&Arc::default(), &spec, pipe.as_fd()).err();
        assert_eq!(refused, Some(DisconnectReason::LogMemory));
    }

    #[test]
    fn a_truncated_log_is_noticed_and_kills_nobody() {
        let file = file(4096);
        let log = open(&file, 0, 4096).expect("mapped");
        ftruncate(&file, 0).expect("smaller");
        assert!(!log.is_broken());
        log.mark(0, 1 << 20);
        assert!(log.is_broken());
    }

    #[test]
    fn threads_do_not_lose_each_others_bits() {
        let file = file(4096);
        let logs: Vec<_> = (0..4).map(|_| open(&file, 0, 4096).expect("mapped")).collect();
        std::thread::scope(|scope| {
            for (first, log) in (0..).zip(&logs) {
                scope.spawn(move || {
                    (first..4096 * 8).step_by(4).for_each(|page| log.mark(page << 12, 1));
                });
            }
        });
        assert_eq!(marked(&file, 0).len(), 4096 * 8);
        assert!(logs[0].take_news() && !logs[0].take_news());
    }
}
