//! What a standby has read of an image that another host writes.
//!
//! librbd opens an image for reading without a watch, so it does not learn that the header changed: that the
//! image was made larger, or that a clone was flattened, whose blocks would still be looked for in its
//! parent. So each read waits for a look at the header that begins behind it. If the header has the
//! version that it had before the image was opened, the read is as good as one that was opened just then;
//! else the image is opened again, and read again.
//!
//! Snapshots change nothing that is read here: what is read is the image itself, of the objects' heads.

#![allow(clippy::vec_box, reason = "the library holds the boxes, one after the other")]

use super::job::Job;

/// Openings in a row that may show another version of the header, before reads fail.
const TRIES_MAX: u32 = 8;

/// See the module.
pub(super) struct View {
    /// Of the header, before the image was opened.
    version: u64,
    /// Reads that have ended since the look under way began.
    ended: Vec<Box<Job>>,
    /// And before.
    looked_at: Vec<Box<Job>>,
    /// They are to be read again.
    again: Vec<Box<Job>>,
    /// The image is to be opened again.
    stale: bool,
    /// Openings since the last read that was good.
    tries: u32,
}

impl View {
    /// Of an image that was opened behind this version of its header.
    pub(super) fn new(version: u64) -> Self {
        let (ended, looked_at, again) = (Vec::new(), Vec::new(), Vec::new());
        Self { version, ended, looked_at, again, stale: false, tries: 0 }
    }

    /// A read has ended well.
    pub(super) fn read(&mut self, job: Box<Job>) {
        if self.stale { self.again.push(job) } else { self.ended.push(job) }
    }

    /// One has not, for the cluster has fenced this client off: another client's may.
    pub(super) fn cut_off(&mut self, job: Box<Job>) {
        self.stale = true;
        self.again.push(job);
    }

    /// Whether a look has to begin.
    pub(super) fn waits(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Jobs that librbd has ended and that are not answered.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.ended.len() + self.looked_at.len() + self.again.len()
    }

    /// A look begins.
    pub(super) fn looks(&mut self) {
        self.looked_at.append(&mut self.ended);
    }

    /// It has found the header in this version. Gives the reads that are good.
    pub(super) fn found(&mut self, version: u64) -> Vec<Box<Job>> {
        if version == self.version && !self.stale {
            if !self.looked_at.is_empty() {
                self.tries = 0;
            }
            return std::mem::take(&mut self.looked_at);
        }
        self.outdated();
        Vec::new()
    }

    /// Nothing is known of the header any more.
    pub(super) fn outdated(&mut self) {
        self.stale = true;
        self.again.append(&mut self.looked_at);
        self.again.append(&mut self.ended);
    }

    /// Whether nothing may be read before the image was opened again.
    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// It was opened again, behind this version. Gives what is to be read, and whether it is to be tried at
    /// all: the header may change all the time.
    pub(super) fn opened(&mut self, version: u64) -> (Vec<Box<Job>>, bool) {
        (self.version, self.stale) = (version, false);
        self.tries += 1;
        let goes_on = self.tries <= TRIES_MAX;
        if !goes_on {
            self.tries = 0;
        }
        (std::mem::take(&mut self.again), goes_on)
    }

    /// All that is not answered: it can't be.
    pub(super) fn give_up(&mut self) -> Vec<Box<Job>> {
        let mut all = std::mem::take(&mut self.again);
        all.append(&mut self.looked_at);
        all.append(&mut self.ended);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::Sink;
    use crate::port::{Done, FileId, Task};
    use cinnabar_engine::units::ByteSpan;
    use std::sync::Arc;

    struct Nobody;

    impl Sink for Nobody {
        fn done(&self, _: Done) {}

        fn restarted(&self, _: FileId, _: Vec<ByteSpan>, _: bool) {}
    }

    fn job(number: u64) -> Box<Job> {
        Box::new(Job::new(Task::flush(), Arc::new(Nobody), number))
    }

    fn numbers(jobs: &[Box<Job>]) -> Vec<u64> {
        jobs.iter().map(|job| job.number).collect()
    }

    #[test]
    fn a_read_waits_for_a_look_that_begins_behind_it() {
        let mut view = View::new(7);
        view.read(job(1));
        assert!(view.waits());
        view.looks();
        view.read(job(2));
        assert_eq!(numbers(&view.found(7)), [1]);
        assert!(view.waits() && view.held() == 1);
        view.looks();
        assert_eq!(numbers(&view.found(7)), [2]);
        assert!(!view.waits() && view.held() == 0 && !view.is_stale());
    }

    #[test]
    fn behind_a_change_of_the_header_all_is_read_again() {
        let mut view = View::new(7);
        view.read(job(1));
        view.looks();
        view.read(job(2));
        assert!(view.found(8).is_empty() && view.is_stale());
        // It was under way meanwhile.
        view.read(job(3));
        assert!(!view.waits() && view.held() == 3);
        assert_eq!(numbers(&view.opened(9).0), [1, 2, 3]);
        view.read(job(1));
        view.looks();
        assert_eq!(numbers(&view.found(9)), [1]);
    }

    #[test]
    fn a_header_that_changes_all_the_time_ends_in_an_error() {
        let mut view = View::new(0);
        let mut goes_on = true;
        for version in 1..=u64::from(TRIES_MAX) + 1 {
            assert!(goes_on, "version {version}");
            view.read(job(1));
            view.looks();
            assert!(view.found(version).is_empty());
            goes_on = view.opened(version).1;
        }
        assert!(!goes_on);
    }
}
