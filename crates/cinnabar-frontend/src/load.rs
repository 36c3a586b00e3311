//! What connections hold, and how much more those of vhost-user may. (NBD counts by export, see its `budget`.)
//!
//! A connection may have half of what is free at most, so that n greedy ones leave 1/(n + 2) of the
//! server to the next. That alone would let many busy connections keep one large request waiting for
//! as long as they like: small ones always find room first. So waiting counts: a connection that holds
//! nothing and has waited longest may also have what is free but an eighth of the whole, and as long as
//! it waits, those that hold buffers already get no more, for some seconds at most ([`starved`](crate::starved)).

/// Requests and bytes of buffers, held or let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that the engine has, or may have at a time.
    pub requests: u64,
    /// Bytes of buffers.
    pub bytes: u64,
}

impl Load {
    /// The part of it that `other` does not cover.
    pub(crate) const fn beyond(self, other: Self) -> Self {
        let requests = self.requests.saturating_sub(other.requests);
        Self { requests, bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

impl std::ops::Add for Load {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl std::ops::AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

impl std::ops::SubAssign for Load {
    fn sub_assign(&mut self, other: Self) {
        self.requests -= other.requests;
        self.bytes -= other.bytes;
    }
}

/// What one connection and what all of them may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) connection: Load,
    pub(crate) total: Load,
}

/// What is missing for one more request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Its connection, or its export with what connections of the past left behind, holds too much.
    Own,
    /// It holds nothing, but all connections together hold too much.
    Total,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// No connection waits.
    Free,
    /// It has waited longest.
    Starved,
    /// Another one has.
    Behind,
}

impl Bounds {
    /// Whether there is room for `more`, one request for a guest. `past` is what earlier connections of the same
    /// export left behind.
    pub(crate) fn fits(
        &self,
        own: Load,
        past: Load,
        total: Load,
        more: Load,
        rank: Rank,
    ) -> Result<(), Shortage> {
        let held = own + past;
        let Load { requests, bytes } = more;
        let has_buffer = bytes > 0;
        if held.requests + requests > self.connection.requests
            || (has_buffer && held.bytes + bytes > self.connection.bytes)
        {
            return Err(Shortage::Own);
        }
        let requests_free = self.total.requests.saturating_sub(total.requests);
        let bytes_free = self.total.bytes.saturating_sub(total.bytes);
        let holds_some = if has_buffer { held.bytes > 0 } else { held.requests > 0 };
        let fits_half = held.requests + requests <= requests_free / 2
            && (!has_buffer || held.bytes + bytes <= bytes_free / 2);
        let fits = match rank {
            // Where less than a quarter is free for good, since back ends hang, half of that is more.
            Rank::Starved if !holds_some => {
                let kept = Load { requests: self.total.requests / 8, bytes: self.total.bytes / 8 };
                let fits = bytes.saturating_add(kept.bytes) <= bytes_free;
                fits_half || (requests + kept.requests <= requests_free && fits)
            }
            Rank::Behind if has_buffer && holds_some => false,
            _ => fits_half,
        };
        match fits {
            true => Ok(()),
            false if holds_some => Err(Shortage::Own),
            false => Err(Shortage::Total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        connection: Load { requests: 8, bytes: 100 },
        total: Load { requests: 100, bytes: 400 },
    };

    fn load(requests: u64, bytes: u64) -> Load {
        Load { requests, bytes }
    }

    #[test]
    fn what_was_left_behind_counts() {
        let none = Load::default();
        let fits = |own, past| BOUNDS.fits(own, past, none, load(1, 50), Rank::Free);
        assert_eq!(fits(load(1, 50), none), Ok(()));
        assert_eq!(fits(none, load(1, 60)), Err(Shortage::Own));
        assert_eq!(fits(load(4, 0), load(4, 0)), Err(Shortage::Own));
    }

    #[test]
    fn the_eldest_gets_more_than_half_and_those_that_have_some_wait() {
        let (none, total) = (Load::default(), load(9, 270));
        let fits = |own, bytes, rank| BOUNDS.fits(own, none, total, load(1, bytes), rank);
        assert_eq!(fits(none, 80, Rank::Free), Err(Shortage::Total));
        assert_eq!(fits(none, 80, Rank::Starved), Ok(()));
        assert_eq!(fits(none, 81, Rank::Starved), Err(Shortage::Total), "a late comer finds room");
        let late = |total, rank| BOUNDS.fits(none, none, total, load(1, 10), rank);
        assert_eq!(late(load(9, 370), Rank::Free), Ok(()));
        assert_eq!(late(load(9, 370), Rank::Starved), Ok(()), "it is not worse off than others");
        assert_eq!(late(load(95, 0), Rank::Free), Ok(()));
        assert_eq!(late(load(95, 0), Rank::Starved), Ok(()));
        assert_eq!(fits(load(1, 1), 1, Rank::Free), Ok(()));
        assert_eq!(fits(load(1, 1), 1, Rank::Behind), Err(Shortage::Own));
        assert_eq!(fits(load(1, 10), 60, Rank::Starved), Err(Shortage::Own), "it has some already");
        assert_eq!(fits(load(1, 1), 0, Rank::Behind), Ok(()), "it needs no buffer");
        assert_eq!(fits(load(1, 0), 1, Rank::Behind), Ok(()), "no connection starves meanwhile");
    }
}
