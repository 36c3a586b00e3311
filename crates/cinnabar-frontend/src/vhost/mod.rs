//! A vhost-user-blk server without an event loop of its own.
//!
//! One turn of its loop:
//!
//! 1. [`Server::take_interests`]: which descriptors to watch from now on, and which are gone.
//! 2. Wait, not at all if [`Server::has_backlog`], at most until [`Server::deadline`].
//! 3. [`Server::on_ready`] for each descriptor that is ready, [`Server::resume`] if there is a
//!    backlog, [`Server::tick`] if the deadline has come. They append [`Incoming`] requests.
//! 4. Carry the requests out; [`Server::reply`] for each that is done, in any order, then or in a
//!    later turn.
//! 5. [`Server::flush`] once: each queue gives back what is done, with one call at most.
//!
//! A loop that spins instead of waiting calls [`Server::set_polling`], so that guests don't kick, and
//! [`Server::poll`] in each turn; before it waits again it ends polling, and checks the result.
//!
//! # Memory
//! A guest shares its memory and can change it at any time. Descriptors and headers are read once and
//! checked afterwards; what is written is copied once into a private buffer; a read of whole blocks
//! may go straight into guest memory ([`Buffers::guest`]), every other one is copied out at the end. A
//! request keeps the memory it began with, whatever the front-end changes or if it dies. A truncated
//! file under guest memory costs its guest the connection, and affects no other guest (`guard`).
//!
//! # Who may use an export
//! A read-only export serves several front-ends, a writable one a single one at a time. When QEMU comes
//! back its predecessor's reads into guest memory must be over first: until then its messages are
//! answered, and its rings not served.
//!
//! # A server that dies
//! Front-ends that can (`INFLIGHT_SHMFD`) keep a note of the requests under way, and hand it to the
//! next server, which takes those again before all others: none is lost, and none is given back twice.
//! A write may be carried out twice, before anything that the guest did after its answer.
//!
//! # Migration
//! While a front-end asks for it (`LOG_ALL`), each page of guest memory that is written is marked in a
//! log that it shares (`log`), after it was written. That can be switched on and off amid requests:
//! what counts is the moment of the write. A ring is stopped when all that was taken of it is given
//! back, and marked.
//!
//! # What a guest can do to others
//! Nothing but cost time. What it may hold is bounded ([`Limits`]); beyond the bound its ring is not
//! read. A violation of either protocol closes the connection, with a [`DisconnectReason`] logged once
//! and counted. No descriptor of the front-end's can hold up the data thread, whatever flags it sets:
//! sockets are read and written with `MSG_DONTWAIT`, eventfds in ways that never block (`bell`), memory
//! is nothing but memory. What its memory takes of the process is bounded, too (`budget`), and is
//! charged to the export, so that coming back gains nothing.

mod bell;
mod block;
mod budget;
mod chain;
mod channel;
mod connection;
mod device;
mod export;
mod guard;
mod inflight;
mod lease;
pub mod limits;
mod log;
mod mapping;
mod memory;
mod proto;
mod queue;
mod reason;
mod ring;
mod server;
mod slot;
mod stats;
mod watches;

pub use crate::interest::{Interest, Ready, Token, Want};
pub use crate::request::{Body, Buffers, Command, ExportId, Incoming, Ticket};
pub use crate::socket::ListenError;
pub use export::{AddError, Export, SocketSpec};
pub use lease::Waker;
pub use limits::Limits;
pub use reason::DisconnectReason;
pub use server::Server;
pub use stats::Stats;
