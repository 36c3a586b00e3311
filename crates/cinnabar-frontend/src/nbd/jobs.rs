//! Changes of parts of sectors: the sectors at the edges are read, changed and written.
//!
//! Between the read and the write of such a sector no other change of it may be handed to the
//! engine, or it would be lost: it waits here. Once the write is handed over the engine keeps the
//! order. So for whatever overlaps such a change happens at once, as far as clients of this server
//! can see.
//!
//! What the engine does not have when its connection ends never reaches it: it could land on what the
//! client's successor wrote, or in the volume that takes the place of a removed one.

use super::export::ExportId;
use super::load::Load;
use super::memory;
use super::request::{Body, Buffers, Command, Incoming, Ticket};
use super::sectors;
use super::shared::{Part, Slot};
use super::table::Table;
use super::transmission::{Modify, Pending, With};
use cinnabar_engine::seam::units::{ByteSpan, SECTOR_BYTES};
use cinnabar_engine::seam::{Failure, IoError, Op, RawMemory};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// A change under way.
struct Job<M> {
    connection: u64,
    export: ExportId,
    pending: Pending,
    span: ByteSpan,
    fua: bool,
    with: With<M>,
    edges: SmallVec<[Edge<M>; 2]>,
    /// Operations that the engine has to answer before it goes on.
    left: u32,
    failure: Option<Failure>,
}

/// A sector of which only a part changes, and what it held.
struct Edge<M> {
    sector: ByteSpan,
    data: Option<M>,
}

enum Waiting<M> {
    Request(Incoming<M>),
    Job(u64),
}

/// A change that is over.
pub(super) struct Finished {
    pub(super) connection: u64,
    pub(super) export: ExportId,
    pub(super) pending: Pending,
    pub(super) result: Result<(), Failure>,
}

/// All of them.
pub(super) struct Jobs<M> {
    table: Table<Job<M>>,
    /// Sectors that are read and not written yet, by their first byte, and by which job.
    locks: BTreeMap<(ExportId, u64), u64>,
    /// What has to wait for a lock, oldest first.
    waiting: VecDeque<Waiting<M>>,
    /// Writes of jobs that have read; their locks end when these are handed over.
    ready: Vec<(u64, Incoming<M>)>,
    /// A lock ended.
    stirred: bool,
}

impl<M: RawMemory> Jobs<M> {
    pub(super) const fn new() -> Self {
        Self {
            table: Table::new(),
            locks: BTreeMap::new(),
            waiting: VecDeque::new(),
            ready: Vec::new(),
            stirred: false,
        }
    }

    /// Whether [`Self::go_on`] has something to do.
    pub(super) const fn has_backlog(&self) -> bool {
        !self.ready.is_empty() || self.stirred
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.table.len() == 0 && self.waiting.is_empty()
    }

    /// Hands a request to the engine, or keeps it while a sector that it changes is read.
    pub(super) fn submit(&mut self, request: Incoming<M>, incoming: &mut Vec<Incoming<M>>) {
        if !self.locks.is_empty()
            && let Some(span) = changed(&request.command)
            && self.is_locked(request.export, span)
        {
            self.waiting.push_back(Waiting::Request(request));
        } else {
            incoming.push(request);
        }
    }

    /// Begins a change.
    pub(super) fn begin(
        &mut self,
        slot: Slot,
        modify: Modify<M>,
        slots: &mut Table<Slot>,
        buffers: &mut impl Buffers<M>,
        incoming: &mut Vec<Incoming<M>>,
    ) {
        let Slot { connection, export, pending, .. } = slot;
        let Modify { span, fua, with } = modify;
        let edge = |sector| Edge { sector, data: None };
        let edges = sectors::edges(span).into_iter().map(edge).collect();
        let job =
            Job { connection, export, pending, span, fua, with, edges, left: 0, failure: None };
        let key = self.table.insert(job);
        self.start(key, slots, buffers, incoming);
    }

    /// Reads the edges, unless one of them is locked.
    fn start(
        &mut self,
        key: u64,
        slots: &mut Table<Slot>,
        buffers: &mut impl Buffers<M>,
        incoming: &mut Vec<Incoming<M>>,
    ) {
        let Some(job) = self.table.get(key) else { return };
        let export = job.export;
        let sectors: SmallVec<[ByteSpan; 2]> = job.edges.iter().map(|edge| edge.sector).collect();
        if sectors.iter().any(|sector| self.is_locked(export, *sector)) {
            self.waiting.push_back(Waiting::Job(key));
            return;
        }
        let Some(job) = self.table.get_mut(key) else { return };
        job.left = sectors.len() as u32;
        for (index, sector) in (0..).zip(sectors) {
            self.locks.insert((export, sector.offset), key);
            let op = Op::Read { span: sector, data: buffers.take(1) };
            incoming.push(job.part(Part::Edge(key, index), op, slots));
        }
    }

