//! Who is next: a queue for each file, files in turn, none with more than its part of the threads.

use std::collections::VecDeque;

/// Threads that all files together may hold, as long as each has [`LIGHT`]'s least.
const THREADS_MAX: usize = 1024;
/// Tasks of one file under way, at least and at most; as many as disks profit from.
const LIGHT: (usize, usize) = (2, 32);

/// What kind of task it is: none takes the place of another kind's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Class {
    /// Reads, writes and flushes.
    Light,
    /// Gains nothing by being done at the same time: copies of memory, questions about extents.
    Serial,
    /// May take long: discards and zeroes.
    Heavy,
}

impl Class {
    const ALL: [Self; 3] = [Self::Light, Self::Serial, Self::Heavy];
}

/// See the module.
pub(super) struct Queue<T> {
    /// By file.
    lanes: Vec<Lane<T>>,
    /// Files with something that may start now, each once.
    ready: VecDeque<usize>,
    /// Tasks that may start now.
    startable: usize,
    light_max: usize,
    /// Threads there are, and those of them that wait.
    pub(super) threads: usize,
    pub(super) idle: usize,
    pub(super) stopping: bool,
}

/// What one file has.
struct Lane<T> {
    /// By class.
    kinds: [Kind<T>; Class::ALL.len()],
    /// It has the most that a file can have, however many there are.
    wide: bool,
    /// It is in `ready`.
    listed: bool,
}

struct Kind<T> {
    waiting: VecDeque<T>,
    running: usize,
}

impl<T> Kind<T> {
    /// Tasks that may start now.
    fn startable(&self, max: usize) -> usize {
        self.waiting.len().min(max.saturating_sub(self.running))
    }
}

/// A task to be done now.
pub(super) struct Turn<T> {
    pub(super) file: usize,
    pub(super) class: Class,
    pub(super) task: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            lanes: Vec::new(),
            ready: VecDeque::new(),
            startable: 0,
            light_max: LIGHT.1,
            threads: 0,
            idle: 0,
            stopping: false,
        }
    }
}

impl<T> Queue<T> {
    /// There are so many files now.
    pub(super) fn share_among(&mut self, files: usize) {
        self.light_max = (THREADS_MAX / files.max(1)).clamp(LIGHT.0, LIGHT.1);
        (0..self.lanes.len()).for_each(|file| self.list(file));
        self.startable = (0..self.lanes.len()).map(|file| self.startable_of(file)).sum();
    }

    /// Queues a task. A file that all others need is `wide`: the cache device.
    pub(super) fn push(&mut self, file: usize, class: Class, wide: bool, task: T) {
        if self.lanes.len() <= file {
            self.lanes.resize_with(file + 1, Lane::default);
        }
        self.change(file, |lane| {
            lane.wide = wide;
            lane.kinds[class as usize].waiting.push_back(task);
        });
    }

    /// Whether more may start than there are threads that wait for it.
    pub(super) fn wants_thread(&self) -> bool {
        self.startable > self.idle
    }

    /// Whether [`take`](Self::take) would give something.
    pub(super) fn has_turn(&self) -> bool {
        self.startable > 0
    }

    /// The next task, of the file whose turn it is.
    pub(super) fn take(&mut self) -> Option<Turn<T>> {
        while let Some(file) = self.ready.pop_front() {
            self.lanes[file].listed = false;
            let lane = &self.lanes[file];
            let mut all = Class::ALL.into_iter();
            let Some(class) = all.find(|class| self.startable_in(lane, *class) > 0) else {
                continue;
            };
            let task = self.change(file, |lane| {
                let kind = &mut lane.kinds[class as usize];
                kind.running += 1;
                kind.waiting.pop_front().expect("one may start")
            });
            return Some(Turn { file, class, task });
        }
        None
    }

    /// A task of this file has ended.
    pub(super) fn give_back(&mut self, file: usize, class: Class) {
        self.change(file, |lane| lane.kinds[class as usize].running -= 1);
    }

