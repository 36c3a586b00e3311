//! The write log: a state machine above the engine. See [`seam`](crate::seam) for its way in and out.

use crate::commit::Who;
use crate::destage::Destage;
use crate::format::directory::Record;
use crate::format::{VOLUMES_MAX, directory_offset};
use crate::mutant::{Mutant, Mutants};
use crate::read::Read;
use crate::seam::{Action, Command, Done, EngineId, Event, Place, Refusal};
use crate::segments::Segments;
use crate::slots::{Slots, device_seed};
use crate::volume::Volume;
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
            mutants: Mutants::default(),
        }
    }
}

/// An I/O of the log's device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogIo {
    Chunk { place: u16, number: u64 },
    Flush,
    Record { place: u16 },
    Read { read: usize, layer: usize, again: bool },
    Destage { place: u16, first: usize, count: usize, again: bool },
}

/// A request of the engine's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EngineIo {
    Read { read: usize },
    Write { place: u16 },
    Flush { place: u16 },
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
    pub(crate) ios: Slab<LogIo>,
    pub(crate) asked: Slab<EngineIo>,
    pub(crate) reads: Slab<Read<P>>,
    /// A flush of the device is under way: what it makes durable.
    pub(crate) flushing: Option<Vec<(u16, u64)>>,
    /// The device has failed.
    pub(crate) lost: bool,
    /// Commands that wait for everything to be durable, and then refuse requests.
    pub(crate) closing: Vec<RequestId>,
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
        opening: u64,
    ) -> Self {
        assert_eq!(stamps.len(), usize::from(VOLUMES_MAX), "a stamp for each place");
        let seed = device_seed(uuid);
        Self {
            config,
            uuid,
            seed,
            slots: Slots::new(segments, seed),
            segments: Segments::new(segments, opening),
            volumes: (0..VOLUMES_MAX).map(|_| None).collect(),
            stamps,
            ios: Slab::new(),
            asked: Slab::new(),
            reads: Slab::new(),
            flushing: None,
            lost: false,
            closing: Vec::new(),
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
                Event::Wake => self.wake = None,
                Event::Control(id, command) => self.control(id, command),
            }
        }
        self.pump();
        *actions = std::mem::take(&mut self.actions);
    }

    /// Lets every volume do what it can.
    fn pump(&mut self) {
        for place in 0..VOLUMES_MAX {
            if self.volumes[usize::from(place)].is_none() {
                continue;
            }
            self.admit_waiting(place);
            self.send_chunks(place);
            self.answer_ready(place);
            self.destage(place);
            // An epoch may have been closed for the destage.
            self.send_chunks(place);
        }
        self.flush_device();
        self.close_if_done();
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
        self.actions.push(Action::Engine(id, Place(place), op));
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
        let of = self.volume(place).identity();
        while let Some((number, op)) = self.volume(place).commits.next_write(&of) {
            self.log(LogIo::Chunk { place, number }, op);
        }
    }

    /// Answers those whose writes are on the device, or durable.
    pub(crate) fn answer_ready(&mut self, place: u16) {
        let now = self.now;
        loop {
            match self.volume(place).commits.ready(now) {
                None => return,
                Some(Err(at)) => return self.wake_at(at),
                Some(Ok(Who::Guest { id, answer, closes_epoch })) => {
                    if closes_epoch && !self.config.mutants.is(Mutant::FuaKeepsEpoch) {
                        self.volume(place).close_epoch();
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
        if self.flushing.is_some() || self.lost {
            return;
        }
        let all = self.volumes.iter().flatten();
        if !all.clone().any(|volume| volume.commits.wants_flush()) {
            return;
        }
        let early = self.config.mutants.is(Mutant::FlushBeforeCompletion);
        let reached = |volume: &Volume<P>| {
            if early { volume.commits.last } else { volume.commits.complete }
        };
        let covered = all.map(|volume| (volume.record.volume, reached(volume))).collect();
        self.flushing = Some(covered);
        self.log(LogIo::Flush, IoOp::Flush);
    }

    fn log_done(&mut self, id: IoId, result: Result<(), IoError>) {
        let io = self.ios.remove(id.0 as usize);
        match io {
            LogIo::Read { read, layer, again } => self.slot_read(read, layer, again, result),
            LogIo::Destage { place, first, count, again } => {
                self.destage_read(place, (first, count), again, result);
            }
            _ if self.lost => {}
            LogIo::Chunk { .. } | LogIo::Flush | LogIo::Record { .. } if result.is_err() => {
                self.lose();
            }
            LogIo::Chunk { place, number } => {
                self.volume(place).commits.written(number);
            }
            LogIo::Flush => {
                for (place, number) in self.flushing.take().expect("one was under way") {
                    if let Some(volume) = &mut self.volumes[usize::from(place)] {
                        volume.commits.flushed(number);
                    }
                }
            }
            LogIo::Record { place } => self.recorded(place),
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
            for who in waiters {
                match who {
                    Who::Guest { id, .. } => self.reply(id, failed.clone()),
                    Who::Destage | Who::Nothing => {}
                }
            }
            for (id, _) in waiting {
                self.reply(id, failed.clone());
            }
            for id in drains.into_iter().map(|(id, _)| id).chain(attaching) {
                self.answer(id, Err(Refusal::Lost));
            }
        }
        for id in std::mem::take(&mut self.closing) {
            self.answer(id, Err(Refusal::Lost));
        }
    }

    /// Writes the directory record of a place.
    pub(crate) fn record(&mut self, place: u16) {
        let stamp = &mut self.stamps[usize::from(place)];
        *stamp += 1;
        let stamp = *stamp;
        let volume = self.volume(place);
        assert!(!volume.recording, "one record of a place at a time");
        volume.recording = true;
        volume.record.stamp = stamp;
        let record: &Record = &volume.record;
        let offset = directory_offset(place, (stamp % 2) as u8);
        let (pages, data) = (vec![record.encode()], smallvec::SmallVec::new());
        self.log(LogIo::Record { place }, IoOp::WriteMeta { offset, pages, data, fua: true });
    }

    fn recorded(&mut self, place: u16) {
        let volume = self.volume(place);
        volume.recording = false;
        if !volume.record.in_use {
            return self.removed(place);
        }
        match volume.attaching.take() {
            None => {}
            Some((id, 1)) => return self.answer(id, Ok(Done::Attached(Place(place)))),
            Some((id, left)) => {
                volume.attaching = Some((id, left - 1));
                return self.record(place);
            }
        }
        self.retired_is_recorded(place);
    }

    fn control(&mut self, id: RequestId, command: Command) {
        if self.lost {
            if !matches!(command, Command::Restarted(_)) {
                self.answer(id, Err(Refusal::Lost));
            }
            return;
        }
        match command {
            Command::Attach { name, size_bytes, incarnation } => {
                self.attach(id, name, size_bytes, incarnation);
            }
            Command::Drain(place) => self.drain(id, place),
            Command::Remove { place, discard } => self.remove(id, place, discard),
            Command::Restarted(Place(place)) => {
                if let Some(volume) = self.volumes[usize::from(place)].as_mut()
                    && let Destage::Running(run) = &mut volume.destage
                    && !self.config.mutants.is(Mutant::RestartNotRepeated)
                {
                    run.repeat = true;
                }
            }
            Command::Close => {
                for volume in self.volumes.iter_mut().flatten() {
                    volume.commits.await_durable(Who::Nothing, Instant::default());
                }
                self.closing.push(id);
            }
        }
    }

    fn close_if_done(&mut self) {
        if self.closing.is_empty()
            || !self.volumes.iter().flatten().all(|volume| volume.commits.is_durable())
        {
            return;
        }
        for id in std::mem::take(&mut self.closing) {
            self.answer(id, Ok(Done::Nothing));
        }
    }

    /// Bytes of its tables.
    pub fn ram_bytes(&self) -> u64 {
        self.slots.ram_bytes() + (self.segments.all.len() * 24) as u64
    }
}
