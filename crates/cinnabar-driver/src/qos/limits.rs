//! Every maximum of the scheduler, and the constants of its rules.

/// Clients of a group: guest and destage of as many volumes as a cache serves.
pub const CLIENTS_MAX: usize = 8192;
/// Waiting requests of one client, at most; [`Config::waiting_max`](crate::qos::Config) may be less.
pub const WAITING_MAX: usize = 4096;
/// Requests of a group under way.
pub const DEPTH_MAX: usize = 4096;
/// A reservation or a limit, in I/Os a second.
pub const IOPS_MAX: u32 = 10_000_000;
pub const WEIGHT_MAX: u32 = 10_000;
/// Bytes of a request that count; what is longer costs as much.
pub const LENGTH_MAX: u32 = 32 << 20;

/// How far tags catch up, in ns: what a request waited beyond its turn is not lost, up to this.
///
/// In any window of `W` seconds a limit of `l` lets through at most `l * (W + 0.02)`, and one request.
pub const SLACK_NS: u64 = 20_000_000;
/// A client that had nothing to do for so long begins as a new one, in ns.
pub const IDLE_FORGET_NS: u64 = 1_000_000_000;
/// Requests begun for due reservations in a row while a client without one waits.
///
/// The next one goes by weight: 3 % of an oversold group, so that none of its volumes stands still.
pub const RESERVED_RUN_MAX: u32 = 31;
/// Requests that a client may be ahead of the others by weight because of its reservation.
///
/// While a reservation is more than the weight's part, each request served for it adds to the lead.
/// Without a bound the volume would be behind for as long afterwards, when there is more for all.
pub const LEAD_REQUESTS_MAX: u32 = 32;
/// The shortest time over which capacity is measured, in ns.
pub const WINDOW_NS: u64 = 1_000_000_000;
/// A window that lasted longer is not counted: the host slept, or the server was away.
pub const WINDOW_NS_MAX: u64 = 10 * WINDOW_NS;

// Indices of clients and requests have 32 bits.
const _: () = assert!(CLIENTS_MAX * WAITING_MAX + DEPTH_MAX < u32::MAX as usize);
// Limits hold within 5 % over any second, and reservations that are just as much as there is.
const _: () = assert!(SLACK_NS <= 25_000_000 && RESERVED_RUN_MAX >= 20);
const _: () = assert!(WINDOW_NS < WINDOW_NS_MAX && WEIGHT_MAX > 0);
