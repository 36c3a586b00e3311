//! Guests, the write log, an SSD and back ends, and what happens to them.

use super::disk::sectors;
use super::guest::{Asked, Guest, Pending};
use super::memory::Mem;
use super::rng::Rng;
use super::settings::{Counts, Settings};
use super::ssd::Ssd;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Answer, Failure, IoDone, IoError, Op, Payload, RequestId};
use cinnabar_writeback::recover::format;
use cinnabar_writeback::{Action, Command, Done, EngineId, Event, LogVolumeId, Refusal, WriteLog};
use rand::RngExt;

pub(crate) const SEGMENTS: u32 = 8;

/// See the module.
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) settings: Settings,
    pub(crate) now: Instant,
    pub(crate) log: WriteLog<Mem>,
    pub(crate) ssd: Ssd,
    pub(crate) guests: Vec<Guest>,
    next_id: u64,
    next_value: u64,
    pub(crate) wake: Option<Instant>,
    pub(crate) events: Vec<Event<Mem>>,
    actions: Vec<Action<Mem>>,
    /// What is to be told to the log behind what it is doing.
    pub(crate) told: Vec<Event<Mem>>,
    /// The answer to a command that is no volume's.
    pub(crate) answer: Option<Result<Done, Refusal>>,
    /// Requests for engines whose volume was removed meanwhile.
    pub(crate) orphans: Vec<EngineId>,
    /// The log is being closed.
    pub(crate) closing: bool,
    /// The log's device has failed.
    pub(crate) lost: bool,
    /// Nothing fails, and no back end is away.
    pub(crate) calm: bool,
    /// A page has changed by itself: requests may fail, but nothing wrong may be seen.
    pub(crate) rotten: bool,
    /// A request has failed for that reason.
    pub(crate) over: bool,
    traces: bool,
    pub(crate) host: super::host::Hosted,
    /// What guests' misses take is drawn from a generator of its own.
    misses: Rng,
    /// The log's second SSD, in some runs.
    pub(crate) mirrored: Option<super::mirror::Mirrored>,
    pub(crate) counts: Counts,
}

pub(crate) type Checked<T = ()> = Result<T, String>;

impl World {
    pub(crate) fn new(seed: u64, settings: &Settings) -> Self {
        Self::with(seed, Rng::seed_from_u64(seed), settings)
    }

    /// With an identity of the log's device that follows from `seed`.
    pub(crate) fn with(seed: u64, rng: Rng, settings: &Settings) -> Self {
        let ssd = Ssd::default();
        let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
        let uuid = ((u128::from(seed) << 64) + 77).to_le_bytes();
        format(&ssd, bytes, uuid).expect("it is large enough");
        let host = super::host::Hosted::new(seed, settings);
        let mirrored = super::mirror::Mirrored::new(seed, settings, &ssd, &host);
        let (mirrored, log) = mirrored.map_or_else(
            || (None, host.open(&ssd, bytes, settings.config(), false).expect("just formatted")),
            |(mirrored, log)| (Some(mirrored), log),
        );
        Self {
            rng,
            settings: *settings,
            now: Instant(1),
            log,
            ssd,
            guests: Guest::all(settings),
            next_id: 0,
            next_value: 0,
            wake: None,
            events: Vec::new(),
            actions: Vec::new(),
            told: Vec::new(),
            answer: None,
            orphans: Vec::new(),
            closing: false,
            lost: false,
            calm: false,
            rotten: false,
            over: false,
            traces: std::env::var_os("CINNABAR_TRACE").is_some_and(|v| !v.is_empty()),
            host,
            misses: Rng::seed_from_u64(seed ^ 0x9ACE),
            mirrored,
            counts: Counts::default(),
        }
    }

    pub(crate) fn run(&mut self) -> Checked {
        self.attach_all()?;
        for _ in 0..self.settings.steps {
            self.step()?;
            if self.over {
                return self.check_backends();
            }
        }
        self.finish()
    }

