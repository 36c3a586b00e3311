//! The state machine: one event at a time, in order, to the end.
//!
//! This file routes; `read`, `write`, `zero` serve requests, `gate` holds writes back until what
//! they invalidate is durably recorded, or in active regions; `open` and `load` begin a session,
//! `attach` knows of volumes, `heartbeat` and `lifecycle` keep what the next session will need, `device`
//! copes without, `late` with what takes too long.

#[cfg(test)]
mod answers;
mod attach;
mod device;
#[cfg(test)]
mod endings;
mod gate;
#[cfg(test)]
mod guest_memory;
mod heartbeat;
mod identity;
mod invariants;
mod kept;
mod late;
mod lifecycle;
mod load;
mod open;
mod passed;
mod phases;
mod read;
mod reading;
#[cfg(test)]
mod reclaim;
#[cfg(test)]
mod region_tests;
mod request;
mod resize;
#[cfg(test)]
mod resizes;
#[cfg(test)]
mod rig;
mod write;
#[cfg(test)]
mod written_while_loading;
mod zero;

use crate::bounds::{Bound, Crossings};
use crate::config::Config;
use crate::counters::{CacheCounters, RamBytes, VolumeCounters};
use crate::descriptors::Key;
use crate::health::LoadReport;
use crate::journal::Ticket;
use crate::limits::{VOLUME_BLOCKS_MAX, VOLUMES_MAX};
use crate::metadata::superblock::Superblock;
use crate::outbox::{Outbox, Pending};
use crate::plan::{Plan, VolumePlan};
use crate::seam::{Action, Answer, Event, Failure, IoDone, Op, Payload, Request, RequestId};
use crate::store::{CheckpointWriter, Store};
use crate::units::{ByteSpan, Instant, VolumeId};
use crate::volume::{Volume, VolumeSpec, Warmth};
use identity::Identities;
pub use kept::{KeptBlock, KeptCursor, KeptPage};
pub(crate) use lifecycle::Copies;
use lifecycle::Lifecycle;
use load::Loader;
pub use phases::{Phase, Phases};
use read::Flash;
pub(crate) use reading::OpenRead;
use request::Active;
use resize::Resize;
pub(crate) use resize::ResizeIo;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Events whose lookups are prefetched together.
const BATCH: usize = 32;

/// What a command waits for that is answered once the device durably knows of it.
#[derive(Clone, Copy, Debug)]
enum Recording {
    /// A volume was attached, with this index and warmth.
    Attach(u16, Warmth),
    /// The volume with this index was sealed, or its last flush failed.
    Seal(u16),
    /// A volume has grown: it has, whether or not there is a device to know of it.
    Grow,
    /// What was recorded is all that there is to it: a volume is forgotten.
    Forget,
}

/// The cache. One owner, no locks.
pub struct Engine<P> {
    config: Config,
    superblock: Superblock,
    store: Store<P>,
    volumes: Vec<Option<Volume>>,
    requests: Slab<Active<P>>,
    /// Those of them that take too long.
    late: u32,
    /// Those that invalidate, unless they take too long.
    invalidations: u32,
    outbox: Outbox<P>,
    /// Requests whose range lock was granted.
    ready: VecDeque<usize>,
    /// Requests that go on at the next wake.
    paused: VecDeque<usize>,
    lifecycle: Lifecycle,
    identities: Identities,
    /// Volumes that wait for an index or an incarnation.
    attaching: VecDeque<(RequestId, VolumeSpec)>,
    now: Instant,
    /// The earliest wake asked for and not yet come.
    wake: Option<Instant>,
    /// The index is being loaded.
    loader: Option<Box<Loader>>,
    report: LoadReport,
    awaiting_load: Vec<RequestId>,
    /// The device may hold copies that the index does not list: every write appends an invalidation
    /// record until the next checkpoint.
    doubtful: bool,
    /// The checkpoint being written, the newest that is complete, and how it went.
    checkpoint: Option<CheckpointWriter>,
    checkpoint_sequence: u64,
    checkpoint_failures: u32,
    checkpoints: u64,
    /// Requests whose invalidation records are not durable yet.
    at_gate: VecDeque<(Ticket, usize)>,
    /// Commands that wait for the device to know durably of what they did.
    at_journal: VecDeque<(Ticket, RequestId, Recording)>,
    /// When the heartbeat has to look again.
    beat_at: Option<Instant>,
    /// When the cache device was flushed last, and whether that is under way.
    log_flush: (Instant, bool),
    /// Who waits for the end of all I/O on the device, and what they will be told.
    abandoning: Vec<(RequestId, Result<Answer<P>, Failure>)>,
    replacing: Option<(RequestId, Box<Superblock>)>,
    /// The device being opened is a replacement: volumes are there, passing through.
    reopening: bool,
    /// The log is getting another size.
    resize: Option<Resize>,
    device_losses: u64,
    /// Devices that took another's place.
    devices: u64,
}

