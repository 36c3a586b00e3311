//! What the engine's I/O takes: flash by the block, link and file server by the request.
//!
//! Called when the engine asks for I/O, and at the events on its way. A request of several blocks is
//! one packet there and one back with all of the data; of one read only the first block can be slow,
//! for the file server has read ahead what follows it.

use super::super::jobs::{Job, Kind, Stage};
use super::super::model::Model;
use super::super::station::Way;
use super::node::{Flight, Node};
use crate::instant::Length;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{BLOCK_BYTES, VolumeId};
use cinnabar_engine::{Event, IoDone, IoOp, IoRequest, Slice, Target};

fn bytes_of(data: &[Slice<Length>]) -> u64 {
    data.iter().map(|slice| slice.len).sum()
}

impl Model<'_> {
    pub(super) fn start_engine_io(
        &mut self,
        now: u64,
        host: usize,
        node: &mut Node,
        io: IoRequest<Length>,
    ) {
        let IoRequest { id, target, op } = io;
        let flight = Flight {
            life: node.life,
            id,
            pages: Vec::new(),
            write_at: None,
            generation: None,
            write: true,
            blocks: 0,
            up_bytes: 0,
            down_bytes: 0,
        };
        match target {
            Target::Cache => self.use_device(now, host, node, flight, op),
            Target::Backend(volume) => self.use_backend(now, host, node, flight, volume, op),
        }
    }

    fn use_device(
        &mut self,
        now: u64,
        host: usize,
        node: &mut Node,
        mut flight: Flight,
        op: IoOp<Length>,
    ) {
        let is_read = matches!(op, IoOp::Read { .. } | IoOp::ReadMeta { .. });
        let blocks = match op {
            IoOp::Read { data, .. } | IoOp::Write { data, .. } => bytes_of(&data) / BLOCK_BYTES,
            IoOp::ReadMeta { offset, mut pages } => {
                for (block, page) in (offset / BLOCK_BYTES..).zip(&mut pages) {
                    *page = node.pages.get(&block).cloned().unwrap_or(MetaPage::zeroed());
                }
                flight.pages = pages;
                flight.pages.len() as u64
            }
            IoOp::WriteMeta { offset, pages, data, .. } => {
                flight.write_at = Some(offset / BLOCK_BYTES);
                node.metadata_writes += if self.measuring { pages.len() as u64 } else { 0 };
                flight.pages = pages;
                flight.pages.len() as u64 + bytes_of(&data) / BLOCK_BYTES
            }
            // A flush, or the like: one command without data.
            _ => 0,
        };
        let (ns, count) = if is_read {
            (self.config.timings.flash_read_ns, &mut self.outcome.flash_reads)
        } else {
            (self.flash_write_ns, &mut self.outcome.flash_writes)
        };
        *count += if self.measuring { blocks } else { 0 };
        let device = &mut self.hosts[host].device;
        // Where there is no queue, blocks are served side by side: all in the time of one.
        let served = if device.queues() { blocks.max(1) } else { 1 };
        let done = (0..served).map(|_| device.serve(now, ns)).max().unwrap_or(now);
        let job = self.add_job(Job::new(Kind::Engine, host, Stage::EngineDone));
        node.flights.insert(job, flight);
        self.at(done, job, Stage::EngineDone);
    }

    fn use_backend(
        &mut self,
        now: u64,
        host: usize,
        node: &mut Node,
        mut flight: Flight,
        volume: VolumeId,
        op: IoOp<Length>,
    ) {
        let mut kind = Kind::Engine;
        match op {
            IoOp::Read { data, .. } => {
                flight.write = false;
                flight.down_bytes = bytes_of(&data);
                flight.blocks = flight.down_bytes.div_ceil(BLOCK_BYTES);
            }
            IoOp::Write { data, offset, .. } => {
                flight.up_bytes = bytes_of(&data);
                flight.blocks = flight.up_bytes.div_ceil(BLOCK_BYTES);
                if !node.unseen.is_empty() && node.unseen.remove(&(volume, offset)) {
                    kind = Kind::EngineUnseen;
                }
            }
            IoOp::BumpGeneration { held } => {
                // A matter of the host's own disk, of which there is no model.
                flight.generation = Some(held + 1);
                let job = self.add_job(Job::new(kind, host, Stage::EngineDone));
                node.flights.insert(job, flight);
                return self.at(now, job, Stage::EngineDone);
            }
            // A flush, with a proof or without: a packet each way and what a write takes.
            _ => {}
        }
        let up_bytes = flight.up_bytes;
        let job = self.add_job(Job::new(kind, host, Stage::EngineServe));
        node.flights.insert(job, flight);
        self.send_engine_packet(now, job, Way::Up, up_bytes, Stage::EngineServe);
    }

    fn send_engine_packet(&mut self, now: u64, id: u32, way: Way, bytes: u64, then: Stage) {
        let arrival = if self.jobs[id].kind == Kind::EngineUnseen {
            // Of single blocks, as all that comes from RAM.
            self.send(now, id, way, bytes > 0, then)
        } else {
            Some(self.send_bytes(now, id, way, bytes))
        };
        if let Some(arrival) = arrival {
            self.at(arrival, id, then);
        }
    }

    fn flight(&mut self, id: u32) -> &mut Flight {
        let host = usize::from(self.jobs[id].host);
        let engines = self.engines.as_mut().expect("the architecture has them");
        engines.node(host).flights.get_mut(&id).expect("it is under way")
    }

    /// A request is at the file server.
    pub(in super::super) fn engine_serve(&mut self, now: u64, id: u32) {
        let Flight { write, blocks, .. } = *self.flight(id);
        let further = blocks.saturating_sub(1);
        let timings = self.config.timings;
        let ns = if write {
            self.outcome.filer_writes += if self.measuring { blocks } else { 0 };
            timings.filer_write_ns * (1 + further)
        } else {
            self.outcome.filer_reads += if self.measuring { further } else { 0 };
            self.filer_read_ns(false) + timings.filer_fast_read_ns * further
        };
        let served = self.filer.serve(now, ns);
        self.at(served, id, Stage::EngineServed);
    }

    /// The file server has done it.
    pub(in super::super) fn engine_served(&mut self, now: u64, id: u32) {
        let bytes = self.flight(id).down_bytes;
        self.send_engine_packet(now, id, Way::Down, bytes, Stage::EngineDone);
    }

    /// Reports to the engine that an I/O is done, unless it belongs to an earlier session.
    pub(in super::super) fn engine_io_done(&mut self, now: u64, id: u32) {
        let host = usize::from(self.jobs[id].host);
        self.jobs.free(id);
        let engines = self.engines.as_mut().expect("the architecture has them");
        let node = engines.node(host);
        let Some(flight) = node.flights.remove(&id) else { return };
        if flight.life != node.life {
            return;
        }
        if let Some(first) = flight.write_at {
            node.pages.extend((first..).zip(flight.pages.iter().cloned()));
        }
        let done = IoDone {
            pages: flight.pages,
            generation: flight.generation,
            ..IoDone::new(flight.id, Ok(()))
        };
        node.events.push(Event::IoDone(done));
        self.engine_turn(now, host);
    }
}
