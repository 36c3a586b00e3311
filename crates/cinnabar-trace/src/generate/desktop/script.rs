//! Files that are read again in mostly the same order: a boot, a logon, an application's start.

use super::day::Day;
use super::disk::{Area, Run, pick};
use super::parameters::{FILE_REQUESTS, FILE_SKIPPED, FILE_SWAPPED, WARM_START};
use crate::generate::Chance;

/// Files in order.
#[derive(Clone, Debug)]
pub(super) struct Script {
    files: Vec<Run>,
    requests: usize,
}

impl Script {
    /// A new one of so many requests, at least one.
    pub(super) fn new(requests: usize, area: &mut Area, chance: &mut Chance) -> Self {
        let mut files = Vec::new();
        let mut left = requests.max(1) as u64;
        while left > 0 {
            let file = pick(FILE_REQUESTS, chance).min(left);
            left -= file;
            files.push(Run::new(file, area, chance));
        }
        Self { files, requests: requests.max(1) }
    }

    /// Reads all of it, or up to `most` requests, from `at_s` on; returns when it is done and how many
    /// requests that took.
    pub(super) fn play(&self, day: &mut Day, at_s: f64, gap_s: f64, most: usize) -> (f64, usize) {
        let mut order: Vec<usize> = (0..self.files.len()).collect();
        for at in 1..order.len() {
            if day.chance.with(FILE_SWAPPED) {
                order.swap(at - 1, at);
            }
        }
        order.retain(|_| !day.chance.with(FILE_SKIPPED));
        self.read(&order, day, at_s, gap_s, most)
    }

    /// Reads what a start reads of it when most is in memory already.
    pub(super) fn play_warm(&self, day: &mut Day, at_s: f64, gap_s: f64, most: usize) -> usize {
        let mut order: Vec<usize> = (0..self.files.len()).collect();
        order.retain(|_| day.chance.with(WARM_START));
        self.read(&order, day, at_s, gap_s, most).1
    }

    /// Any one of its requests: first block and blocks.
    pub(super) fn any_request(&self, chance: &mut Chance) -> (u64, u64) {
        let file = &self.files[chance.below(self.files.len() as u64) as usize];
        let nth = chance.below(file.sizes.len() as u64) as usize;
        file.requests().nth(nth).expect("below its length")
    }

    /// Rewrites one of its files at random, elsewhere, with up to `most` requests; returns their
    /// number.
    pub(super) fn update(
        &mut self,
        day: &mut Day,
        area: &mut Area,
        at_s: f64,
        most: usize,
    ) -> usize {
        let nth = day.chance.below(self.files.len() as u64) as usize;
        let file = &mut self.files[nth];
        file.rewrite(area, &mut day.chance);
        for (block, blocks) in file.requests().take(most) {
            day.write(at_s, block, blocks);
        }
        file.sizes.len().min(most)
    }

    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    fn read(
        &self,
        order: &[usize],
        day: &mut Day,
        mut at_s: f64,
        gap_s: f64,
        most: usize,
    ) -> (f64, usize) {
        let mut made = 0;
        let requests = order.iter().flat_map(|&file| self.files[file].requests());
        for (block, blocks) in requests.take(most) {
            day.read(at_s, block, blocks);
            at_s += day.chance.exponential(gap_s);
            made += 1;
        }
        (at_s, made)
    }
}
