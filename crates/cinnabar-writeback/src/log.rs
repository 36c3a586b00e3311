//! The write log: a state machine above the engine. See [`seam`](crate::seam) for its way in and out.

use crate::bounds::{Bound, Bounds, Crossings};
use crate::commit::Who;
use crate::destage::Destage;
use crate::format::VOLUMES_MAX;
use crate::memory::{Kept, MemoryStatus};
use crate::mutant::{Mutant, Mutants};
use crate::pace::Sent;
use crate::places::Places;
use crate::read::Read;
use crate::seam::{Action, Command, Done, EngineId, Event, LogVolumeId, Refusal};
use crate::segments::Segments;
use crate::slots::Slots;
use crate::volume::{Volume, Waiting};
use cinnabar_engine::metadata::chunk::device_seed;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Answer, Failure, IoError, IoId, IoOp, Op, Payload, RequestId};
use slab::Slab;

/// How a write log is set up.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// An epoch that no flush has closed is destaged when it is this old, in ns.
    pub destage_after_ns: u64,
    /// Share of the log that a volume's writes may fill, in percent; beyond that they wait.
    pub dirty_max_percent: u8,
    /// How long dirty data may wait for the back end, in ns: writers are slowed down as it comes near.
    pub age_max_ns: u64,
    /// Pause after a destage that failed, in ns.
    pub retry_ns: u64,
    /// Chunks in the write memory go to the device when they are this old, in ns.
    pub memory_age_ns: u64,
    /// How often the pace of a destage is decided on, in ns; 0: it goes as fast as the back end lets it.
    pub pace_ns: u64,
    /// Write groups count. Without them each volume can be brought to a copy of its disk by itself.
    pub groups: bool,
    /// Sizes of steps and tables.
    pub bounds: Bounds,
    /// Deliberate bugs, for tests.
    pub mutants: Mutants,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            destage_after_ns: 5_000_000_000,
            dirty_max_percent: 80,
            age_max_ns: 30_000_000_000,
            retry_ns: 1_000_000_000,
            memory_age_ns: 1_000_000_000,
            pace_ns: 100_000_000,
            groups: true,
            bounds: Bounds::default(),
            mutants: Mutants::default(),
        }
    }
}

/// A page is read so often before it counts as lost: once from wherever it is read, and once from each
/// half of a log on two devices.
pub const READS_MAX: u8 = 3;

/// Writes of the log's device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Chunks written.
    pub chunks: u64,
    /// Of those, with FUA: each is a commit of its own.
    pub durable_chunks: u64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Records of the directory, all durable: one for each epoch that a back end has, mostly.
    pub records: u64,
    /// Blocks that were written again in the write memory: the older version was never written to the
    /// device.
    pub absorbed: u64,
}

/// An I/O of the log's device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogIo {
    Chunk {
        place: u16,
        number: u64,
    },
    Flush,
    Record {
        place: u16,
    },
    Read {
        read: usize,
        layer: usize,
        before: u8,
    },
    Destage {
        place: u16,
        first: usize,
        count: usize,
        before: u8,
    },
    /// Of a destage that was given up.
    Nobody,
}

/// A request of the engine's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EngineIo {
    Read {
        read: usize,
    },
    Write {
        place: u16,
        /// How much, and since when.
        blocks: u64,
        sent: Sent,
    },
    Flush {
        place: u16,
    },
    /// Of a destage that was given up.
    Nobody,
}

/// What the log held of a volume at some time: everything up to a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unretired {
    place: u16,
    incarnation: u64,
    last: u64,
}

