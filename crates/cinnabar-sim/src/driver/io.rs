//! I/O under way: when its parts happen, when it completes, and whether it fails.

use crate::driver::agenda::Item;
use crate::driver::log::{Place, sectors_of};
use crate::driver::world::World;
use crate::kinds::{Fault, Path};
use crate::machine::Factory;
use crate::medium::{Media, Part, Transfer, offset_bytes};
use crate::pairs::{Incident, IoKind};
use crate::rng::Rng;
use crate::stamp::{Stamp, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::units::{ByteSpan, Instant, SECTOR_BYTES};
use cinnabar_engine::{Event, IoDone, IoError, IoId, IoOp, IoRequest, Target};
use std::ops::Range;

/// The longest spike, in ns.
const SPIKE_NS_MAX: u64 = 5_000_000_000;
/// I/O of a device that died silently fails within this time, in ns.
const HANG_NS_MAX: u64 = 30_000_000_000;
/// Of the errors drawn for flushes of a backend, so many come for each that counts.
const SYNC_ERRORS_EVERY: u64 = 4;

/// An I/O under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) transfer: Transfer,
    pub(super) result: Result<(), IoError>,
    /// Parts that have not happened yet.
    pub(super) ahead: Vec<Range<usize>>,
    /// The machine was told that it takes too long.
    pub(super) overdue: bool,
    /// It hangs because its device died, and fails in the end.
    pub(super) hangs: bool,
    /// Its number: names are used again.
    pub(super) number: u64,
    /// The number that it began with, and when that was.
    pub(super) born: u64,
    pub(super) began: Instant,
    /// After so long, in ns, it is overdue.
    pub(super) bound_ns: Option<u64>,
    /// Its medium is silent: it ends when that is over, or never.
    pub(super) held: bool,
    /// It is on a cache device that was given up, and that another one has taken the place of.
    pub(super) left: bool,
    pub(super) kind: IoKind,
}

impl Flight {
    pub(super) fn request(&self) -> &IoRequest<Stamped> {
        &self.transfer.request
    }

    /// It is asked for once more, under another number.
    pub(super) fn begin_again(&mut self, number: u64, tick: u64) {
        self.number = number;
        self.held = false;
        self.transfer.begin_again(tick);
        let units = self.transfer.units();
        self.ahead.clear();
        if units > 0 {
            self.ahead.push(Range { start: 0, end: units });
        }
    }

    /// A part of it happens; of one that will fail, perhaps.
    fn happen(&mut self, units: Range<usize>, media: &mut Media, rng: &mut Rng) {
        let refused = self.result == Err(IoError::Unsupported);
        if self.request().target == Target::Cache && media.cache.is_dead() {
            media.miss(&self.transfer, units);
        } else if self.result.is_ok() || !refused && rng.chance(0.5) {
            media.effect(&mut self.transfer, units);
        }
    }

    /// Is it a flush that failed, and not for its time?
    pub(super) fn has_lost(&self) -> bool {
        let lost = self.result.is_err_and(|error| error != IoError::TimedOut);
        lost && is_sync(&self.request().op)
    }

    /// May a driver call it overdue?
    pub(super) fn may_be_overdue(&self) -> bool {
        self.transfer.backend().is_some() && self.bound_ns.is_some() && !self.overdue
    }

    /// Does it change any of these sectors of a backend?
    pub(super) fn writes_on(&self, backend: usize, sectors: &Range<u64>) -> bool {
        let place = place_on(self.transfer.backend(), self.request());
        self.transfer.writes()
            && place.is_some_and(|(on, range)| {
                on == backend && range.start < sectors.end && sectors.start < range.end
            })
    }
}

