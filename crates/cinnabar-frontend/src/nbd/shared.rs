//! What all connections of a server have in common.

use super::budget::Budget;
use super::export::ExportId;
use super::exports::Exports;
use super::limits::{Limits, RECEIVE_BYTES};
use super::load::Load;
use super::stats::Stats;
use super::table::Table;
use super::transmission::Pending;
use super::warnings::Warnings;
use cinnabar_engine::seam::units::Instant;

/// A request that the engine has to answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Key of its connection, which may be gone.
    pub(super) connection: u64,
    /// What it holds is counted there.
    pub(super) export: ExportId,
    pub(super) pending: Pending,
    pub(super) part: Part,
}

/// What of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// The read of an edge of a job.
    Edge(u64, u8),
    /// A write of a job.
    Change(u64),
}

/// What all connections of a server have in common.
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) exports: Exports,
    pub(super) slots: Table<Slot>,
    /// What all connections hold, and requests whose connection is gone: coming back gains nothing.
    pub(super) budget: Budget,
    /// Something was let go since paused connections were last tried.
    pub(super) released: bool,
    pub(super) stats: Stats,
    /// Everything is received here first, one connection at a time.
    pub(super) receive_area: Vec<u8>,
    /// The time that the caller gave last.
    pub(super) now: Instant,
    pub(super) warnings: Warnings,
}

impl Shared {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            budget: Budget::new(limits.total(), limits.mutants),
            limits,
            exports: Exports::default(),
            slots: Table::new(),
            released: false,
            stats: Stats::default(),
            receive_area: vec![0; RECEIVE_BYTES],
            now: Instant(0),
            warnings: Warnings::new("NBD"),
        }
    }

    /// A request is answered by the server itself with an error.
    pub(super) fn refuse(&mut self, export: ExportId) {
        self.stats.refused_requests += 1;
        if let Some(served) = self.exports.get_mut(export) {
            served.refused += 1;
        }
    }

    /// What requests to an export held is free again.
    pub(super) fn release(&mut self, export: ExportId, load: Load) {
        self.budget.release(export, load);
        self.released = true;
    }
}
