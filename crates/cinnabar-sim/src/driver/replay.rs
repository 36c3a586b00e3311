//! Requests that a crash left unanswered: a frontend that knows of them (vhost-user, by the table it
//! shares with QEMU) asks for them again, the same bytes in the same order, before anything new. An
//! NBD server does not: its guest has lost the connection.

use crate::driver::guests::{Asked, Pending};
use crate::driver::log::sectors_of;
use crate::driver::world::World;
use crate::kinds::Path;
use crate::machine::Factory;
use crate::oracle::Outcome;
use crate::stamp::{Stamp, Stamped};
use crate::violation::{Kind, Violation};
use crate::workload::Plea;
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES};
use cinnabar_engine::{Op, Payload};
use std::collections::VecDeque;

/// Answered writes that a frontend which asks twice asks for again.
const DOUBLED: usize = 4;

/// What frontends do with requests that a crash left unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// As they should.
    Sound,
    /// They forget them.
    Skipped,
    /// They ask for some again that were answered.
    Doubled,
}

/// A request as its guest knows it.
#[derive(Clone, Debug)]
pub(super) struct GuestRequest {
    pub(super) plea: Plea,
    /// The data of a write.
    pub(super) values: Vec<Stamp>,
}

/// What a guest and its frontend know of requests across crashes.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Unanswered ones, oldest first, while there is no daemon to ask.
    unanswered: Vec<GuestRequest>,
    /// The newest writes that were answered, for a frontend that mixes them up.
    answered: VecDeque<GuestRequest>,
    /// Requests that the guest has made, and those that have ended for it.
    asked: u64,
    ended: u64,
}

impl Ledger {
    /// The guest asks for something.
    pub(super) fn asked(&mut self) {
        self.asked += 1;
    }

    /// The volume is another one, with another guest.
    pub(super) fn restart(&mut self) {
        self.ended += self.unanswered.len() as u64;
        self.unanswered.clear();
        self.answered.clear();
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// The guest of a volume has its answer.
    pub(super) fn note_answered(&mut self, pending: &Pending) {
        let Some(plea) = pending.plea else { return };
        let ledger = &mut self.volumes[pending.volume].ledger;
        ledger.ended += 1;
        if let (Replay::Doubled, Asked::Write { values, .. }) =
            (self.options.replay, &pending.asked)
        {
            ledger.answered.push_back(GuestRequest { plea, values: values.clone() });
            if ledger.answered.len() > DOUBLED {
                ledger.answered.pop_front();
            }
        }
    }

    /// The machine is gone, and this request unanswered.
    pub(super) fn note_unanswered(&mut self, pending: &Pending) {
        let Some(plea) = pending.plea else { return };
        let replays = self.profile.volumes[pending.volume].replays;
        let ledger = &mut self.volumes[pending.volume].ledger;
        if !replays || pending.refusal.is_some() {
            // The guest gets an error.
            ledger.ended += 1;
            return;
        }
        let values = match &pending.asked {
            Asked::Write { values, .. } => values.clone(),
            _ => Vec::new(),
        };
        ledger.unanswered.push(GuestRequest { plea, values });
    }

    /// A volume is attached again: what its guest still waits for is asked for first.
    pub(super) fn replay(&mut self, volume: usize) {
        let ledger = &mut self.volumes[volume].ledger;
        let answered = std::mem::take(&mut ledger.answered);
        let unanswered = std::mem::take(&mut ledger.unanswered);
        if self.options.replay == Replay::Skipped {
            return;
        }
        for wish in answered {
            let Plea::Write(span, fua) = wish.plea else { continue };
            let op = Op::Write { span, data: data_of(span, &wish.values), fua };
            self.enter_replayed(volume, Asked::Unasked, op, None);
        }
        for wish in unanswered {
            self.count.paths.add(Path::ReplayedRequests);
            self.note_change(wish.plea);
            let plea = wish.plea;
            let (asked, op) = match plea {
                Plea::Write(span, fua) => {
                    let data = data_of(span, &wish.values);
                    let first = span.offset / SECTOR_BYTES;
                    let values = wish.values;
                    let ticket = self.oracle.write_submitted(volume, first, values.clone());
                    let op = Op::Write { span, data: data.clone(), fua };
                    (Asked::Write { ticket, span, data, values, fua }, op)
                }
                other => self.prepare(volume, other),
            };
            self.enter_replayed(volume, asked, op, Some(plea));
        }
    }

    /// In the end no guest may wait for anything.
    pub(super) fn check_ledgers(&self) -> Result<(), Violation> {
        for (volume, known) in self.volumes.iter().enumerate() {
            let Ledger { asked, ended, .. } = known.ledger;
            if asked != ended {
                let what =
                    format!("of {asked} requests of volume {volume}'s guest, {ended} have ended");
                return Err(Violation::new(Kind::NoReply, what));
            }
        }
        Ok(())
    }

    /// The machine is gone: nothing under way will be answered.
    pub(super) fn despair(&mut self) {
        for (volume, ticket) in std::mem::take(&mut self.losses) {
            self.oracle.write_ended(&ticket, Outcome::Perhaps);
            self.oracle.end_excuses(volume, ticket.sectors(), u64::MAX);
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.note_unanswered(&pending);
            let refused = pending.refusal.is_some();
            let outcome = if refused { Outcome::Refused } else { Outcome::Perhaps };
            self.end_of_hope(&pending, outcome);
        }
        self.settle_all();
    }
}

fn data_of(span: ByteSpan, values: &[Stamp]) -> Stamped {
    debug_assert_eq!(sectors_of(span).count(), values.len());
    let data = Stamped::alloc(span.blocks() as u32);
    data.set((span.head_bytes() / SECTOR_BYTES) as usize, values);
    data
}
