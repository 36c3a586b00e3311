//! The guest's memory as its front-end describes it, and the one place that looks into it.
//!
//! Everything here may be changed by the guest at any time: values are read once, and no Rust
//! reference to any of it is made.

use super::budget::Account;
use super::log::Log;
use super::mapping::{Mapping, MappingError};
use super::proto::RegionSpec;
use cinnabar_engine::seam::shared_memory;
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Memory is marked in pieces of so much, when nobody knows what was written: a page of the log has bits for it.
const WINDOW_BYTES: u64 = 128 << 20;

/// A piece of memory within a mapping: where it begins and how long it is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) first: *mut u8,
    pub(super) len: usize,
}

// SAFETY: an address; code that dereferences it holds the memory it is part of, and follows the
// rules of this module, on whichever thread it runs.
unsafe impl Send for Piece {}

/// Most lists have a header or a status, and a few data pieces.
pub(super) type Pieces = SmallVec<[Piece; 4]>;

/// A region that is mapped.
#[derive(Debug)]
pub(super) struct Region {
    spec: RegionSpec,
    mapping: Mapping,
    /// The same file, opened once more: of the front end's own handle the front end can hold the position's lock as
    /// long as it likes. `None`: it could not be opened.
    file: Option<OwnedFd>,
}

/// How far all of a guest's memory is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marked {
    region: usize,
    /// Bytes of that region.
    bytes: u64,
}

impl Region {
    /// Maps it for `account`.
    pub(super) fn new(
        account: &Arc<Account>,
        spec: RegionSpec,
        fd: BorrowedFd<'_>,
    ) -> Result<Self, MappingError> {
        let ends = spec.guest.checked_add(spec.len).and(spec.user.checked_add(spec.len));
        ends.ok_or(MappingError::Length)?;
        let mapping = Mapping::new(account, fd, spec.offset, spec.len)?;
        // Its owner may have a lease on it, for whose end nothing here waits.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let file = open(path, flags, Mode::empty()).ok();
        Ok(Self { spec, mapping, file })
    }

    /// The first byte from `at` on that the file has: nobody has written what it has not.
    fn first_data(&self, at: u64) -> Option<u64> {
        if at >= self.spec.len {
            return None;
        }
        let Some(file) = &self.file else { return Some(at) };
        let found = match seek(file, SeekFrom::Data(self.spec.offset + at)) {
            Ok(found) => found.checked_sub(self.spec.offset)?,
            Err(Errno::NXIO) => return None,
            // It does not say.
            Err(_) => at,
        };
        (found < self.spec.len).then_some(found)
    }

    /// Whether both have a guest address in common.
    fn overlaps(&self, other: &Self) -> bool {
        let (one, two) = (&self.spec, &other.spec);
        one.guest < two.guest + two.len && two.guest < one.guest + one.len
    }
}

/// A table of memory: regions that don't overlap. It never changes; a changed one is a new one,
/// and what is under way keeps the one it began with.
#[derive(Debug, Default)]
pub(super) struct GuestMemory {
    regions: Vec<Arc<Region>>,
}

impl GuestMemory {
    /// The same with one more region; `None` if it overlaps another.
    pub(super) fn with(&self, region: Region) -> Option<Self> {
        if self.regions.iter().any(|known| known.overlaps(&region)) {
            return None;
        }
        let mut regions = self.regions.clone();
        regions.push(Arc::new(region));
        Some(Self { regions })
    }

    /// The same without the region at this place; `None` if there is none.
    pub(super) fn without(&self, spec: &RegionSpec) -> Option<Self> {
        let same = |known: &RegionSpec| {
            (known.guest, known.user, known.len) == (spec.guest, spec.user, spec.len)
        };
        let at = self.regions.iter().position(|region| same(&region.spec))?;
        let mut regions = self.regions.clone();
        regions.remove(at);
        Some(Self { regions })
    }