    fn is_locked(&self, export: ExportId, span: ByteSpan) -> bool {
        // Whole sectors, both.
        self.locks.range((export, span.offset)..(export, span.end())).next().is_some()
    }

    /// A part of a job is done.
    pub(super) fn part_done(
        &mut self,
        part: Part,
        result: Result<Body<M>, Failure>,
        slots: &mut Table<Slot>,
        buffers: &mut impl Buffers<M>,
    ) -> Option<Finished> {
        let (key, edge) = match part {
            Part::Whole => return None,
            Part::Edge(key, index) => (key, Some(usize::from(index))),
            Part::Change(key) => (key, None),
        };
        let job = self.table.get_mut(key)?;
        job.left -= 1;
        match (result, edge) {
            (Ok(Body::Data(data)), Some(index)) => job.edges[index].data = Some(data),
            (Ok(Body::Data(data)), None) => buffers.give(data),
            (Ok(_), None) => {}
            // The engine always returns a read's buffer.
            (Ok(_), Some(_)) => job.failure = job.failure.or(Some(Failure::Io(IoError::Io))),
            (Err(failure), _) => job.failure = job.failure.or(Some(failure)),
        }
        if job.left > 0 {
            return None;
        }
        if edge.is_some() && job.failure.is_none() && job.merge() {
            let changes = job.changes(key, slots, buffers);
            self.ready.extend(changes.into_iter().map(|change| (key, change)));
            return None;
        }
        self.finish(key, edge.is_some(), buffers)
    }

    fn finish(
        &mut self,
        key: u64,
        unchanged: bool,
        buffers: &mut impl Buffers<M>,
    ) -> Option<Finished> {
        let job = self.table.remove(key)?;
        let Job { connection, export, pending, span, with, edges, failure, .. } = job;
        if unchanged {
            self.unlock(key, export, span);
            edges.into_iter().filter_map(|edge| edge.data).for_each(|data| buffers.give(data));
            if let With::Data(Some(data)) = with {
                buffers.give(data);
            }
        }
        let failure = failure.or(unchanged.then_some(Failure::Io(IoError::Io)));
        Some(Finished { connection, export, pending, result: failure.map_or(Ok(()), Err) })
    }

    fn unlock(&mut self, key: u64, export: ExportId, span: ByteSpan) {
        for sector in sectors::edges(span) {
            let place = (export, sector.offset);
            if self.locks.get(&place) == Some(&key) {
                self.locks.remove(&place);
            }
        }
        self.stirred = true;
    }

    /// Whether the engine does not have all that a connection changes.
    pub(super) fn holds_back(&self, connection: u64, slots: &Table<Slot>) -> bool {
        let waits = |waiting: &Waiting<M>| match waiting {
            Waiting::Request(request) => is_from(connection, request, slots),
            Waiting::Job(key) => self.is_job_from(connection, *key),
        };
        self.table.iter().any(|(_, job)| job.connection == connection)
            || self.waiting.iter().any(waits)
    }

    /// A connection is gone: takes back what the engine does not have, and returns what that held.
    pub(super) fn abandon(
        &mut self,
        connection: u64,
        slots: &mut Table<Slot>,
        buffers: &mut impl Buffers<M>,
    ) -> Vec<Load> {
        let mut held = Vec::new();
        if self.is_empty() {
            return held;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Request(request) if is_from(connection, &request, slots) => {
                    held.extend(take_back(request, slots, buffers));
                }
                Waiting::Job(key) if self.is_job_from(connection, key) => {
                    held.extend(self.finish(key, true, buffers).map(|job| job.pending.load()));
                }
                other => self.waiting.push_back(other),
            }
        }
        for (key, change) in std::mem::take(&mut self.ready) {
            if !self.is_job_from(connection, key) {
                self.ready.push((key, change));
                continue;
            }
            // Several changes of one job hold what the job does.
            take_back(change, slots, buffers);
            if self.table.get_mut(key).is_some_and(Job::is_last) {
                held.extend(self.finish(key, true, buffers).map(|job| job.pending.load()));
            }
        }
        let reading = self.table.iter().filter(|(_, job)| job.connection == connection);
        let reading: Vec<u64> = reading.map(|(key, _)| key).collect();
        for key in reading {
            // It ends with the last of its reads.
            if let Some(job) = self.table.get_mut(key) {
                job.failure = job.failure.or(Some(Failure::Io(IoError::Io)));
            }
        }
        held
    }

    fn is_job_from(&self, connection: u64, key: u64) -> bool {
        self.table.get(key).is_some_and(|job| job.connection == connection)
    }

    /// Hands over what was read and changed, then what waited for it.
    pub(super) fn go_on(
        &mut self,
        slots: &mut Table<Slot>,
        buffers: &mut impl Buffers<M>,
        incoming: &mut Vec<Incoming<M>>,
    ) {
        for (key, change) in std::mem::take(&mut self.ready) {
            incoming.push(change);
            if let Some(Job { export, span, .. }) = self.table.get(key) {
                self.unlock(key, *export, *span);
            }
        }
        if !std::mem::take(&mut self.stirred) {
            return;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Request(request) => self.submit(request, incoming),
                Waiting::Job(key) => self.start(key, slots, buffers, incoming),
            }
        }
    }
}

