//! The measurement: a fixed number of operations under way, one begun when one ends, over the same
//! port, disks and models as the data plane's.

use super::device::Device;
use super::error::ProbeError;
use super::offsets::Offsets;
use super::plan::{Cell, Op, Plan};
use super::scratch::scramble;
use super::waits::Waits;
use super::window::{Measured, Moment, Window};
use cinnabar_backend::memory::Owned;
use cinnabar_backend::port::{self, IoMode, OwnPort};
use cinnabar_backend::{Disk, FileId, Job, JobOp, Memory, PortEvent};
use cinnabar_driver::held::{Held, HeldBack};
use cinnabar_engine::units::{BLOCK_BYTES, Instant};
use cinnabar_engine::{IoError, Payload, Slice, Slices};
use cinnabar_model::{OpKind, Random, SimModel, judge};
use std::sync::Arc;
use std::time::Duration;

/// How long is looked for what comes before sleeping, in ns: as long as a data thread does unless
/// told otherwise (`poll_us`). Waking up takes longer than many a device.
const LOOK_NS: u64 = 50_000;
/// What a model holds back is waited for by looking from so long before on, in ns: a sleep of a
/// given length is that much too long at worst.
const AWAKE_NS: u64 = 200_000;
/// Longest time without anything coming back.
const STALL: Duration = Duration::from_mins(1);

/// A device and what it takes to use it.
pub(super) struct Prober {
    port: OwnPort,
    disk: Arc<Disk>,
    file: FileId,
    models: Vec<SimModel>,
    timers: HeldBack,
    proof: std::time::Instant,
    waits: Waits,
    /// Operations that were begun, for what writes write.
    begun: u64,
}

/// An operation under way; its place in the list is its name.
struct Flight {
    memory: Memory,
    kind: OpKind,
    offset: u64,
    len: u64,
    began: Moment,
    /// When a model lets it complete, and how.
    complete_at: Instant,
    error: Option<IoError>,
}

impl Prober {
    pub(super) fn new(device: Device) -> Result<(Self, Vec<String>), ProbeError> {
        let mut port = OwnPort::new(port::open(IoMode::Auto)?);
        let disk = Arc::new(device.disk);
        let file = port.register(Arc::clone(&disk)).map_err(ProbeError::Wait)?;
        let size_bytes = disk.size_bytes();
        let models =
            device.layers.into_iter().map(|spec| SimModel::new(spec, size_bytes)).collect();
        let prober = Self {
            port,
            disk,
            file,
            models,
            timers: HeldBack::default(),
            proof: std::time::Instant::now(),
            waits: Waits::new(0),
            begun: 0,
        };
        Ok((prober, device.notes))
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(super) fn port_name(&self) -> &'static str {
        self.port.name()
    }

    /// Measures one cell.
    ///
    /// # Errors
    /// If an operation fails, or nothing comes back; then the prober is of no use any more.
    pub(super) fn measure(&mut self, plan: &Plan, cell: Cell) -> Result<Measured, ProbeError> {
        let len = if cell.op == Op::Flush { BLOCK_BYTES } else { cell.size_bytes };
        let mut offsets = Offsets::new(plan.pattern, plan.seed, len, self.disk.size_bytes());
        let mut random = Random::new(plan.seed);
        let mut flights: Vec<Flight> =
            (0..cell.depth).map(|_| Flight::new(cell.op, len, &mut random)).collect();
        let mut window = Window::new(cell, self.now().0, plan.warm_up(), plan.time);
        for (name, flight) in flights.iter_mut().enumerate() {
            flight.offset = offsets.take();
            self.begin(name, flight);
        }
        let mut under_way = flights.len();
        let mut ended = Vec::new();
        while under_way > 0 {
            let before = self.waits.lost_ns();
            self.wait(&mut flights, &mut ended)?;
            window.lost(self.waits.lost_ns() - before);
            for (name, error) in ended.drain(..) {
                let flight = &mut flights[name];
                if let Some(error) = error {
                    let (size, offset) = (flight.len, flight.offset);
                    return Err(ProbeError::Io { op: flight.op(), size, offset, error });
                }
                let counts = cell.op != Op::Flush || flight.kind == OpKind::Flush;
                if counts {
                    window.ended(flight.began, self.moment());
                }
                if window.is_closed() {
                    under_way -= 1;
                    continue;
                }
                match (cell.op, flight.kind) {
                    (Op::Flush, OpKind::Write) => flight.kind = OpKind::Flush,
                    (Op::Flush, _) => flight.kind = OpKind::Write,
                    _ => {}
                }
                if flight.kind != OpKind::Flush {
                    offsets.free(flight.offset);
                    flight.offset = offsets.take();
                }
                self.begin(name, flight);
            }
        }
        Ok(window.into_measured())
    }