/// See the module.
pub struct WriteLog<P> {
    pub(crate) config: Config,
    pub(crate) uuid: [u8; 16],
    pub(crate) seed: u64,
    pub(crate) slots: Slots,
    pub(crate) segments: Segments,
    pub(crate) volumes: Vec<Option<Volume<P>>>,
    /// Stamps of the directory's places.
    pub(crate) stamps: Vec<u64>,
    /// Slots that could not be read when it was opened.
    pub(crate) bad: Vec<u32>,
    /// Incarnations of volumes that had left when it was opened, and whose places are free still.
    pub(crate) left: Vec<u64>,
    /// The lowest stamp of what this start writes.
    pub(crate) stamps_from: u64,
    pub(crate) ios: Slab<LogIo>,
    pub(crate) asked: Slab<EngineIo>,
    pub(crate) reads: Slab<Read<P>>,
    /// Where writes are acknowledged from, if the log has such a memory.
    pub(crate) memory: Option<Kept>,
    /// A flush of the device is under way: what it makes durable.
    pub(crate) flushing: Option<Vec<(u16, u64)>>,
    /// Some volume may want a flush of the device.
    wants_flush: bool,
    /// The device has failed.
    pub(crate) lost: bool,
    /// Commands that wait for everything to be durable.
    pub(crate) closing: Vec<RequestId>,
    /// Requests and commands are refused; nothing more is destaged.
    pub(crate) closed: bool,
    /// Places where something may go on.
    pub(crate) touched: Places,
    /// Places whose requests wait for room.
    pub(crate) short: Places,
    /// The place that has its turn first.
    turn: u16,
    /// Bounds that were run into.
    pub(crate) crossings: Crossings,
    pub(crate) counters: Counters,
    pub(crate) actions: Vec<Action<P>>,
    pub(crate) now: Instant,
    /// The earliest instant asked for.
    pub(crate) wake: Option<Instant>,
}

impl<P: Payload> WriteLog<P> {
    pub(crate) fn new(
        config: Config,
        uuid: [u8; 16],
        segments: u32,
        stamps: Vec<u64>,
        (stamps_from, opening): (u64, u64),
    ) -> Self {
        assert_eq!(stamps.len(), usize::from(VOLUMES_MAX), "a stamp for each place");
        config.bounds.check();
        let seed = device_seed(uuid);
        Self {
            config,
            uuid,
            seed,
            slots: Slots::new(segments, seed),
            segments: Segments::new(segments, opening),
            volumes: (0..VOLUMES_MAX).map(|_| None).collect(),
            stamps,
            bad: Vec::new(),
            left: Vec::new(),
            stamps_from,
            ios: Slab::new(),
            asked: Slab::new(),
            reads: Slab::new(),
            memory: None,
            flushing: None,
            wants_flush: false,
            lost: false,
            closing: Vec::new(),
            closed: false,
            touched: Places::default(),
            short: Places::default(),
            turn: 0,
            crossings: Crossings::default(),
            counters: Counters::default(),
            actions: Vec::new(),
            now: Instant::default(),
            wake: None,
        }
    }

    /// Takes events; what is to be done is appended to `actions`.
    pub fn apply(
        &mut self,
        now: Instant,
        events: &mut Vec<Event<P>>,
        actions: &mut Vec<Action<P>>,
    ) {
        self.now = now;
        self.actions = std::mem::take(actions);
        for event in events.drain(..) {
            match event {
                Event::Submit(id, place, op) => self.submit(id, place, op),
                Event::LogDone(done) => self.log_done(done.id, done.result),
                Event::EngineDone(id, result) => self.engine_done(id, result.err()),
                Event::Late(id) => self.late(id),
                Event::Misses(place, misses) => self.missed(place, misses),
                Event::Wake => {
                    self.wake = None;
                    self.touch_all();
                }
                Event::Control(id, command) => self.control(id, command),
            }
        }
        self.pump();
        if self.config.mutants.is(Mutant::AckBeforePublish) {
            self.actions.sort_by_key(|action| matches!(action, Action::Memory(_)));
        }
        *actions = std::mem::take(&mut self.actions);
    }

