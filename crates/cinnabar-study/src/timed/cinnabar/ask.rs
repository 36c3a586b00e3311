//! Requests to an engine, and its answers.
//!
//! An engine has its turn with each event, at the instant of it; answers are events again, so that a
//! row of hits is not a pile of calls.

use super::super::jobs::{Job, Kind, Stage};
use super::super::model::Model;
use super::super::source::Operation;
use super::node::{Asked, COMMAND, NOBODYS, Node, Place, place_of};
use super::report::{EngineReport, Recovery};
use crate::instant::Length;
use cinnabar_engine::limits::{DATA_BYTES_MAX, VOLUME_BLOCKS_MAX};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant};
use cinnabar_engine::{Action, Event, Reply};

impl Model<'_> {
    fn engine(&mut self, host: usize) -> &mut Node {
        self.engines.as_mut().expect("the architecture has them").node(host)
    }

    /// A whole operation goes to the engine: there is no RAM in front of it.
    pub(in super::super) fn begin_whole(&mut self, now: u64, id: u32, operation: Operation) {
        let Operation { write, first_key, end_key, skip_bytes, spare_bytes, .. } = operation;
        let blocks = end_key - first_key;
        self.outcome.block_ios += blocks;
        let Job { host, measured, .. } = self.jobs[id];
        if write {
            self.outcome.block_writes += if measured { blocks } else { 0 };
            self.invalidate_engines(now, usize::from(host), first_key, blocks, measured);
        }
        let (mut key, mut skip) = (first_key, u64::from(skip_bytes));
        let mut pieces = Vec::new();
        while key < end_key {
            let (place, offset) = place_of(key);
            // Neither the end of a part of a volume nor the longest request cuts a block in two.
            let of_part = place_of(key | (VOLUME_BLOCKS_MAX - 1)).1 + BLOCK_BYTES - offset;
            let len = ((end_key - key) * BLOCK_BYTES).min(of_part).min(DATA_BYTES_MAX);
            key += len / BLOCK_BYTES;
            let spare = if key == end_key { u64::from(spare_bytes) } else { 0 };
            pieces.push((place, ByteSpan::new(offset + skip, len - skip - spare)));
            skip = 0;
        }
        if let [(place, span)] = pieces[..] {
            return self.ask(now, id, Asked::new(place, write, span));
        }
        for (place, span) in pieces {
            self.jobs[id].parts += 1;
            let part = Job::new(Kind::Part, usize::from(host), Stage::Take);
            let part = self.add_job(Job { write, measured, parent: id, ..part });
            self.ask(now, part, Asked::new(place, write, span));
        }
    }

    /// A block that RAM does not hold is read, or one that leaves RAM is written.
    pub(in super::super) fn ask_for_block(&mut self, now: u64, id: u32, block: u32, write: bool) {
        let (place, offset) = place_of(self.source.key(block));
        let unseen = matches!(self.jobs[id].kind, Kind::Background | Kind::Syncer(_));
        let span = ByteSpan::new(offset, BLOCK_BYTES);
        self.ask(now, id, Asked { unseen, ..Asked::new(place, write, span) });
    }

    fn ask(&mut self, now: u64, id: u32, asked: Asked) {
        let host = usize::from(self.jobs[id].host);
        let node = self.engine(host);
        node.asked.insert(id, Asked { since_ns: now, ..asked });
        node.meet(asked.place);
        if !node.submit(id) {
            node.waiting.push_back(id);
        }
        self.engine_turn(now, host);
    }

    /// A write takes the copies of other hosts' engines; says how many blocks they had, at most as
    /// many as were written.
    fn invalidate_engines(
        &mut self,
        now: u64,
        writer: usize,
        first_key: u64,
        blocks: u64,
        measured: bool,
    ) {
        let mut copies = 0;
        for host in (0..self.config.hosts as usize).filter(|host| *host != writer) {
            let (place, offset) = place_of(first_key);
            let node = self.engine(host);
            let volume = node.volumes.get(&place).copied().flatten();
            let Some(volume) = volume.filter(|_| !node.stopping) else { continue };
            let count = |node: &Node| {
                node.engine
                    .volume_counters(volume)
                    .map_or(0, |counters| counters.invalidated_blocks)
            };
            let before = count(node);
            let span = ByteSpan::new(offset, blocks * BLOCK_BYTES);
            node.invalidations.push_back((volume, span));
            node.submit_waiting();
            self.engine_turn(now, host);
            copies += count(self.engine(host)) - before;
        }
        self.outcome.invalidating_writes += if measured { copies.min(blocks) } else { 0 };
    }

    /// The same for a block of RAM; says whether there was a copy.
    pub(in super::super) fn invalidate_block(
        &mut self,
        now: u64,
        writer: usize,
        block: u32,
    ) -> bool {
        let before = self.outcome.invalidating_writes;
        let key = self.source.key(block);
        self.invalidate_engines(now, writer, key, 1, true);
        let had = self.outcome.invalidating_writes > before;
        self.outcome.invalidating_writes = before;
        had
    }

    /// The engine takes its events; what it wants done is begun.
    pub(super) fn engine_turn(&mut self, now: u64, host: usize) {
        let engines = self.engines.as_mut().expect("the architecture has them");
        let mut node = engines.nodes[host].take().expect("turns don't overlap");
        loop {
            self.take_steps(now, &mut node);
            if node.events.is_empty() {
                break;
            }
            let mut actions = std::mem::take(&mut node.actions);
            node.engine.apply(Instant(now), &mut node.events, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Io(io) => self.start_engine_io(now, host, &mut node, io),
                    Action::Reply(reply) => self.engine_replied(now, &mut node, reply),
                    Action::WakeAt(at) => self.wake_engine_at(at.0.max(now), host, &mut node),
                }
            }
            node.actions = actions;
        }
        self.engines.as_mut().expect("they were there").nodes[host] = Some(node);
    }

    fn wake_engine_at(&mut self, at_ns: u64, host: usize, node: &mut Node) {
        if node.wake_ns.is_none_or(|wake| at_ns < wake) {
            node.wake_ns = Some(at_ns);
            let id = self.add_job(Job::new(Kind::Engine, host, Stage::EngineWake));
            self.at(at_ns, id, Stage::EngineWake);
        }
    }

    /// A wake-up has come; one that was replaced by an earlier one is ignored.
    pub(in super::super) fn engine_wake(&mut self, now: u64, id: u32) {
        let host = usize::from(self.jobs[id].host);
        self.jobs.free(id);
        let node = self.engine(host);
        if node.wake_ns == Some(now) {
            node.wake_ns = None;
            node.events.push(Event::Wake);
            self.engine_turn(now, host);
        }
    }

    fn engine_replied(&mut self, now: u64, node: &mut Node, reply: Reply<Length>) {
        let Reply { id, result } = reply;
        if id.0 & COMMAND != 0 {
            return node.command_done(now, result);
        }
        assert!(result.is_ok(), "no request fails without a fault: {result:?}");
        node.submitted -= 1;
        if id.0 & NOBODYS != 0 {
            return node.submit_waiting();
        }
        let job = id.0 as u32;
        let asked = node.asked.remove(&job).expect("it was asked");
        // What needed no I/O was in the engine's own RAM.
        let ram_ns = if asked.since_ns == now { self.config.timings.ram_read_ns } else { 0 };
        let stage = if asked.write { Stage::EngineWritten } else { Stage::EngineRead };
        self.at(now + ram_ns, job, stage);
        node.submit_waiting();
    }

    /// Measuring begins: what was counted so far does not count.
    pub(in super::super) fn measure_engines(&mut self, now: u64) {
        for host in 0..self.config.hosts as usize {
            let restart = self.config.restart;
            let node = self.engine(host);
            node.base = node.totals();
            node.metadata_writes = 0;
            node.order_restart(now, restart);
            self.engine_turn(now, host);
        }
    }

    /// What the engines counted in the measured part.
    pub(in super::super) fn close_engines(&mut self) {
        let mut report = EngineReport::default();
        let mut recovery = None;
        for host in 0..self.config.hosts as usize {
            let node = self.engine(host);
            let (counted, cache) = (node.counted(), node.engine.cache_counters());
            let (metadata, own) = (node.metadata_writes, node.recovery);
            report.ram_hits += counted.read_hits_ram;
            report.write_hits += counted.write_hits;
            report.invalidation_waits += counted.invalidation_waits;
            report.metadata_writes += metadata;
            report.cached_blocks += cache.cached_blocks;
            report.capacity_blocks += cache.capacity_blocks;
            self.outcome.flash_hits += counted.read_hits;
            self.outcome.misses += counted.misses;
            if let Some(own) = own {
                recovery.get_or_insert_with(Recovery::default).add(&own);
            }
        }
        report.restart = recovery;
        self.outcome.engine = Some(report);
    }
}

impl Asked {
    fn new(place: Place, write: bool, span: ByteSpan) -> Self {
        Self { place, write, span, unseen: false, since_ns: 0, submitted: false }
    }
}
