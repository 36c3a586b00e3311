//! The I/Os under way on one thread: who each belongs to, when it takes too long, and completions
//! that are held back.
//!
//! An I/O takes too long if it was not done although the port was looked at after its time was over:
//! a driver that was stopped for a minute finds what its disks have done meanwhile before it finds
//! fault with them. So [`overdue`](IoTracker::overdue) is asked once after each look at the port, with
//! everything taken from that, and goes by the time of the look before.
//!
//! All I/Os are looked at in the moment the first of them is due: under a steady load that is once a
//! time-out, and nothing is kept for each I/O but its own deadline.

use crate::held::{Held, HeldBack};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{IoDone, IoError, IoId};
use slab::Slab;
use std::time::Duration;

/// See the module. `T` is what the driver knows of an I/O: its owner, its volume, what it is.
#[derive(Default)]
pub struct IoTracker<T> {
    ios: Slab<TrackedIo<T>>,
    held: HeldBack,
    /// When the first of them takes too long.
    next_overdue: Option<Instant>,
    /// When the port was last looked at.
    looked_at: Instant,
}

/// An I/O under way.
#[derive(Debug)]
pub struct TrackedIo<T> {
    /// What the driver knows of it.
    pub of: T,
    /// When it began.
    pub started: Instant,
    /// When it takes too long; `None`: never, or that was told.
    pub deadline: Option<Instant>,
    /// That was told.
    pub overdue: bool,
    /// When a model lets it complete.
    complete_at: Instant,
    /// What a model says instead of the result.
    error: Option<IoError>,
    /// What it brings beside the result; rare, and too large for each I/O to have room for it.
    proof: Option<Box<ProofResult>>,
}

/// What an I/O brings the engine beside the result: a change proof, or a new generation.
#[derive(Debug, Default)]
pub struct ProofResult {
    /// See [`IoDone::proof`].
    pub proof: Option<ProofToken>,
    /// See [`IoDone::generation`].
    pub generation: Option<u64>,
}

/// An I/O that has ended.
#[derive(Debug)]
pub struct EndedIo<T> {
    /// As it was.
    pub io: TrackedIo<T>,
    result: Result<(), IoError>,
    pages: Vec<MetaPage>,
}

impl<T> EndedIo<T> {
    /// Whether it succeeded.
    pub fn is_ok(&self) -> bool {
        self.io.error.is_none() && self.result.is_ok()
    }

    /// What its engine is told, which calls it this.
    pub fn done(self, id: IoId) -> IoDone {
        let Self { io, result, pages } = self;
        let result = io.error.map_or(result, Err);
        let proof = io.proof.filter(|_| result.is_ok()).map(|proof| *proof);
        let ProofResult { proof, generation } = proof.unwrap_or_default();
        IoDone { id, result, pages, proof, generation }
    }
}

impl<T> IoTracker<T> {
    /// None under way.
    pub fn new() -> Self {
        Self {
            ios: Slab::new(),
            held: HeldBack::default(),
            next_overdue: None,
            looked_at: Instant::default(),
        }
    }

    /// An I/O begins; it takes too long after `bound`, unless that is zero. Gives its token.
    pub fn start(&mut self, now: Instant, of: T, bound: Duration) -> usize {
        let deadline = (!bound.is_zero()).then(|| after(now, bound));
        self.look_by(deadline);
        self.ios.insert(TrackedIo {
            of,
            started: now,
            deadline,
            overdue: false,
            complete_at: Instant::default(),
            error: None,
            proof: None,
        })
    }

    /// A model has it complete no earlier than `at`, and with this error if there is one.
    pub fn delay(&mut self, token: usize, at: Instant, error: Option<IoError>) {
        let io = &mut self.ios[token];
        (io.complete_at, io.error) = (at, error);
    }

    /// A model carries it out: nobody else has it, and it ends when the model says.
    pub fn end_by_model(&mut self, token: usize) {
        // The model's error replaces this result.
        let at = self.ios[token].complete_at;
        self.held.hold(Held { at, io: token, result: Ok(()) });
    }

