//! The three tags of a client (mClock, section 3.1, "tag assignment").
//!
//! A tag is kept for the next request only, as the value from which it starts: the previous tag and
//! `cost / rate`, but not before the arrival less some slack. So changed settings count at once, and
//! nothing behind the first waiting request has to be corrected. The paper keeps a tag for each
//! request and lowers all of a client's when one is served by weight; here that is one tag that does
//! not move.

use crate::qos::cost::Cost;
use crate::qos::limits::{LEAD_REQUESTS_MAX, SLACK_NS};
use crate::qos::mutant::{Mutant, Mutants};
use crate::qos::settings::Settings;

/// In which of mClock's two phases a request was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its reservation was due.
    Reservation,
    /// Its proportional tag was the lowest.
    Weight,
}

/// From where a client's next request starts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tags {
    /// R, in ns.
    reservation_ns: u64,
    /// L, in ns.
    limit_ns: u64,
    /// P, in virtual time. It has no clock: only differences between clients count.
    share: u128,
}

/// The tags of a client's first waiting request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// R: due from then on; none without a reservation.
    pub(crate) reservation_ns: Option<u64>,
    /// L: not before.
    pub(crate) limit_ns: u64,
    /// P; what counts once the limit lets it through.
    pub(crate) share: u128,
}

impl Tags {
    /// The tags of a request that becomes the first one.
    pub(crate) fn head(&self, settings: &Settings, arrival_ns: u64, mutants: Mutants) -> Head {
        let reserved = settings.reservation_iops > 0;
        // A guest with few requests at a time has none waiting now and then, although it asks as fast
        // as it can. What its reservation was late by until then is not lost, up to the slack.
        let slack = if mutants.is(Mutant::PauseForgetsLateness) { 0 } else { SLACK_NS };
        let from = arrival_ns.saturating_sub(slack);
        // Nor is that of its limit, whose slack is looked at when it is served.
        let limit_from = if mutants.is(Mutant::LimitFromArrival) { arrival_ns } else { 0 };
        Head {
            reservation_ns: reserved.then_some(self.reservation_ns.max(from)),
            limit_ns: settings.limit_iops.map_or(0, |_| self.limit_ns.max(limit_from)),
            share: self.share,
        }
    }

    /// The request with these tags begins.
    pub(crate) fn serve(
        &mut self,
        head: &Head,
        settings: &Settings,
        served: &Served,
        mutants: Mutants,
    ) {
        let Served { cost, phase, now_ns, lowest } = *served;
        if let Some(tag) = head.reservation_ns {
            let from = if mutants.is(Mutant::TagsFromDispatch) { tag.max(now_ns) } else { tag };
            let counts = phase == Phase::Reservation || mutants.is(Mutant::NoCreditBack);
            let step = if counts { cost.ns_down(settings.reservation_iops) } else { 0 };
            self.reservation_ns = from.saturating_add(step);
        }
        if let Some(iops) = settings.limit_iops {
            let slack = match () {
                () if mutants.is(Mutant::LimitCatchesUp) => u64::MAX,
                () if mutants.is(Mutant::LimitForgetsLateness) => 0,
                () => SLACK_NS,
            };
            let from = head.limit_ns.max(now_ns.saturating_sub(slack));
            self.limit_ns = from.saturating_add(cost.ns_up(iops));
        }
        let counts = phase == Phase::Weight || !mutants.is(Mutant::ReservationOutsideWeight);
        let step = if counts { cost.virtual_time(settings.weight) } else { 0 };
        let share = head.share + step;
        let bounded = phase == Phase::Reservation && !mutants.is(Mutant::LeadUnbounded);
        let most = lowest + u128::from(LEAD_REQUESTS_MAX) * step;
        // What it has by now stays: a lead of large requests is not lost to a small one.
        self.share = if bounded { share.min(most.max(head.share)) } else { share };
    }