    /// The end: everything is answered, drained, and where it should be.
    fn finish(&mut self) -> Checked {
        if self.host.is_killed() {
            self.crash(false, false)?;
        }
        self.host.revive();
        if self.lost && self.rotten {
            return self.check_backends();
        }
        if self.lost {
            self.crash(false, false)?;
        }
        if self.over {
            return self.check_backends();
        }
        self.calm = true;
        self.settle()?;
        self.attach_all()?;
        // Rot has ended the run: a volume may be without its place.
        if self.over {
            return self.check_backends();
        }
        for index in 0..self.guests.len() {
            self.command(index, Pending::Drain(u64::MAX))?;
        }
        self.settle()?;
        if self.over {
            return self.check_backends();
        }
        self.counts.absorbed += self.log.counters().absorbed;
        let (flushes, fua, _) = self.ssd.counts();
        (self.counts.ssd_flushes, self.counts.ssd_fua) = (flushes, fua);
        for guest in &self.guests {
            self.counts.backend_writes += guest.disk.writes;
            self.counts.backend_flushes += guest.disk.flushes;
        }
        self.counts.crossings.add(self.log.crossings());
        Ok(())
    }

    /// Volumes that have no place get one.
    pub(crate) fn attach_all(&mut self) -> Checked {
        let was = std::mem::replace(&mut self.calm, true);
        for index in 0..self.guests.len() {
            if self.guests[index].place.is_none() {
                self.command(index, Pending::Attach)?;
                self.settle()?;
                if self.guests[index].place.is_none() && !self.over {
                    return Err(format!("{} was not attached", self.guests[index].name));
                }
            }
        }
        self.calm = was;
        Ok(())
    }

