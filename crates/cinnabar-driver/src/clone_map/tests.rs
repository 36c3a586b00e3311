//! The map against a plain one, and the rule of routing against a model of a clone: requests that overlap in
//! time, writes that fail in both ways, crashes.

use super::*;

const KIB: u64 = 1024;
/// Of the tests: two blocks.
const OBJECT: u64 = 8 * KIB;

/// Numbers that look random, the same for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn span(offset: u64, len: u64) -> ByteSpan {
    ByteSpan::new(offset, len)
}

#[test]
fn what_is_written_is_the_clones_own() {
    let map = CloneMap::new(OBJECT, 10 * OBJECT, [3, 9, 10, 4000]).expect("small");
    assert_eq!(map.objects_and_own(), (10, 2));
    assert!(map.is_parents(span(0, 3 * OBJECT)));
    assert!(!map.is_parents(span(3 * OBJECT - 512, 1024)), "a part of it is in object 3");
    assert!(map.is_parents(span(4 * OBJECT, 5 * OBJECT)));
    map.begin_change(span(6 * OBJECT + 512, 512));
    assert!(!map.is_parents(span(6 * OBJECT, 512)) && !map.is_parents(span(7 * OBJECT - 512, 512)));
    assert!(map.is_parents(span(5 * OBJECT, OBJECT)) && map.is_parents(span(7 * OBJECT, OBJECT)));
    assert_eq!(map.objects_and_own(), (10, 3));
    map.lose();
    assert!(!map.is_parents(span(0, 512)));
    assert_eq!(map.objects_and_own(), (0, 0));
}

#[test]
fn beyond_the_overlap_nothing_is_the_parents() {
    // A block and a half of the last object.
    let overlap = 2 * OBJECT + 4 * KIB + 2 * KIB;
    let map = CloneMap::new(OBJECT, overlap, []).expect("small");
    assert_eq!(map.covered_bytes(), 2 * OBJECT + 4 * KIB);
    assert!(map.is_parents(span(2 * OBJECT, 4 * KIB)));
    assert!(!map.is_parents(span(2 * OBJECT, 4 * KIB + 512)), "its last block is mixed");
    assert!(!map.is_parents(span(2 * OBJECT + 4 * KIB, 512)));
    assert!(!map.is_parents(span(7 * OBJECT, 512)) && !map.is_parents(span(0, 0)));
    assert!(!map.is_parents(span(u64::MAX - 511, 1024)), "it ends nowhere");
    map.cut(OBJECT + 1);
    assert!(map.is_parents(span(0, OBJECT)) && !map.is_parents(span(OBJECT, 512)));
    map.cut(9 * OBJECT);
    assert!(!map.is_parents(span(OBJECT, 512)), "what was cut off does not come back");
    assert!(!CloneMap::new(OBJECT, 0, []).expect("empty").is_parents(span(0, 512)));
}

#[test]
fn a_map_is_bounded_and_objects_are_whole_blocks() {
    for bytes in [0, 512, 4097, 6 * KIB] {
        assert_eq!(CloneMap::new(bytes, OBJECT, []).err(), Some(CloneMapError::ObjectBytes(bytes)));
    }
    let most = OBJECTS_MAX * OBJECT;
    let map = CloneMap::new(OBJECT, most, [OBJECTS_MAX - 1]).expect("as many as are possible");
    assert_eq!((map.ram_bytes(), map.objects_and_own()), (8 << 20, (OBJECTS_MAX, 1)));
    let error = CloneMap::new(OBJECT, most + 1, []).err();
    assert_eq!(error, Some(CloneMapError::Objects(OBJECTS_MAX + 1)));
    // One request may be for all of it, and for more than there is.
    map.begin_change(span(OBJECT, u64::MAX - OBJECT));
    assert_eq!(map.objects_and_own(), (OBJECTS_MAX, OBJECTS_MAX - 1));
}

#[test]
fn it_is_as_a_plain_list_of_objects() {
    let objects = 300;
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let mut plain: Vec<bool> = (0..objects).map(|_| rng.below(8) == 0).collect();
        let own = (0..objects).filter(|object| plain[*object as usize]);
        let map = CloneMap::new(OBJECT, objects * OBJECT, own).expect("small");
        for _ in 0..400 {
            let offset = rng.below(objects * OBJECT / 512) * 512;
            let longest = 1 << rng.below(12);
            let len = (1 + rng.below(longest)) * 512;
            let len = len.min(objects * OBJECT - offset);
            let touched = (offset / OBJECT..=(offset + len - 1) / OBJECT).map(|at| at as usize);
            if rng.below(40) == 0 {
                map.begin_change(span(offset, len));
                touched.for_each(|object| plain[object] = true);
            } else {
                let parents = touched.into_iter().all(|object| !plain[object]);
                assert_eq!(map.is_parents(span(offset, len)), parents, "seed {seed}");
            }
        }
        let own = plain.iter().filter(|own| **own).count() as u64;
        assert_eq!(map.objects_and_own(), (objects, own));
    }
}

