//! Guests' requests on their way into the engine, and its answers on their way out.
//!
//! Called by the loop.

use super::control::COMMAND;
use super::plane::{Plane, Pool};
use super::volume::{Kind, Phase, Volume};
use cinnabar_backend::disk::DiskKind;
use cinnabar_backend::{JobOp, Memory};
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Answer, Event, Failure, Op, Reply, Request, RequestId};
use cinnabar_frontend::nbd::{Body, Command, Incoming, Ticket};

/// A request in the engine's hands.
pub(super) struct GuestRequest {
    ticket: Ticket,
    /// Key of its volume.
    volume: usize,
    kind: Kind,
    arrived: Instant,
}

impl Plane {
    /// Hands the requests that came to the engine.
    pub(super) fn admit(&mut self, now: Instant) {
        let mut incoming = std::mem::take(&mut self.incoming);
        for request in incoming.drain(..) {
            self.admit_one(now, request);
        }
        self.incoming = incoming;
    }

    fn admit_one(&mut self, now: Instant, request: Incoming<Memory>) {
        let Incoming { ticket, export, command } = request;
        let key = export.0 as usize;
        let volume = self.volumes.get(key).and_then(|volume| match (&volume.phase, volume.id) {
            (Phase::Serving, Some(id)) => Some((volume, id)),
            _ => None,
        });
        let Some((volume, id)) = volume else {
            self.server.reply(ticket, Err(Failure::NoVolume), &mut Pool);
            return;
        };
        let (kind, op) = match command {
            Command::Engine(op) => (kind_of(&op), op),
            Command::Prefetch { span, data } => (Kind::Other, Op::Read { span, data }),
            Command::BlockStatus { span, .. } => {
                if tells_extents(volume) {
                    let file = volume.file;
                    self.ask_extents(file, key, ticket, JobOp::Extents { span });
                } else {
                    self.server.reply(ticket, Ok(Body::Done), &mut Pool);
                }
                return;
            }
        };
        let request = GuestRequest { ticket, volume: key, kind, arrived: now };
        let request = RequestId(self.requests.insert(request) as u64);
        self.events.push(Event::Submit(Request { id: request, volume: id, op }));
    }

    /// The engine has answered something.
    pub(super) fn reply(&mut self, now: Instant, reply: Reply<Memory>) {
        if reply.id.0 & COMMAND != 0 {
            self.command_done(now, reply);
            return;
        }
        let request = self.requests.remove(reply.id.0 as usize);
        if let Some(volume) = self.volumes.get_mut(request.volume) {
            volume.latencies.record(request.kind, now.since_ns(request.arrived));
        }
        let body = reply.result.map(|answer| match answer {
            Answer::Data(buffer) if request.kind != Kind::Other => Body::Data(buffer),
            _ => Body::Done,
        });
        self.server.reply(request.ticket, body, &mut Pool);
    }
}

/// Only a file knows its holes, and a model of something else would not tell them.
fn tells_extents(volume: &Volume) -> bool {
    volume.models.is_empty() && volume.disk.kind() == DiskKind::File
}

fn kind_of(op: &Op<Memory>) -> Kind {
    match op {
        Op::Read { .. } => Kind::Read,
        Op::Write { .. } | Op::Trim { .. } | Op::WriteZeroes { .. } => Kind::Write,
        Op::Flush => Kind::Flush,
        Op::Invalidate { .. } => Kind::Other,
    }
}
