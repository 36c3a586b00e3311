//! Places in order of time, some of them taken, and how many of those are newer than a given one.
//!
//! The heart of every distance. A bit a place; the taken ones of a cache line (512 places) are
//! summed up in a Fenwick tree, which is so small that it stays in the CPU's cache. A count is a
//! walk in the tree and a look at one line. When the places run out, the owner gives its blocks new
//! ones, close together.

const LINE_BITS: u32 = 9;
const LINE: usize = 1 << LINE_BITS;
const WORDS: usize = LINE / 64;
const LINES_MIN: usize = 8;
/// Places for each taken one after a compaction, so that one comes at most every third touch.
const SPARSE: usize = 4;
/// 2^30 blocks, and as many free places.
const PLACES_MAX: usize = 1 << 31;

/// A bit for each place, oldest first.
#[derive(Debug)]
pub(super) struct Places {
    lines: Vec<[u64; WORDS]>,
    /// Fenwick tree of the lines' sums, its first element unused.
    sums: Vec<u32>,
    next: u32,
    taken: u32,
}

impl Default for Places {
    fn default() -> Self {
        Self { lines: vec![[0; WORDS]; LINES_MIN], sums: vec![0; LINES_MIN + 1], next: 0, taken: 0 }
    }
}

impl Places {
    /// Is there no newer place left? Then [`rank`](Self::rank) everything and
    /// [`compact`](Self::compact).
    pub(super) fn is_full(&self) -> bool {
        self.next as usize == self.lines.len() * LINE
    }

    /// All places there are, taken or not.
    pub(super) fn capacity(&self) -> usize {
        self.lines.len() * LINE
    }

    /// Takes the newest place.
    #[inline]
    pub(super) fn push(&mut self) -> u32 {
        let place = self.next;
        self.lines[place as usize / LINE][place as usize % LINE / 64] |= 1 << (place % 64);
        let mut node = (place >> LINE_BITS) as usize + 1;
        while node < self.sums.len() {
            self.sums[node] += 1;
            node += node & node.wrapping_neg();
        }
        self.next += 1;
        self.taken += 1;
        place
    }

    /// Gives a taken place up.
    #[inline]
    pub(super) fn clear(&mut self, place: u32) {
        self.lines[place as usize / LINE][place as usize % LINE / 64] &= !(1 << (place % 64));
        let mut node = (place >> LINE_BITS) as usize + 1;
        while node < self.sums.len() {
            self.sums[node] -= 1;
            node += node & node.wrapping_neg();
        }
        self.taken -= 1;
    }

    /// Taken places older than `place`.
    #[inline]
    pub(super) fn rank(&self, place: u32) -> u32 {
        let line = place as usize / LINE;
        let mut rank = 0;
        let mut node = line;
        while node > 0 {
            rank += self.sums[node];
            node &= node - 1;
        }
        let (word, bit) = (place as usize % LINE / 64, place % 64);
        let words = &self.lines[line];
        for older in &words[..word] {
            rank += older.count_ones();
        }
        rank + (words[word] & ((1 << bit) - 1)).count_ones()
    }

    /// Taken places newer than `place`, which is taken.
    #[inline]
    pub(super) fn newer(&self, place: u32) -> u32 {
        self.taken - self.rank(place) - 1
    }

    /// Moves every taken place to its rank.
    pub(super) fn compact(&mut self) {
        let taken = self.taken as usize;
        let mut places = self.capacity();
        while taken * SPARSE > places && places < PLACES_MAX {
            places *= 2;
        }
        let lines = places / LINE;
        self.lines = vec![[0; WORDS]; lines];
        self.sums = vec![0; lines + 1];
        for place in 0..taken {
            self.lines[place / LINE][place % LINE / 64] |= 1 << (place % 64);
        }
        for node in 1..=lines {
            self.sums[node] +=
                self.lines[node - 1].iter().map(|word| word.count_ones()).sum::<u32>();
            let parent = node + (node & node.wrapping_neg());
            if parent <= lines {
                self.sums[parent] += self.sums[node];
            }
        }
        self.next = self.taken;
    }
}
