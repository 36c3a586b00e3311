//! Guests' requests: as they are where one shard owns all of it, in parts otherwise.
//!
//! Data of a split request are copied to and from buffers of the parts: stripes are long, so splits
//! are rare. What is split goes to the shards a few parts at a time: one is always under way, so
//! that it goes on, and more as long as its volume and the whole have room for them. So the parts
//! under way are bounded, whatever guests ask for, and no tenant is refused for what another asked.
//! What overlaps parts that no shard has seen yet waits (see [`waiting`](super::waiting)).

use super::Routed;
use super::router::{Join, Phase, Router, id_of, refusal};
use crate::Bound;
use crate::limits::DATA_BYTES_MAX;
use crate::mutant::Mutant;
use crate::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES, VolumeId};
use crate::{Answer, Event, Failure, IoError, Op, Payload, Reply, Request, RequestId};
use smallvec::{SmallVec, smallvec};

/// A request under way.
pub(super) struct RequestJoin<P> {
    pub(super) id: RequestId,
    volume: VolumeId,
    outstanding: u32,
    pub(super) failure: Option<Failure>,
    rest: Rest<P>,
    /// Every shard was told that it has begun, and is to be told that it has ended.
    announced: bool,
    /// The requester has the answer already: a deliberate bug's.
    answered: bool,
}

/// What is to be done when parts are done.
enum Rest<P> {
    /// One part, of this shard: its answer is the answer.
    Whole(u32),
    /// A flush.
    Nothing,
    /// More than one part.
    Split(Box<Split<P>>),
}

/// A request that more than one shard has a part in.
struct Split<P> {
    op: Op<P>,
    /// What no shard has seen yet, in order.
    left: SmallVec<[ByteSpan; 2]>,
    /// Parts of a read or write, in the order in which they were sent.
    sent: Vec<ByteSpan>,
}