impl<P: Payload> Engine<P> {
    /// An engine over a device with this superblock. The first command must be `Open`.
    pub fn new(config: Config, superblock: Superblock) -> Self {
        Self {
            config,
            store: Store::new(&config, &superblock),
            superblock,
            volumes: Vec::new(),
            requests: Slab::new(),
            late: 0,
            invalidations: 0,
            outbox: Outbox::new(),
            ready: VecDeque::new(),
            paused: VecDeque::new(),
            lifecycle: Lifecycle::Fresh,
            identities: Identities::default(),
            attaching: VecDeque::new(),
            now: Instant::default(),
            wake: None,
            loader: None,
            report: LoadReport::default(),
            awaiting_load: Vec::new(),
            doubtful: false,
            checkpoint: None,
            checkpoint_sequence: 0,
            checkpoint_failures: 0,
            checkpoints: 0,
            at_gate: VecDeque::new(),
            at_journal: VecDeque::new(),
            beat_at: None,
            log_flush: (Instant::default(), false),
            abandoning: Vec::new(),
            replacing: None,
            reopening: false,
            resize: None,
            device_losses: 0,
            devices: 0,
        }
    }

    /// Takes all `events`, in order, and appends what is to be done to `actions`.
    ///
    /// # Panics
    /// If the driver breaks the seam's rules (an I/O completed twice) or an invariant is violated.
    pub fn apply(
        &mut self,
        now: Instant,
        events: &mut Vec<Event<P>>,
        actions: &mut Vec<Action<P>>,
    ) {
        self.now = now;
        self.prefetch(&events[..BATCH.min(events.len())]);
        let mut done = 0;
        let mut ahead = BATCH.min(events.len());
        let mut taken = std::mem::take(events);
        let mut late = Vec::new();
        while done < taken.len() {
            let end = ahead;
            ahead = (ahead + BATCH).min(taken.len());
            self.prefetch(&taken[end..ahead]);
            for at in done..end {
                let event = std::mem::replace(&mut taken[at], Event::Wake);
                if let Event::Late(id) = event {
                    late.push(id);
                    // One look at all requests for as many as are late at once.
                    if !matches!(taken.get(at + 1), Some(Event::Late(_))) {
                        self.late(std::mem::take(&mut late));
                    }
                } else {
                    self.event(event);
                }
                self.run_ready();
            }
            done = end;
        }
        assert!(self.ready.is_empty(), "who has its blocks goes on within the event");
        taken.clear();
        *events = taken;
        self.tend();
        actions.append(&mut self.outbox.actions);
    }