    /// Keeps what it brings beside its result.
    pub fn bring(&mut self, token: usize, proof: ProofResult) {
        self.ios[token].proof = Some(Box::new(proof));
    }

    /// The backend of an I/O that asked for a proof was flushed and may have proved itself in this
    /// attachment of its volume, or could not be flushed.
    pub fn proved(
        &mut self,
        now: Instant,
        token: usize,
        result: Result<Option<ProofToken>, IoError>,
        attachment: u64,
    ) {
        let proof = result.clone().ok().flatten().map(|proof| proof.of_attachment(attachment));
        self.bring(token, ProofResult { proof, generation: None });
        self.end_elsewhere(now, token, result.map(drop));
    }

    /// A volume has this new generation, or it could not be kept. As [`end`](Self::end).
    pub fn raised(
        &mut self,
        now: Instant,
        token: usize,
        generation: Option<u64>,
    ) -> Option<EndedIo<T>> {
        self.bring(token, ProofResult { proof: None, generation });
        let result = if generation.is_some() { Ok(()) } else { Err(IoError::Io) };
        self.end(now, token, result, Vec::new())
    }

    /// It has ended; `None`: a model holds that back.
    pub fn end(
        &mut self,
        now: Instant,
        token: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) -> Option<EndedIo<T>> {
        let at = self.ios[token].complete_at;
        if at > now {
            // Models stand before backends, which have no pages.
            self.held.hold(Held { at, io: token, result });
            return None;
        }
        Some(self.remove(token, result, pages))
    }

    /// It has ended past the port. The port is looked at before that is delivered, for it may have
    /// been after a restart of a server, of which the port tells.
    pub fn end_elsewhere(&mut self, now: Instant, token: usize, result: Result<(), IoError>) {
        let at = self.ios[token].complete_at.max(now);
        self.held.hold(Held { at, io: token, result });
    }

    /// One that was held back and is due.
    pub fn take_due(&mut self, now: Instant) -> Option<EndedIo<T>> {
        let Held { io, result, .. } = self.held.due(now)?;
        Some(self.remove(io, result, Vec::new()))
    }

    /// Ends one whose completion is for nobody else.
    pub fn remove(
        &mut self,
        token: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) -> EndedIo<T> {
        EndedIo { io: self.ios.remove(token), result, pages }
    }

    /// The tokens of those that take too long, each once. See the module for when to ask.
    pub fn overdue(&mut self, now: Instant) -> Vec<usize> {
        let looked_at = std::mem::replace(&mut self.looked_at, now);
        if self.next_overdue.is_none_or(|next| next > looked_at) {
            return Vec::new();
        }
        let (mut due, mut next) = (Vec::new(), None);
        for (token, io) in &mut self.ios {
            match io.deadline {
                Some(deadline) if deadline <= looked_at => {
                    (io.deadline, io.overdue) = (None, true);
                    due.push(token);
                }
                Some(deadline) => {
                    next = Some(next.map_or(deadline, |next: Instant| next.min(deadline)));
                }
                None => {}
            }
        }
        self.next_overdue = next;
        due
    }

    /// When it is to be looked at again.
    pub fn deadline(&self) -> Option<Instant> {
        self.held.next().into_iter().chain(self.next_overdue).min()
    }

    /// Has them be looked at by then.
    pub fn look_by(&mut self, due: Option<Instant>) {
        self.next_overdue = self.next_overdue.into_iter().chain(due).min();
    }

    /// The I/O of this token.
    pub fn get(&self, token: usize) -> &TrackedIo<T> {
        &self.ios[token]
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, token: usize) -> &mut TrackedIo<T> {
        &mut self.ios[token]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &TrackedIo<T>> {
        self.ios.iter().map(|(_, io)| io)
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut TrackedIo<T>> {
        self.ios.iter_mut().map(|(_, io)| io)
    }

    /// Bytes of its tables.
    pub fn ram_bytes(&self) -> u64 {
        (self.ios.capacity() * size_of::<TrackedIo<T>>()) as u64
    }
}

/// An instant `duration` later.
pub fn after(instant: Instant, duration: Duration) -> Instant {
    instant.plus_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