impl<P: Payload> RequestJoin<P> {
    /// Whether a request of these blocks must not overtake what is still to be sent of this one.
    pub(super) fn blocks(&self, first: u64, end: u64, writes: bool) -> bool {
        let Rest::Split(split) = &self.rest else { return false };
        let overlaps = |left: &ByteSpan| left.first_block() < end && first < left.end_block();
        (writes || !matches!(split.op, Op::Read { .. })) && split.left.iter().any(overlaps)
    }
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
        let Some(known) = self.volume(request.volume).filter(|v| v.phase == Phase::Attached) else {
            return Some(refusal(request.id, Failure::NoVolume));
        };
        let mut request = request;
        if !within(&mut request.op, known.size_bytes) {
            return Some(refusal(request.id, Failure::Invalid));
        }
        if known.ranges.is_empty() {
            self.admit(request, false, to);
        } else {
            self.admit_or_wait(request, to);
        }
        None
    }

    /// Sends a request on its way, or its first parts. `announced`: the shards know of it.
    pub(super) fn admit(
        &mut self,
        request: Request<P>,
        announced: bool,
        to: &mut impl FnMut(Routed<P>),
    ) {
        let Request { id, volume, op } = request;
        let known = self.volume(volume).expect("a volume that took the request");
        let (first, size) = (known.first, known.size_bytes);
        let join = |rest, announced| RequestJoin {
            id,
            volume,
            outstanding: 0,
            failure: None,
            rest,
            announced,
            answered: false,
        };
        let Some(span) = span_of(&op) else {
            let key = self.joins.insert(Join::Request(join(Rest::Nothing, false)));
            // A flush covers what any shard has written.
            let one = self.mutants.is(Mutant::FlushOfOneShard);
            for shard in 0..if one { 1 } else { self.map.shards() } {
                self.send(key, shard as usize, shard, op.clone(), to);
            }
            return;
        };
        let mut rest = span;
        // What a shard will refuse must not have been carried out in part by another.
        let sound = is_sound(span, size, &op);
        let (shard, part) = if sound { self.cut(first, &mut rest, &op) } else { (0, span) };
        if part == span {
            let key = self.joins.insert(Join::Request(join(Rest::Whole(shard), announced)));
            return self.send(key, 0, shard, op, to);
        }
        let announced = announced || self.announce(volume, &op, to);
        self.split += 1;
        let split = Split { op, left: smallvec![span], sent: Vec::new() };
        let split = Rest::Split(Box::new(split));
        let key = self.joins.insert(Join::Request(join(split, announced)));
        let known = self.volumes[usize::from(volume.0)].as_mut().expect("just seen");
        known.ranges.push(key);
        self.send_parts(key, to);
    }

    /// Cuts off a first part that one shard owns alone, and that is not too long.
    fn cut(&self, first: u32, span: &mut ByteSpan, op: &Op<P>) -> (u32, ByteSpan) {
        let (shard, part) = self.map.cut(first, span);
        assert!(shard < self.map.shards() && part.len > 0, "a part is some shard's");
        let len = self.bounds.part_bytes - part.offset % BLOCK_BYTES;
        let is_short = matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Flush);
        if part.len <= len || is_short {
            return (shard, part);
        }
        self.crossings.note(Bound::PartBytes);
        *span = ByteSpan::new(part.offset + len, part.len + span.len - len);
        (shard, ByteSpan::new(part.offset, len))
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

    /// Sends the next parts of a split request; what waited for them goes on.
    fn go_on(&mut self, key: usize, to: &mut impl FnMut(Routed<P>)) {
        let Join::Request(join) = &self.joins[key] else { unreachable!("a request") };
        let volume = join.volume;
        if self.send_parts(key, to) {
            self.release_waiting(volume, to);
        }
    }

    /// Sends the next parts of a split request, those first that others wait for; none after one
    /// has failed. Says whether there is less left to send.
    fn send_parts(&mut self, key: usize, to: &mut impl FnMut(Routed<P>)) -> bool {
        let mut sent = false;
        loop {
            let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
            let (volume, failed) = (join.volume, join.failure.is_some());
            let Rest::Split(split) = &mut join.rest else { return false };
            if split.left.is_empty() {
                return sent;
            }
            if failed {
                split.left.clear();
            } else if let Some(bound) = self.lacks_room(key) {
                self.crossings.note(bound);
                return sent;
            } else {
                self.send_next(key, to);
            }
            sent = true;
            if self.is_sent(key) {
                let known = self.volumes[usize::from(volume.0)].as_mut().expect("it has a request");
                known.ranges.retain(|other| *other != key);
            }
        }
    }

    /// Whether the shards have all of a request, or have all they will get.
    fn is_sent(&self, key: usize) -> bool {
        let Join::Request(join) = &self.joins[key] else { unreachable!("a request") };
        !matches!(&join.rest, Rest::Split(split) if !split.left.is_empty())
    }

    /// What keeps a part more of this request from being under way; nothing does the first one.
    fn lacks_room(&self, key: usize) -> Option<Bound> {
        let Join::Request(join) = &self.joins[key] else { unreachable!("a request") };
        let known = self.volume(join.volume).expect("it has a request");
        let (bounds, unbounded) = (&self.bounds, self.mutants.is(Mutant::PartsUnbounded));
        match join.outstanding as usize {
            0 => None,
            parts if parts >= bounds.parts => Some(Bound::Parts),
            _ if unbounded => None,
            _ if self.extra_parts >= bounds.extra_parts => Some(Bound::ExtraParts),
            _ if known.extra_parts >= bounds.volume_extra_parts => Some(Bound::VolumeExtraParts),
            _ => None,
        }
    }

    fn send_next(&mut self, key: usize, to: &mut impl FnMut(Routed<P>)) {
        let Join::Request(join) = &self.joins[key] else { unreachable!("a request") };
        let Rest::Split(split) = &join.rest else { unreachable!("it has parts left") };
        assert!(join.failure.is_none(), "nothing more is begun of a request that failed");
        let (volume, more) = (join.volume, join.outstanding > 0);
        let known = self.volume(volume).expect("it has a request");
        let (first, wanted) = (known.first, known.wanted());
        // Reads and writes are put together in order; they are short.
        let in_order = matches!(split.op, Op::Read { .. } | Op::Write { .. });
        let wanted = wanted.filter(|_| !in_order);
        let (place, mut span) = next_of(&split.left, wanted, self.map.stripe_bytes());
        let before = split.left[place].offset;
        let (shard, part) = self.cut(first, &mut span, &split.op);
        if more {
            self.extra_parts += 1;
            let unbounded = self.mutants.is(Mutant::PartsUnbounded);
            let bounded = self.extra_parts <= self.bounds.extra_parts;
            assert!(bounded || unbounded, "parts under way are bounded");
            self.volumes[usize::from(volume.0)].as_mut().expect("just seen").extra_parts += 1;
        }
        let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
        let Rest::Split(split) = &mut join.rest else { unreachable!("just seen") };
        split.left.remove(place);
        for piece in [span, ByteSpan::new(before, part.offset - before)] {
            if piece.len > 0 {
                split.left.insert(place, piece);
            }
        }
        debug_assert_eq!(self.extra_parts, self.parts_by_volume(), "parts of all volumes");
        let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
        let Rest::Split(split) = &mut join.rest else { unreachable!("just seen") };
        let number = split.sent.len();
        let op = split.part_op(part);
        self.send(key, if in_order { number } else { 0 }, shard, op, to);
    }

    /// Parts under way beside the first one of each request, as the volumes count them.
    fn parts_by_volume(&self) -> u32 {
        self.volumes.iter().flatten().map(|known| known.extra_parts).sum()
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
        assert!(join.outstanding > 0, "an answer to a part that was sent");
        join.outstanding -= 1;
        let (id, volume, announced) = (join.id, join.volume, join.announced);
        if let Rest::Whole(_) = join.rest {
            self.joins.remove(key);
            self.end_announced(volume, u32::from(announced), to);
            return Some(Reply { id, result });
        }
        match (result, &join.rest) {
            (Err(failure), _) => {
                join.failure.get_or_insert(failure);
            }
            (Ok(Answer::Data(own)), Rest::Split(split)) => split.take(part, &own),
            (Ok(_), _) => {}
        }
        if let Rest::Split(_) = join.rest {
            if join.outstanding > 0 {
                let known = self.volumes[usize::from(volume.0)].as_mut();
                let known = known.expect("it has a request");
                assert!(known.extra_parts > 0, "a part under way counts for its volume");
                assert!(self.extra_parts >= known.extra_parts, "and for all");
                known.extra_parts -= 1;
                self.extra_parts -= 1;
            }
            self.go_on(key, to);
        }
        let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
        let done = join.outstanding == 0;
        let early = self.mutants.is(Mutant::SplitAnsweredEarly) && join.is_write();
        if !(done || early && !join.answered) {
            return None;
        }
        let result = join.failure.map_or_else(|| Ok(join.answer()), Err);
        let answered = std::mem::replace(&mut join.answered, true);
        let reply = Reply { id, result };
        if done {
            assert!(self.is_sent(key), "a reply must not be early");
            self.joins.remove(key);
            self.end_announced(volume, u32::from(announced), to);
        }
        (!answered).then_some(reply)
    }

    /// Requests take longer than their volumes' bounds: what of them has not been sent never is, and
    /// the shards that have the rest hear of it. Gives the answers to those of which no shard has
    /// seen any. All at once: a back end that falls silent makes many late, and they share one look
    /// at what is under way.
    pub fn all_late(
        &mut self,
        mut ids: Vec<RequestId>,
        to: &mut impl FnMut(Routed<P>),
    ) -> Vec<Reply<P>> {
        ids.sort_unstable();
        let waited = self.take_waiting(&ids, to);
        let due = |join: &Join<P>| match join {
            Join::Request(join) => ids.binary_search(&join.id).is_ok(),
            Join::Command(_) => false,
        };
        let keys: Vec<usize> =
            self.joins.iter().filter(|(_, join)| due(join)).map(|(key, _)| key).collect();
        for key in keys {
            self.tell_late(key, to);
        }
        let timed_out = Failure::Io(IoError::TimedOut);
        waited.into_iter().map(|id| refusal(id, timed_out)).collect()
    }

    /// The same of one request.
    pub fn late(&mut self, id: RequestId, to: &mut impl FnMut(Routed<P>)) -> Option<Reply<P>> {
        self.all_late(vec![id], to).pop()
    }

    fn tell_late(&mut self, key: usize, to: &mut impl FnMut(Routed<P>)) {
        let Join::Request(join) = &mut self.joins[key] else { unreachable!("a request") };
        let first = self.volumes[usize::from(join.volume.0)].as_ref().map_or(0, |v| v.first);
        let shards = self.map.shards();
        let mut late = |shard: u32, part: usize| {
            to(Routed { shard, event: Event::Late(id_of(key, part)) });
        };
        match &mut join.rest {
            Rest::Whole(shard) => late(*shard, 0),
            Rest::Nothing => (0..shards).for_each(|shard| late(shard, shard as usize)),
            Rest::Split(split) => {
                // Those of trims and the like are not told apart.
                if split.sent.is_empty() {
                    (0..shards).for_each(|shard| late(shard, 0));
                }
                for (part, span) in split.sent.iter().enumerate() {
                    late(self.map.cut(first, &mut span.clone()).0, part);
                }
                join.failure.get_or_insert(Failure::Io(IoError::TimedOut));
                self.go_on(key, to);
            }
        }
    }
}

