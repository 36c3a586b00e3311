//! What two halves have is put together at a start, and what must not be.

use super::{A, SEGMENTS, Two};
use crate::memory::Mem;
use crate::memory_file::MemFile;
use crate::ssd::Ssd;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{IoError, Op, Payload};
use cinnabar_writeback::format::chunk::{ChunkHeader, Entry, RangeKind};
use cinnabar_writeback::format::{
    MARK_PAGE, SEGMENT_PAGES, SEGMENTS_PAGE, directory_offset, offset_of,
};
use cinnabar_writeback::mirror::{HalfState, MarkState, force_alone, read_mark};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::recover::{Media, OpenError, superblock};
use cinnabar_writeback::{Command, Done};

fn page(ssd: &Ssd, offset: u64) -> MetaPage {
    let mut page = [MetaPage::zeroed()];
    ssd.read_pages(offset, &mut page).expect("it can be read");
    let [page] = page;
    page
}

fn state_of(ssd: &Ssd) -> Option<MarkState> {
    let uuid = superblock(ssd).expect("it is a log").uuid;
    read_mark(ssd, uuid).expect("a mark").map(|mark| mark.state)
}

/// A chunk of volume A that says that block 1 was trimmed, as an older use of a segment has left it.
fn left_behind(ssd: &Ssd, number: u64, slot: u32) {
    left_behind_by(ssd, number, slot, |_| 0);
}

/// The same of a use of the segment that is told by that of the first segment.
fn left_behind_by(ssd: &Ssd, number: u64, slot: u32, opening: impl Fn(u64) -> u64) {
    let first = ChunkHeader::decode(&page(ssd, offset_of(0))).expect("the first chunk");
    let entries = vec![Entry::Range { block: 1, count: 1, kind: RangeKind::Trim }];
    let opening = opening(first.opening);
    let header = ChunkHeader { number, slot, opening, entries, ..first };
    ssd.write_page(offset_of(slot), &header.encode()).expect("it works");
    Media::<Mem>::flush(ssd).expect("it works");
}

/// What was acknowledged from memory is put back behind headers that are retired: a half without those
/// did not lead to it.
#[test]
fn chunks_in_memory_behind_retired_ones_come_back() {
    for stale in 0..2 {
        let mut two = Two::with(Some(MemFile::new(64)), Mutants::default());
        let old = two.ssds[stale].copy();
        two.write(1, 7);
        two.settle();
        let drained = two.control(Command::Drain(A));
        two.settle();
        two.control(Command::Acknowledge { place: A, memory: true });
        let kept = two.write(2, 8);
        assert!(two.replies[&kept].is_ok(), "{:?}", two.replies[&kept]);
        two.serve();
        assert_eq!(two.answers[&drained], Ok(Done::Nothing));
        two.ssds[stale] = old;
        two.reopen([true, true]).expect("both say that they are complete");
        assert_eq!(two.read(2), Ok(Some(8)));
    }
}

#[test]
fn what_is_put_back_leads_to_chunks_that_one_half_lacks() {
    what_a_chunk_leads_to_is_on_both_halves(Mutants::default());
}

/// Two chunks were under way; the later one is on one half only, and nothing led to it.
pub(crate) fn what_a_chunk_leads_to_is_on_both_halves(mutants: Mutants) {
    let mut two = Two::with(Some(MemFile::new(64)), mutants);
    two.control(Command::Acknowledge { place: A, memory: true });
    for (block, value) in [(1, 7), (2, 8)] {
        two.write(block, value);
        two.submit(Op::Flush);
    }
    assert_eq!(two.ssds[0].under_way(), 2, "each is a chunk of its own");
    two.ssds[0].end(1);
    two.reopen([true, true]).expect("both are complete");
    assert_eq!((two.read(1), two.read(2)), (Ok(Some(7)), Ok(Some(8))));
    for slot in 0..SEGMENT_PAGES {
        let [a, b] = [0, 1].map(|half: usize| page(&two.ssds[half], offset_of(slot)));
        assert!(a == b, "slot {slot}");
    }
}

#[test]
fn chunks_are_found_that_their_own_half_does_not_lead_to() {
    what_nothing_leads_to_on_its_half_is_found_at_once(Mutants::default());
}

