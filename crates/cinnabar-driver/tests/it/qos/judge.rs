//! The judge: it knows what began when, and computes costs by itself. It never sees a tag.

/// A second, in ns.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// A millisecond, in ns.
pub(crate) const MS: u64 = 1_000_000;

/// A request that the server got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    pub(crate) at_ns: u64,
    pub(crate) arrived_ns: u64,
    pub(crate) guest: usize,
    /// Bytes.
    pub(crate) length: u64,
}

impl Began {
    /// In I/Os: the reference's formula, written a second time.
    fn cost(&self) -> f64 {
        1.0 + self.length as f64 / 65_536.0
    }
}

/// What was found, or what is wrong.
pub(crate) type Verdict = Result<(), String>;

/// All that the server got, in order, and what the world found wrong on the way.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) began: Vec<Began>,
    pub(crate) wrong: Vec<String>,
    /// Requests of each guest that were refused.
    pub(crate) refused: Vec<u64>,
    /// What the server did, in I/Os, of all guests.
    pub(crate) done: f64,
}

impl Log {
    /// Nothing was wrong that is wrong in any run.
    pub(crate) fn clean(&self) -> Verdict {
        match self.wrong.first() {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(()),
        }
    }

    fn of(&self, guest: usize) -> impl Iterator<Item = &Began> {
        self.began.iter().filter(move |began| began.guest == guest)
    }

    /// I/Os a second of a guest, by cost, in a window of milliseconds.
    pub(crate) fn rate(&self, guest: usize, from_ms: u64, to_ms: u64) -> f64 {
        let within = |began: &&Began| (from_ms * MS..to_ms * MS).contains(&began.at_ns);
        let cost: f64 = self.of(guest).filter(within).map(Began::cost).sum();
        cost * 1000.0 / (to_ms - from_ms) as f64
    }

    /// The part of a guest in all that began in a window of milliseconds.
    pub(crate) fn part(&self, guest: usize, from_ms: u64, to_ms: u64) -> f64 {
        let guests = self.began.iter().map(|began| began.guest).max().map_or(0, |last| last + 1);
        let all: f64 = (0..guests).map(|guest| self.rate(guest, from_ms, to_ms)).sum();
        self.rate(guest, from_ms, to_ms) / all
    }

    /// The most that a guest got in any second, wherever that begins.
    pub(crate) fn most_in_a_second(&self, guest: usize) -> f64 {
        let list: Vec<&Began> = self.of(guest).collect();
        let (mut first, mut sum, mut most) = (0, 0.0, 0.0f64);
        for began in &list {
            sum += began.cost();
            while list[first].at_ns + SECOND <= began.at_ns {
                sum -= list[first].cost();
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }

    /// Each whole second of the window is within `low..=high` I/Os.
    pub(crate) fn each_second(
        &self,
        guest: usize,
        (from_s, to_s): (u64, u64),
        (low, high): (f64, f64),
    ) -> Verdict {
        for second in from_s..to_s {
            let rate = self.rate(guest, second * 1000, (second + 1) * 1000);
            between(&format!("guest {guest} in second {second}"), rate, low, high)?;
        }
        Ok(())
    }

    /// The longest wait of a guest's requests that arrived in a window of milliseconds, in ms.
    pub(crate) fn longest_wait_ms(&self, guest: usize, from_ms: u64, to_ms: u64) -> f64 {
        let within = |began: &&Began| (from_ms * MS..to_ms * MS).contains(&began.arrived_ns);
        let waits = self.of(guest).filter(within).map(|began| began.at_ns - began.arrived_ns);
        waits.max().unwrap_or(u64::MAX) as f64 / MS as f64
    }
}

/// A number in its range.
pub(crate) fn between(what: &str, found: f64, low: f64, high: f64) -> Verdict {
    if (low..=high).contains(&found) {
        return Ok(());
    }
    Err(format!("{what}: {found:.3}, not within {low:.3} to {high:.3}"))
}
