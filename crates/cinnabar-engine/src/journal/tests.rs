//! The journal by itself: what it writes is played onto a ring, and read as after a crash.

use super::*;
use crate::journal::scan::Scan;

fn superblock() -> Superblock {
    Superblock::format([1; 16], Geometry::for_capacity(1020, 1))
}

fn journal() -> Journal {
    Journal::new(&superblock(), &Config::default())
}

fn invalidation(block: u64) -> Record {
    Record::Invalidation { incarnation: 1, block, count: 1, version: 1 }
}

fn append(journal: &mut Journal, records: u32) {
    for block in 0..u64::from(records) {
        journal.append(invalidation(block));
    }
}

/// Writes as long as there is something to write and room; gives the number of writes.
fn write_out(journal: &mut Journal) -> u32 {
    let mut writes = 0;
    while journal.next_write().is_some() {
        journal.written(Ok(())).expect("it went well");
        writes += 1;
    }
    writes
}

/// One record a page, until half of the ring is full.
fn half_full() -> Journal {
    let mut journal = journal();
    while !journal.is_half_full() {
        append(&mut journal, 1);
        assert_eq!(write_out(&mut journal), 1);
    }
    journal
}

#[test]
fn few_records_are_rewritten_and_many_volumes_are_not() {
    let mut journal = half_full();
    assert!(journal.wants_rebase(10) && !journal.wants_checkpoint(10));
    assert!(!journal.wants_rebase(100) && journal.wants_checkpoint(100));
    journal.begin_rebase([]);
    write_out(&mut journal);
    assert!(journal.is_idle() && !journal.is_half_full());
}

/// More than the ring has room for comes while the journal is being rewritten: the last page
/// is kept for the record that a checkpoint has made room.
#[test]
fn a_rebase_that_is_overtaken_ends_with_a_checkpoint() {
    let mut journal = half_full();
    journal.begin_rebase([]);
    append(&mut journal, 20_000);
    write_out(&mut journal);
    assert!(!journal.is_idle() && journal.wants_checkpoint(0) && !journal.wants_rebase(0));
    let mut checkpoints = 0;
    while !journal.is_idle() {
        let page = journal.checkpoint_begins();
        checkpoints += 1;
        journal.checkpoint_ends(Some((checkpoints, page)));
        assert!(write_out(&mut journal) > 0, "room was made");
    }
    assert!(checkpoints > 1);
}

/// A journal, the ring that it is written to, and the checkpoints that cover its records. Record `n`
/// is the `n`th one appended.
struct Played {
    journal: Journal,
    ring: Vec<MetaPage>,
    /// The write under way.
    writing: Option<(u64, Vec<MetaPage>)>,
    records: Vec<Ticket>,
    /// The checkpoint being made: its first page, and the records before it.
    making: Option<(u64, usize)>,
    /// The newest complete one: number, first page, records that it covers.
    head: (u64, u64, usize),
    /// Pages before this one were durable when it was completed.
    durable: u64,
}

impl Played {
    fn new(mutants: Mutants) -> Self {
        let journal = Journal::new(&superblock(), &Config { mutants, ..Config::default() });
        let ring = Journal::formatted(&superblock(), 0, journal.area.1);
        let head = (1, journal.next, 0);
        Self { journal, ring, writing: None, records: Vec::new(), making: None, head, durable: 0 }
    }

    fn append(&mut self) {
        let ticket = self.journal.append(invalidation(self.records.len() as u64));
        self.records.push(ticket);
    }

    /// As the engine's end of batch does it.
    fn pump(&mut self) {
        if self.journal.wants_rebase(0) {
            self.journal.begin_rebase([]);
        }
        if let Some((offset, pages)) = self.journal.next_write() {
            self.writing = Some((offset / BLOCK_BYTES - self.journal.area.0, pages));
        }
    }

    fn complete(&mut self) {
        let Some((at, pages)) = self.writing.take() else { return };
        for (place, page) in (at as usize..).zip(pages) {
            self.ring[place] = page;
        }
        let tail = self.journal.tail_durable;
        self.journal.written(Ok(())).expect("it went well");
        // Nothing is lost but by a tail that moves.
        if self.journal.tail_durable != tail {
            self.check();
        }
    }

    fn begin_checkpoint(&mut self) {
        assert!(self.making.is_none(), "one at a time");
        self.making = Some((self.journal.checkpoint_begins(), self.records.len()));
    }

