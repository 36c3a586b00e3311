//! One small cache: the engine's rules of admission and eviction over a sample of a volume's blocks.
//!
//! What it has from the engine: probation, the ghost, the four ways of admission, the history that speaks
//! for keeping writes, room within a share, a hand that gives a used block a lap. What it leaves out:
//! segments, so also what reinsertion writes ([`EngineModel`](super::EngineModel) has a factor for it),
//! and that volumes share probation and ghost.

use super::Way;
use std::collections::VecDeque;

/// Flash writes that a back-end read is worth, as with the engine's default price.
const READ_WORTH: u32 = 8;
/// Uses of written blocks that are remembered.
const MEMORY: u32 = 4096;
/// Uses that are told apart.
const REFS_MAX: u8 = 3;
/// Blocks that one access looks at to make room: if they have all been used, the next one goes on.
const STEPS_MAX: usize = 256;

/// Where a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Nowhere,
    Ghost,
    Probation,
    Main,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    at: At,
    refs: u8,
    /// Written, and not read since.
    written: bool,
    /// Tells its place in a queue from those it has left.
    stamp: u32,
}

/// How large a cache is, in sampled blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Worth keeping on flash.
    pub(super) main: usize,
    /// Up to here everything is let in.
    pub(super) free: usize,
    pub(super) probation: usize,
    /// Once full there is no room any more, as in the engine's own small simulations.
    pub(super) fills_once: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Became {
    pub(super) is_hit: bool,
    /// A write was kept.
    pub(super) is_kept: bool,
    /// A write took a copy out of flash, which the journal records.
    pub(super) is_recorded: bool,
    /// Blocks put on flash meanwhile.
    pub(super) flashed: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Small {
    room: Room,
    ghost_max: usize,
    entries: Vec<Entry>,
    probation: VecDeque<(u32, u32)>,
    main: VecDeque<(u32, u32)>,
    ghost: VecDeque<(u32, u32)>,
    in_probation: usize,
    in_main: usize,
    in_ghost: usize,
    stamp: u32,
    useful: u32,
    useless: u32,
    flashed: u32,
    ghosted: u64,
    was_full: bool,
}

impl Small {
    pub(super) fn new(room: Room, ghost_max: usize) -> Self {
        Self {
            room,
            ghost_max,
            entries: Vec::new(),
            probation: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            in_probation: 0,
            in_main: 0,
            in_ghost: 0,
            stamp: 0,
            useful: 0,
            useless: 0,
            flashed: 0,
            ghosted: 0,
            was_full: false,
        }
    }

    /// Room to know blocks of numbers below this.
    pub(super) fn reserve(&mut self, numbers: usize) {
        if self.entries.len() < numbers {
            self.entries.resize(numbers.next_power_of_two(), Entry::default());
        }
    }

    pub(super) fn set_ghost_max(&mut self, ghost_max: usize) {
        self.ghost_max = ghost_max;
    }

    /// Whether nothing is known of a block, so its number can be another one's.
    pub(super) fn is_free(&self, number: u32) -> bool {
        self.entries[number as usize].at == At::Nowhere
    }

    /// Whether writes to the volume are worth keeping.
    pub(super) fn pays(&self) -> bool {
        self.useful * READ_WORTH >= self.useless
    }

    /// A read, or a write that is kept if that pays. With `pays` the history of another cache counts.
    pub(super) fn access(
        &mut self,
        number: u32,
        is_write: bool,
        way: Way,
        pays: Option<bool>,
    ) -> Became {
        self.flashed = 0;
        let entry = self.entries[number as usize];
        let is_hit = matches!(entry.at, At::Probation | At::Main);
        let mut is_kept = false;
        if is_write {
            if is_hit && entry.written {
                self.note(false);
            }
            let was_hit = is_hit;
            self.leave(number, is_hit);
            let pays = pays.unwrap_or_else(|| self.pays());
            is_kept = !way.is_thrifty() || pays || self.has_room();
            let known = self.take_ghost(number, true);
            if !is_kept {
                self.enter_ghost(number, true);
            } else if known && way != Way::Closed {
                self.enter(number, At::Main, 0, true);
            } else {
                self.enter(number, At::Probation, u8::from(was_hit), true);
            }
        } else if is_hit {
            if entry.written {
                self.note(true);
            }
            let entry = &mut self.entries[number as usize];
            (entry.refs, entry.written) = ((entry.refs + 1).min(REFS_MAX), false);
            return Became { is_hit, ..Became::default() };
        } else if self.take_ghost(number, false) && way != Way::Closed {
            self.enter(number, At::Main, 0, false);
        } else {
            self.enter(number, At::Probation, 0, false);
        }
        self.settle(way);
        let is_recorded = is_write && entry.at == At::Main;
        Became { is_hit, is_kept, is_recorded, flashed: self.flashed }
    }

    /// A write that is not kept, whatever it would be worth: only its copy goes. Whether that was on
    /// flash.
    pub(super) fn invalidate(&mut self, number: u32) -> bool {
        let at = self.entries[number as usize].at;
        self.leave(number, matches!(at, At::Probation | At::Main));
        at == At::Main
    }

    fn note(&mut self, useful: bool) {
        *(if useful { &mut self.useful } else { &mut self.useless }) += 1;
        if self.useful + self.useless >= MEMORY {
            self.useful /= 2;
            self.useless /= 2;
        }
    }

    /// Whether it ever had to give something up.
    pub(super) const fn was_full(&self) -> bool {
        self.was_full
    }

    /// Blocks that were ever put into the ghost.
    pub(super) const fn ghosted(&self) -> u64 {
        self.ghosted
    }

    fn has_room(&self) -> bool {
        !(self.room.fills_once && self.was_full)
            && self.in_main + self.in_probation < self.room.free
    }

    fn leave(&mut self, number: u32, is_cached: bool) {
        if !is_cached {
            return;
        }
        let entry = &mut self.entries[number as usize];
        let count = if entry.at == At::Main { &mut self.in_main } else { &mut self.in_probation };
        assert!(*count > 0, "a block that is there counts");
        *count -= 1;
        *entry = Entry::default();
    }

    fn take_ghost(&mut self, number: u32, is_write: bool) -> bool {
        let entry = self.entries[number as usize];
        if entry.at != At::Ghost {
            return false;
        }
        if entry.written {
            self.note(!is_write);
        }
        self.in_ghost -= 1;
        self.entries[number as usize] = Entry::default();
        true
    }

    fn enter(&mut self, number: u32, at: At, refs: u8, written: bool) {
        self.stamp = self.stamp.wrapping_add(1);
        self.entries[number as usize] = Entry { at, refs, written, stamp: self.stamp };
        let (queue, count) = if at == At::Main {
            self.flashed += 1;
            (&mut self.main, &mut self.in_main)
        } else {
            (&mut self.probation, &mut self.in_probation)
        };
        *count += 1;
        queue.push_back((number, self.stamp));
        clear(queue, *count, &self.entries);
    }

    fn enter_ghost(&mut self, number: u32, written: bool) {
        self.stamp = self.stamp.wrapping_add(1);
        let at = At::Ghost;
        self.entries[number as usize] = Entry { at, refs: 0, written, stamp: self.stamp };
        self.ghost.push_back((number, self.stamp));
        self.in_ghost += 1;
        self.ghosted += 1;
        clear(&mut self.ghost, self.in_ghost, &self.entries);
        while self.in_ghost > self.ghost_max {
            let Some(oldest) = oldest(&mut self.ghost, &self.entries) else { break };
            self.in_ghost -= 1;
            self.entries[oldest as usize] = Entry::default();
        }
    }

    /// Blocks leave until each queue is as long as it may be, or one access has done enough.
    fn settle(&mut self, way: Way) {
        while self.in_probation > self.room.probation {
            let Some(number) = oldest(&mut self.probation, &self.entries) else { break };
            let entry = self.entries[number as usize];
            let earns = entry.refs > 0 || way == Way::Open || self.has_room();
            self.leave(number, true);
            if earns && self.room.main > 0 {
                self.enter(number, At::Main, 0, entry.written);
            } else {
                self.enter_ghost(number, entry.written);
            }
        }
        self.was_full |= self.in_main > self.room.main;
        for _ in 0..STEPS_MAX {
            if self.in_main <= self.room.main {
                break;
            }
            let Some(number) = oldest(&mut self.main, &self.entries) else { break };
            let entry = &mut self.entries[number as usize];
            if entry.refs > 0 {
                entry.refs -= 1;
                self.main.push_back((number, entry.stamp));
            } else {
                let written = entry.written;
                self.leave(number, true);
                self.enter_ghost(number, written);
            }
        }
    }
}

/// Takes out the oldest block of a queue that has not left its place there.
fn oldest(queue: &mut VecDeque<(u32, u32)>, entries: &[Entry]) -> Option<u32> {
    while let Some((number, stamp)) = queue.pop_front() {
        let entry = entries[number as usize];
        if entry.at != At::Nowhere && entry.stamp == stamp {
            return Some(number);
        }
    }
    None
}

/// Clears a queue of left places when it is twice too long.
fn clear(queue: &mut VecDeque<(u32, u32)>, count: usize, entries: &[Entry]) {
    if queue.len() > 2 * count + 16 {
        queue.retain(|(number, stamp)| entries[*number as usize].stamp == *stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { main: 100, free: 80, probation: 4, fills_once: false };

    fn run(small: &mut Small, way: Way, accesses: impl Iterator<Item = (u32, bool)>) -> [u32; 3] {
        let mut sums = [0; 3];
        for (number, is_write) in accesses {
            small.reserve(number as usize + 1);
            let became = small.access(number, is_write, way, None);
            sums[0] += u32::from(became.is_hit && !is_write);
            sums[1] += u32::from(became.is_kept);
            sums[2] += became.flashed;
            assert!(small.in_main <= ROOM.main + 1 && small.in_ghost <= 200, "{small:?}");
        }
        sums
    }

    #[test]
    fn a_loop_that_fits_is_kept_and_written_once() {
        let mut small = Small::new(ROOM, 200);
        let [hits, kept, flashed] =
            run(&mut small, Way::Thrifty, (0..700).map(|n| (n % 70, false)));
        assert_eq!((hits, kept, flashed), (630, 0, 66), "all but what is still in probation");
    }

    #[test]
    fn writes_that_nobody_reads_go_to_flash_only_while_there_is_room() {
        let mut small = Small::new(ROOM, 200);
        let writes = |n: u32| (n, true);
        let [.., flashed] = run(&mut small, Way::Thrifty, (0..6000).map(writes));
        assert!(flashed < 200, "{flashed} on flash");
        let mut open = Small::new(ROOM, 200);
        let [_, kept, flashed] = run(&mut open, Way::Open, (0..6000).map(writes));
        assert!(kept == 6000 && flashed > 5000, "{kept} kept, {flashed} on flash");
    }
}
