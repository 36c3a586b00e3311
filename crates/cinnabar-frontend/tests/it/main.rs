//! The NBD server from outside: its state machines on bytes, its sockets on raw and real clients.

mod client;
mod clients;
mod handshake;
mod host;
mod hostile;
mod life;
mod lifecycle;
mod memory;
mod policy;
mod pressure;
mod properties;
mod running;
mod sample;
mod transmission;
