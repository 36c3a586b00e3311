//! Each policy written down plainly: vectors, oldest first, searched from end to end.

use cinnabar_policy::{Access, Policy};
use std::collections::BTreeMap;

/// A cache; which of its fields mean something depends on the policy.
pub(crate) struct Naive<'a> {
    pub(crate) policy: Policy,
    pub(crate) capacity: usize,
    /// For Belady.
    pub(crate) trace: &'a [Access],
    pub(crate) only_reads: bool,
    now: usize,
    /// What is cached; SMALL and T1 of those with two queues, CLOCK's ring.
    first: Vec<u32>,
    /// MAIN, T2.
    second: Vec<u32>,
    first_ghost: Vec<u32>,
    second_ghost: Vec<u32>,
    uses: BTreeMap<u32, u32>,
    /// SIEVE's: a block.
    hand: Option<u32>,
    /// CLOCK's: an index.
    index: usize,
    target: f64,
    has_evicted: bool,
}

fn take(list: &mut Vec<u32>, block: u32) -> bool {
    let found = list.iter().position(|other| *other == block);
    found.map(|at| list.remove(at)).is_some()
}

impl<'a> Naive<'a> {
    pub(crate) fn new(
        policy: Policy,
        capacity: usize,
        trace: &'a [Access],
        only_reads: bool,
    ) -> Self {
        let target = if policy == Policy::Larc { capacity as f64 * 0.1 } else { 0.0 };
        Self {
            policy,
            capacity,
            trace,
            only_reads,
            now: 0,
            first: Vec::new(),
            second: Vec::new(),
            first_ghost: Vec::new(),
            second_ghost: Vec::new(),
            uses: BTreeMap::new(),
            hand: None,
            index: 0,
            target,
            has_evicted: false,
        }
    }