/// Whether a request is of this connection.
fn is_from<M>(connection: u64, request: &Incoming<M>, slots: &Table<Slot>) -> bool {
    slots.get(request.ticket.0).is_some_and(|slot| slot.connection == connection)
}

/// Forgets a request that the engine never had; returns what it held.
fn take_back<M: RawMemory>(
    request: Incoming<M>,
    slots: &mut Table<Slot>,
    buffers: &mut impl Buffers<M>,
) -> Option<Load> {
    if let Command::Engine(Op::Write { data, .. }) = request.command {
        buffers.give(data);
    }
    slots.remove(request.ticket.0).map(|slot| slot.pending.load())
}

impl<M: RawMemory> Job<M> {
    /// One of its changes is done with; true if it was the last.
    fn is_last(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    fn part(&self, part: Part, op: Op<M>, slots: &mut Table<Slot>) -> Incoming<M> {
        let Self { connection, export, pending, .. } = *self;
        let ticket = Ticket(slots.insert(Slot { connection, export, pending, part }));
        Incoming { ticket, export, command: Command::Engine(op) }
    }

    /// Puts together what changes and what stays. False if a buffer is too short.
    fn merge(&mut self) -> bool {
        let first = self.span.first_block() * cinnabar_engine::seam::units::BLOCK_BYTES;
        let Self { span, with, edges, .. } = self;
        edges.iter_mut().all(|Edge { sector, data }| {
            let Some(sector_data) = data else { return false };
            let part = sectors::part(*span, *sector);
            let at = sector.head_bytes();
            match with {
                With::Zeroes { .. } => {
                    let bytes =
                        memory::bytes_mut(sector_data, at + part.start, part.end - part.start);
                    bytes.map(|bytes| bytes.fill(0)).is_some()
                }
                With::Data(Some(data)) => {
                    let stays = [0..part.start, part.end..SECTOR_BYTES];
                    stays.into_iter().all(|stays| {
                        let len = stays.end - stays.start;
                        let to = memory::bytes_mut(data, sector.offset - first + stays.start, len);
                        let from = memory::bytes(sector_data, at + stays.start, len);
                        let both = to.zip(from);
                        both.map(|(to, from)| to.copy_from_slice(from)).is_some()
                    })
                }
                With::Data(None) => false,
            }
        })
    }

    /// What is to be written.
    fn changes(
        &mut self,
        key: u64,
        slots: &mut Table<Slot>,
        buffers: &mut impl Buffers<M>,
    ) -> SmallVec<[Incoming<M>; 3]> {
        let (span, fua) = (self.span, self.fua);
        let mut ops = SmallVec::<[Op<M>; 3]>::new();
        let edges = std::mem::take(&mut self.edges);
        match &mut self.with {
            With::Data(data) => {
                edges.into_iter().filter_map(|edge| edge.data).for_each(|data| buffers.give(data));
                let span = sectors::around(span);
                ops.extend(data.take().map(|data| Op::Write { span, data, fua }));
            }
            With::Zeroes { may_punch } => {
                let may_punch = *may_punch;
                let write = |edge: Edge<M>| {
                    edge.data.map(|data| Op::Write { span: edge.sector, data, fua })
                };
                ops.extend(edges.into_iter().filter_map(write));
                let zeroes = |span| Op::WriteZeroes { span, fua, may_punch };
                ops.extend(sectors::within(span).map(zeroes));
            }
        }
        self.left = ops.len() as u32;
        ops.into_iter().map(|op| self.part(Part::Change(key), op, slots)).collect()
    }
}

/// The bytes that a command changes.
const fn changed<M>(command: &Command<M>) -> Option<ByteSpan> {
    match command {
        Command::Engine(
            Op::Write { span, .. } | Op::Trim { span, .. } | Op::WriteZeroes { span, .. },
        ) => Some(*span),
        _ => None,
    }
}