    fn begin(&mut self, name: usize, flight: &mut Flight) {
        self.begun += 1;
        if flight.kind == OpKind::Write {
            // No block is ever written twice with the same data, so none can be left out.
            for block in 0..flight.len / BLOCK_BYTES {
                flight
                    .memory
                    .write_at(block * BLOCK_BYTES, &(self.begun << 16 | block).to_le_bytes());
            }
        }
        let now = self.now();
        let len = if flight.kind == OpKind::Flush { 0 } else { flight.len };
        let verdict = judge(&mut self.models, now.0, flight.kind, flight.offset, len);
        flight.began = Moment { at: now.0, lost_ns: self.waits.lost_ns() };
        flight.complete_at = verdict.map_or(Instant(0), |one| Instant(one.complete_at_ns));
        flight.error = verdict.and_then(|one| one.error);
        let op = flight.job();
        let job = Job { token: name as u64, file: self.file, op };
        self.port.submit(job);
    }

    /// Waits until something has ended: names, and what failed.
    fn wait(
        &mut self,
        flights: &mut [Flight],
        ended: &mut Vec<(usize, Option<String>)>,
    ) -> Result<(), ProbeError> {
        let start = self.now();
        let mut events = Vec::new();
        loop {
            let timeout = self.timeout(start);
            self.port.wait(Some(timeout), &mut events).map_err(ProbeError::Wait)?;
            let now = self.now();
            self.waits.look(now.0);
            for event in events.drain(..) {
                let PortEvent::Done(done) = event else { continue };
                let io = done.token as usize;
                let flight = &mut flights[io];
                if let Err(errno) = done.result {
                    ended.push((io, Some(errno.to_string())));
                } else if flight.complete_at > now {
                    self.timers.hold(Held { at: flight.complete_at, io, result: Ok(()) });
                } else {
                    ended.push((io, flight.failure()));
                }
            }
            while let Some(held) = self.timers.due(now) {
                ended.push((held.io, flights[held.io].failure()));
            }
            if !ended.is_empty() {
                return Ok(());
            }
            if now.since_ns(start) > STALL.as_nanos() as u64 {
                return Err(ProbeError::Stalled(STALL.as_secs()));
            }
        }
    }

    /// How long the next wait may sleep, if something was waited for since `start`.
    fn timeout(&self, start: Instant) -> Duration {
        let now = self.now();
        if now.since_ns(start) < LOOK_NS {
            return Duration::ZERO;
        }
        let until = self.timers.next().map(|at| at.since_ns(now).saturating_sub(AWAKE_NS));
        Duration::from_nanos(until.unwrap_or(u64::MAX)).min(Duration::from_secs(1))
    }

    fn moment(&self) -> Moment {
        Moment { at: self.now().0, lost_ns: self.waits.lost_ns() }
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.proof.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Flight {
    fn new(op: Op, len: u64, random: &mut Random) -> Self {
        let blocks = u32::try_from(len / BLOCK_BYTES).expect("at most 4 MiB");
        let memory = Memory::alloc(blocks);
        // The only handle, unless the pool kept others, in which case it stays as it is: reads don't
        // care, and writes put a number of their own into each block.
        let memory = match Owned::new(memory) {
            Ok(mut owned) => {
                scramble(&mut owned, random);
                owned.into_memory()
            }
            Err(memory) => memory,
        };
        let kind = if op == Op::Read { OpKind::Read } else { OpKind::Write };
        let complete_at = Instant::default();
        Self { memory, kind, offset: 0, len, began: Moment::default(), complete_at, error: None }
    }

    fn job(&self) -> JobOp {
        let slice = || Slice { data: self.memory.clone(), at: 0, len: self.len };
        let (offset, pages) = (self.offset, Vec::new());
        match self.kind {
            OpKind::Read => JobOp::Read { offset, pages, data: Slices::from_iter([slice()]) },
            OpKind::Write | OpKind::Discard => {
                JobOp::Write { offset, pages, data: Slices::from_iter([slice()]), fua: false }
            }
            OpKind::Flush => JobOp::Flush,
        }
    }

    /// What a model says instead of success.
    fn failure(&self) -> Option<String> {
        self.error.map(|error| format!("the model says so ({error:?})"))
    }

    fn op(&self) -> Op {
        match self.kind {
            OpKind::Read => Op::Read,
            OpKind::Write | OpKind::Discard => Op::Write,
            OpKind::Flush => Op::Flush,
        }
    }
}