/// Of three chunks under way one half got the first and the last, the other one that between them.
pub(crate) fn what_nothing_leads_to_on_its_half_is_found_at_once(mutants: Mutants) {
    for half in 0..2 {
        let mut two = Two::new(mutants);
        for (block, value) in [(1, 7), (2, 8), (3, 9)] {
            two.write(block, value);
            two.submit(Op::Flush);
        }
        assert_eq!(two.ssds.each_ref().map(Ssd::under_way), [3, 3], "each is a chunk of its own");
        two.ssds[half].end(2);
        two.ssds[half].end(0);
        two.ssds[1 - half].end(1);
        two.reopen([true, true]).expect("both are complete");
        let read = [1, 2, 3].map(|block| two.read(block));
        assert_eq!(read, [Ok(Some(7)), Ok(Some(8)), Ok(Some(9))]);
    }
}

/// The page that said that a half was alone rotted, and the other one did not say so: the half that
/// was left behind was believed.
#[test]
fn a_mark_that_was_written_in_part_is_completed_at_the_next_start() {
    for present in [[true, true], [true, false]] {
        let mut two = Two::new(Mutants::default());
        two.write(1, 7);
        two.end(1, Err(IoError::Io));
        two.end(0, Ok(()));
        two.end(0, Ok(()));
        assert!(two.mirror.is_marking(), "one of its pages is written");
        two.reopen(present).expect("one is alone");
        for copy in 0..2 {
            let ssd = two.ssds[0].copy();
            ssd.rot_page(MARK_PAGE + copy);
            assert_eq!(state_of(&ssd), Some(MarkState::Alone), "without page {copy}");
        }
    }
}

#[test]
fn of_two_chunks_with_the_same_number_the_later_one_counts() {
    for stale in 0..2 {
        let mut two = Two::new(Mutants::default());
        two.write(1, 7);
        two.settle();
        two.write(1, 8);
        two.end(1 - stale, Ok(()));
        left_behind(&two.ssds[stale], 2, 5 * SEGMENT_PAGES);
        two.reopen([true, true]).expect("both are complete");
        assert_eq!(two.read(1), Ok(Some(8)));
        for half in 0..2 {
            let found = ChunkHeader::decode(&page(&two.ssds[half], offset_of(5 * SEGMENT_PAGES)));
            assert_eq!(found, None, "half {half}");
        }
    }
}

/// A void chunk of a volume without room for another gap, in a segment that another volume has now.
#[test]
fn what_a_segment_held_before_is_not_written_over_what_it_holds() {
    for stale in 0..2 {
        let mut two = Two::new(Mutants::default());
        two.write(1, 7);
        two.settle();
        let b = two.attach("b");
        let (data, span) = (Mem::of(0, &[9; 8]), ByteSpan::new(4096, 4096));
        two.submit_to(b, Op::Write { span, data, fua: false });
        two.settle();
        left_behind(&two.ssds[stale], 2, SEGMENT_PAGES);
        two.reopen([true, true]).expect("both are complete");
        for half in 0..2 {
            let header = ChunkHeader::decode(&page(&two.ssds[half], offset_of(SEGMENT_PAGES)));
            assert_eq!(header.map(|header| header.volume), Some(b.0), "half {half}");
        }
        assert_eq!(two.read(1), Ok(Some(7)));
        let (span, data) = (ByteSpan::new(4096, 4096), Mem::alloc(1));
        let id = two.submit_to(b, Op::Read { span, data: data.clone() });
        two.settle();
        assert!(two.replies[&id].is_ok());
        assert_eq!(data.value(0), Some(9));
    }
}

#[test]
fn what_a_power_cut_has_left_looks_older_than_what_comes_later() {
    a_start_is_newer_than_what_it_does_not_see(Mutants::default());
}

