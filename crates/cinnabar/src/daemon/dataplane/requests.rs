//! Requests on their way into the engine, and its answers on their way out: guests' and the
//! operator's.
//!
//! Called by the loop.

use super::control::{COMMAND, failed};
use super::plane::{Plane, Pool};
use super::volume::{Kind, Phase, Volume};
use crate::daemon::messages::AnswerTo;
use cinnabar_backend::disk::DiskKind;
use cinnabar_backend::{JobOp, Memory};
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::{Answer, Event, Failure, Op, Reply, Request, RequestId};
use cinnabar_frontend::nbd::{Body, Command, Incoming, Ticket};

/// A request in the engine's hands.
pub(super) struct GuestRequest {
    asker: Asker,
    /// Key of its volume.
    volume: usize,
    kind: Kind,
    arrived: Instant,
}

/// Who waits for the answer.
enum Asker {
    Guest(Ticket),
    Operator(AnswerTo<()>),
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
                    self.ask_extents(now, file, key, ticket, JobOp::Extents { span });
                } else {
                    self.server.reply(ticket, Ok(Body::Done), &mut Pool);
                }
                return;
            }
        };
        let request = GuestRequest { asker: Asker::Guest(ticket), volume: key, kind, arrived: now };
        self.submit(request, id, op);
    }

    fn submit(&mut self, request: GuestRequest, volume: VolumeId, op: Op<Memory>) {
        let id = RequestId(self.requests.insert(request) as u64);
        self.events.push(Event::Submit(Request { id, volume, op }));
    }

    /// Drops what is cached of a part of a volume that serves, by the operator's word.
    pub(super) fn invalidate_span(
        &mut self,
        now: Instant,
        key: usize,
        span: ByteSpan,
        answer: AnswerTo<()>,
    ) {
        let asker = Asker::Operator(answer);
        let request = GuestRequest { asker, volume: key, kind: Kind::Other, arrived: now };
        let volume = self.volumes[key].id.expect("a volume that serves is attached");
        self.submit(request, volume, Op::Invalidate { span });
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
        match request.asker {
            Asker::Guest(ticket) => {
                let body = reply.result.map(|answer| match answer {
                    Answer::Data(buffer) if request.kind != Kind::Other => Body::Data(buffer),
                    _ => Body::Done,
                });
                self.server.reply(ticket, body, &mut Pool);
            }
            Asker::Operator(answer) => {
                let result = reply.result.map(drop).map_err(|error| failed("dropping it", error));
                let _ = answer.send(result);
            }
        }
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