impl Flight {
    /// The first of these sectors that this write to a backend changes, and what it writes there.
    pub(super) fn first_written(&self, sectors: &Range<u64>) -> Option<(u64, Stamp)> {
        let (_, range) = place_on(self.transfer.backend(), self.request())?;
        let sector = range.start.max(sectors.start);
        let IoOp::Write { data, .. } = &self.request().op else {
            return Some((sector, Stamp::ZERO));
        };
        let mut skipped = (sector - range.start) * SECTOR_BYTES;
        for slice in data {
            if skipped < slice.len {
                let place = (slice.at + skipped) / SECTOR_BYTES;
                return Some((sector, slice.data.get(place as usize, 1)[0]));
            }
            skipped -= slice.len;
        }
        None
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// The machine asks for an I/O.
    pub(super) fn take_off(&mut self, request: IoRequest<Stamped>) -> Result<(), Violation> {
        let id = request.id;
        let waits = self.proofs_waiting.contains_key(&id) || self.qos_queues.has(id);
        if self.flights.contains_key(&id) || waits {
            let what = format!("{id:?} is used twice at a time");
            return Err(Violation::new(Kind::BadIo, what));
        }
        let on_cache = request.target == Target::Cache;
        if on_cache && !self.present {
            let what = format!("cache I/O without a cache device: {request:?}");
            return Err(Violation::new(Kind::BadIo, what));
        }
        let place = self.place_of(&request);
        self.log.note_io(self.now, place, &request);
        let backend = self.media.backend_of(request.target);
        if let Some(life) = backend.and_then(|of| self.volumes[of].life.as_ref()) {
            life.ios().begin();
        }
        if let (IoOp::Prove, Some(backend)) = (&request.op, backend) {
            self.proofs.prove(backend, id);
            if self.proofs.begin().is_empty() {
                self.proofs_waiting.insert(id, request);
                return Ok(());
            }
        }
        match self.park(backend, request) {
            Some(request) => self.begin_flight(request, None),
            None => Ok(()),
        }
    }

    /// An I/O begins on its medium; `born` is the number that it has had since it was asked for.
    pub(super) fn begin_flight(
        &mut self,
        request: IoRequest<Stamped>,
        born: Option<u64>,
    ) -> Result<(), Violation> {
        let id = request.id;
        let tick = self.oracle.tick();
        self.light_fuse(&request);
        let mut transfer = self.media.start(request, tick)?;
        self.misdirect(&mut transfer);
        let kind = self.kind_of(&transfer.request);
        let lasts_ns = self.duration(&transfer);
        let lasts_ns = self.steering.stretch(kind, lasts_ns);
        let number = self.number();
        let error = self.draw_error(&transfer);
        let ahead = self.parts(transfer.units());
        for part in &ahead {
            let at = self.now.plus_ns(self.rng.below(lasts_ns));
            self.agenda.enter(at, Item::effect(id, number, part));
        }
        self.agenda.enter(self.now.plus_ns(lasts_ns), Item::Finish(id, number));
        let bound_ns = self.bound_ns_of(transfer.backend());
        if let Some(bound_ns) = bound_ns.filter(|bound_ns| lasts_ns > *bound_ns) {
            self.agenda.enter(self.now.plus_ns(bound_ns), Item::Overdue(id, number));
        }
        let result = error.map_or(Ok(()), Err);
        let flight = Flight {
            transfer,
            result,
            ahead,
            overdue: false,
            hangs: false,
            number,
            born: born.unwrap_or(number),
            began: self.now,
            bound_ns,
            held: false,
            left: false,
            kind,
        };
        self.flights.insert(id, flight);
        Ok(())
    }

    /// A session that is to crash often does so when a checkpoint is being made: what it speaks of may
    /// not be there yet.
    fn light_fuse(&mut self, request: &IoRequest<Stamped>) {
        let IoOp::WriteMeta { offset, .. } = request.op else { return };
        let made = self.may_crash && self.media.cache.part(offset) == Part::Checkpoint;
        if made && self.fuse.is_none() && self.rng.chance(0.2) {
            self.fuse = Some(self.rng.below(12));
        }
    }

    /// How long an I/O takes, in ns.
    fn duration(&mut self, transfer: &Transfer) -> u64 {
        let backend = transfer.backend();
        let latency = match backend {
            None => self.profile.cache_latency,
            Some(_) => self.profile.backend_latency,
        };
        let mut lasts_ns = latency.sample(&mut self.rng);
        if self.is_loading_from(transfer) {
            lasts_ns *= self.profile.metadata_slowness;
        }
        if !self.features().stalls {
            return lasts_ns;
        }
        if self.rng.chance(0.002) {
            self.count.faults.add(Fault::Spike);
            lasts_ns = (lasts_ns * self.rng.pick(&[10, 100, 1000])).min(SPIKE_NS_MAX);
        }
        let stalled = match backend {
            None => self.cache_stalled,
            Some(backend) => self.volumes[backend].stalled,
        };
        let stalled_ns = if stalled > self.now { stalled.since_ns(self.now) } else { 0 };
        lasts_ns + stalled_ns
    }

    fn is_loading_from(&self, transfer: &Transfer) -> bool {
        matches!(transfer.request.op, IoOp::ReadMeta { .. }) && self.is_loading()
    }

    /// Once in a while the cache device goes to another place than it was told to: with any read of
    /// data or metadata, and with writes where the format promises to notice.
    fn misdirect(&mut self, transfer: &mut Transfer) {
        let on_cache = transfer.request.target == Target::Cache;
        if !on_cache || !self.faults_on || !self.features().misdirections {
            return;
        }
        if matches!(transfer.request.op, IoOp::Trim { .. } | IoOp::MakeRoom { .. }) {
            // What a file system does, not the device.
            return;
        }
        if !self.rng.chance(self.profile.astray) {
            return;
        }
        // Each costs all that is cached: other things are to be seen, too.
        let part = self.media.cache.part(offset_bytes(&transfer.request.op));
        let costly = transfer.writes() && matches!(part, Part::Journal | Part::Superblock);
        let rng = if costly { &mut self.trouble } else { &mut self.rng };
        if costly && part == Part::Journal && !rng.chance(0.2) {
            return;
        }
        let Some((part, one)) = self.media.misdirect(transfer, rng) else { return };
        let writes = transfer.writes();
        self.count.faults.add(match part {
            _ if !writes => Fault::MisdirectedRead,
            Part::Log => Fault::MisdirectedWrite,
            Part::Checkpoint => Fault::MisdirectedCheckpoint,
            Part::Journal => Fault::MisdirectedJournal,
            Part::Superblock => Fault::MisdirectedSuperblock,
        });
        self.count.faults.add_many(Fault::MisdirectedPage, u64::from(one));
        self.media.cache.damaged = true;
        let id = transfer.request.id.0;
        self.log.milestone(self.now, || {
            format!("MISDIRECTED: I/O {id} of {part:?}, a write: {writes}, one page: {one}")
        });
    }

    /// One part or two, for an I/O on a medium need not happen all at once.
    fn parts(&mut self, units: usize) -> Vec<Range<usize>> {
        if units == 0 {
            return Vec::new();
        }
        if units == 1 || self.rng.chance(0.5) {
            return vec![Range { start: 0, end: units }];
        }
        let cut = self.rng.within(1..units as u64) as usize;
        vec![0..cut, cut..units]
    }

    /// Is an I/O with this name and number under way?
    pub(super) fn is_under_way(&self, id: IoId, number: u64) -> bool {
        self.flights.get(&id).is_some_and(|flight| flight.number == number)
    }

    /// I/O under way that is wanted.
    pub(super) fn flights_that(&self, wanted: impl Fn(&Flight) -> bool) -> Vec<IoId> {
        let some = self.flights.iter().filter(|(_, flight)| wanted(flight));
        some.map(|(id, _)| *id).collect()
    }

    /// An I/O ends before its time, perhaps with an error.
    pub(super) fn end_early(&mut self, id: IoId, error: Option<IoError>) -> Result<(), Violation> {
        let flight = self.flights.get_mut(&id).expect("an I/O under way");
        if let (Some(error), Ok(())) = (error, flight.result) {
            flight.result = Err(error);
            let backend = flight.transfer.backend();
            self.count_error(backend);
        }
        let flight = &self.flights[&id];
        for part in flight.ahead.clone() {
            self.effect(id, part);
        }
        self.finish(id)
    }

    fn count_error(&mut self, backend: Option<usize>) {
        match backend {
            None => {
                self.count.cache_errors += 1;
                self.count.faults.add(Fault::CacheError);
                self.media.cache.damaged = true;
            }
            Some(backend) => {
                self.volumes[backend].errors += 1;
                self.count.backend_errors += 1;
                self.count.faults.add(Fault::BackendError);
            }
        }
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
        if matches!(transfer.request.op, IoOp::MakeRoom { .. }) {
            return self.is_without_room().then_some(IoError::NoSpace);
        }
        let error = self.profile.faults.sample(&mut self.rng, backend.is_none())?;
        if is_sync(&transfer.request.op)
            && backend.is_some_and(|backend| {
                !self.volumes[backend].errors.is_multiple_of(SYNC_ERRORS_EVERY)
            })
        {
            // One of them ends what the cache does for a volume: a few are enough.
            return None;
        }
        self.count_error(backend);
        Some(error)
    }

    /// A part of an I/O happens, unless its medium is silent.
    pub(super) fn effect(&mut self, id: IoId, units: Range<usize>) {
        let flight = self.flights.get_mut(&id).expect("its end comes after its parts");
        let backend = flight.transfer.backend();
        if flight.left || backend.is_some_and(|backend| self.volumes[backend].silent.is_some()) {
            // What a silent backend has not done yet it may do when it answers again.
            if flight.left || self.waits.chance(0.5) {
                return;
            }
        }
        let parts = flight.ahead.len();
        flight.ahead.retain(|part| *part != units);
        assert_eq!(flight.ahead.len() + 1, parts, "a part happens once: {units:?} of {flight:?}");
        flight.happen(units, &mut self.media, &mut self.rng);
    }

    /// An I/O takes longer than the driver's bound: the machine is notified, and continues.
    pub(super) fn overdue(&mut self, id: IoId) {
        let flight = self.flights.get_mut(&id).expect("it takes longer than this");
        if std::mem::replace(&mut flight.overdue, true) {
            return;
        }
        let Some(backend) = flight.transfer.backend() else { return self.device_overdue(id) };
        self.volumes[backend].errors += 1;
        self.volumes[backend].time_up = Some(self.now);
        self.count.faults.add(Fault::Overdue);
        self.log.milestone(self.now, || format!("OVERDUE: I/O {} of backend {backend}", id.0));
        self.free_at_door(id);
        self.batch.push(Event::Overdue(id));
    }

    /// Is this medium dead?
    pub(super) fn is_dead(&self, target: Target) -> bool {
        target == Target::Cache && self.media.cache.is_dead()
    }

    /// An I/O completes.
    pub(super) fn finish(&mut self, id: IoId) -> Result<(), Violation> {
        let mut flight = self.flights.remove(&id).expect("an I/O completes once");
        if self.is_silent(&flight) {
            self.hold(id, flight);
            return Ok(());
        }
        if flight.overdue {
            self.count.faults.add(Fault::EndedAfterAll);
        }
        if flight.left {
            self.end_left(flight);
            return Ok(());
        }
        if self.is_dead(flight.request().target) {
            if self.media.cache.hangs() && !flight.hangs {
                let at = self.now.plus_ns(self.rng.within(1..HANG_NS_MAX));
                flight.number = self.number();
                self.agenda.enter(at, Item::Finish(id, flight.number));
                self.bound(id, &flight);
                flight.hangs = true;
                self.flights.insert(id, flight);
                return Ok(());
            }
            flight.result = Err(IoError::Io);
            self.count.cache_errors += 1;
        }
        // Parts that a silence, over by now, kept from happening in their time.
        for part in std::mem::take(&mut flight.ahead) {
            flight.happen(part, &mut self.media, &mut self.waits);
        }
        self.lose_with(&mut flight);
        let place = self.place_of(flight.request());
        self.note_end(&flight);
        self.log.note(self.now, place, || format!("end   I/O {}: {:?}", id.0, flight.result));
        let tick = self.oracle.tick();
        let (backend, born) = (flight.transfer.backend(), flight.born);
        if let Some(backend) = backend.filter(|_| flight.has_lost()) {
            self.volumes[backend].sync_failed = true;
        }
        if let (IoOp::BumpGeneration { .. }, Some(_), Ok(())) =
            (&flight.request().op, backend, flight.result)
        {
            self.count.paths.add(Path::GenerationBumped);
        }
        let proves = matches!(flight.request().op, IoOp::Prove);
        let mut done = self.media.finish(flight.transfer, flight.result, tick)?;
        if let Some(backend) = backend {
            // A request that began to wait for it since has a reason to fail, too.
            self.volumes[backend].errors += u64::from(done.result.is_err());
            done.proof = done.proof.filter(|_| self.can_prove(backend));
            self.settle_flown(born);
        }
        match backend {
            Some(backend) if proves => self.proved(backend, &done),
            Some(backend) => self.deliver(backend, done),
            None => {
                self.batch.push(Event::IoDone(done));
                Ok(())
            }
        }
    }

    /// A proof has ended: for all that it was for. Another one may begin.
    fn proved(&mut self, backend: usize, done: &IoDone) -> Result<(), Violation> {
        for id in self.proofs.proved(backend) {
            self.proofs_waiting.remove(&id);
            let proof = done.proof.clone();
            self.deliver(backend, IoDone { proof, ..IoDone::new(id, done.result) })?;
        }
        if self.proofs.begin().is_empty() {
            return Ok(());
        }
        let mut waiting = self.proofs_waiting.iter();
        let next = waiting.find(|(_, asks)| self.media.backend_of(asks.target) == Some(backend));
        let next = *next.expect("it is asked for").0;
        let request = self.proofs_waiting.remove(&next).expect("just found");
        self.begin_flight(request, None)
    }

    pub(super) fn deliver(&mut self, backend: usize, done: IoDone) -> Result<(), Violation> {
        self.end_at_door(done.id);
        self.batch.push(Event::IoDone(done));
        let last = self.volumes[backend].life.as_ref().is_some_and(|life| life.ios().end());
        if last { self.let_go(backend) } else { Ok(()) }
    }

    fn note_end(&mut self, flight: &Flight) {
        let on_cache = flight.request().target == Target::Cache;
        let incident = match flight.result {
            Ok(()) | Err(IoError::Unsupported) => Incident::Done(flight.kind),
            Err(_) if on_cache => Incident::CacheFails,
            Err(_) => Incident::BackendFails,
        };
        self.meeting.noted.push(incident);
    }

    fn place_of(&self, request: &IoRequest<Stamped>) -> Place {
        place_on(self.media.backend_of(request.target), request)
    }
}

/// The sectors of a backend that an I/O is about.
pub(super) fn place_on(backend: Option<usize>, request: &IoRequest<Stamped>) -> Place {
    let span = match &request.op {
        IoOp::Read { offset, data } | IoOp::Write { offset, data, .. } => {
            ByteSpan::new(*offset, data.iter().map(|slice| slice.len).sum())
        }
        IoOp::Trim { span } | IoOp::MakeRoom { span } | IoOp::WriteZeroes { span, .. } => *span,
        IoOp::Flush
        | IoOp::Prove
        | IoOp::BumpGeneration { .. }
        | IoOp::ReadMeta { .. }
        | IoOp::WriteMeta { .. } => return None,
    };
    Some((backend?, sectors_of(span)))
}

/// Whether it makes a medium durable.
pub(super) const fn is_sync(op: &IoOp<Stamped>) -> bool {
    matches!(op, IoOp::Flush | IoOp::Prove)
}