    pub(crate) fn new_id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId(self.next_id)
    }

    fn step(&mut self) -> Checked {
        if self.host.is_killed() {
            self.counts.memory_kills += 1;
            return self.crash(false, false);
        }
        self.now = self.now.plus_ns(self.rng.random_range(1..20_000));
        if self.wake.is_some_and(|at| at <= self.now) {
            self.wake = None;
            self.apply(Event::Wake)?;
        }
        let settings = self.settings;
        if self.lost && self.rotten {
            // Both at once is more than can be told from the outside.
            self.over = true;
            return Ok(());
        }
        if self.lost {
            // Nothing is acknowledged any more. The daemon ends.
            return if self.rng.random_bool(0.1) {
                self.crash(false, false)
            } else if self.rng.random_bool(0.5) {
                self.ask()
            } else {
                self.end_some()
            };
        }
        if self.rng.random_bool(settings.rot) {
            self.rotten |= self.ssd.rot(&mut self.rng);
        }
        let discards =
            |guest: &Guest| matches!(guest.command, Some((_, Pending::Remove { discard: true })));
        if !self.rotten && !self.guests.iter().any(discards) {
            if self.rng.random_bool(settings.crash) {
                let power = self.rng.random_bool(0.5);
                return self.crash(power, false);
            }
            if self.rng.random_bool(settings.close) {
                return self.close();
            }
            self.host.draw_kill(&settings);
        } else {
            self.host.revive();
        }
        if settings.pace_ns > 0 {
            self.tell_misses()?;
        }
        let index = self.rng.random_range(0..self.guests.len());
        self.note_waiting(index);
        if self.rng.random_bool(settings.restart) {
            self.counts.restarts += 1;
            self.guests[index].disk.restart(&mut self.rng);
            self.check_backend(index)?;
            let Some(place) = self.guests[index].place else { return Ok(()) };
            return self.apply(Event::Control(RequestId(0), Command::Restarted(place)));
        }
        if self.rng.random_bool(settings.away) {
            self.counts.away += 1;
            self.guests[index].away = self.rng.random_range(10..400);
        }
        if self.rng.random_bool(settings.command) {
            return self.draw_command(index);
        }
        let [ssd, disk, guest] = settings.weights;
        let choice = self.rng.random_range(0.0..ssd + disk + guest);
        if choice < ssd {
            self.end_ssd().map(|_| ())
        } else if choice < ssd + disk {
            self.end_disk().map(|_| ())
        } else {
            self.ask()
        }
    }

    /// The driver says what guests' misses have taken.
    fn tell_misses(&mut self) -> Checked {
        let index = self.misses.random_range(0..self.guests.len());
        let Some(place) = self.guests[index].place else { return Ok(()) };
        let pace = self.log.status(place).map(|status| status.pace);
        self.counts.paced += u64::from(pace.is_some_and(|pace| pace.at_most.is_some()));
        let misses = super::guest::draw_misses(&mut self.misses);
        misses.map_or(Ok(()), |misses| self.apply(Event::Misses(place, misses)))
    }

    fn draw_command(&mut self, index: usize) -> Checked {
        let guest = &self.guests[index];
        if guest.command.is_some() {
            return Ok(());
        }
        let Some(_) = guest.place else { return self.command(index, Pending::Attach) };
        match self.rng.random_range(0..10) {
            0..=4 => {
                let submitted = self.guests[index].oracle.now();
                self.command(index, Pending::Drain(submitted))
            }
            5..=6 => {
                let most = self.guests[index].disk.durable.len() as u64;
                let guest = &mut self.guests[index];
                guest.wanted = self.rng.random_range(guest.sectors..=most);
                self.command(index, Pending::Attach)
            }
            7..=8 if self.guests[index].asked.is_empty() => {
                let discard = self.rng.random_bool(0.6);
                self.remove(index, discard)
            }
            _ if self.log.places().count() == usize::from(self.settings.bounds.volumes) => {
                let (name, size_bytes) = ("stranger".to_owned(), 4096);
                let id = self.new_id();
                self.answer = None;
                let attach =
                    Command::Attach { name, size_bytes, incarnation: 1, group: String::new() };
                self.apply(Event::Control(id, attach))?;
                self.counts.no_place += 1;
                match self.answer.take() {
                    Some(Err(Refusal::NoPlace)) => Ok(()),
                    other => Err(format!("there was no place: {other:?}")),
                }
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn command(&mut self, index: usize, pending: Pending) -> Checked {
        let (id, incarnation) = (self.new_id(), self.rng.random());
        let guest = &mut self.guests[index];
        guest.command = Some((id, pending));
        let command = match pending {
            Pending::Attach => {
                let (name, size_bytes) = (guest.name.clone(), guest.wanted * 512);
                let group = if index < self.settings.group { "guest" } else { "" };
                Command::Attach { name, size_bytes, incarnation, group: group.to_owned() }
            }
            Pending::Drain(_) => Command::Drain(guest.place.expect("it is attached")),
            Pending::Remove { discard } => {
                Command::Remove { place: guest.place.expect("it is attached"), discard }
            }
        };
        self.apply(Event::Control(id, command))
    }

    fn answered(&mut self, id: RequestId, result: Result<Done, Refusal>) -> Checked {
        let pending = |guest: &Guest| guest.command.is_some_and(|(of, _)| of == id);
        let Some(index) = self.guests.iter().position(pending) else {
            self.answer = Some(result);
            return Ok(());
        };
        let guest = &mut self.guests[index];
        let (_, pending) = guest.command.take().expect("just found");
        if self.rotten && result.is_err() {
            self.over = true;
            return Ok(());
        }
        match (pending, result) {
            (Pending::Remove { discard: true }, Err(Refusal::Lost)) if self.lost => {
                // Whether it was given up is not known.
                self.over = true;
            }
            (_, Err(Refusal::Lost)) if self.lost => {}
            (_, Err(Refusal::Closed)) if self.closing => {}
            (Pending::Attach, Ok(Done::Attached(place))) => {
                self.counts.grown += u64::from(guest.wanted > guest.sectors);
                guest.place = Some(place);
                guest.sectors = guest.wanted;
                self.acknowledge(place);
            }
            (Pending::Attach, Err(Refusal::Busy)) => guest.wanted = guest.sectors,
            (Pending::Drain(submitted), Ok(Done::Nothing)) => {
                self.counts.drains += 1;
                guest.check_drained(submitted)?;
            }
            (Pending::Remove { discard }, Ok(Done::Nothing)) => {
                guest.place = None;
                if discard {
                    // What the back end has is what there is.
                    self.counts.discarded += 1;
                    // The driver has all that was asked of it end before anything else may use it.
                    self.orphans.extend(guest.disk.abandon(&mut self.rng));
                    guest.disk.restart(&mut self.rng);
                    guest.oracle = guest.oracle.beside(&guest.disk.durable);
                } else {
                    self.counts.removed += 1;
                    guest.check_drained(u64::MAX)?;
                }
            }
            (Pending::Remove { .. }, Err(Refusal::Busy | Refusal::Dirty)) => {
                self.counts.refused += 1;
            }
            (pending, result) => return Err(format!("{}: {pending:?}: {result:?}", guest.name)),
        }
        Ok(())
    }

    /// Ends an I/O of the log's device, if one is under way.
    pub(crate) fn end_ssd(&mut self) -> Checked<bool> {
        if self.mirrored.is_some() {
            return self.end_half();
        }
        let count = self.ssd.under_way();
        if count == 0 {
            return Ok(false);
        }
        let which = self.rng.random_range(0..count);
        let fails = !self.calm && self.rng.random_bool(self.settings.ssd_fails);
        if fails && let Some((id, is_read)) = self.ssd.fail(which, &mut self.rng) {
            if !is_read && !self.lost {
                (self.lost, self.counts.ssd_lost) = (true, self.counts.ssd_lost + 1);
            }
            self.apply(Event::LogDone(IoDone::new(id, Err(IoError::Io))))?;
            return Ok(true);
        }
        let done = self.ssd.end(which);
        self.apply(Event::LogDone(done))?;
        Ok(true)
    }

    /// Ends a request of an engine, if one is under way that can end.
    fn end_disk(&mut self) -> Checked<bool> {
        if let Some(id) = self.orphans.pop() {
            self.apply(Event::EngineDone(id, Err(Failure::NoVolume)))?;
            return Ok(true);
        }
        let calm = self.calm;
        for guest in &mut self.guests {
            guest.away = if calm { 0 } else { guest.away.saturating_sub(1) };
        }
        let ready = |guest: &Guest| guest.away == 0 && guest.disk.under_way() > 0;
        let able: Vec<usize> = (0..self.guests.len()).filter(|n| ready(&self.guests[*n])).collect();
        if able.is_empty() {
            return Ok(false);
        }
        let index = able[self.rng.random_range(0..able.len())];
        let guest = &mut self.guests[index];
        let which = self.rng.random_range(0..guest.disk.under_way());
        let fails = !calm && self.rng.random_bool(self.settings.engine_fails);
        let ended = if fails {
            self.counts.engine_failed += 1;
            let failure = Failure::Io(IoError::Io);
            guest.disk.fail_some(which, &mut self.rng).map(|id| (id, Err(failure)))
        } else {
            guest.disk.end(which).map(|(id, answer)| (id, Ok(answer)))
        };
        if let Some((id, result)) = ended {
            self.check_backend(index)?;
            self.apply(Event::EngineDone(id, result))?;
        }
        Ok(true)
    }

    fn end_some(&mut self) -> Checked {
        let ended = self.end_ssd()?;
        let ended = self.end_disk()? || ended;
        if !ended && let Some(at) = self.wake.take() {
            self.now = self.now.max(at);
            return self.apply(Event::Wake);
        }
        Ok(())
    }

    /// Everything that was asked for is answered, without a word from outside.
    pub(crate) fn settle(&mut self) -> Checked {
        for _ in 0..200_000 {
            let requests: usize = self.guests.iter().map(|guest| guest.asked.len()).sum();
            let commands = self.guests.iter().filter(|guest| guest.command.is_some()).count();
            if requests + commands == 0 || self.over {
                return Ok(());
            }
            let rests = self.ssd.under_way() == 0
                && self.mirrored.as_ref().is_none_or(super::mirror::Mirrored::rests)
                && self.orphans.is_empty()
                && self.guests.iter().all(|guest| guest.disk.under_way() == 0);
            if rests && self.wake.is_none() {
                return Err(format!("{requests} requests, {commands} commands are forgotten"));
            }
            self.end_some()?;
        }
        Err("requests or commands are never answered".to_owned())
    }

    fn ask(&mut self) -> Checked {
        let index = self.rng.random_range(0..self.guests.len());
        let settings = self.settings;
        let guest = &mut self.guests[index];
        let gives = guest.asked.len() < settings.in_flight;
        let removing = matches!(guest.command, Some((_, Pending::Remove { .. })));
        let Some(place) = guest.place.filter(|_| gives && !removing) else {
            return self.end_some();
        };
        let drawn = guest.draw(&settings, &mut self.next_value, &mut self.rng);
        let Some((op, submitted)) = drawn else { return self.end_some() };
        match op {
            Op::Read { .. } => self.counts.reads += 1,
            Op::Flush => {}
            _ => self.counts.writes += 1,
        }
        self.submit(index, place, op, submitted)
    }

    pub(crate) fn submit(
        &mut self,
        index: usize,
        place: LogVolumeId,
        op: Op<Mem>,
        submitted: u64,
    ) -> Checked {
        let id = self.new_id();
        // A guest may use its buffer again: what was taken of it must be a copy.
        let given = match &op {
            Op::Write { span, data, fua } => {
                let own = Mem::alloc(span.blocks() as u32);
                own.copy_from(0, data, 0, span.blocks() * 4096);
                Op::Write { span: *span, data: own, fua: *fua }
            }
            op => op.clone(),
        };
        self.guests[index].asked.insert(id.0, Asked { op, submitted });
        self.apply(Event::Submit(id, place, given))
    }

    pub(crate) fn apply(&mut self, event: Event<Mem>) -> Checked {
        self.trace("<-", &event);
        self.events.push(event);
        let mut actions = std::mem::take(&mut self.actions);
        self.log.apply(self.now, &mut self.events, &mut actions);
        // Requests of a volume whose place is given up in the same breath come before the answer.
        for action in actions.drain(..) {
            if self.host.is_killed() {
                break;
            }
            self.trace("->", &action);
            match action {
                Action::Log(id, op) => self.submit_log(id, op),
                Action::Memory(op) => self.host.store(&op),
                Action::Engine(id, place, op) => {
                    let own = |guest: &&mut Guest| guest.place == Some(place);
                    let guest = self.guests.iter_mut().find(own);
                    guest.ok_or("a request for no volume")?.disk.submit(id, op);
                }
                Action::Reply(id, result) => self.replied(id, result)?,
                Action::Answer(id, result) => self.answered(id, result)?,
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                }
            }
        }
        self.actions = actions;
        self.advance_mirror();
        match self.told.pop() {
            Some(event) if !self.host.is_killed() => self.apply(event),
            _ => Ok(()),
        }
    }

    /// With `CINNABAR_TRACE` each event and action is printed.
    pub(crate) fn trace(&self, way: &str, what: &impl std::fmt::Debug) {
        if self.traces {
            trace(self.now, way, what);
        }
    }

    fn replied(&mut self, id: RequestId, result: Result<Answer<Mem>, Failure>) -> Checked {
        let owner = self.guests.iter().position(|guest| guest.asked.contains_key(&id.0));
        let guest = &mut self.guests[owner.ok_or("an answer to nothing")?];
        let Asked { op, submitted } = guest.asked.remove(&id.0).expect("just found");
        let reads = matches!(op, Op::Read { .. });
        let discards = matches!(guest.command, Some((_, Pending::Remove { discard: true })));
        let may_fail =
            self.lost || self.closing || discards || reads && self.settings.engine_fails > 0.0;
        if result.is_err() && (self.rotten || may_fail) {
            // Later requests of this sector may or may not have happened.
            self.over |= self.rotten && !may_fail;
            self.counts.failed += u64::from(self.rotten);
            self.counts.failed_lost += u64::from(self.lost);
            return Ok(());
        }
        let answer = result.map_err(|failure| format!("{op:?} failed: {failure}"))?;
        if self.lost && !reads {
            return Err("acknowledged after the device was lost".to_owned());
        }
        match op {
            Op::Flush => {
                self.counts.flushes += 1;
                guest.oracle.barrier(submitted);
            }
            Op::Read { span, .. } => {
                let Answer::Data(data) = answer else { return Err("a read without data".into()) };
                for (n, sector) in sectors(span).enumerate() {
                    let value = data.value((span.offset % 4096) as usize / 512 + n);
                    let value = value.ok_or_else(|| format!("sector {sector} is torn"))?;
                    if !guest.oracle.check_read(sector, value, submitted) {
                        return Err(format!("sector {sector} was read as {value}: stale"));
                    }
                }
            }
            Op::Write { span, fua, .. }
            | Op::Trim { span, fua }
            | Op::WriteZeroes { span, fua, .. } => {
                guest.oracle.written(sectors(span));
                if fua {
                    // It covers its own write, and no other that a flush has to.
                    guest.oracle.fua(sectors(span));
                }
            }
            Op::Invalidate { .. } => unreachable!("never asked"),
        }
        Ok(())
    }
}

/// Prints an event, without data.
pub(crate) fn trace(now: Instant, way: &str, what: &impl std::fmt::Debug) {
    let text = format!("{what:?}");
    let mut short = String::new();
    for part in text.split("RefCell { value: [") {
        // Bytes of memory say nothing here.
        let rest = if short.is_empty() { part } else { part.split_once(']').map_or("", |p| p.1) };
        short.push_str(rest);
    }
    let short = short.split("MetaPage(").next().unwrap_or_default();
    eprintln!("{} {way} {short}", now.0);
}
