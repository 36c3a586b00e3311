//! Guests and what they ask for.

use crate::oracle::{ReadTicket, WriteTicket};
use crate::stamp::Stamped;
use cinnabar_engine::Op;
use std::ops::Range;

/// A guest.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) host: usize,
    pub(super) run: u64,
    /// It has asked for something.
    pub(super) begun: bool,
    /// It asks for nothing more.
    pub(super) stopped: bool,
    /// Its host has lost the volume: it gets errors until it is started again.
    pub(super) shut_out: bool,
    /// Requests that are not answered.
    pub(super) waits_for: u64,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) host: usize,
    pub(super) client: Option<usize>,
    pub(super) asked: Asked,
    /// What the engine is to get, as long as it has not.
    pub(super) op: Option<Op<Stamped>>,
    /// Blocks of which it was not known, as it was submitted, what they hold.
    pub(super) murky: Vec<u64>,
    /// Requests are numbered as they arrive.
    pub(super) born: u64,
}

#[derive(Debug)]
pub(super) enum Asked {
    Read {
        ticket: ReadTicket,
        sectors: Range<u64>,
    },
    Write {
        ticket: WriteTicket,
        fua: bool,
    },
    /// A write while two hosts serve the volume and nothing fences: nothing is promised of it.
    Breach {
        sectors: Range<u64>,
    },
    Flush {
        tick: u64,
    },
}

/// What a guest wants; sectors.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Read(Range<u64>),
    Write(Range<u64>),
    Zero(Range<u64>),
    Flush,
}

impl Pending {
    /// Whether only the owner of the volume carries it out: what changes it, and what is to be durable.
    pub(super) fn needs_owner(&self) -> bool {
        !matches!(self.asked, Asked::Read { .. })
    }

    /// The sectors that it changes.
    pub(super) fn written(&self) -> Option<Range<u64>> {
        match &self.asked {
            Asked::Write { ticket, .. } => Some(ticket.sectors()),
            Asked::Breach { sectors } => Some(sectors.clone()),
            Asked::Read { .. } | Asked::Flush { .. } => None,
        }
    }
}