    /// Regions in it.
    pub(super) const fn len(&self) -> usize {
        self.regions.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.spec.len).sum()
    }

    /// The first guest physical address behind all of it.
    pub(super) fn end(&self) -> u64 {
        self.regions.iter().map(|region| region.spec.guest + region.spec.len).max().unwrap_or(0)
    }

    /// Whether a file under it was truncated: what was read may be zeros of our own.
    pub(super) fn is_broken(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_broken())
    }

    /// Appends `len` bytes from guest address `at` on to `pieces`, joined with the last one where
    /// they are neighbours. False if not all of it is memory.
    pub(super) fn find(&self, mut at: u64, len: u64, pieces: &mut Pieces) -> bool {
        let mut left = len;
        while left > 0 {
            let found = self.regions.iter().find_map(|region| {
                let offset = at.checked_sub(region.spec.guest)?;
                (offset < region.spec.len).then_some((region, offset))
            });
            let Some((region, offset)) = found else { return false };
            let here = left.min(region.spec.len - offset);
            // Both are less than the length of a mapping.
            let first = region.mapping.first().wrapping_add(offset as usize);
            let len = here as usize;
            match pieces.last_mut() {
                Some(last) if last.first.wrapping_add(last.len) == first => last.len += len,
                _ => pieces.push(Piece { first, len }),
            }
            left -= here;
            let Some(next) = at.checked_add(here) else { return left == 0 };
            at = next;
        }
        true
    }

    /// The address of `len` bytes at an address of the front-end's process, all in one region and
    /// aligned to `align` (at most 4096).
    pub(super) fn find_user(&self, at: u64, len: u64, align: u64) -> Option<*mut u8> {
        let region = self.regions.iter().find(|region| {
            let offset = at.checked_sub(region.spec.user);
            let offset = offset.filter(|offset| *offset < region.spec.len);
            offset.is_some_and(|offset| region.spec.len - offset >= len)
        })?;
        let offset = (at - region.spec.user) as usize;
        let first = region.mapping.first().wrapping_add(offset);
        first.addr().is_multiple_of(align as usize).then_some(first)
    }

    /// The guest physical address of a place that was found in it, and how many bytes of the same
    /// region begin there.
    pub(super) fn guest_address(&self, place: *const u8) -> Option<(u64, u64)> {
        self.regions.iter().find_map(|region| {
            let offset = place.addr().checked_sub(region.mapping.first().addr())? as u64;
            let left = region.spec.len.checked_sub(offset).filter(|left| *left > 0)?;
            Some((region.spec.guest + offset, left))
        })
    }

    /// Marks pieces that were found in it, and written.
    pub(super) fn mark(&self, pieces: &[Piece], log: &Log) {
        for piece in pieces {
            // A piece may lie across regions that are neighbours here but not in the guest.
            let (mut first, mut left) = (piece.first, piece.len as u64);
            while left > 0 {
                let (address, there) = self.guest_address(first).expect("it was found in here");
                let here = left.min(there);
                log.mark(address, here);
                first = first.wrapping_add(here as usize);
                left -= here;
            }
        }
    }

    /// Goes on marking all of it, for nobody knows what was written: at most `windows` pieces, which are counted
    /// down. True when it is done.
    ///
    /// What the guest's files do not have is left out: it was not written, and a log that is as sparse as they are
    /// costs this host no more memory than they do.
    pub(super) fn mark_all(&self, log: &Log, marked: &mut Marked, windows: &mut u32) -> bool {
        while let Some(region) = self.regions.get(marked.region) {
            if *windows == 0 {
                return false;
            }
            *windows -= 1;
            match region.first_data(marked.bytes) {
                Some(at) => {
                    let guest = region.spec.guest + at;
                    let len = (WINDOW_BYTES - guest % WINDOW_BYTES).min(region.spec.len - at);
                    log.mark(guest, len);
                    marked.bytes = at + len;
                }
                None => *marked = Marked { region: marked.region + 1, bytes: 0 },
            }
        }
        true
    }
}

/// All bytes of `pieces`.
pub(super) fn total(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.len as u64).sum()
}

