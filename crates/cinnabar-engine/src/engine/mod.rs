//! The state machine: one event at a time, in order, to the end.
//!
//! Called by drivers. This file routes; `read`, `write`, `zero` serve requests, `lifecycle` opens,
//! attaches, detaches and closes.

mod invariants;
mod lifecycle;
mod read;
mod request;
mod write;
mod zero;

use crate::config::Config;
use crate::counters::{CacheCounters, RamBytes, VolumeCounters};
use crate::descriptors::Key;
use crate::limits::{VOLUME_BLOCKS_MAX, VOLUMES_MAX};
use crate::metadata::superblock::Superblock;
use crate::outbox::{Outbox, Pending};
use crate::plan::Plan;
use crate::seam::{Access, Action, Event, IoDone, Op, Payload, Request};
use crate::store::Store;
use crate::units::{BlockNo, ByteSpan, Instant, VolumeId};
use crate::volume::Volume;
use lifecycle::Lifecycle;
use request::Active;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Events whose lookups are prefetched together.
const BATCH: usize = 32;

/// The cache. One owner, no locks.
pub struct Engine<P> {
    config: Config,
    superblock: Superblock,
    store: Store<P>,
    volumes: Vec<Option<Volume>>,
    requests: Slab<Active<P>>,
    outbox: Outbox<P>,
    /// Requests whose hold was granted.
    ready: VecDeque<usize>,
    /// Requests that go on at the next wake.
    paused: VecDeque<usize>,
    lifecycle: Lifecycle,
    /// Incarnations given out in this life.
    incarnations_used: u32,
    now: Instant,
    /// The earliest wake asked for and not yet come.
    wake: Option<Instant>,
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
            outbox: Outbox::new(),
            ready: VecDeque::new(),
            paused: VecDeque::new(),
            lifecycle: Lifecycle::Fresh,
            incarnations_used: 0,
            now: Instant::default(),
            wake: None,
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
        while done < taken.len() {
            let end = ahead;
            ahead = (ahead + BATCH).min(taken.len());
            self.prefetch(&taken[end..ahead]);
            for event in &mut taken[done..end] {
                self.event(std::mem::replace(event, Event::Wake));
                self.run_ready();
            }
            done = end;
        }
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
                self.advance_lifecycle();
            }
            Event::Overdue(_) => {}
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
        if self.lifecycle.is_serving() {
            let due = self.store.submit_aged(self.now, &mut self.outbox);
            let more = self.store.clean(&mut self.outbox);
            if let Some(due) = due {
                self.wake_at(due);
            }
            if more {
                self.wake_at(self.now);
            }
        }
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
        let IoDone { id, result, pages, epoch: _ } = done;
        match self.outbox.complete(id) {
            Pending::CacheRead { request, index, slot, count } => {
                self.cache_read_done(request, index, slot, count, result);
            }
            Pending::BackendRead { request, index, count } => {
                self.backend_read_done(request, index, count, result);
            }
            Pending::Edge { request, edge, slot } => self.edge_done(request, edge, slot, result),
            Pending::Backend { request } => self.backend_done(request, result),
            Pending::Chunk { chunk } => {
                self.store.chunk_written(chunk, result);
                self.advance_lifecycle();
            }
            Pending::Carry { slot, buffers } => {
                self.store.carry(slot, &buffers, result, self.now, &mut self.outbox);
                self.advance_lifecycle();
            }
            Pending::Checkpoint => self.checkpoint_done(result, &pages),
            Pending::Control => self.control_done(result),
            Pending::Detach { volume } => self.detach_flushed(volume, result),
        }
    }

    fn sample(&mut self, volume: u16, span: ByteSpan, write: bool) {
        if self.config.sample {
            for block in span.first_block()..span.end_block() {
                let access = Access { volume: VolumeId(volume), block: BlockNo(block), write };
                self.outbox.actions.push(Action::Sample(access));
            }
        }
    }

    /// New settings take effect between two events. Settings of unknown volumes are ignored: the
    /// volume may have been detached since the plan was made.
    fn adopt(&mut self, plan: &Plan) {
        for change in &plan.volumes {
            let index = usize::from(change.volume.0);
            let Some(Some(volume)) = self.volumes.get_mut(index) else { continue };
            if let Some(mode) = change.mode {
                volume.spec.mode = mode;
            }
            let spec = &mut volume.spec;
            spec.share_min_blocks = change.share_min_blocks.unwrap_or(spec.share_min_blocks);
            spec.share_max_blocks = change.share_max_blocks.unwrap_or(spec.share_max_blocks);
            if volume.group.is_some() {
                self.join_group(change.volume.0);
            }
        }
    }

    /// Counters of the cache.
    pub fn cache_counters(&self) -> CacheCounters {
        CacheCounters {
            flash_written_bytes: self.outbox.flash_written_bytes,
            ..self.store.counters()
        }
    }

    /// Counters of a volume.
    pub fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        let index = usize::from(volume.0);
        let known = self.volumes.get(index)?.as_ref()?;
        let cached_blocks = self.store.holdings[index].cached_blocks;
        Some(VolumeCounters { cached_blocks, ..known.counters })
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
