//! What a group and its clients have done and wait for.

use crate::qos::capacity::Reservations;
use crate::qos::settings::Settings;

/// A client since it was added. Times are in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientReport {
    /// As they are now.
    pub settings: Settings,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests under way.
    pub under_way: usize,
    /// Begun because the reservation was due.
    pub by_reservation: u64,
    /// Begun by weight.
    pub by_weight: u64,
    /// What they cost, in thousandths of an I/O.
    pub milli_ios: u64,
    /// How long they were held back by the client's own limit, summed.
    pub held_ns: u64,
    /// How long those of `by_reservation` waited for their turn beyond that, summed.
    pub reservation_queued_ns: u64,
    /// How long those of `by_weight` did.
    pub weight_queued_ns: u64,
    /// The longest wait of one of them, both parts together.
    pub waited_ns_max: u64,
    /// Operations that were exempt.
    pub exempt: u64,
    /// Requests that were refused because the client's queue was full.
    pub refused: u64,
    /// Requests that were withdrawn while they waited.
    pub withdrawn: u64,
    /// How far the due reservation is behind: above zero for long if the group is oversold.
    pub behind_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupReport {
    /// Requests under way at most.
    pub depth: usize,
    /// Requests under way.
    pub under_way: usize,
    /// Requests that wait.
    pub waiting: usize,
    pub clients: usize,
    /// What is reserved, and what there is.
    pub reservations: Reservations,
    /// Turns that were given by weight although reservations were due, so that no client stood still.
    pub turns_by_weight: u64,
}