    /// Starts loading what the lookups of these events will touch.
    fn prefetch(&self, events: &[Event<P>]) {
        let keys = events.iter().filter_map(|event| match event {
            Event::Submit(Request { volume, op, .. }) => {
                let (Op::Read { span, .. } | Op::Write { span, .. }) = op else { return None };
                let block = span.first_block();
                let sound = volume.0 < VOLUMES_MAX && block < VOLUME_BLOCKS_MAX;
                sound.then_some(Key { volume: volume.0, block })
            }
            _ => None,
        });
        let hashes: SmallVec<[u64; BATCH]> = keys.map(|key| self.store.hash(key)).collect();
        hashes.iter().for_each(|hash| self.store.prefetch_buckets(*hash));
        hashes.iter().for_each(|hash| self.store.prefetch_candidates(*hash));
    }

    fn event(&mut self, event: Event<P>) {
        match event {
            Event::Submit(request) => self.submit(request),
            Event::IoDone(done) => self.io_done(done),
            Event::Wake => {
                self.wake = None;
                self.ready.append(&mut self.paused);
                self.continue_load();
                self.continue_sweep();
                self.advance_lifecycle();
            }
            Event::Overdue(id) => self.overdue(id),
            Event::Late(_) => unreachable!("they are taken all at once"),
            Event::Invalidating(volume) => self.invalidating(volume.0),
            Event::Invalidated(volume) => self.invalidated(volume.0),
            Event::Adopt(plan) => self.adopt(&plan),
            Event::Control(id, command) => self.control(id, command),
        }
    }

    fn run_ready(&mut self) {
        while let Some(request) = self.ready.pop_front() {
            self.start(request);
        }
    }

    /// What is due after each batch: old chunks, short free segments, the next wake.
    fn tend(&mut self) {
        if self.lifecycle.is_serving() && self.loader.is_none() {
            let due = self.store.submit_aged(self.now, &mut self.outbox);
            let more = self.store.clean(&mut self.outbox);
            let close = self.store.tend_regions(self.now);
            for due in [due, close].into_iter().flatten() {
                self.wake_at(due);
            }
            if more {
                self.wake_at(self.now);
            }
            self.checkpoint_if_due();
            self.advance_resize();
        }
        self.beat();
        self.pump_journal();
        self.answer_abandoned();
        if !self.paused.is_empty() {
            self.wake_at(self.now);
        }
    }

    fn wake_at(&mut self, at: Instant) {
        if self.wake.is_none_or(|wake| at < wake) {
            self.wake = Some(at);
            self.outbox.wake_at(at);
        }
    }

    fn io_done(&mut self, done: IoDone) {
        let IoDone { id, result, pages, proof, generation } = done;
        match self.outbox.complete(id) {
            Pending::CacheRead { request, index, slot, count, direct } => {
                self.cache_read_done(request, index, Flash { slot, count, direct }, result);
            }
            Pending::BackendRead { request, index, count } => {
                self.backend_read_done(request, index, count, result);
            }
            Pending::Edge { request, edge, slot } => self.edge_done(request, edge, slot, result),
            Pending::Backend { request, covers } => self.backend_done(request, covers, result),
            Pending::Chunk { chunk } => {
                self.store.chunk_written(chunk, result);
                self.resume_checkpoint();
                self.advance_lifecycle();
            }
            Pending::Reinsert { slot, buffers } => {
                self.store.reinsert(slot, &buffers, result, self.now, &mut self.outbox);
                self.advance_lifecycle();
            }
            Pending::Checkpoint => self.checkpoint_done(result),
            Pending::Load { position, count } => self.pages_loaded(position, count, result, pages),
            Pending::Header { chain } => self.header_loaded(chain, result, &pages),
            Pending::Journal => {
                self.journal_done(result);
                self.advance_lifecycle();
            }
            Pending::Open(what) => self.open_read_done(what, result, pages),
            Pending::Control => self.control_done(result),
            Pending::Reserve { copies } => self.reserve_done(copies, result),
            Pending::Resize(io) => self.resize_io_done(io, result),
            Pending::CacheFlush => {
                self.cache_flushed(result);
                self.advance_lifecycle();
            }
            Pending::Detach { volume, covers } => self.detach_flushed(volume, covers, result),
            Pending::Prove { volume, covers } => self.proved(volume, covers, result, proof),
            Pending::GivenUp { request } => self.given_up_done(request),
            Pending::BumpGeneration { volume } => {
                self.generation_bump_done(volume, result, generation);
            }
        }
    }

