//! Guest-facing servers: NBD and vhost-user-blk.
//!
//! The data thread of the daemon owns the event loop: nothing here waits or reads a clock.

mod interest;
mod load;
pub mod nbd;
mod peer;
mod request;
mod socket;
mod starved;
mod table;
pub mod tls;
mod turn_length;
pub mod vhost;
mod warnings;

pub use interest::{Interest, Ready, Token, Want};
pub use nbd::tls::TlsAccess;
pub use request::{Body, Buffers, Command, ExportId, Extent, ExtentKind, Incoming, Ticket};
pub use socket::{ListenError, SocketAccess, UnixListener};
