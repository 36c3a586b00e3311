//! Storage without a cache: the port, the disks, and the models in front of them.
//!
//! Called by the target.

use super::error::TargetError;
use super::layout::{Part, UnitSpec, spec_of};
use super::{LOCK_WAIT, ServerCounts, cached::noise};
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::model::{OpKind, SimModel, judge};
use cinnabar_backend::port::{self, IoMode, OwnPort, PortEvent};
use cinnabar_backend::{Disk, FileId, Job, JobOp, Memory};
use cinnabar_driver::held::{Held, HeldBack};
use cinnabar_engine::units::{BLOCK_BYTES, Instant};
use cinnabar_engine::{Payload, Slice, Slices};
use slab::Slab;
use std::sync::Arc;
use std::time::Duration;

/// Blocks of noise that writes are taken from.
const NOISE_BLOCKS: u32 = 256;

pub(super) struct Direct {
    origin: std::time::Instant,
    port: OwnPort,
    places: Vec<Place>,
    ios: Slab<Flight>,
    timers: HeldBack,
    /// What is written: no two pages alike, so that no storage can make it easy for itself.
    noise: Memory,
    turn: u64,
    events: Vec<PortEvent>,
}

struct Place {
    file: FileId,
    models: Vec<SimModel>,
    counts: ServerCounts,
}

struct Flight {
    tag: u64,
    complete_at: Instant,
    failure: Option<String>,
}

impl Direct {
    /// Opens and locks every place; gives their sizes.
    pub(super) fn open(units: &[UnitSpec]) -> Result<(Self, Vec<u64>), TargetError> {
        let mut port = OwnPort::new(port::open(IoMode::Auto).map_err(TargetError::Port)?);
        let (mut places, mut sizes) = (Vec::new(), Vec::new());
        for (unit, place, _) in UnitSpec::all(units) {
            let spec = spec_of(place)?;
            let options = OpenOptions {
                read_only: unit.read_only,
                lock_wait: LOCK_WAIT,
                ..OpenOptions::default()
            };
            let disk = Disk::open_backend(&spec, &options)
                .map_err(|error| TargetError::Disk { unit: unit.name.clone(), error })?;
            let size = disk.size_bytes();
            let models = spec.layers.into_iter().map(|layer| SimModel::new(layer, size)).collect();
            let file = port
                .register(Arc::new(disk))
                .map_err(|errno| TargetError::Files("registering a file", errno))?;
            places.push(Place { file, models, counts: ServerCounts::default() });
            sizes.push(size);
        }
        let memory = Memory::alloc(NOISE_BLOCKS);
        memory.write_at(0, &noise(u64::from(NOISE_BLOCKS) * BLOCK_BYTES));
        let direct = Self {
            origin: std::time::Instant::now(),
            port,
            places,
            ios: Slab::new(),
            timers: HeldBack::default(),
            noise: memory,
            turn: 0,
            events: Vec::new(),
        };
        Ok((direct, sizes))
    }

    fn now(&self) -> Instant {
        Instant(self.origin.elapsed().as_nanos() as u64)
    }

    pub(super) fn submit(&mut self, tag: u64, write: bool, part: Part) {
        let now = self.now();
        let place = &mut self.places[part.place];
        let kind = if write { OpKind::Write } else { OpKind::Read };
        if write {
            place.counts.writes += 1;
            place.counts.write_bytes += part.len;
        } else {
            place.counts.reads += 1;
            place.counts.read_bytes += part.len;
        }
        let verdict = judge(&mut place.models, now.0, kind, part.offset, part.len);
        let failure = verdict
            .and_then(|verdict| verdict.error)
            .map(|error| format!("the model says: {error}"));
        let complete_at = Instant(verdict.map_or(0, |verdict| verdict.complete_at_ns));
        let io = self.ios.insert(Flight { tag, complete_at, failure });
        if verdict.is_some_and(|verdict| !verdict.carry_out) {
            self.timers.hold(Held { at: complete_at, io, result: Ok(()) });
            return;
        }
        let file = place.file;
        let offset = part.offset;
        let op = if write {
            JobOp::Write { offset, pages: Vec::new(), data: self.noise_of(part.len), fua: false }
        } else {
            let blocks = u32::try_from(part.len.div_ceil(BLOCK_BYTES)).expect("a bounded I/O");
            let data = Slice { data: Memory::alloc(blocks), at: 0, len: part.len };
            JobOp::Read { offset, pages: Vec::new(), data: Slices::from_elem(data, 1) }
        };
        self.port.submit(Job { token: io as u64, file, op });
    }

    /// Bytes to write; pieces of the noise, another one each time.
    fn noise_of(&mut self, len: u64) -> Slices<Memory> {
        let total = u64::from(NOISE_BLOCKS) * BLOCK_BYTES;
        let mut slices = Slices::new();
        let mut left = len;
        while left > 0 {
            self.turn = (self.turn + 1) % u64::from(NOISE_BLOCKS);
            let at = self.turn * BLOCK_BYTES;
            let piece = left.min(total - at);
            slices.push(Slice { data: self.noise.clone(), at, len: piece });
            left -= piece;
        }
        slices
    }

    pub(super) fn poll(
        &mut self,
        limit: Option<Duration>,
        done: &mut Vec<(u64, Result<(), String>)>,
    ) -> Result<(), TargetError> {
        let until = limit.map(|limit| std::time::Instant::now() + limit);
        let mut first = true;
        loop {
            let now = self.now();
            while let Some(held) = self.timers.due(now) {
                self.finish(held.io, done);
            }
            let left = until.map(|at| at.saturating_duration_since(std::time::Instant::now()));
            let idle = self.ios.is_empty() && limit.is_none();
            if !first && (!done.is_empty() || left == Some(Duration::ZERO)) || idle {
                return Ok(());
            }
            let due = self.timers.next().map(|at| Duration::from_nanos(at.since_ns(now)));
            let left = if done.is_empty() { left } else { Some(Duration::ZERO) };
            let timeout = [due, left].into_iter().flatten().min();
            self.port.wait(timeout, &mut self.events).map_err(TargetError::Wait)?;
            first = false;
            self.take_events(done);
        }
    }

    fn take_events(&mut self, done: &mut Vec<(u64, Result<(), String>)>) {
        let now = self.now();
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            let PortEvent::Done(ended) = event else { continue };
            let key = ended.token as usize;
            let flight = &mut self.ios[key];
            if let Err(errno) = ended.result {
                flight.failure.get_or_insert_with(|| errno.to_string());
            }
            if flight.complete_at > now {
                self.timers.hold(Held { at: flight.complete_at, io: key, result: Ok(()) });
            } else {
                self.finish(key, done);
            }
        }
        self.events = events;
    }

    fn finish(&mut self, key: usize, done: &mut Vec<(u64, Result<(), String>)>) {
        let flight = self.ios.remove(key);
        done.push((flight.tag, flight.failure.map_or(Ok(()), Err)));
    }

    pub(super) fn counts(&self, places: impl Iterator<Item = usize>) -> ServerCounts {
        places.map(|place| self.places[place].counts).fold(ServerCounts::default(), |sum, one| {
            ServerCounts {
                reads: sum.reads + one.reads,
                writes: sum.writes + one.writes,
                read_bytes: sum.read_bytes + one.read_bytes,
                write_bytes: sum.write_bytes + one.write_bytes,
            }
        })
    }
}
