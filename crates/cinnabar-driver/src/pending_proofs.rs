//! Proofs and generations that engines have asked for: which of them one flush, or one write, can
//! serve, and what is to begin next. Carrying them out takes long and is the caller's, on threads of
//! its own.
//!
//! # Proofs
//! Each shard of a volume asks for its own, often in the same moment. A proof speaks for what was
//! written before its flush began: those that ask until [`begin`](PendingProofs::begin) share one, and
//! who asks while it is under way waits for the next, together with all others that do. So there is at
//! most one at a time for each volume.
//!
//! # Generations
//! One file holds those of all volumes: what is asked for while it is being written is done together,
//! with the next write.

use cinnabar_engine::mutant::{Mutant, Mutants};

/// See the module. `V` names a volume, `I` an I/O of an engine's.
#[derive(Debug)]
pub struct PendingProofs<V, I> {
    proofs: Vec<VolumeProofs<V, I>>,
    /// Volumes whose next proof is to begin.
    due: Vec<V>,
    /// Generations to be raised with the next write, if they are what the I/O says.
    waiting: Vec<(I, GenerationHeld)>,
    /// I/Os of the write under way, if there is one.
    writing: Option<Vec<I>>,
    /// That one takes too long.
    overdue: bool,
    mutants: Mutants,
}

/// A volume's name and the generation that is to be raised.
pub type GenerationHeld = (String, u64);

/// Proofs of a volume, one of them under way.
#[derive(Debug)]
struct VolumeProofs<V, I> {
    volume: V,
    /// That one is for these.
    under_way: Vec<I>,
    /// And the next one for these.
    waiting: Vec<I>,
}

impl<V: Copy + PartialEq, I> PendingProofs<V, I> {
    /// None asked for; the mutants are those of tests.
    pub const fn new(mutants: Mutants) -> Self {
        Self {
            proofs: Vec::new(),
            due: Vec::new(),
            waiting: Vec::new(),
            writing: None,
            overdue: false,
            mutants,
        }
    }

    /// An I/O asks for a proof of a volume, which begins with the next [`begin`](Self::begin) unless one
    /// is under way.
    pub fn prove(&mut self, volume: V, io: I) {
        let Some(known) = self.proofs.iter_mut().find(|known| known.volume == volume) else {
            self.proofs.push(VolumeProofs { volume, under_way: Vec::new(), waiting: vec![io] });
            return self.due.push(volume);
        };
        if self.mutants.is(Mutant::ProofJoined) && !known.under_way.is_empty() {
            known.under_way.push(io);
        } else {
            known.waiting.push(io);
        }
    }

    /// Volumes whose proofs are to begin now, each for all that have asked for one.
    #[must_use]
    pub fn begin(&mut self) -> Vec<V> {
        let due = std::mem::take(&mut self.due);
        for volume in &due {
            for known in self.proofs.iter_mut().filter(|known| known.volume == *volume) {
                known.under_way = std::mem::take(&mut known.waiting);
            }
        }
        due
    }

    /// The proof of a volume that was under way has ended: gives the I/Os that it was for.
    ///
    /// # Panics
    /// If none was.
    pub fn proved(&mut self, volume: V) -> Vec<I> {
        let at = self.proofs.iter().position(|known| known.volume == volume);
        let at = at.expect("a proof ends once");
        if self.proofs[at].waiting.is_empty() {
            return self.proofs.swap_remove(at).under_way;
        }
        self.due.push(volume);
        std::mem::take(&mut self.proofs[at].under_way)
    }

    /// An I/O asks for a new generation of a volume, if it is still `held`. Gives what is to be
    /// written now, all together; `None`: a write is under way, and the next one has it.
    ///
    /// # Panics
    /// If the write under way is overdue: what is asked for meanwhile has failed.
    #[must_use]
    pub fn raise(&mut self, io: I, volume: String, held: u64) -> Option<Vec<GenerationHeld>> {
        assert!(!self.overdue, "nothing waits for what does not answer");
        self.waiting.push((io, (volume, held)));
        self.next_write()
    }