    /// Lets volumes do what they can, until none of them can do more.
    fn pump(&mut self) {
        loop {
            if std::mem::take(&mut self.segments.made_room)
                && !self.config.mutants.is(Mutant::RoomNotTold)
            {
                let short = self.short;
                self.touched.add_all(&short);
            }
            let Some(place) = self.touched.take_from(self.turn) else { break };
            self.turn = place.wrapping_add(1) % VOLUMES_MAX;
            if self.volumes[usize::from(place)].is_none() {
                continue;
            }
            self.admit_waiting(place);
            self.send_chunks(place);
            self.answer_ready(place);
            self.destage(place);
            // An epoch may have been closed for the destage.
            self.send_chunks(place);
            self.discard_if_quiet(place);
            self.wants_flush |= self.volume(place).commits.wants_flush();
        }
        self.flush_device();
        self.close_if_done();
    }

    pub(crate) fn touch_all(&mut self) {
        for volume in self.volumes.iter().flatten() {
            self.touched.add(volume.record.volume);
        }
    }

    pub(crate) fn volume(&mut self, place: u16) -> &mut Volume<P> {
        self.volumes[usize::from(place)].as_mut().expect("a volume at this place")
    }

    pub(crate) fn log(&mut self, io: LogIo, op: IoOp<P>) {
        let id = IoId(self.ios.insert(io) as u64);
        self.actions.push(Action::Log(id, op));
    }

    pub(crate) fn ask(&mut self, io: EngineIo, place: u16, op: Op<P>) {
        let id = EngineId(self.asked.insert(io) as u64);
        self.actions.push(Action::Engine(id, LogVolumeId(place), op));
    }

    pub(crate) fn reply(&mut self, id: RequestId, result: Result<Answer<P>, Failure>) {
        self.actions.push(Action::Reply(id, result));
    }

    pub(crate) fn answer(&mut self, id: RequestId, result: Result<Done, Refusal>) {
        self.actions.push(Action::Answer(id, result));
    }

    pub(crate) fn wake_at(&mut self, at: Instant) {
        if self.wake.is_none_or(|wake| at < wake) {
            self.wake = Some(at);
            self.actions.push(Action::WakeAt(at));
        }
    }

    fn send_chunks(&mut self, place: u16) {
        if self.lost {
            return;
        }
        self.release_chunks(place);
        let (of, most) = (self.volume(place).identity(), self.config.bounds.chunks);
        while let Some((number, op)) = self.volume(place).commits.next_write(&of, most) {
            self.counters.chunks += 1;
            self.counters.durable_chunks +=
                u64::from(matches!(op, IoOp::WriteMeta { fua: true, .. }));
            self.log(LogIo::Chunk { place, number }, op);
        }
        let waits = self.volume(place).commits.has_sealed();
        self.crossings.note_if(waits, Bound::Chunks);
        self.clear_written(place);
    }

    /// Answers those whose writes are on the device, or durable.
    pub(crate) fn answer_ready(&mut self, place: u16) {
        // Nothing is held back when the log is closed.
        let now = if self.closed { Instant(u64::MAX) } else { self.now };
        loop {
            match self.volume(place).commits.ready(now) {
                None => return,
                Some(Err(at)) => return self.wake_at(at),
                Some(Ok(Who::Guest { id, answer, closes_epoch })) => {
                    if closes_epoch && !self.config.mutants.is(Mutant::FuaKeepsEpoch) {
                        self.close_epoch(place);
                    }
                    self.reply(id, Ok(answer));
                }
                Some(Ok(Who::Destage)) => {
                    let volume = self.volume(place);
                    assert!(matches!(volume.destage, Destage::Durable), "it waited for this");
                    volume.destage = Destage::default();
                }
                Some(Ok(Who::Nothing)) => {}
            }
        }
    }

    fn flush_device(&mut self) {
        if !self.wants_flush || self.flushing.is_some() || self.lost {
            return;
        }
        self.wants_flush = false;
        let all = self.volumes.iter().flatten();
        if !all.clone().any(|volume| volume.commits.wants_flush()) {
            return;
        }
        let early = self.config.mutants.is(Mutant::FlushBeforeCompletion);
        let reached = |volume: &Volume<P>| {
            if early { volume.commits.last } else { volume.commits.complete }
        };
        let covered = all
            .map(|volume| (volume.record.volume, reached(volume), volume.commits.durable))
            .filter(|(_, reached, durable)| reached > durable)
            .map(|(place, reached, _)| (place, reached));
        self.flushing = Some(covered.collect());
        self.counters.flushes += 1;
        self.log(LogIo::Flush, IoOp::Flush);
    }

