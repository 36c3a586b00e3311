//! What is not waited for: requests whose time is over, I/O that is overdue, media that are silent;
//! and the clock by which the driver knows.
//!
//! The world plays the driver's part here, as the daemon does it: a request is late when its
//! volume's time-out has passed since its arrival, an I/O overdue when that, or the device's, has
//! passed since its start. The first I/O of the cache device that is overdue has the driver give
//! the device up. Then the bound of answering is judged: a request that the machine was told is
//! late has to be answered with the next turns of its shards.

use crate::driver::agenda::Item;
use crate::driver::commands::Control;
use crate::driver::guests::{Asked, Pending, State};
use crate::driver::io::Flight;
use crate::driver::world::{Halt, World};
use crate::kinds::Fault;
use crate::machine::Factory;
use crate::medium::Death;
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_engine::limits::REQUESTS_MAX;
use cinnabar_engine::{Event, IoDone, IoError, IoId, IoOp, RequestId};

/// What a silent medium had ends within this time of its answering again, in ns.
const AWAKE_NS_MAX: u64 = 2_000_000_000;
/// A silence that ends by itself lasts at most so long, in ns.
const SILENCE_NS_MAX: u64 = 60_000_000_000;

impl<F: Factory<Stamped>> World<'_, F> {
    /// A guest waits for an answer, as long as its volume's time-out says.
    pub(super) fn await_answer(&mut self, volume: usize, number: u64) {
        if let Some(bound_ns) = self.profile.volumes[volume].timeout_ns {
            self.agenda.enter(self.now.plus_ns(bound_ns), Item::Due(number));
        }
    }

    /// A request's time is over.
    pub(super) fn due(&mut self, number: u64) {
        let id = RequestId(number);
        let Some(pending) = self.pending.get_mut(&id) else { return };
        pending.late = true;
        self.volumes[pending.volume].time_up = Some(self.now);
        self.count.faults.add(Fault::Late);
        self.log.milestone(self.now, || format!("LATE: {id:?}"));
        self.batch.push(Event::Late(id));
    }

    /// The machine is about to hear of what is late: it has to be answered soon.
    pub(super) fn expect_answers(&mut self) {
        let slack_ns = 1_000_000 + self.profile.batch.1 + 4 * self.profile.handoff_ns_max;
        for event in &self.batch {
            if let Event::Late(RequestId(number)) = *event {
                self.agenda.enter(self.now.plus_ns(slack_ns), Item::Judge(number));
            }
        }
    }

    /// The bound of answering.
    pub(super) fn judge_answer(&self, number: u64) -> Result<(), Violation> {
        let Some(pending) = self.pending.get(&RequestId(number)) else { return Ok(()) };
        let volume = pending.volume;
        let what = format!(
            "request {number} of volume {volume} is not answered {} ns after its arrival, where \
             the volume's time-out is {:?} ns: {:?}",
            self.now.since_ns(pending.arrived),
            self.profile.volumes[volume].timeout_ns,
            pending.asked
        );
        Err(Violation::new(Kind::NoReply, what))
    }

    /// After so long an I/O is overdue, in ns.
    pub(super) fn bound_ns_of(&self, backend: Option<usize>) -> Option<u64> {
        match backend {
            None => self.profile.device_timeout_ns,
            Some(backend) if self.features().time_outs => self.profile.volumes[backend].timeout_ns,
            Some(_) => Some(self.profile.overdue_ns),
        }
    }

    /// Sees to it that an I/O which goes on for longer than it was to is overdue one day.
    pub(super) fn bound(&mut self, id: IoId, flight: &Flight) {
        if let Some(bound_ns) = flight.bound_ns.filter(|_| !flight.overdue) {
            let at = flight.began.plus_ns(bound_ns).max(self.now);
            self.agenda.enter(at, Item::Overdue(id, flight.number));
        }
    }

    /// An I/O of the cache device is overdue.
    pub(super) fn device_overdue(&mut self, id: IoId) {
        self.count.faults.add(Fault::DeviceOverdue);
        self.count.cache_errors += 1;
        self.media.cache.damaged = true;
        self.log.milestone(self.now, || format!("OVERDUE: I/O {} of the cache device", id.0));
        self.batch.push(Event::Overdue(id));
        // At a start and at a stop the command that waits for the device ends with it.
        self.lose_device();
    }

    /// Is more of a volume late than may be, perhaps?
    pub(super) fn is_crowded(&self, volume: usize) -> bool {
        // What was answered as late may wait for the index, for a hold, for I/O of either medium:
        // from outside it can't be known when the last of it has ended.
        self.volumes[volume].time_up.is_some()
    }

    /// Is I/O under way of what has been answered?
    pub(super) fn is_lagging(&self) -> bool {
        let lags = |flight: &Flight| {
            let volume = flight.transfer.backend().map(|backend| &self.volumes[backend]);
            let time_up = volume.and_then(|volume| volume.time_up);
            time_up.is_some_and(|at| flight.began <= at)
        };
        self.flights.values().any(lags)
    }

    /// How many requests may be under way without any being refused.
    pub(super) fn room(&self) -> usize {
        let bounds = &self.profile.setup.config.bounds;
        if bounds.requests == REQUESTS_MAX {
            return REQUESTS_MAX;
        }
        bounds.requests.saturating_sub(bounds.extra_parts as usize).max(1)
    }

    /// Is the medium of this I/O silent?
    pub(super) fn is_silent(&self, flight: &Flight) -> bool {
        match flight.transfer.backend() {
            None => self.cache_silent && !flight.left && !flight.hangs,
            // Generations are kept elsewhere.
            Some(backend) => {
                let asks = !matches!(flight.request().op, IoOp::BumpGeneration { .. });
                asks && self.volumes[backend].silent.is_some()
            }
        }
    }

    /// An I/O would end if its medium were not silent.
    pub(super) fn hold(&mut self, id: IoId, mut flight: Flight) {
        // Where it was ended before its time, its parts and its end are on the agenda: those are stale,
        // for there are new ones when the silence is over.
        flight.number = self.number();
        self.bound(id, &flight);
        flight.held = true;
        let dead = flight.transfer.backend().is_none();
        if dead && self.waits.chance(0.3) {
            // In the end the kernel says that it failed.
            flight.held = false;
            flight.hangs = true;
            let at = self.now.plus_ns(self.waits.below(SILENCE_NS_MAX));
            self.agenda.enter(at, Item::Finish(id, flight.number));
        }
        self.flights.insert(id, flight);
    }

    /// What is held will never end.
    pub(super) fn drop_held(&mut self) {
        self.flights.retain(|_, flight| !flight.held);
    }

    /// I/O of a device that was given up has ended; what it did there is no matter any more.
    pub(super) fn end_left(&mut self, flight: Flight) {
        let request = flight.transfer.request;
        self.log.note(self.now, None, || format!("end   I/O {} of a device left", request.id.0));
        let pages = match request.op {
            IoOp::ReadMeta { pages, .. } | IoOp::WriteMeta { pages, .. } => pages,
            _ => Vec::new(),
        };
        let result = if self.waits.chance(0.5) { Ok(()) } else { Err(IoError::Io) };
        self.batch.push(Event::IoDone(IoDone { pages, ..IoDone::new(request.id, result) }));
    }

    /// Another cache device takes the place of this one: what is under way stays with it.
    pub(super) fn leave_device(&mut self) {
        for flight in self.flights.values_mut().filter(|f| f.transfer.backend().is_none()) {
            flight.left = true;
            for part in std::mem::take(&mut flight.ahead) {
                if self.media.cache.is_dead() || self.waits.chance(0.5) {
                    self.media.miss(&flight.transfer, part);
                } else {
                    self.media.effect(&mut flight.transfer, part);
                }
            }
        }
        self.media.leave_cache();
        self.cache_silent = false;
    }

    /// Now and then something falls silent, a volume grows, or the driver's clock jumps.
    pub(super) fn disturb_waits(&mut self, volume: usize) {
        let features = self.features();
        if features.silences && self.waits.chance(0.002) {
            self.fall_silent(volume);
        }
        if features.silences && self.waits.chance(0.0005) {
            self.silence_device();
        }
        if features.growth && self.waits.chance(0.004) {
            self.grow(volume);
        }
        if features.time_jumps && self.waits.chance(0.01) {
            let behind_ns = self.waits.pick(&[0, 1, 1_000_000, 300_000_000, 3_000_000_000]);
            self.behind_ns = behind_ns;
            self.count.faults.add(Fault::TimeJump);
        }
    }

    /// A backend with a time-out answers nothing any more: for a while, or until it is asked to.
    fn fall_silent(&mut self, volume: usize) {
        let bounded = self.profile.volumes[volume].timeout_ns.is_some();
        if !bounded || self.volumes[volume].silent.is_some() {
            return;
        }
        let silence = self.number();
        self.volumes[volume].silent = Some(silence);
        self.count.faults.add(Fault::BackendSilent);
        self.log.milestone(self.now, || format!("SILENCE of backend {volume}"));
        if self.waits.chance(0.5) {
            let at = self.now.plus_ns(self.waits.below(SILENCE_NS_MAX));
            self.agenda.enter(at, Item::Awake(volume, silence));
        }
    }

    /// A silence may be over.
    pub(super) fn awake_from(&mut self, volume: usize, silence: u64) {
        if self.volumes[volume].silent == Some(silence) {
            self.awake(volume);
        }
    }

    /// A backend answers again; what it had ends, in some order.
    fn awake(&mut self, volume: usize) {
        if self.volumes[volume].silent.take().is_none() {
            return;
        }
        self.log.milestone(self.now, || format!("backend {volume} ANSWERS AGAIN"));
        let ids = self.flights_that(|flight| flight.transfer.backend() == Some(volume));
        for id in ids {
            let flight = self.flights.get_mut(&id).expect("just found");
            if !std::mem::take(&mut flight.held) {
                continue;
            }
            let (number, ahead) = (flight.number, flight.ahead.clone());
            let lasts_ns = self.waits.within(1..AWAKE_NS_MAX);
            for part in ahead {
                let at = self.now.plus_ns(self.waits.below(lasts_ns));
                self.agenda.enter(at, Item::effect(id, number, &part));
            }
            self.agenda.enter(self.now.plus_ns(lasts_ns), Item::Finish(id, number));
        }
    }

    /// Lets things happen until `done`. Where every volume waits for silence to end, one ends.
    pub(super) fn pump_awake(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Halt> {
        let silent = |world: &Self| world.volumes.iter().position(|v| v.silent.is_some());
        loop {
            self.pump(|world| {
                done(world) || world.agenda.next_at().is_none() && silent(world).is_some()
            })?;
            let Some(volume) = silent(self).filter(|_| !done(self)) else { return Ok(()) };
            self.awake(volume);
        }
    }

    /// The cache device dies, and nothing on it ends by itself.
    fn silence_device(&mut self) {
        let bounded = self.profile.device_timeout_ns.is_some();
        if !bounded || !self.present || self.media.cache.is_dead() {
            return;
        }
        self.log.milestone(self.now, || "SILENCE of the cache device, for good".to_owned());
        self.count.faults.add(Fault::DeviceSilent);
        self.media.cache.die(Death::Hangs);
        self.cache_silent = true;
    }

    /// A device may be silent when it is opened.
    pub(super) fn silence_at_boot(&mut self) {
        if self.features().silences && self.waits.chance(0.03) {
            self.silence_device();
        }
    }

    /// Before a clean stop: backends that are silent answer again, or the daemon ends without them.
    /// Whatever they do, everything but what can only end with them has been answered by then.
    pub(super) fn end_silences(&mut self, last: bool) -> Result<(), Halt> {
        let silent = |world: &Self, volume: usize| world.volumes[volume].silent.is_some();
        if !(0..self.volumes.len()).any(|volume| silent(self, volume)) {
            return Ok(());
        }
        self.faults_on = false;
        self.pump(|world| {
            let waits = |control: &Control| match control {
                Control::Detach(volume) => !silent(world, *volume),
                _ => true,
            };
            let asks = |pending: &Pending| !matches!(pending.asked, Asked::Invalidate { .. });
            !world.pending.values().any(asks) && !world.is_waiting_for(waits)
        })?;
        if !last && self.waits.chance(0.5) {
            return Err(Halt::Crash);
        }
        (0..self.volumes.len()).for_each(|volume| self.awake(volume));
        Ok(())
    }

    /// Is a volume there, and will it be?
    pub(super) fn is_attached(&self, volume: usize) -> bool {
        self.volumes[volume].state() == State::Attached
    }
}