impl<P: Payload> RequestJoin<P> {
    const fn is_write(&self) -> bool {
        matches!(&self.rest, Rest::Split(split) if matches!(split.op, Op::Write { .. }))
    }

    /// What a split request or a flush that went well is answered.
    fn answer(&self) -> Answer<P> {
        match &self.rest {
            Rest::Split(split) => match &split.op {
                Op::Read { data, .. } | Op::Write { data, .. } => Answer::Data(data.clone()),
                _ => Answer::Done,
            },
            Rest::Whole(_) | Rest::Nothing => Answer::Done,
        }
    }
}

impl<P: Payload> Split<P> {
    /// What the shard of a part is asked.
    fn part_op(&mut self, part: ByteSpan) -> Op<P> {
        match &self.op {
            Op::Read { .. } => {
                self.sent.push(part);
                Op::Read { span: part, data: P::alloc(part.blocks() as u32) }
            }
            Op::Write { span, data, fua } => {
                self.sent.push(part);
                let own = P::alloc(part.blocks() as u32);
                own.copy_from(0, data, place(*span, part), part.blocks() * BLOCK_BYTES);
                Op::Write { span: part, data: own, fua: *fua }
            }
            Op::Trim { fua, .. } => Op::Trim { span: part, fua: *fua },
            Op::Invalidate { .. } => Op::Invalidate { span: part },
            Op::WriteZeroes { fua, may_punch, .. } => {
                Op::WriteZeroes { span: part, fua: *fua, may_punch: *may_punch }
            }
            Op::Flush => unreachable!("it has no parts"),
        }
    }

