//! Guests' requests: as they are where one shard owns all of it, in parts otherwise.
//!
//! Called by drivers (submit) and by the router (replies). Data of a split request are copied to and
//! from buffers of the parts: stripes are long, so splits are rare. Long trims and zeroes go to the
//! shards a few parts at a time.

use super::Routed;
use super::router::{Join, Phase, Router, id_of, refusal};
use crate::limits::DATA_BYTES_MAX;
use crate::mutant::Mutant;
use crate::seam::{Answer, Event, Failure, Op, Payload, Reply, Request, RequestId};
use crate::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES, VolumeId};

/// A request under way.
pub(super) struct RequestJoin<P> {
    id: RequestId,
    volume: VolumeId,
    outstanding: u32,
    failure: Option<Failure>,
    rest: Rest<P>,
    /// Whoever asked has the answer already: a deliberate bug's.
    answered: bool,
}

/// What is to be done when parts are done.
enum Rest<P> {
    /// One part: its answer is the answer.
    Whole,
    /// A flush.
    Nothing,
    /// A split write: its buffer goes back with the answer.
    Written(P),
    /// A split read: where its parts' blocks go.
    Read { data: P, parts: Vec<ByteSpan> },
    /// The rest of a trim or its like, and how to ask for it.
    Range { op: Op<P>, left: ByteSpan },
}

impl<P: Payload> Router<P> {
    /// A guest's request. Answered at once only if it can't be served.
    ///
    /// # Panics
    /// If a volume is attached that not every shard knows: a bug of the router's.
    pub fn submit(
        &mut self,
        request: Request<P>,
        to: &mut impl FnMut(Routed<P>),
    ) -> Option<Reply<P>> {
        let Request { id, volume, op } = request;
        let Some(known) = self.volume(volume).filter(|known| known.phase == Phase::Attached) else {
            return Some(refusal(id, Failure::NoVolume));
        };
        let (first, size) = (known.first, known.size_bytes);
        let join =
            |rest| RequestJoin { id, volume, outstanding: 0, failure: None, rest, answered: false };
        let Some(span) = span_of(&op) else {
            let key = self.joins.insert(Join::Request(join(Rest::Nothing)));
            // A flush covers what any shard has written.
            let one = self.mutants.is(Mutant::FlushOfOneShard);
            for shard in 0..if one { 1 } else { self.map.shards() } {
                self.send(key, shard as usize, shard, op.clone(), to);
            }
            return None;
        };
        let mut rest = span;
        // What a shard will refuse must not have been carried out in part by another.
        let sound = is_sound(span, size, &op);
        let (shard, part) = if sound { self.map.cut(first, &mut rest) } else { (0, span) };
        if part == span {
            let key = self.joins.insert(Join::Request(join(Rest::Whole)));
            self.send(key, 0, shard, op, to);
            return None;
        }
        self.split += 1;
        match op {
            Op::Read { data, .. } => {
                let all: Vec<_> = self.split(first, span).collect();
                let parts = all.iter().map(|(_, part)| *part).collect();
                let key = self.joins.insert(Join::Request(join(Rest::Read { data, parts })));
                for (at, (shard, part)) in all.into_iter().enumerate() {
                    let op = Op::Read { span: part, data: P::alloc(part.blocks() as u32) };
                    self.send(key, at, shard, op, to);
                }
            }
            Op::Write { data, fua, .. } => {
                let parts: Vec<_> = self.split(first, span).collect();
                let key = self.joins.insert(Join::Request(join(Rest::Written(data.clone()))));
                for (at, (shard, part)) in parts.into_iter().enumerate() {
                    let own = P::alloc(part.blocks() as u32);
                    let len = part.blocks() * BLOCK_BYTES;
                    own.copy_from(0, &data, place(span, part), len);
                    self.send(key, at, shard, Op::Write { span: part, data: own, fua }, to);
                }
            }
            op => {
                let key = self.joins.insert(Join::Request(join(Rest::Range { op, left: span })));
                let known = self.volumes[usize::from(volume.0)].as_mut().expect("just seen");
                known.unsent += 1;
                self.go_on(key, to);
            }
        }
        None
    }

    /// The parts of a span and their shards.
    fn split(
        &self,
        first: u32,
        mut span: ByteSpan,
    ) -> impl Iterator<Item = (u32, ByteSpan)> + use<P> {
        let map = self.map;
        std::iter::from_fn(move || (span.len > 0).then(|| map.cut(first, &mut span)))
    }