    fn change<R>(&mut self, file: usize, change: impl FnOnce(&mut Lane<T>) -> R) -> R {
        let before = self.startable_of(file);
        let result = change(&mut self.lanes[file]);
        self.startable = self.startable - before + self.startable_of(file);
        self.list(file);
        result
    }

    fn list(&mut self, file: usize) {
        if self.startable_of(file) > 0 && !self.lanes[file].listed {
            self.lanes[file].listed = true;
            self.ready.push_back(file);
        }
    }

    fn startable_in(&self, lane: &Lane<T>, class: Class) -> usize {
        let light_max = if lane.wide { LIGHT.1 } else { self.light_max };
        lane.kinds[class as usize].startable(if class == Class::Light { light_max } else { 1 })
    }

    fn startable_of(&self, file: usize) -> usize {
        let lane = &self.lanes[file];
        Class::ALL.into_iter().map(|class| self.startable_in(lane, class)).sum()
    }
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        let none = || Kind { waiting: VecDeque::new(), running: 0 };
        Self { kinds: [none(), none(), none()], wide: false, listed: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(queue: &mut Queue<u32>) -> Vec<(usize, u32)> {
        std::iter::from_fn(|| queue.take()).map(|turn| (turn.file, turn.task)).collect()
    }

    #[test]
    fn no_file_has_more_than_its_part_and_files_take_turns() {
        let mut queue = Queue::default();
        (0..100).for_each(|task| queue.push(3, Class::Light, false, task));
        (0..2).for_each(|task| queue.push(1, Class::Light, false, task));
        let taken = take_all(&mut queue);
        assert_eq!(taken[..4], [(3, 0), (1, 0), (3, 1), (1, 1)]);
        assert_eq!(taken.len(), LIGHT.1 + 2);
        assert!(!queue.has_turn() && !queue.wants_thread());
        queue.give_back(1, Class::Light);
        assert!(!queue.has_turn(), "the other file's part is not used up by this one");
        queue.give_back(3, Class::Light);
        assert!(queue.wants_thread());
        assert_eq!(take_all(&mut queue), [(3, LIGHT.1 as u32)]);
    }

    #[test]
    fn long_tasks_keep_no_short_ones_waiting() {
        let mut queue = Queue::default();
        (0..5).for_each(|task| queue.push(0, Class::Heavy, false, task));
        assert_eq!(take_all(&mut queue), [(0, 0)]);
        queue.push(0, Class::Light, false, 100);
        (200..205).for_each(|task| queue.push(0, Class::Serial, false, task));
        assert_eq!(take_all(&mut queue), [(0, 100), (0, 200)]);
        queue.give_back(0, Class::Heavy);
        assert_eq!(take_all(&mut queue), [(0, 1)]);
    }

    #[test]
    fn all_files_together_stay_within_the_threads() {
        let mut queue = Queue::default();
        let files = 100;
        queue.share_among(files);
        (0..files)
            .for_each(|file| (0..40).for_each(|task| queue.push(file, Class::Light, false, task)));
        let taken = take_all(&mut queue).len();
        assert!(taken <= THREADS_MAX && taken >= files * LIGHT.0, "{taken}");
        queue.share_among(1);
        assert!(queue.has_turn(), "who is left may have more");
        assert_eq!(take_all(&mut queue).len(), files * LIGHT.1 - taken);
    }

    #[test]
    fn the_cache_device_has_its_whole_part_whatever_there_is_beside_it() {
        let mut queue = Queue::default();
        queue.share_among(THREADS_MAX);
        (0..100).for_each(|task| queue.push(0, Class::Light, true, task));
        (0..100).for_each(|task| queue.push(1, Class::Light, false, task));
        let taken = take_all(&mut queue);
        assert_eq!(taken.iter().filter(|(file, _)| *file == 0).count(), LIGHT.1);
        assert_eq!(taken.len(), LIGHT.1 + LIGHT.0);
    }
}
