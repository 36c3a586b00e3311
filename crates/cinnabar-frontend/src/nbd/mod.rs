//! An NBD server (fixed newstyle) without an event loop of its own.
//!
//! One turn of its loop:
//!
//! 1. [`Server::take_interests`]: which descriptors to watch from now on, and which are gone.
//! 2. Wait, not at all if [`Server::has_backlog`], at most until [`Server::deadline`].
//! 3. [`Server::on_ready`] for each descriptor that is ready; [`Server::resume`] once if there is a
//!    backlog, as there is then: it appends [`Incoming`] requests; [`Server::tick`] if the deadline has come.
//! 4. Carry the requests out; [`Server::reply`] for each that is done, in any order, then or in a
//!    later turn.
//! 5. [`Server::flush`] once: one gathered `sendmsg` for each connection that has replies.
//!
//! Level- and edge-triggered polling both work: what a turn leaves unread is kept as backlog.
//!
//! # Who may use an export
//! A read-only export serves any number of clients, within bounds for each process, each user and all of them, so
//! that clients of other exports find room ([`Limits`]). A writable one serves several connections of *one
//! client*, and a second client only if [`Export::shared`] is set: two guests writing one file system destroy it.
//! One client is one process on a unix socket (`SO_PEERCRED`, so forked jobs are different clients) and one IP
//! address over TCP. No other client is admitted until its last connection is gone; the refusal is
//! `NBD_REP_ERR_POLICY` with a message.
//!
//! # What a client can do to others
//! Nothing but cost time, and a bounded part of it. All is counted by export, whatever number of connections
//! that has:
//!
//! * Memory: requests in flight and their bytes, which count until the reply has left for the socket. Each
//!   export has a floor that is never lent; beyond that it may have half of what is free to it. A
//!   connection without room is not read. One that has waited for a second ends those of others that have
//!   held memory longest by not reading replies or not sending a payload.
//! * Connections: each export has some that others can't take.
//! * Turns: each export with work is served for a bounded number of requests in a turn of the loop.
//!
//! Handshakes are bounded by user or host; the oldest one makes room for the newcomer. Time-outs end a handshake,
//! a request whose payload does not come, and replies that are not read.
//! A violation of the protocol closes the connection, with a [`DisconnectReason`] logged once and
//! counted.

mod address;
mod budget;
mod connection;
mod export;
mod exports;
mod half_open;
pub mod handshake;
mod jobs;
pub mod limits;
mod listener;
mod long;
mod memory;
pub mod mutant;
mod output;
pub mod proto;
mod reason;
mod reply;
mod sectors;
mod server;
mod shared;
mod stats;
pub(crate) mod tls;
pub mod transmission;
mod turns;

// Shared with the vhost-user server.
use crate::{interest, load, peer, request, socket, starved, table, warnings};

pub use address::{Address, AddressError, UNIX_PATH_BYTES_MAX};
pub use export::{Export, ExportError, ExportId};
pub use interest::{Interest, Ready, Token, Want};
pub use limits::Limits;
pub use reason::DisconnectReason;
pub use request::{Body, Buffers, Command, Extent, ExtentKind, Incoming, Ticket};
pub use server::Server;
pub use socket::{ListenError, SocketAccess};
pub use stats::Stats;
pub use tls::{Handover, StartTls, TlsAccess, TlsSession};
