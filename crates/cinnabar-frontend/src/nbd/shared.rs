//! What all connections of a server have in common.
//!
//! Called by the server and its connections.

use super::exports::Exports;
use super::limits::{Limits, RECEIVE_BYTES};
use super::load::Load;
use super::stats::Stats;
use super::table::Table;
use super::transmission::Pending;
use super::warnings::Warnings;
use cinnabar_engine::units::Instant;

/// A request that the engine has to answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Key of its connection, which may be gone.
    pub(super) connection: u64,
    pub(super) pending: Pending,
}

/// What all connections of a server have in common.
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) exports: Exports,
    pub(super) slots: Table<Slot>,
    /// What all connections hold, and requests whose connection is gone.
    pub(super) load: Load,
    /// Something was let go since paused connections were last tried.
    pub(super) released: bool,
    pub(super) stats: Stats,
    /// Everything is received here first, one connection at a time.
    pub(super) receive_area: Vec<u8>,
    /// As the caller last told.
    pub(super) now: Instant,
    pub(super) warnings: Warnings,
}

impl Shared {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            exports: Exports::default(),
            slots: Table::new(),
            load: Load::default(),
            released: false,
            stats: Stats::default(),
            receive_area: vec![0; RECEIVE_BYTES],
            now: Instant(0),
            warnings: Warnings::new("NBD"),
        }
    }

    pub(super) fn release(&mut self, load: Load) {
        self.load -= load;
        self.released = true;
    }
}