/// When a change sets its bits, in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sets {
    /// As it must be.
    BeforeItIsSent,
    /// A mistake: when it is acknowledged, so that one which failed sets none.
    WhenAcknowledged,
    /// A mistake: for the block alone, as if there were no copy-up. What others write in the object is read
    /// from the parent.
    Never,
}

/// A request under way at one block of the model.
enum UnderWay {
    Write {
        value: u64,
    },
    /// Of the clone's engine, in order behind writes of its block.
    Read {
        number: usize,
    },
}

/// What a read may return, and what it returned.
struct Read {
    block: u64,
    /// Its place among all events, and that of its answer.
    began: u64,
    ended: u64,
    value: u64,
}

/// One block's writes: value, when it was sent, when it was answered, and whether it landed.
struct Write {
    value: u64,
    began: u64,
    ended: u64,
    acknowledged: bool,
}

/// Blocks of the model, and of them the first that are the parent's, too.
const BLOCKS: u64 = 12;
const OVERLAP: u64 = (BLOCKS - 3) * BLOCK_BYTES;
const PER_OBJECT: u64 = OBJECT / BLOCK_BYTES;

/// A clone of a parent whose block N holds the value 1000 + N, under random requests. Each block's requests
/// are carried out in order, as range locks have it; reads of the parent end whenever they do.
struct World {
    sets: Sets,
    map: CloneMap,
    /// By block, whether the object that holds it exists, and what is there.
    exists: Vec<bool>,
    stored: Vec<u64>,
    queues: Vec<Vec<UnderWay>>,
    at_parent: Vec<usize>,
    reads: Vec<Read>,
    writes: Vec<Vec<Write>>,
    /// Counts events.
    now: u64,
    /// The next value that is written.
    next: u64,
    /// Reads that were given to the parent.
    routed: u64,
}

fn of_parent(block: u64) -> u64 {
    if block * BLOCK_BYTES < OVERLAP { 1000 + block } else { 0 }
}

/// The map as it is made from what exists.
fn map_of(exists: &[bool]) -> CloneMap {
    let own = (0..BLOCKS / PER_OBJECT).filter(|object| exists[(object * PER_OBJECT) as usize]);
    CloneMap::new(OBJECT, OVERLAP, own).expect("small")
}

impl World {
    fn new(sets: Sets, second_exists: bool) -> Self {
        let mut exists = vec![false; BLOCKS as usize];
        exists[PER_OBJECT as usize..][..PER_OBJECT as usize].fill(second_exists);
        Self {
            sets,
            map: map_of(&exists),
            exists,
            stored: (0..BLOCKS).map(of_parent).collect(),
            queues: (0..BLOCKS).map(|_| Vec::new()).collect(),
            at_parent: Vec::new(),
            reads: Vec::new(),
            writes: (0..BLOCKS).map(|_| Vec::new()).collect(),
            now: 0,
            next: 1,
            routed: 0,
        }
    }

    fn whole(block: u64) -> ByteSpan {
        span(block * BLOCK_BYTES, BLOCK_BYTES)
    }

    fn write(&mut self, block: u64) {
        if self.sets == Sets::BeforeItIsSent {
            self.map.begin_change(Self::whole(block));
        }
        let (value, began, ended, acknowledged) = (self.next, self.now, u64::MAX, false);
        self.next += 1;
        self.writes[block as usize].push(Write { value, began, ended, acknowledged });
        self.queues[block as usize].push(UnderWay::Write { value });
    }

    fn read(&mut self, block: u64) {
        let number = self.reads.len();
        self.reads.push(Read { block, began: self.now, ended: u64::MAX, value: 0 });
        if self.map.is_parents(Self::whole(block)) {
            self.routed += 1;
            self.at_parent.push(number);
        } else {
            self.queues[block as usize].push(UnderWay::Read { number });
        }
    }

    /// One of the reads at the parent ends.
    fn parent_answers(&mut self, which: usize) {
        let read = &mut self.reads[self.at_parent.swap_remove(which)];
        (read.ended, read.value) = (self.now, of_parent(read.block));
    }

