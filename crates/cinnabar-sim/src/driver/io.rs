//! I/O under way: when its parts happen, when it completes, and whether it fails.
//!
//! Called by the world.

use crate::driver::agenda::Item;
use crate::driver::log::{Place, describe, sectors_of};
use crate::driver::world::World;
use crate::machine::Factory;
use crate::medium::Transfer;
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Event, IoError, IoId, IoOp, IoRequest, Target};
use std::ops::Range;

/// An I/O under way.
#[derive(Debug)]
pub(super) struct Flight {
    transfer: Transfer,
    result: Result<(), IoError>,
    /// Parts that have not happened yet.
    ahead: Vec<Range<usize>>,
}

impl Flight {
    pub(super) fn request(&self) -> &IoRequest<Stamped> {
        &self.transfer.request
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// The machine asks for an I/O.
    pub(super) fn take_off(&mut self, request: IoRequest<Stamped>) -> Result<(), Violation> {
        let id = request.id;
        if self.flights.contains_key(&id) {
            let what = format!("{id:?} is used twice at a time");
            return Err(Violation::new(Kind::BadIo, what));
        }
        let on_cache = request.target == Target::Cache;
        let place = self.place_of(&request);
        let tick = self.oracle.tick();
        self.log.note(self.now, place, || format!("begin {}", describe(&request)));
        let transfer = self.media.start(request, tick)?;
        let latency =
            if on_cache { self.profile.cache_latency } else { self.profile.backend_latency };
        let lasts_ns = latency.sample(&mut self.dice);
        let error = self.draw_error(&transfer);
        let ahead = self.parts(transfer.units());
        for part in &ahead {
            let at = self.now.plus_ns(self.dice.below(lasts_ns));
            self.agenda.enter(at, Item::effect(id, part));
        }
        self.agenda.enter(self.now.plus_ns(lasts_ns), Item::Finish(id));
        let result = error.map_or(Ok(()), Err);
        self.flights.insert(id, Flight { transfer, result, ahead });
        Ok(())
    }

    /// One part or two, for an I/O on a medium need not happen all at once.
    fn parts(&mut self, units: usize) -> Vec<Range<usize>> {
        if units == 0 {
            return Vec::new();
        }
        if units == 1 || self.dice.chance(0.5) {
            return vec![Range { start: 0, end: units }];
        }
        let cut = self.dice.within(1..units as u64) as usize;
        vec![0..cut, cut..units]
    }

    /// Does this I/O fail, and how?
    fn draw_error(&mut self, transfer: &Transfer) -> Option<IoError> {
        let backend = self.media.backend_of(transfer.request.target);
        let zeroing = matches!(transfer.request.op, IoOp::Trim { .. } | IoOp::WriteZeroes { .. });
        if zeroing && backend.is_some_and(|backend| !self.media.backends[backend].can_zero) {
            // No fault: the machine must know another way.
            return Some(IoError::Unsupported);
        }
        if !self.faults_on {
            return None;
        }
        let error = self.profile.faults.sample(&mut self.dice, backend.is_none())?;
        match backend {
            None => self.count.cache_errors += 1,
            Some(backend) => {
                self.volumes[backend].errors += 1;
                self.count.backend_errors += 1;
            }
        }
        Some(error)
    }

    /// A part of an I/O happens; of one that will fail, perhaps.
    pub(super) fn effect(&mut self, id: IoId, units: Range<usize>) {
        let flight = self.flights.get_mut(&id).expect("its end comes after its parts");
        flight.ahead.retain(|part| *part != units);
        let refused = flight.result == Err(IoError::Unsupported);
        if flight.result.is_ok() || !refused && self.dice.chance(0.5) {
            self.media.effect(&mut flight.transfer, units);
        }
    }

    /// An I/O completes.
    pub(super) fn finish(&mut self, id: IoId) -> Result<(), Violation> {
        let flight = self.flights.remove(&id).expect("an I/O completes once");
        let place = self.place_of(flight.request());
        self.log.note(self.now, place, || format!("end   I/O {}: {:?}", id.0, flight.result));
        let tick = self.oracle.tick();
        let done = self.media.finish(flight.transfer, flight.result, tick)?;
        self.batch.push(Event::IoDone(done));
        Ok(())
    }

    /// The machine is gone: what it had under way has happened or has not, part by part. Nothing of
    /// it lands later, for the next daemon's lock waits for it.
    pub(super) fn land_or_vanish(&mut self) {
        for mut flight in std::mem::take(&mut self.flights).into_values() {
            for part in std::mem::take(&mut flight.ahead) {
                if self.dice.chance(0.5) {
                    self.media.effect(&mut flight.transfer, part);
                }
            }
        }
        let tick = self.oracle.tick();
        for backend in &mut self.media.backends {
            backend.crash(tick);
        }
        self.media.crash();
    }

    fn place_of(&self, request: &IoRequest<Stamped>) -> Place {
        let backend = self.media.backend_of(request.target)?;
        let span = match &request.op {
            IoOp::Read { offset, data } | IoOp::Write { offset, data, .. } => {
                ByteSpan::new(*offset, data.iter().map(|slice| slice.len).sum())
            }
            IoOp::Trim { span } | IoOp::WriteZeroes { span, .. } => *span,
            IoOp::Flush
            | IoOp::Prove
            | IoOp::Distrust
            | IoOp::ReadMeta { .. }
            | IoOp::WriteMeta { .. } => return None,
        };
        Some((backend, sectors_of(span)))
    }
}