    /// The write under way has ended: gives the I/Os that it was for, in its order, and what is to be
    /// written next.
    ///
    /// # Panics
    /// If none was under way.
    pub fn raised(&mut self) -> (Vec<I>, Option<Vec<GenerationHeld>>) {
        let ios = self.writing.take().expect("a write ends once");
        self.overdue = false;
        (ios, self.next_write())
    }

    /// The write under way takes too long: gives all I/Os that wait for it, or for the one that would
    /// have been next. They have failed. Its volumes may have new generations all the same; they are
    /// given when they are asked for again.
    pub fn write_is_overdue(&mut self) -> Vec<I> {
        let Some(writing) = &mut self.writing else { return Vec::new() };
        self.overdue = true;
        let waiting = self.waiting.drain(..).map(|(io, _)| io);
        std::mem::take(writing).into_iter().chain(waiting).collect()
    }

    /// Whether the write under way is overdue.
    pub const fn is_overdue(&self) -> bool {
        self.overdue
    }

    fn next_write(&mut self) -> Option<Vec<GenerationHeld>> {
        if self.writing.is_some() || self.waiting.is_empty() {
            return None;
        }
        let (ios, held) = std::mem::take(&mut self.waiting).into_iter().unzip();
        self.writing = Some(ios);
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(mutants: Mutants) -> PendingProofs<usize, u32> {
        PendingProofs::new(mutants)
    }

    #[test]
    fn those_that_ask_in_one_moment_or_while_a_proof_is_under_way_share_one() {
        let mut pending = new(Mutants::default());
        pending.prove(0, 1);
        pending.prove(7, 2);
        pending.prove(0, 3);
        assert_eq!((pending.begin(), pending.begin()), (vec![0, 7], vec![]));
        pending.prove(0, 4);
        pending.prove(0, 5);
        assert_eq!(pending.begin(), [], "one is under way");
        assert_eq!(pending.proved(0), [1, 3]);
        pending.prove(0, 6);
        assert_eq!(pending.begin(), [0]);
        assert_eq!((pending.proved(7), pending.proved(0)), (vec![2], vec![4, 5, 6]));
        assert_eq!(pending.begin(), []);
        pending.prove(0, 8);
        assert_eq!(pending.begin(), [0]);
    }

    #[test]
    fn the_mutant_that_joins_a_proof_under_way_is_found() {
        let mut pending = new(Mutants::only(Mutant::ProofJoined));
        pending.prove(0, 1);
        assert_eq!(pending.begin(), [0]);
        pending.prove(0, 2);
        assert_ne!(pending.proved(0), [1]);
    }

    #[test]
    fn generations_are_written_together() {
        let mut pending = new(Mutants::default());
        let held = |name: &str| (name.to_owned(), 3);
        assert_eq!(pending.raise(1, "a".into(), 3), Some(vec![held("a")]));
        assert_eq!(pending.raise(2, "b".into(), 3), None);
        assert_eq!(pending.raise(3, "c".into(), 3), None);
        assert_eq!(pending.raised(), (vec![1], Some(vec![held("b"), held("c")])));
        assert_eq!(pending.raised(), (vec![2, 3], None));
    }

    #[test]
    fn nothing_waits_for_a_write_that_is_overdue() {
        let mut pending = new(Mutants::default());
        assert_eq!(pending.write_is_overdue(), [], "there is none");
        let held = |name: &str| (name.to_owned(), 3);
        assert_eq!(pending.raise(1, "a".into(), 3), Some(vec![held("a")]));
        assert_eq!(pending.raise(2, "b".into(), 3), None);
        assert_eq!(pending.write_is_overdue(), [1, 2]);
        assert!(pending.is_overdue());
        assert_eq!(pending.raised(), (vec![], None), "it ends after all");
        assert!(!pending.is_overdue());
        assert_eq!(pending.raise(3, "b".into(), 3), Some(vec![held("b")]));
    }
}