    /// Takes what a shard has read.
    fn take(&self, part: usize, own: &P) {
        if let Op::Read { span, data } = &self.op {
            let part = self.sent[part];
            data.copy_from(place(*span, part), own, 0, part.blocks() * BLOCK_BYTES);
        }
    }
}

/// Where to go on, and with what: the stripe where `wanted` begins, if that is left, or the first.
fn next_of(left: &[ByteSpan], wanted: Option<ByteSpan>, stripe_bytes: u64) -> (usize, ByteSpan) {
    let overlaps = |piece: &ByteSpan, wanted: &ByteSpan| {
        piece.first_block() < wanted.end_block() && wanted.first_block() < piece.end_block()
    };
    let found = wanted.and_then(|wanted| {
        let place = left.iter().position(|piece| overlaps(piece, &wanted))?;
        let piece = left[place];
        let stripe = wanted.offset / stripe_bytes * stripe_bytes;
        let start = stripe.max(piece.offset);
        Some((place, ByteSpan::new(start, piece.end() - start)))
    });
    found.unwrap_or((0, left[0]))
}

/// The bytes a request is about; a flush is about all.
pub(super) const fn span_of<P>(op: &Op<P>) -> Option<ByteSpan> {
    match op {
        Op::Flush => None,
        Op::Read { span, .. }
        | Op::Write { span, .. }
        | Op::Trim { span, .. }
        | Op::Invalidate { span }
        | Op::WriteZeroes { span, .. } => Some(*span),
    }
}

/// Whether a request is within a volume of so many bytes. While a volume grows, some shards know of
/// more, and would take for their own what belongs to all. An invalidation is cut off: nothing is
/// cached beyond.
fn within<P>(op: &mut Op<P>, size_bytes: u64) -> bool {
    if let Op::Invalidate { span } = op
        && span.offset < size_bytes
    {
        span.len = span.len.min(size_bytes - span.offset);
    }
    let end = span_of(op).map_or(Some(0), |span| span.offset.checked_add(span.len));
    end.is_some_and(|end| end <= size_bytes)
}

/// Whether no shard will refuse its part for what it looks like.
pub(super) fn is_sound<P>(span: ByteSpan, size_bytes: u64, op: &Op<P>) -> bool {
    let aligned = (span.offset | span.len).is_multiple_of(SECTOR_BYTES);
    let inside = span.offset.checked_add(span.len).is_some_and(|end| end <= size_bytes);
    let data = matches!(op, Op::Read { .. } | Op::Write { .. });
    aligned && inside && span.len > 0 && !(data && span.len > DATA_BYTES_MAX)
}

/// Where the blocks of a part lie in the buffer of the whole.
const fn place(whole: ByteSpan, part: ByteSpan) -> u64 {
    (part.first_block() - whole.first_block()) * BLOCK_BYTES
}