    /// The settings change: what was used before counts on at the new rates, what was missed does not.
    pub(crate) fn change(&mut self, old: &Settings, new: &Settings, now_ns: u64, mutants: Mutants) {
        if !mutants.is(Mutant::OldTagsKept) {
            let (was, is) = (old.reservation_iops, new.reservation_iops);
            if was != is {
                self.reservation_ns = rescale(self.reservation_ns, was, is, now_ns);
            }
            let (was, is) = (old.limit_iops.unwrap_or(0), new.limit_iops.unwrap_or(0));
            if was != is {
                self.limit_ns = rescale(self.limit_ns, was, is, now_ns);
            }
        }
        // Reservations served at another weight left a tag that may be hours ahead.
        if old != new && !mutants.is(Mutant::OldShareKept) {
            self.forget();
        }
    }

    /// It begins as a new client, where [`lift`](Self::lift) puts it.
    pub(crate) fn forget(&mut self) {
        self.share = 0;
    }

    /// The proportional tag is at least that of where new and idle clients start.
    pub(crate) fn lift(&mut self, start: u128) {
        self.share = self.share.max(start);
    }

    /// The proportional tag.
    pub(crate) fn share(&self) -> u128 {
        self.share
    }
}

/// How a request was served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) cost: Cost,
    pub(crate) phase: Phase,
    pub(crate) now_ns: u64,
    /// The lowest proportional tag of those that could have begun instead.
    pub(crate) lowest: u128,
}

/// A tag in the future stands for requests that were served ahead of their time: they take another
/// time at another rate. Without an old or a new rate the tag begins now.
fn rescale(tag_ns: u64, was: u32, is: u32, now_ns: u64) -> u64 {
    let ahead = tag_ns.saturating_sub(now_ns);
    if was == 0 || is == 0 {
        return now_ns;
    }
    let scaled = u128::from(ahead) * u128::from(was) / u128::from(is);
    now_ns.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NONE: Mutants = Mutants::NONE;

    fn settings() -> Settings {
        Settings { reservation_iops: 100, limit_iops: Some(200), weight: 10 }
    }

    fn serve(tags: &mut Tags, phase: Phase, now_ns: u64) -> Head {
        let head = tags.head(&settings(), 0, NONE);
        let served = Served { cost: Cost::of_length(0), phase, now_ns, lowest: 0 };
        tags.serve(&head, &settings(), &served, NONE);
        head
    }

    #[test]
    fn reservations_are_spaced_by_their_rate() {
        let mut tags = Tags::default();
        for n in 0..4 {
            // Served late each time: the tags don't care.
            let head = serve(&mut tags, Phase::Reservation, n * 10_000_000 + 5_000_000);
            assert_eq!(head.reservation_ns, Some(n * 10_000_000));
        }
    }

    #[test]
    fn what_goes_by_weight_leaves_the_reservation() {
        let mut tags = Tags::default();
        serve(&mut tags, Phase::Reservation, 0);
        for _ in 0..5 {
            let head = serve(&mut tags, Phase::Weight, 0);
            assert_eq!(head.reservation_ns, Some(10_000_000));
        }
    }

    #[test]
    fn a_limit_catches_up_a_little() {
        let mut tags = Tags::default();
        assert_eq!(serve(&mut tags, Phase::Weight, 0).limit_ns, 0);
        assert_eq!(serve(&mut tags, Phase::Weight, SECOND).limit_ns, 5_000_000);
        // Not 10 ms, as without a bound, and not a second and 5 ms, as without slack.
        assert_eq!(tags.head(&settings(), 0, NONE).limit_ns, SECOND - SLACK_NS + 5_000_000);
    }

    #[test]
    fn a_higher_limit_counts_at_once() {
        let mut tags = Tags { limit_ns: 11 * SECOND, ..Tags::default() };
        let slow = Settings { limit_iops: Some(1), ..Settings::default() };
        let fast = Settings { limit_iops: Some(1000), ..Settings::default() };
        tags.change(&slow, &fast, SECOND, NONE);
        assert_eq!(tags.limit_ns, SECOND + 10_000_000);
        tags.change(&fast, &slow, SECOND, NONE);
        assert_eq!(tags.limit_ns, 11 * SECOND);
    }
}
