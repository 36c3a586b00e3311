//! How a shard is, as threads tell it and as it is heard: not always in the same order.

use cinnabar_engine::health::Health;
use cinnabar_engine::mutant::{Mutant, Mutants};

/// A shard's health has changed for the time of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthNews {
    /// Later news has a higher one.
    pub number: u64,
    /// Since then.
    pub health: Health,
}

/// The health of a shard, as last heard. Two threads that have run it one after the other may be heard
/// the other way round, and health is told only when it changes: what is older must not stay.
#[derive(Clone, Copy, Debug)]
pub struct KnownHealth {
    news: HealthNews,
    mutants: Mutants,
}

impl KnownHealth {
    /// Before anything is heard.
    pub const fn new(health: Health, mutants: Mutants) -> Self {
        Self { news: HealthNews { number: 0, health }, mutants }
    }

    /// Takes news, unless newer ones are known.
    pub fn hear(&mut self, news: HealthNews) {
        if news.number > self.news.number || self.mutants.is(Mutant::OldHealthHeard) {
            self.news = news;
        }
    }

    /// As last heard.
    pub const fn health(&self) -> Health {
        self.news.health
    }
}