    fn log_done(&mut self, id: IoId, result: Result<(), IoError>) {
        let io = self.ios.remove(id.0 as usize);
        if result == Err(IoError::TimedOut) && !self.lost {
            // One that is silent is not asked again: each try would take as long.
            self.lose();
        }
        match io {
            LogIo::Read { read, layer, before } => self.slot_read(read, layer, before, result),
            LogIo::Destage { place, first, count, before } => {
                self.touched.add(place);
                self.destage_read(place, (first, count), before, result);
            }
            LogIo::Nobody => {}
            _ if self.lost => {}
            LogIo::Chunk { .. } | LogIo::Flush | LogIo::Record { .. } if result.is_err() => {
                self.lose();
            }
            LogIo::Chunk { place, number } => {
                self.touched.add(place);
                self.volume(place).commits.written(number);
                self.clear_written(place);
            }
            LogIo::Flush => {
                for (place, number) in self.flushing.take().expect("one was under way") {
                    self.touched.add(place);
                    if let Some(volume) = &mut self.volumes[usize::from(place)] {
                        volume.commits.flushed(number);
                    }
                }
            }
            LogIo::Record { place } => {
                self.touched.add(place);
                self.recorded(place);
            }
        }
    }

    /// The device has failed: whatever is dirty can't be read or added to any more. Volumes fail
    /// closed; nothing passes through to a back end that lacks what was acknowledged.
    fn lose(&mut self) {
        self.lost = true;
        for place in 0..VOLUMES_MAX {
            let Some(volume) = &mut self.volumes[usize::from(place)] else { continue };
            let failed = Err(Failure::Io(IoError::Io));
            let (waiters, waiting) =
                (volume.commits.give_up(), std::mem::take(&mut volume.waiting));
            let (drains, attaching) =
                (std::mem::take(&mut volume.drains), volume.attaching.take().map(|(id, _)| id));
            let growing = [volume.growing.take(), volume.claiming.take()].into_iter().flatten();
            let commands = growing.map(|(id, _)| id).chain(volume.discarding.take());
            for who in waiters {
                match who {
                    Who::Guest { id, .. } => self.reply(id, failed.clone()),
                    Who::Destage | Who::Nothing => {}
                }
            }
            for Waiting { id, .. } in waiting {
                self.reply(id, failed.clone());
            }
            for id in drains.into_iter().map(|(id, ..)| id).chain(attaching).chain(commands) {
                self.answer(id, Err(Refusal::Lost));
            }
        }
        for id in std::mem::take(&mut self.closing) {
            self.answer(id, Err(Refusal::Lost));
        }
    }