    fn end_checkpoint(&mut self) {
        let Some((page, covered)) = self.making.take() else { return };
        self.head = (self.head.0 + 1, page, covered);
        self.durable = self.journal.durable_page();
        self.journal.checkpoint_ends(Some((self.head.0, page)));
        self.check();
    }

    /// A crash now finds every durable record that the newest checkpoint does not cover.
    fn check(&self) {
        let (checkpoint, page, covered) = self.head;
        let superblock = superblock();
        let mut scan = Scan::new(device_of(superblock.uuid), superblock.era);
        scan.take(&self.ring);
        let read = scan.read(page, self.durable, Mutants::default()).expect("nothing was damaged");
        assert!(read.checkpoint <= checkpoint, "the records go with a checkpoint that there is");
        let mut found = vec![false; self.records.len()];
        for record in read.records {
            let Record::Invalidation { block, .. } = record else {
                panic!("only invalidations were written")
            };
            found[block as usize] = true;
        }
        for (record, ticket) in self.records.iter().enumerate().skip(covered) {
            let durable = self.journal.is_durable(*ticket);
            assert!(found[record] || !durable, "record {record} of {} is lost", self.records.len());
        }
    }
}

/// A checkpoint ends while the last write of a rebase is under way, and the next rebase begins in
/// the same batch: the write must not count for it, or the tail passes records that nothing covers.
fn checkpoint_ends_during_the_last_write_of_a_rebase(mut played: Played) {
    played.begin_checkpoint();
    while !played.journal.is_half_full() {
        played.append();
        played.pump();
        played.complete();
    }
    played.pump();
    assert!(played.writing.is_some(), "a rebase has begun, and is written at once");
    played.end_checkpoint();
    played.pump();
    assert_eq!(played.journal.rebases, 2);
    played.complete();
    played.append();
    played.pump();
    played.complete();
}

#[test]
fn a_write_of_a_rebase_that_a_checkpoint_ended_does_not_end_the_next_one() {
    checkpoint_ends_during_the_last_write_of_a_rebase(Played::new(Mutants::default()));
}

#[test]
#[should_panic(expected = "record 0 of 34 is lost")]
fn the_mutant_that_takes_the_write_for_the_next_rebase_is_found() {
    let mutant = Mutants::only(Mutant::RebaseMistaken);
    checkpoint_ends_during_the_last_write_of_a_rebase(Played::new(mutant));
}

/// The state of many volumes takes more than one write, and nothing else has to be rewritten.
#[test]
fn a_rebase_of_volumes_alone_ends_when_the_last_of_them_is_durable() {
    let mut journal = half_full();
    let page = journal.checkpoint_begins();
    journal.checkpoint_ends(Some((1, page)));
    let flushed = || Record::Flushed { incarnation: 1, session: 1, sequence: 1 };
    journal.append(flushed());
    assert_eq!(write_out(&mut journal), 1);
    journal.begin_rebase((0..5000).map(|_| flushed()));
    let (first, newest) = (journal.next, journal.newest());
    while journal.next_write().is_some() {
        journal.written(Ok(())).expect("it went well");
        let done = journal.is_durable(newest);
        assert!(done || journal.tail < first, "the tail waits for all of the state");
    }
    assert!(journal.is_durable(newest) && journal.tail == first);
}

/// Appends, writes, rebases and checkpoints, in an order drawn from a seed; gives the rebases.
fn play(seed: u64, mutants: Mutants) -> u64 {
    let mut played = Played::new(mutants);
    let mut rng = seed;
    for _ in 0..10_000 {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Some seeds make checkpoints that last long, some short ones.
        match (rng >> 33) % 1000 {
            0 if played.making.is_none() => played.begin_checkpoint(),
            1..=9 if (rng >> 50) % 8 < seed % 8 => {
                played.end_checkpoint();
                // In the same batch.
                played.pump();
            }
            10..=330 => played.append(),
            331..=660 => played.pump(),
            _ => played.complete(),
        }
    }
    played.check();
    played.journal.rebases
}

#[test]
fn no_order_of_writes_rebases_and_checkpoints_loses_a_record() {
    let rebases: u64 = (1..=40).map(|seed| play(seed, Mutants::default())).sum();
    assert!(rebases > 400, "{rebases}: the ring was seldom half full");
}

#[test]
fn orders_drawn_from_a_seed_find_the_mutant() {
    let found = |seed| {
        let play = || play(seed, Mutants::only(Mutant::RebaseMistaken));
        std::panic::catch_unwind(play).is_err()
    };
    assert!((1..=40).any(found));
}
