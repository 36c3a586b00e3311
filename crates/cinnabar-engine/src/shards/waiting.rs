//! Requests that wait in the router: what they touch is a part of an earlier request that no shard has
//! seen yet, and must not be overtaken.
//!
//! Within a shard, range locks keep the order of arrival; this is the same for what is still to come to a
//! shard. So a write never overtakes a trim, and nothing is read from the cache that an
//! invalidation, once accepted, has yet to reach. They go on in order of arrival, and the parts that
//! the first of them waits for are sent next.
//!
//! An invalidation whose parts do not reach their shards at once is announced to all of them: what it
//! is about may be lost, and a flush that ends before they have heard of it would cover it.

use super::Routed;
use super::requests::{is_sound, span_of};
use super::router::{Join, RoutedVolume, Router};
use crate::mutant::Mutant;
use crate::units::{ByteSpan, VolumeId};
use crate::{Event, Op, Payload, Request, RequestId};

impl<P: Payload> RoutedVolume<P> {
    /// What is to be sent next, for the first request that waits.
    pub(super) fn wanted(&self) -> Option<ByteSpan> {
        self.waiting.front().and_then(|request| span_of(&request.op))
    }
}

impl<P: Payload> Router<P> {
    /// Admits a request of a volume that has split requests with parts left to send, unless it has
    /// to wait.
    pub(super) fn admit_or_wait(&mut self, request: Request<P>, to: &mut impl FnMut(Routed<P>)) {
        let known = self.volume(request.volume).expect("just seen");
        assert!(!known.ranges.is_empty(), "there is something to wait for");
        // One that a shard will refuse need not wait for that.
        let sound = |span: &ByteSpan| is_sound(*span, known.size_bytes, &request.op);
        let waits = span_of(&request.op).filter(sound).is_some_and(|span| {
            let (first, end, writes) = (span.first_block(), span.end_block(), writes(&request.op));
            let behind = |other: &Request<P>| {
                let span = span_of(&other.op).expect("a flush does not wait");
                let overlaps = span.first_block() < end && first < span.end_block();
                overlaps && (writes || self::writes(&other.op))
            };
            self.is_blocked(known, first, end, writes) || known.waiting.iter().any(behind)
        });
        if waits && !self.mutants.is(Mutant::PartsOvertaken) {
            self.announce(request.volume, &request.op, to);
            let known = self.volumes[usize::from(request.volume.0)].as_mut().expect("just seen");
            known.waiting.push_back(request);
        } else {
            self.admit(request, false, to);
        }
    }

    /// Is every shard told of such a request before it has its parts?
    fn is_announced(&self, op: &Op<P>) -> bool {
        matches!(op, Op::Invalidate { .. }) && !self.mutants.is(Mutant::InvalidationInParts)
    }

    /// Tells every shard that an invalidation has begun; says whether this is one.
    pub(super) fn announce(
        &mut self,
        volume: VolumeId,
        op: &Op<P>,
        to: &mut impl FnMut(Routed<P>),
    ) -> bool {
        let announced = self.is_announced(op);
        if announced {
            self.volumes[usize::from(volume.0)].as_mut().expect("just seen").announced += 1;
            self.tell_every_shard(volume, Event::Invalidating, to);
        }
        announced
    }

    /// Tells every shard that so many invalidations have ended; a detach that waited for them goes on.
    pub(super) fn end_announced(
        &mut self,
        volume: VolumeId,
        ended: u32,
        to: &mut impl FnMut(Routed<P>),
    ) {
        if ended == 0 {
            return;
        }
        let known = self.volumes[usize::from(volume.0)].as_mut().expect("it has a request");
        assert!(known.announced >= ended, "what has ended was announced");
        known.announced -= ended;
        for _ in 0..ended {
            self.tell_every_shard(volume, Event::Invalidated, to);
        }
        self.detach_if_sent(volume, to);
    }

    fn tell_every_shard(
        &self,
        volume: VolumeId,
        event: impl Fn(VolumeId) -> Event<P>,
        to: &mut impl FnMut(Routed<P>),
    ) {
        for shard in 0..self.map.shards() {
            let inner =
                self.inner(volume, shard).expect("an attached volume is known to every shard");
            to(Routed { shard, event: event(inner) });
        }
    }

    /// Whether one of these blocks is in a part that is still to be sent.
    fn is_blocked(&self, known: &RoutedVolume<P>, first: u64, end: u64, writes: bool) -> bool {
        known.ranges.iter().any(|key| match &self.joins[*key] {
            Join::Request(join) => join.blocks(first, end, writes),
            Join::Command(_) => unreachable!("a request"),
        })
    }

    /// Parts of a request have been sent, or never will be: those that waited for them go on, and
    /// so does a detach if there are no more.
    pub(super) fn release_waiting(&mut self, volume: VolumeId, to: &mut impl FnMut(Routed<P>)) {
        let index = usize::from(volume.0);
        loop {
            let known = self.volumes[index].as_ref().expect("it has a request");
            let Some(first) = known.waiting.front() else { break };
            let span = span_of(&first.op).expect("a flush does not wait");
            if self.is_blocked(known, span.first_block(), span.end_block(), writes(&first.op)) {
                return;
            }
            let known = self.volumes[index].as_mut().expect("just seen");
            let request = known.waiting.pop_front().expect("just seen");
            let announced = self.is_announced(&request.op);
            self.admit(request, announced, to);
        }
        self.detach_if_sent(volume, to);
    }

    /// Takes requests out of those that wait; gives which of the `ids`, which are sorted, it took.
    pub(super) fn take_waiting(
        &mut self,
        ids: &[RequestId],
        to: &mut impl FnMut(Routed<P>),
    ) -> Vec<RequestId> {
        let mut taken = Vec::new();
        for index in 0..self.volumes.len() {
            let Some(known) = &mut self.volumes[index] else { continue };
            let mut waiting = std::mem::take(&mut known.waiting);
            let (before, mut announced) = (taken.len(), 0);
            waiting.retain(|request| {
                let late = ids.binary_search(&request.id).is_ok();
                taken.extend(late.then_some(request.id));
                announced += u32::from(late && self.is_announced(&request.op));
                !late
            });
            self.volumes[index].as_mut().expect("just seen").waiting = waiting;
            if taken.len() > before {
                self.release_waiting(VolumeId(index as u16), to);
                self.end_announced(VolumeId(index as u16), announced, to);
            }
        }
        taken
    }
}

/// Whether a request excludes readers.
const fn writes<P>(op: &Op<P>) -> bool {
    !matches!(op, Op::Read { .. } | Op::Flush)
}