    fn control(&mut self, id: RequestId, command: Command) {
        let silent = matches!(
            command,
            Command::Restarted(_) | Command::Acknowledge { .. } | Command::Slow { .. }
        );
        if self.lost {
            if !silent {
                self.answer(id, Err(Refusal::Lost));
            }
            return;
        }
        if self.closed && !silent && command != Command::Close {
            return self.answer(id, Err(Refusal::Closed));
        }
        if let Command::Drain(place)
        | Command::Claim(place)
        | Command::Grow { place, .. }
        | Command::Remove { place, .. }
        | Command::Restarted(place)
        | Command::Acknowledge { place, .. }
        | Command::Slow { place, .. } = &command
        {
            self.touched.add(place.0);
        }
        match command {
            Command::Attach { name, size_bytes, incarnation, group } => {
                self.attach(id, name, size_bytes, (incarnation, group));
            }
            Command::Acknowledge { place: LogVolumeId(place), memory } => {
                let keeps = memory && self.memory.is_some();
                if let Some(volume) =
                    self.volumes.get_mut(usize::from(place)).and_then(Option::as_mut)
                {
                    volume.commits.keep(keeps);
                }
            }
            Command::Slow { place: LogVolumeId(place), slow } => {
                let at = self.volumes.get(usize::from(place)).and_then(Option::as_ref);
                let members = at.map(|volume| volume.members).unwrap_or_default();
                members.iter().for_each(|member| self.volume(member).slow_down(slow));
            }
            Command::Claim(place) => self.claim(id, place),
            Command::Grow { place, size_bytes } => self.grow(id, place, size_bytes),
            Command::Drain(place) => self.drain(id, place),
            Command::Remove { place, discard } => self.remove(id, place, discard),
            Command::Restarted(LogVolumeId(place)) => {
                if let Some(volume) = self.volumes[usize::from(place)].as_mut()
                    && let Destage::Running(run) = &mut volume.destage
                    && !self.config.mutants.is(Mutant::RestartNotRepeated)
                {
                    run.repeat = true;
                }
            }
            Command::Close => {
                self.closed = true;
                for place in 0..VOLUMES_MAX {
                    let Some(volume) = &mut self.volumes[usize::from(place)] else { continue };
                    volume.commits.await_durable(Who::Nothing, Instant::default());
                    let drains = std::mem::take(&mut volume.drains).into_iter().map(|(id, ..)| id);
                    for id in drains.chain(volume.discarding.take()) {
                        self.answer(id, Err(Refusal::Closed));
                    }
                    // The log may be full for as long as a back end is away.
                    self.fail_waiting(place, Failure::NoVolume);
                }
                self.closing.push(id);
                self.touch_all();
            }
        }
    }

    fn close_if_done(&mut self) {
        if self.closing.is_empty()
            || !self
                .volumes
                .iter()
                .flatten()
                .all(|volume| volume.commits.is_durable() && !volume.record_writes.under_way())
        {
            return;
        }
        for id in std::mem::take(&mut self.closing) {
            self.answer(id, Ok(Done::Nothing));
        }
    }

    /// What waits for room at a place gets this instead.
    pub(crate) fn fail_waiting(&mut self, place: u16, failure: Failure) {
        for Waiting { id, .. } in std::mem::take(&mut self.volume(place).waiting) {
            self.reply(id, Err(failure));
        }
    }

    /// How often the page that an I/O reads has been read before: it did not match its checksum, or
    /// could not be read. Less than [`READS_MAX`].
    pub fn reads_again(&self, id: IoId) -> u8 {
        match self.ios.get(id.0 as usize) {
            Some(LogIo::Read { before, .. } | LogIo::Destage { before, .. }) => *before,
            _ => 0,
        }
    }

    /// What the log holds now.
    pub(crate) fn unretired(&self) -> Vec<Unretired> {
        let all = self.volumes.iter().flatten();
        all.map(|volume| Unretired {
            place: volume.record.volume,
            incarnation: volume.record.incarnation,
            last: volume.commits.last,
        })
        .collect()
    }

    /// Whether the log holds nothing of this any more, and says so durably.
    pub(crate) fn has_retired(&self, old: &Unretired) -> bool {
        let Some(volume) = &self.volumes[usize::from(old.place)] else { return true };
        // What is damaged is kept, and not counted.
        volume.record.incarnation != old.incarnation
            || volume.record.retired >= old.last
                && !volume.damaged
                && !matches!(volume.destage, Destage::Recording { .. })
    }

    /// Whether the log's device has failed: whatever is dirty can't be read or added to any more.
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// How often the pace of a destage is decided on, in ns; 0: never.
    pub const fn pace_ns(&self) -> u64 {
        self.config.pace_ns
    }

    /// Its writes so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// What the write memory holds, if there is one.
    pub fn memory(&self, now: Instant) -> Option<MemoryStatus> {
        let memory = self.memory.as_ref()?;
        let kept = self.volumes.iter().flatten().filter_map(|volume| volume.commits.kept_since());
        Some(memory.status(kept.min().map_or(0, |since| now.since_ns(since))))
    }

    /// How often bounds were run into.
    pub fn crossings(&self) -> &Crossings {
        &self.crossings
    }
}