/// Leaves out the first `skip` bytes, in place; there are that many.
pub(super) fn skip(pieces: &mut Pieces, mut skip: usize) {
    let whole = pieces.iter().take_while(|piece| {
        let covered = piece.len <= skip;
        skip -= if covered { piece.len } else { 0 };
        covered
    });
    let whole = whole.count();
    pieces.drain(..whole);
    if let Some(first) = pieces.first_mut().filter(|_| skip > 0) {
        first.first = first.first.wrapping_add(skip);
        first.len -= skip;
    }
}

/// Leaves out the last byte and returns its address; there is one.
pub(super) fn take_last(pieces: &mut Pieces) -> Option<*mut u8> {
    let last = pieces.last_mut()?;
    last.len = last.len.checked_sub(1)?;
    let at = last.first.wrapping_add(last.len);
    if last.len == 0 {
        pieces.pop();
    }
    Some(at)
}

/// Copies from the guest's memory until `to` is full or there is no more; returns how much.
///
/// # Safety
/// `to` has `len` bytes that nothing else uses now; the memory the pieces are part of is held.
pub(super) unsafe fn copy_from_guest(pieces: &[Piece], to: *mut u8, len: usize) -> usize {
    let mut done = 0;
    for piece in pieces {
        let here = piece.len.min(len - done);
        // SAFETY: both ranges are in place (the caller's promise), and of different mappings. The
        // guest may write meanwhile: then some bytes are old and some new, which is its problem.
        unsafe { shared_memory::copy(piece.first, to.add(done), here) };
        done += here;
    }
    done
}