    fn send(
        &mut self,
        key: usize,
        part: usize,
        shard: u32,
        op: Op<P>,
        to: &mut impl FnMut(Routed<P>),
    ) {
        let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
        join.outstanding += 1;
        let outer = join.volume;
        let volume = self.inner(outer, shard).expect("an attached volume is known to every shard");
        let request = Request { id: id_of(key, part), volume, op };
        to(Routed { shard, event: Event::Submit(request) });
    }

    /// Sends the next parts of a long request; none after one has failed.
    fn go_on(&mut self, key: usize, to: &mut impl FnMut(Routed<P>)) {
        loop {
            let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
            let (volume, failed) = (join.volume, join.failure.is_some());
            let full = join.outstanding as usize >= self.parts;
            let Rest::Range { op, left } = &mut join.rest else { return };
            let known = self.volumes[usize::from(volume.0)].as_ref().expect("it has a request");
            if left.len == 0 || full && !failed {
                return;
            }
            if failed {
                left.len = 0;
                return self.all_sent(volume, to);
            }
            let (shard, part) = self.map.cut(known.first, left);
            let (op, last) = (with_span(op, part), left.len == 0);
            self.send(key, 0, shard, op, to);
            if last {
                self.all_sent(volume, to);
            }
        }
    }

    /// A part of a request has been answered.
    pub(super) fn request_part_done(
        &mut self,
        key: usize,
        part: usize,
        result: Result<Answer<P>, Failure>,
        to: &mut impl FnMut(Routed<P>),
    ) -> Option<Reply<P>> {
        let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
        join.outstanding -= 1;
        let early = self.mutants.is(Mutant::SplitAnsweredEarly);
        let mut whole = None;
        match (result, &join.rest) {
            (result, Rest::Whole) => whole = Some(result),
            (Err(failure), _) => {
                join.failure.get_or_insert(failure);
            }
            (Ok(Answer::Data(own)), Rest::Read { data, parts }) => {
                let len = parts[part].blocks() * BLOCK_BYTES;
                data.copy_from(place(parts[0], parts[part]), &own, 0, len);
            }
            (Ok(_), _) => {}
        }
        if matches!(join.rest, Rest::Range { .. }) {
            self.go_on(key, to);
        }
        let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
        let done = join.outstanding == 0;
        let early = early && matches!(join.rest, Rest::Written(_)) && !join.answered;
        if !(done || early) {
            return None;
        }
        let answer = match &join.rest {
            Rest::Written(data) | Rest::Read { data, .. } => Answer::Data(data.clone()),
            _ => Answer::Done,
        };
        let result = whole.unwrap_or_else(|| join.failure.map_or(Ok(answer), Err));
        let answered = std::mem::replace(&mut join.answered, true);
        let reply = Reply { id: join.id, result };
        if done {
            self.joins.remove(key);
        }
        (!answered).then_some(reply)
    }
}

/// The bytes a request is about; a flush is about all.
const fn span_of<P>(op: &Op<P>) -> Option<ByteSpan> {
    match op {
        Op::Flush => None,
        Op::Read { span, .. }
        | Op::Write { span, .. }
        | Op::Trim { span, .. }
        | Op::Invalidate { span }
        | Op::WriteZeroes { span, .. } => Some(*span),
    }
}

/// Whether no shard will refuse its part for what it looks like.
fn is_sound<P>(span: ByteSpan, size_bytes: u64, op: &Op<P>) -> bool {
    let aligned = (span.offset | span.len).is_multiple_of(SECTOR_BYTES);
    let inside = span.offset.checked_add(span.len).is_some_and(|end| end <= size_bytes);
    let data = matches!(op, Op::Read { .. } | Op::Write { .. });
    aligned && inside && span.len > 0 && !(data && span.len > DATA_BYTES_MAX)
}

/// Where the blocks of a part lie in the buffer of the whole.
const fn place(whole: ByteSpan, part: ByteSpan) -> u64 {
    (part.first_block() - whole.first_block()) * BLOCK_BYTES
}

/// The same wish for a part of the range.
fn with_span<P>(op: &Op<P>, span: ByteSpan) -> Op<P> {
    match *op {
        Op::Trim { fua, .. } => Op::Trim { span, fua },
        Op::Invalidate { .. } => Op::Invalidate { span },
        Op::WriteZeroes { fua, may_punch, .. } => Op::WriteZeroes { span, fua, may_punch },
        Op::Read { .. } | Op::Write { .. } | Op::Flush => unreachable!("its parts are told apart"),
    }
}
