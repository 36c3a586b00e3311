//! Fuzz targets: each takes bytes that nobody has checked to what reads them, and says whether these got beyond
//! the first check there. A panic is a finding.
//!
//! The programs in `fuzz_targets` give libFuzzer's inputs to them; the test in `tests` those that the tree keeps,
//! valid ones, and many made of these.

pub mod api;
pub mod engine;
mod frontend;
pub mod history;
mod input;
pub mod metadata;
pub mod nbd_client;
pub mod nbd_handshake;
pub mod nbd_tls;
pub mod nbd_transmission;
pub mod served;
pub mod trace_binary;
mod trace_check;
pub mod trace_text;
pub mod vhost_user;
pub mod write_log;
mod write_world;

/// Takes an input; whether that got beyond the first check.
pub type Run = fn(&[u8]) -> bool;

/// Every target, by name.
pub const TARGETS: [(&str, Run); 12] = [
    ("api", api::run),
    ("engine", engine::run),
    ("history", history::run),
    ("metadata", metadata::run),
    ("nbd_client", nbd_client::run),
    ("nbd_handshake", nbd_handshake::run),
    ("nbd_tls", nbd_tls::run),
    ("nbd_transmission", nbd_transmission::run),
    ("trace_binary", trace_binary::run),
    ("trace_text", trace_text::run),
    ("vhost_user", vhost_user::run),
    ("write_log", write_log::run),
];