/// Copies to the guest's memory until it is full or there is no more; returns how much.
///
/// # Safety
/// `from` has `len` bytes that nothing changes now; the memory the pieces are part of is held.
pub(super) unsafe fn copy_to_guest(pieces: &[Piece], from: *const u8, len: usize) -> usize {
    let mut done = 0;
    for piece in pieces {
        let here = piece.len.min(len - done);
        // SAFETY: as above.
        unsafe { shared_memory::copy(from.add(done), piece.first, here) };
        done += here;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost::proto::LogSpec;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;

    fn region(guest: u64, user: u64, len: u64) -> Region {
        region_with(guest, user, len).0
    }

    /// The same, and the front end's handle.
    fn region_with(guest: u64, user: u64, len: u64) -> (Region, OwnedFd) {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, len).expect("room");
        let spec = RegionSpec { guest, user, len, offset: 0 };
        (Region::new(&Arc::default(), spec, file.as_fd()).expect("mapped"), file)
    }

    /// A front end that reads into memory of `userfaultfd` holds its handle's position, and held the data thread.
    #[test]
    fn a_look_for_data_takes_nothing_of_the_front_ends_handle() {
        let (region, file) = region_with(0, 1 << 40, 1 << 20);
        rustix::io::pwrite(&file, &[1], 8192).expect("room");
        assert_eq!((region.first_data(0), region.first_data(12_288)), (Some(8192), None));
        assert_eq!(rustix::fs::tell(&file).expect("its position"), 0);
    }

    fn table() -> GuestMemory {
        let memory = GuestMemory::default().with(region(0, 1 << 40, 8192)).expect("it fits");
        memory.with(region(8192, 2 << 40, 4096)).expect("it fits")
    }

    fn lens(memory: &GuestMemory, at: u64, len: u64) -> Option<Vec<usize>> {
        let mut pieces = Pieces::new();
        let found = memory.find(at, len, &mut pieces);
        found.then(|| pieces.iter().map(|piece| piece.len).collect())
    }

    /// Sparse memory of 15 TiB took a second of the data thread, and 480 MiB of this host.
    #[test]
    fn what_a_guest_does_not_have_is_not_marked_and_the_rest_in_bounded_pieces() {
        let gib = 1_u64 << 30;
        let (sparse, handle) = region_with(0, 1 << 40, 64 * gib);
        for at in [0, 5 * gib, 64 * gib - 4096] {
            rustix::io::pwrite(&handle, &[1; 4096], at).expect("room");
        }
        let memory = GuestMemory::default().with(sparse).expect("it fits");
        let memory = memory.with(region(100 * gib, 2 << 40, gib)).expect("it fits");
        let file = memfd_create("log", MemfdFlags::CLOEXEC).expect("a memfd");
        let len = 101 * gib / 4096 / 8;
        ftruncate(&file, len).expect("room");
        let spec = LogSpec { len, offset: 0 };
        let log = Log::open(&Arc::default(), &spec, file.as_fd()).expect("mapped");
        let (mut marked, mut turns) = (Marked::default(), 0);
        while !memory.mark_all(&log, &mut marked, &mut 2) {
            turns += 1;
        }
        assert_eq!(turns, 2, "three pieces, and the end of each region");
        let blocks = rustix::fs::fstat(&file).expect("its size").st_blocks;
        assert_eq!(blocks, 3 * 8, "a page of the log for each piece");
        let mut byte = [0];
        for (guest, expected) in [
            (0, 0xff),
            (WINDOW_BYTES - 1, 0xff),
            (WINDOW_BYTES, 0),
            (5 * gib + 4096, 0xff),
            (64 * gib - 1, 0x80),
            (100 * gib, 0),
        ] {
            rustix::io::pread(&file, &mut byte, guest / 4096 / 8).expect("readable");
            assert_eq!(byte, [expected], "{guest}");
        }
    }

    #[test]
    fn what_lies_across_regions_is_in_pieces_and_what_is_outside_is_not_found() {
        let memory = table();
        assert_eq!(lens(&memory, 4096, 100), Some(vec![100]));
        assert_eq!(lens(&memory, 8000, 400), Some(vec![192, 208]));
        assert_eq!(lens(&memory, 0, 12288), Some(vec![8192, 4096]));
        assert_eq!(lens(&memory, 0, 0), Some(vec![]));
        for (at, len) in [(0, 12289), (12288, 1), (u64::MAX, 1), (u64::MAX, 2), (5, u64::MAX)] {
            assert_eq!(lens(&memory, at, len), None, "{at} {len}");
        }
    }

    #[test]
    fn neighbours_become_one_piece() {
        let (memory, mut pieces) = (table(), Pieces::new());
        for at in [0, 512, 2048, 1024] {
            assert!(memory.find(at, 512, &mut pieces));
        }
        let lens: Vec<usize> = pieces.iter().map(|piece| piece.len).collect();
        assert_eq!(lens, [1024, 512, 512]);
    }

    #[test]
    fn rings_lie_within_one_region_and_are_aligned() {
        let memory = table();
        assert!(memory.find_user((1 << 40) + 16, 8176, 16).is_some());
        for (at, len) in [(16, 8177), (8, 8), (0, u64::MAX), (8192, 1)] {
            assert!(memory.find_user((1 << 40) + at, len, 16).is_none(), "{at} {len}");
        }
        assert!(memory.find_user(0, 16, 16).is_none());
    }

    #[test]
    fn regions_come_and_go_but_never_overlap() {
        let memory = table();
        assert!(memory.with(region(4096, 9 << 40, 4096)).is_none());
        let spec = RegionSpec { guest: 0, user: 1 << 40, len: 8192, offset: 7 };
        let smaller = memory.without(&spec).expect("it is there");
        assert_eq!((smaller.len(), lens(&smaller, 0, 1)), (1, None));
        assert!(smaller.without(&spec).is_none());
    }

    #[test]
    fn pieces_are_cut_at_both_ends() {
        let memory = table();
        let mut pieces = Pieces::new();
        assert!(memory.find(100, 10, &mut pieces) && memory.find(200, 7, &mut pieces));
        skip(&mut pieces, 12);
        assert_eq!((pieces.len(), total(&pieces)), (1, 5));
        skip(&mut pieces, 4);
        assert!(take_last(&mut pieces).is_some());
        assert!(pieces.is_empty());
        assert_eq!(take_last(&mut pieces), None);
    }
}