/// A power cut took all of a use of the second segment but a chunk in its middle, which the next start
/// does not see before it has written chunks up to there.
pub(crate) fn a_start_is_newer_than_what_it_does_not_see(mutants: Mutants) {
    for stale in 0..2 {
        let mut two = Two::new(mutants);
        two.write(1, 7);
        two.settle();
        left_behind_by(&two.ssds[stale], 4, SEGMENT_PAGES + 4, |first| first + 5);
        two.reopen([true, true]).expect("both are complete");
        two.attach("a");
        for block in [2, 3] {
            two.write(block, 8);
            two.settle();
        }
        two.write(4, 9);
        two.end(1 - stale, Ok(()));
        two.reopen([true, true]).expect("both are complete");
        for slot in SEGMENT_PAGES..SEGMENT_PAGES + 6 {
            let [a, b] = [0, 1].map(|half: usize| page(&two.ssds[half], offset_of(slot)));
            assert!(a == b, "slot {slot}");
        }
        assert_eq!(two.read(4), Ok(Some(9)));
    }
}

/// Its first MiB was wiped, and the rest was found again behind it.
#[test]
fn a_device_that_is_empty_at_its_begin_only_is_cleaned() {
    let mut two = Two::new(Mutants::default());
    two.write(1, 7);
    two.settle();
    two.ssds[1].wipe(0..SEGMENTS_PAGE);
    assert!(ChunkHeader::decode(&page(&two.ssds[1], offset_of(0))).is_some(), "it is left");
    force_alone(&two.ssds[0]).expect("it works");
    two.reopen([true, true]).expect("one is alone");
    assert_eq!(two.mirror.states(), [HalfState::Member, HalfState::Filling]);
    for segment in 0..SEGMENTS {
        let first = page(&two.ssds[1], offset_of(segment * SEGMENT_PAGES));
        assert_eq!(first, MetaPage::zeroed(), "segment {segment}");
    }
}

/// Of each page before the segments there is another one.
#[test]
fn an_unreadable_page_before_the_segments_does_not_keep_a_half_from_being_filled() {
    for bad in [0, 1, 300, 514, 515, 516, 517] {
        let mut two = Two::new(Mutants::default());
        two.write(1, 7);
        two.settle();
        two.ssds[1] = two.ssds[0].beside();
        force_alone(&two.ssds[0]).expect("it works");
        two.ssds[0].spoil(bad);
        two.reopen([true, true]).unwrap_or_else(|error| panic!("page {bad}: {error}"));
        let states = two.mirror.states();
        let why = two.mirror.missing(1);
        assert_eq!(states, [HalfState::Member, HalfState::Filling], "page {bad}: {why:?}");
        assert_eq!(two.read(1), Ok(Some(7)), "page {bad}");
        two.attach("a");
        two.control(Command::Drain(A));
        two.settle();
        two.serve();
        assert_eq!(two.mirror.states(), [HalfState::Member; 2], "page {bad}");
        two.write(2, 8);
        two.settle();
        force_alone(&two.ssds[1]).expect("it works");
        two.reopen([false, true]).unwrap_or_else(|error| panic!("page {bad}: {error}"));
        assert_eq!(two.read(2), Ok(Some(8)), "page {bad}");
    }
}

/// It may be the newer one.
#[test]
fn a_record_that_can_not_be_read_is_not_done_without() {
    for copy in 0..2 {
        let mut two = Two::new(Mutants::default());
        two.ssds[0].spoil(directory_offset(0, copy) / 4096);
        two.reopen([true, true]).expect("the other half has it");
        two.ssds[0].spoil(directory_offset(0, copy) / 4096);
        force_alone(&two.ssds[0]).expect("it works");
        assert!(matches!(two.reopen([true, false]), Err(OpenError::Directory(0))));
    }
}

#[test]
fn a_half_is_complete_when_its_own_mark_says_so() {
    let mut two = Two::new(Mutants::default());
    two.ssds[1] = two.ssds[0].beside();
    force_alone(&two.ssds[0]).expect("it works");
    two.write(1, 7);
    two.settle();
    two.reopen([true, true]).expect("one is alone");
    two.control(Command::Remove { place: A, discard: true });
    while state_of(&two.ssds[1]) == Some(MarkState::Filling) {
        assert_eq!(two.mirror.states(), [HalfState::Member, HalfState::Filling]);
        let half = (0..2).find(|half| two.ssds[*half].under_way() > 0);
        two.end(half.expect("something is under way"), Ok(()));
    }
    assert_eq!(state_of(&two.ssds[0]), Some(MarkState::Both));
    two.settle();
    assert_eq!(two.mirror.states(), [HalfState::Member; 2]);
}
