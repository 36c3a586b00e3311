//! NBD servers as backends: a client that outlives its server's restarts.
//!
//! * [`address`]: `nbd:unix:PATH:EXPORT` and what else is written of a server; [`uri`]: the same as
//!   other clients write it.
//! * [`handshake`]: the conversation before the first request; straight-line, bounded.
//! * [`export_info`]: what the server said of its export, and whether it will do.
//! * [`receiver`]: replies, piece by piece; pure.
//! * `in_flight`: requests under way on one connection. `link`: that connection.
//! * `dialer`: connecting, in a thread of its own, again and again with pauses.
//! * `worker`: the thread of a volume: jobs in, requests out, replays. `client`: its handle.
//! * `unflushed`: what a server that restarts may lose.
//!
//! # What is promised
//! * Every job ends exactly once, its buffers untouched from then on. What a connection that died
//!   owes is asked for again on the next one, whole: reads, writes, flushes, trims and zeroes may
//!   all be repeated, for the engine never has overlapping requests under way.
//! * One connection that dies takes the others with it: they lead to one server, which may have
//!   restarted, and half a job done by its former life is nothing to build on.
//! * After a reconnect, and before anything that came of it, the driver hears what the server may
//!   have lost ([`PortEvent::Restarted`](crate::PortEvent::Restarted)).
//! * A server can say whatever it likes: what breaks the protocol ends the connection, memory is
//!   bounded by what was asked of it, and waiting by the pauses and `give_up`.

pub mod address;
mod backoff;
mod client;
mod dialer;
mod error;
pub mod export_info;
pub mod handshake;
mod in_flight;
mod job;
mod link;
mod proto;
pub mod receiver;
mod socket;
mod unflushed;
pub mod uri;
mod worker;

pub use address::{NbdAddress, NbdSpec, NbdSpecError};
pub use error::NbdError;
pub use in_flight::{Command, Flight, InFlight};
pub use uri::NbdUriError;

pub(crate) use client::{Client, Sink};
