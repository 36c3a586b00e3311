//! TLS with client certificates: for NBD over TCP and for the control API over HTTP.
//!
//! [`Tls`] holds the daemon's certificate, its key, and the authority of its clients' certificates, and reads
//! them again when their files change. A [`Terminator`] ends TLS for NBD clients on threads of its own, so
//! that data threads see plain text on a socket and never do cryptography. What a client's certificate says
//! is read in [`certificate`].

#![forbid(unsafe_code)]

pub mod certificate;
mod credentials;
mod files;
mod loading;
mod pump;
mod sessions;
mod terminator;

pub use credentials::{Clients, Tls};
pub use files::{Files, TlsError};
pub use terminator::Terminator;
pub use tokio_rustls::server::TlsStream;

/// Longest TLS handshake, from the first byte to the last.
pub const HANDSHAKE_MAX: std::time::Duration = std::time::Duration::from_secs(10);