    /// New settings take effect between two events. Settings of unknown volumes are ignored: the
    /// volume may have been detached since the plan was made.
    fn adopt(&mut self, plan: &Plan) {
        self.store.admits = plan.admits.unwrap_or(self.store.admits);
        for change in &plan.volumes {
            let index = usize::from(change.volume.0);
            let Some(Some(volume)) = self.volumes.get_mut(index) else { continue };
            if let Some(mode) = change.mode {
                volume.spec.mode = mode;
            }
            let spec = &mut volume.spec;
            spec.share_min_blocks = change.share_min_blocks.unwrap_or(spec.share_min_blocks);
            spec.share_max_blocks = change.share_max_blocks.unwrap_or(spec.share_max_blocks);
            spec.fill_limit_bytes = change.fill_limit_bytes.unwrap_or(spec.fill_limit_bytes);
            if let Some(target) = change.share_target_blocks {
                volume.share_target_blocks = (target != VolumePlan::NO_TARGET).then_some(target);
            }
            if volume.group.is_some() {
                self.join_group(change.volume.0);
            }
        }
    }

    pub fn cache_counters(&self) -> CacheCounters {
        let (resize_segments, resize_segments_done) = self.resize_progress();
        CacheCounters {
            resize_segments,
            resize_segments_done,
            flash_written_bytes: self.outbox.flash_written_bytes,
            journal_records: self.store.journal.records(),
            journal_writes: self.store.journal.writes,
            journal_rebases: self.store.journal.rebases,
            checkpoints: self.checkpoints,
            device_losses: self.device_losses,
            share_groups_max: self.store.log.groups_max() as u64,
            ..self.store.counters()
        }
    }

    /// How often each bound was run into, on this device.
    pub fn crossings(&self) -> Crossings {
        let crossings = self.store.crossings.clone();
        for _ in 0..self.store.journal.cut {
            crossings.note(Bound::JournalPages);
        }
        crossings
    }

    pub fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        let index = usize::from(volume.0);
        let known = self.volumes.get(index)?.as_ref()?;
        let holding = &self.store.holdings[index];
        let cached_blocks = if holding.alive { holding.cached_blocks } else { 0 };
        let own = known.group.and_then(|group| self.store.log.share_of(group));
        Some(VolumeCounters {
            cached_blocks,
            capped_blocks: holding.fill_cap.capped_blocks,
            share_blocks: own.unwrap_or(0),
            own_shares: u64::from(own.is_some()),
            ..known.counters
        })
    }

    /// Requests of a volume that were answered as late, and of which something is still under way: their
    /// writes may land after a flush that begins now.
    pub fn late_requests(&self, volume: VolumeId) -> u32 {
        let known = self.volumes.get(usize::from(volume.0)).and_then(Option::as_ref);
        known.map_or(0, |volume| volume.late)
    }

    /// All of a volume, and how many invalidations of it are under way.
    pub fn invalidations(&self, volume: VolumeId) -> Option<(ByteSpan, usize)> {
        let volume = self.volumes.get(usize::from(volume.0))?.as_ref()?;
        Some((ByteSpan::new(0, volume.spec.size_bytes), volume.invalidations as usize))
    }

    /// RAM held, by part.
    pub fn ram_bytes(&self) -> RamBytes {
        self.store.ram_bytes()
    }

    /// The superblock as last written.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Address and bytes of the large tables, not touched yet after `new`, so that a driver can ask
    /// for huge pages under them.
    pub fn tables(&self) -> [(*const u8, usize); 3] {
        self.store.tables()
    }

    /// Requests and I/Os under way.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.requests.len(), self.outbox.pending.len())
    }
}