    /// The oldest request of a block ends; a write in one of three ways.
    fn clone_answers(&mut self, block: u64, fate: u64) {
        match self.queues[block as usize].remove(0) {
            UnderWay::Read { number } => {
                let read = &mut self.reads[number];
                (read.ended, read.value) = (self.now, self.stored[block as usize]);
            }
            UnderWay::Write { value } => {
                let (lands, acknowledges) = (fate != 3, fate < 2);
                if lands {
                    let first = (block / PER_OBJECT * PER_OBJECT) as usize;
                    self.exists[first..][..PER_OBJECT as usize].fill(true);
                    self.stored[block as usize] = value;
                }
                let mut writes = self.writes[block as usize].iter_mut();
                let write = writes.find(|write| write.value == value).expect("it was sent");
                (write.ended, write.acknowledged) = (self.now, acknowledges);
                if acknowledges && self.sets == Sets::WhenAcknowledged {
                    self.map.begin_change(Self::whole(block));
                }
            }
        }
    }

    /// All that is under way is lost, and the map made from what is there.
    fn crash(&mut self) {
        self.queues.iter_mut().for_each(Vec::clear);
        self.at_parent.clear();
        self.map = map_of(&self.exists);
    }
}

/// Says what was wrong, or how many reads were given to the parent.
fn run(seed: u64, sets: Sets) -> Result<u64, String> {
    let mut rng = Rng(seed);
    let mut world = World::new(sets, rng.below(2) == 0);
    for _ in 0..300 {
        world.now += 1;
        let block = rng.below(BLOCKS);
        let under_way = world.at_parent.len() as u64;
        match rng.below(10) {
            0 => world.write(block),
            1..=4 => world.read(block),
            5 | 6 if under_way > 0 => world.parent_answers(rng.below(under_way) as usize),
            9 if rng.below(12) == 0 => world.crash(),
            _ if !world.queues[block as usize].is_empty() => {
                world.clone_answers(block, rng.below(4));
            }
            _ => {}
        }
    }
    // What there is at the end is a read like any other.
    for block in 0..BLOCKS {
        world.now += 1;
        let (at, value) = (world.now, world.stored[block as usize]);
        world.reads.push(Read { block, began: at, ended: at, value });
    }
    judge(&world.reads, &world.writes, of_parent).map(|()| world.routed)
}

/// Whether there is an order of each block's reads and writes in which each takes effect between its
/// beginning and its end, and a write that was not acknowledged at some time or never.
fn judge(reads: &[Read], writes: &[Vec<Write>], first: impl Fn(u64) -> u64) -> Result<(), String> {
    let done =
        |block: u64| reads.iter().filter(move |read| read.block == block && read.ended < u64::MAX);
    for (block, writes) in (0..).zip(writes) {
        // Writes of a block are carried out in order: the value's place among them tells how new it is.
        let place = |value: u64| {
            let found = writes.iter().position(|write| write.value == value).map(|at| at + 1);
            found.or((value == first(block)).then_some(0))
        };
        for read in done(block) {
            let seen = place(read.value).ok_or_else(|| format!("block {block}: another's data"))?;
            let newest = writes.iter().rposition(|w| w.acknowledged && w.ended < read.began);
            if newest.is_some_and(|at| seen < at + 1) {
                return Err(format!("block {block}: older than what was acknowledged"));
            }
            if seen > 0 && writes[seen - 1].began > read.ended {
                return Err(format!("block {block}: newer than what was sent"));
            }
            let earlier = done(block).filter(|other| other.ended < read.began);
            if earlier.filter_map(|other| place(other.value)).any(|other| other > seen) {
                return Err(format!("block {block}: old content after new"));
            }
            // A write that began and ended before this read, and that it did not show, has not happened.
            let missed =
                |w: &Write| w.ended < read.began && place(w.value).is_some_and(|at| at > seen);
            let later = done(block).filter(|other| other.began > read.ended);
            for other in later {
                if writes.iter().any(|w| missed(w) && w.value == other.value) {
                    return Err(format!("block {block}: a write that failed happened later"));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn no_read_is_stale() {
    let routed: u64 =
        (0..2000).map(|seed| run(seed, Sets::BeforeItIsSent).expect("linearizable")).sum();
    assert!(routed > 2000 * 20, "{routed} reads of the parent");
}

#[test]
fn a_bit_that_is_set_too_late_is_found() {
    for sets in [Sets::WhenAcknowledged, Sets::Never] {
        let found = (0..2000).find(|seed| run(*seed, sets).is_err());
        assert!(found.is_some(), "{sets:?}");
    }
}
