//! Where time is cut: one rule for measurement, replay and a running cache.
//!
//! An interval ends with the first request at or behind its end. One in which nothing happens has no plan;
//! what was counted before it only fades.

/// Where to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// By the requests' own time, in microseconds; not 0.
    Time(u64),
    /// By references to 4 KiB blocks, for traces without times; not 0. A request is never cut.
    References(u64),
    /// Not at all.
    Never,
}

/// A stretch of requests. Those in which nothing happens are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Its number, from 0; one that is missing was empty.
    pub number: u64,
    /// When it begins, in microseconds: with [`Every::Time`] a multiple of the length, else the time of
    /// its first request.
    pub start_us: u64,
    /// When its last request came.
    pub last_us: u64,
    /// Requests of any kind.
    pub requests: u64,
    /// References to 4 KiB blocks.
    pub references: u64,
}

/// How an interval ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// When, in microseconds.
    pub end_us: u64,
    /// How long it was, in seconds, without what no request covers.
    pub seconds: f64,
    /// Intervals until the next request: more than 1 if some were empty.
    pub passed: u64,
}

impl Interval {
    /// Counts a request that came then, and its references.
    pub fn count(&mut self, at_us: u64, references: u64) {
        self.requests += 1;
        self.last_us = self.last_us.max(at_us);
        self.references += references;
    }
}

impl Every {
    /// The interval of a request that came then, of which nothing is counted yet; `begun` came before it.
    pub const fn begin(self, begun: u64, at_us: u64) -> Interval {
        let (number, start_us) = match self {
            Self::Time(length) => (at_us / length, at_us / length * length),
            Self::References(_) | Self::Never => (begun, at_us),
        };
        Interval { number, start_us, last_us: at_us, requests: 0, references: 0 }
    }

    /// Whether a request that comes then is behind an interval.
    pub const fn is_behind(self, interval: &Interval, at_us: u64) -> bool {
        match self {
            Self::Time(length) => at_us / length > interval.number,
            Self::References(length) => interval.references >= length,
            Self::Never => false,
        }
    }

    /// How an interval ends with the next request, or with the last one there is. The first request of
    /// all came at `first_us`.
    pub fn end(self, interval: &Interval, first_us: u64, next_us: Option<u64>) -> Ended {
        let end_us = match self {
            Self::Time(length) => interval.start_us.saturating_add(length),
            Self::References(_) | Self::Never => next_us.unwrap_or(interval.last_us),
        };
        // What no request covers does not count.
        let from = interval.start_us.max(first_us);
        let to = if next_us.is_some() { end_us } else { interval.last_us };
        let passed = match (self, next_us) {
            (Self::Time(length), Some(next_us)) => next_us / length - interval.number,
            _ => 1,
        };
        Ended { end_us, seconds: to.saturating_sub(from) as f64 / 1e6, passed }
    }
}
