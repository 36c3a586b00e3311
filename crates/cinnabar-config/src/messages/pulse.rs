//! Proof that a thread turns: it is asked, and answers between two turns.
//!
//! An idle thread is woken by the question, a busy one finds it where it looks anyway: its turns cost
//! nothing more. Who asks says how long an answer may take.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread that can be asked; one question at a time.
pub struct Pulse {
    name: String,
    asked: u64,
    answered: Arc<AtomicU64>,
    ask: Box<dyn Fn(Beat) + Send>,
}

/// The answer, for the thread to give.
#[derive(Debug)]
pub struct Beat {
    number: u64,
    answered: Arc<AtomicU64>,
}

impl Pulse {
    /// Of the thread of this name. `ask` brings it a question, and never blocks.
    pub fn new(name: impl Into<String>, ask: impl Fn(Beat) + Send + 'static) -> Self {
        Self { name: name.into(), asked: 0, answered: Arc::default(), ask: Box::new(ask) }
    }

    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the last question is answered; true before the first one.
    pub fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked
    }

    /// Asks.
    ///
    /// # Panics
    /// If the last question is not answered: a thread that does not turn would find many.
    pub fn ask(&mut self) {
        assert!(self.is_answered(), "one question at a time");
        self.asked += 1;
        (self.ask)(Beat { number: self.asked, answered: Arc::clone(&self.answered) });
    }
}

impl Beat {
    /// The thread turns.
    ///
    /// # Panics
    /// If it is not the last question of its thread: there is one at a time.
    pub fn answer(self) {
        let before = self.answered.swap(self.number, Ordering::Release);
        assert_eq!(before + 1, self.number, "questions are answered once, in their order");
    }
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse")
            .field("name", &self.name)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}