    pub(crate) fn contains(&self, block: u32) -> bool {
        self.first.contains(&block) || self.second.contains(&block)
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    pub(crate) fn touch(&mut self, block: u32) {
        match self.policy {
            Policy::Lru | Policy::Fifo | Policy::Belady => self.touch_plain(block),
            Policy::Clock => self.touch_clock(block),
            Policy::Sieve => self.touch_sieve(block),
            Policy::S3Fifo => self.touch_s3_fifo(block),
            Policy::Arc => self.touch_arc(block),
            Policy::Larc => self.touch_larc(block),
        }
        self.now += 1;
    }

    pub(crate) fn remove(&mut self, block: u32) {
        self.now += 1;
        if self.hand == Some(block) {
            self.hand = self.newer(block);
        }
        if let Some(at) = self.first.iter().position(|other| *other == block) {
            self.first.remove(at);
            self.index -= usize::from(at < self.index);
        }
        take(&mut self.second, block);
    }

    fn touch_plain(&mut self, block: u32) {
        let hit = self.first.contains(&block);
        if hit && self.policy == Policy::Lru {
            take(&mut self.first, block);
            self.first.push(block);
        }
        if hit {
            return;
        }
        if self.first.len() == self.capacity {
            let victim = match self.policy {
                Policy::Belady => {
                    let next = |&at: &usize| self.next_use(self.first[at]);
                    (0..self.first.len()).max_by_key(next).expect("it is full")
                }
                _ => 0,
            };
            self.first.remove(victim);
        }
        self.first.push(block);
    }

    fn next_use(&self, block: u32) -> usize {
        let later = &self.trace[self.now + 1..];
        match later.iter().position(|access| access.block() == block) {
            Some(at) if !(self.only_reads && later[at].is_write()) => at,
            _ => usize::MAX,
        }
    }

    /// A real ring: the hand goes round, new blocks come in just behind it.
    fn touch_clock(&mut self, block: u32) {
        if self.first.contains(&block) {
            self.uses.insert(block, 1);
            return;
        }
        if self.first.len() == self.capacity {
            loop {
                self.index %= self.first.len();
                let at_hand = self.first[self.index];
                if self.uses[&at_hand] == 0 {
                    self.first.remove(self.index);
                    break;
                }
                self.uses.insert(at_hand, 0);
                self.index += 1;
            }
        }
        self.first.insert(self.index, block);
        self.index += 1;
        self.uses.insert(block, 0);
    }

    fn newer(&self, block: u32) -> Option<u32> {
        let at = self.first.iter().position(|other| *other == block).expect("the hand is at one");
        self.first.get(at + 1).copied()
    }

    fn touch_sieve(&mut self, block: u32) {
        if self.first.contains(&block) {
            self.uses.insert(block, 1);
            return;
        }
        if self.first.len() == self.capacity {
            let mut at = self.hand.unwrap_or(self.first[0]);
            while self.uses[&at] == 1 {
                self.uses.insert(at, 0);
                at = self.newer(at).unwrap_or(self.first[0]);
            }
            self.hand = self.newer(at);
            take(&mut self.first, at);
        }
        self.first.push(block);
        self.uses.insert(block, 0);
    }

    fn touch_s3_fifo(&mut self, block: u32) {
        if self.contains(block) {
            *self.uses.entry(block).or_default() += 1;
            return;
        }
        let small_size = (self.capacity / 10).max(1);
        let was_ghost = take(&mut self.first_ghost, block);
        if self.len() == self.capacity {
            self.has_evicted = true;
            self.evict_s3_fifo(self.capacity - small_size);
        }
        self.uses.insert(block, 0);
        if was_ghost || (!self.has_evicted && self.first.len() >= small_size) {
            self.second.push(block);
        } else {
            self.first.push(block);
        }
    }

    fn evict_s3_fifo(&mut self, main_size: usize) {
        if self.second.len() <= main_size {
            while !self.first.is_empty() {
                let block = self.first.remove(0);
                if self.uses.insert(block, 0) < Some(2) {
                    return self.remember(block);
                }
                self.second.push(block);
            }
        }
        self.evict_main();
    }

    fn evict_main(&mut self) {
        loop {
            let block = self.second.remove(0);
            let uses = self.uses[&block].min(3);
            if uses == 0 {
                return;
            }
            self.uses.insert(block, uses - 1);
            self.second.push(block);
        }
    }

    fn remember(&mut self, block: u32) {
        self.first_ghost.push(block);
        if self.first_ghost.len() > self.capacity * 9 / 10 {
            self.first_ghost.remove(0);
        }
    }

    fn touch_larc(&mut self, block: u32) {
        let capacity = self.capacity as f64;
        if take(&mut self.first, block) {
            self.first.push(block);
            let narrower = self.target - capacity / (capacity - self.target);
            self.target = narrower.max(0.1 * capacity);
            return;
        }
        self.target = (self.target + capacity / self.target).min(0.9 * capacity);
        if take(&mut self.first_ghost, block) {
            self.first.push(block);
            if self.first.len() > self.capacity {
                self.first.remove(0);
            }
            return;
        }
        self.first_ghost.push(block);
        if self.first_ghost.len() > 1 && self.first_ghost.len() as f64 > self.target {
            self.first_ghost.remove(0);
        }
    }

    fn touch_arc(&mut self, block: u32) {
        let capacity = self.capacity as f64;
        let (b1, b2) = (self.first_ghost.len() as f64, self.second_ghost.len() as f64);
        if take(&mut self.first, block) || take(&mut self.second, block) {
            self.second.push(block);
        } else if self.first_ghost.contains(&block) {
            self.target = capacity.min(self.target + f64::max(1.0, b2 / b1));
            self.replace_arc(false);
            take(&mut self.first_ghost, block);
            self.second.push(block);
        } else if self.second_ghost.contains(&block) {
            self.target = f64::max(0.0, self.target - f64::max(1.0, b1 / b2));
            self.replace_arc(true);
            take(&mut self.second_ghost, block);
            self.second.push(block);
        } else {
            let l1 = self.first.len() + self.first_ghost.len();
            let l2 = self.second.len() + self.second_ghost.len();
            if l1 == self.capacity && self.first.len() == self.capacity {
                self.first.remove(0);
            } else if l1 == self.capacity {
                self.first_ghost.remove(0);
                self.replace_arc(false);
            } else if l1 + l2 >= self.capacity {
                if l1 + l2 == 2 * self.capacity && !self.second_ghost.is_empty() {
                    self.second_ghost.remove(0);
                }
                self.replace_arc(false);
            }
            self.first.push(block);
        }
    }

    /// Only when full: blocks that were written around leave free places.
    fn replace_arc(&mut self, for_b2: bool) {
        if self.len() < self.capacity {
            return;
        }
        let t1 = self.first.len() as f64;
        let over = t1 > self.target || (for_b2 && t1 >= self.target);
        if !self.first.is_empty() && (over || self.second.is_empty()) {
            self.first_ghost.push(self.first.remove(0));
        } else {
            self.second_ghost.push(self.second.remove(0));
        }
    }
}
