//! Requests under way: admission, range locks, completion. What each kind does is in its own file.

use super::Engine;
use super::read::ReadState;
use super::write::WriteState;
use super::zero::ZeroState;
use crate::bounds::{Bound, Bounds};
use crate::limits::{DATA_BYTES_MAX, VOLUME_BLOCKS_MAX};
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{Answer, Failure, IoError, IoOp, Op, Payload, Request, RequestId, Target};
use crate::units::{ByteSpan, SECTOR_BYTES, VolumeId};
use crate::volume::{Covers, Volume, VolumeState};

/// A request under way.
#[derive(Debug)]
pub(super) struct Active<P> {
    pub(super) id: RequestId,
    pub(super) volume: u16,
    /// I/Os that it waits for.
    pub(super) outstanding: u32,
    pub(super) failure: Option<IoError>,
    /// It takes too long.
    pub(super) late: bool,
    /// The guest has its answer; nothing waits for the rest.
    pub(super) answered: bool,
    /// It has a range lock, or waits for one.
    pub(super) locked: bool,
    /// It has them.
    pub(super) granted: bool,
    /// It waits for nothing but the end of I/O that was given up: no blocks, no part of its volume.
    pub(super) parked: bool,
    /// It is parked, and its volume has gone.
    pub(super) orphan: bool,
    pub(super) kind: Kind<P>,
}

/// What a request is and how far it has got.
#[derive(Debug)]
pub(super) enum Kind<P> {
    Read(ReadState<P>),
    Write(WriteState<P>),
    Zero(ZeroState<P>),
    Flush,
}

impl<P: Payload> Kind<P> {
    /// What is done of a request, when nothing has been done yet.
    fn of(op: Op<P>) -> Self {
        match op {
            Op::Read { span, data } => Self::Read(ReadState::new(span, data)),
            Op::Write { span, data, fua } => Self::Write(WriteState::new(span, data, fua)),
            Op::Flush => Self::Flush,
            Op::Trim { span, fua } => Self::Zero(ZeroState::new(span, fua, true, true)),
            Op::Invalidate { span } => Self::Zero(ZeroState::invalidate(span)),
            Op::WriteZeroes { span, fua, may_punch } => {
                Self::Zero(ZeroState::new(span, fua, false, may_punch))
            }
        }
    }
}

impl<P: Payload> Engine<P> {
    /// A guest's request arrives: refused, started, or waiting for its blocks.
    pub(super) fn submit(&mut self, request: Request<P>) {
        let Request { id, volume, op } = request;
        let index = usize::from(volume.0);
        let invalidates = matches!(op, Op::Invalidate { .. });
        let apart = (self.late + self.invalidations) as usize;
        assert!(apart <= self.requests.len(), "what is late is not counted as an invalidation");
        let guests = self.requests.len() - apart;
        // What a server has lost must be known before its next flush covers it.
        let always = invalidates && !self.config.mutants.is(Mutant::InvalidationRefused);
        let room = always || guests < self.config.bounds.requests;
        let Some(Some(state)) = self.volumes.get_mut(index) else {
            return self.outbox.reply(id, Err(Failure::NoVolume));
        };
        let late = self.late;
        // It is about to be flushed for the last time, which must not cover what this is about.
        if invalidates
            && state.state != VolumeState::Attached
            && !self.config.mutants.is(Mutant::LastInvalidationForgotten)
        {
            state.discarded = true;
        }
        if let Err(failure) = check(state, &op, room, late, &self.config.bounds) {
            state.counters.refused += 1;
            match failure {
                Failure::Limit => self.store.crossings.note(Bound::Requests),
                Failure::Io(_) if state.late >= self.config.bounds.volume_late => {
                    self.store.crossings.note(Bound::VolumeLate);
                }
                Failure::Io(_) => self.store.crossings.note(Bound::Late),
                _ => {}
            }
            return self.outbox.reply(id, Err(failure));
        }
        state.requests += 1;
        state.invalidations += u32::from(invalidates);
        self.invalidations += u32::from(invalidates);
        let lock = match &op {
            Op::Read { span, .. } => Some((*span, false)),
            Op::Write { span, .. }
            | Op::Trim { span, .. }
            | Op::WriteZeroes { span, .. }
            | Op::Invalidate { span } => Some((*span, true)),
            Op::Flush => None,
        };
        let in_volume = |(span, _): (ByteSpan, bool)| span.end_block() <= VOLUME_BLOCKS_MAX;
        assert!(lock.is_none_or(in_volume), "no volume is larger than a key can name");
        let careless = self.config.mutants.is(Mutant::FillNotRevalidated);
        let lock = lock.filter(|(_, exclusive)| *exclusive || !careless);
        let locked = lock.is_some();
        let active = Active {
            id,
            volume: volume.0,
            outstanding: 0,
            failure: None,
            late: false,
            answered: false,
            locked,
            granted: false,
            parked: false,
            orphan: false,
            kind: Kind::of(op),
        };
        let request = self.requests.insert(active);
        let granted = lock.is_none_or(|(span, exclusive)| {
            state.locks.enter(request, span.first_block(), span.end_block(), exclusive)
        });
        if granted {
            self.start(request);
        }
    }

    /// Starts a request that has its blocks, or goes on with one that paused: it waits for no I/O.
    pub(super) fn start(&mut self, request: usize) {
        let active = &mut self.requests[request];
        assert!(active.outstanding == 0 && !active.parked, "nothing of it is under way");
        active.granted = true;
        match &active.kind {
            Kind::Read(state) if state.again => self.read_again(request),
            Kind::Read(_) => self.start_read(request),
            Kind::Write(_) => self.start_write(request),
            Kind::Zero(_) => self.advance_zero(request),
            Kind::Flush => self.start_flush(request),
        }
    }

    /// A flush covers every write replied to before: those have reached the backend, so flushing
    /// that is all there is to do.
    fn start_flush(&mut self, request: usize) {
        let index = self.requests[request].volume;
        let volume = self.volume(index);
        volume.counters.flushes += 1;
        if volume.spec.read_only {
            return self.finish(request);
        }
        self.backend_flush(request);
    }

    pub(super) fn backend_flush(&mut self, request: usize) {
        let volume = self.requests[request].volume;
        if let Some(error) = self.volume(volume).sync_failed {
            self.requests[request].failure.get_or_insert(error);
            return self.finish(request);
        }
        self.volume(volume).counters.backend_flushes += 1;
        let covers = self.covers(volume);
        self.start_backend_io(request, IoOp::Flush, Some(covers));
    }

    /// Starts a backend operation of a request that writes, trims or reads;
    /// [`backend_done`](Self::backend_done) goes on.
    pub(super) fn backend_io(&mut self, request: usize, op: IoOp<P>) {
        if !matches!(op, IoOp::Read { .. }) {
            self.note_written(self.requests[request].volume, false);
        }
        self.start_backend_io(request, op, None);
    }

    fn start_backend_io(&mut self, request: usize, op: IoOp<P>, covers: Option<Covers>) {
        let active = &mut self.requests[request];
        let locked = active.locked || matches!(active.kind, Kind::Flush);
        assert!(active.granted && locked, "the backend is asked only for what is locked");
        active.outstanding += 1;
        let target = Target::Backend(VolumeId(active.volume));
        self.outbox.io(target, op, Pending::Backend { request, covers });
    }

    /// A backend write, trim, zero or flush has ended.
    pub(super) fn backend_done(
        &mut self,
        request: usize,
        covers: Option<Covers>,
        result: Result<(), IoError>,
    ) {
        let volume = self.requests[request].volume;
        let result = if let Some(covers) = covers {
            self.flush_ended(volume, covers, result)
        } else {
            self.note_written(volume, true);
            result
        };
        let active = &mut self.requests[request];
        assert!(active.outstanding > 0, "an I/O that ends was waited for");
        active.outstanding -= 1;
        if let Kind::Zero(_) = active.kind {
            return self.zero_step_done(request, result);
        }
        self.note_backend_result(request, result);
        self.finish_if_done(request);
    }

    /// Remembers the first failure of a request.
    pub(super) fn note_backend_result(&mut self, request: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            let active = &mut self.requests[request];
            active.failure.get_or_insert(error);
            let volume = active.volume;
            self.volume(volume).counters.backend_errors += 1;
        }
    }

    pub(super) fn finish_if_done(&mut self, request: usize) {
        let active = &self.requests[request];
        if active.outstanding > 0 {
            return;
        }
        if let Kind::Write(_) = active.kind {
            self.write_io_done(request);
        } else {
            self.finish(request);
        }
    }

    /// Answers a request, lets go of its blocks and of the request.
    pub(super) fn finish(&mut self, request: usize) {
        let active = self.requests.remove(request);
        assert_eq!(active.outstanding, 0, "a reply must not be early");
        assert!(!active.parked, "what is parked has left its volume already");
        let direct = matches!(&active.kind, Kind::Read(state) if state.direct > 0);
        assert!(!direct, "nothing is written to a guest's memory after the reply");
        if let Kind::Zero(state) = &active.kind
            && state.invalidates()
        {
            assert!(active.late || self.invalidations > 0, "an invalidation under way counts");
            self.invalidations -= u32::from(!active.late);
            self.invalidation_ends(active.volume);
        }
        let answer = match active.kind {
            Kind::Read(ReadState { data, .. }) | Kind::Write(WriteState { data, .. }) => {
                Answer::Data(data)
            }
            Kind::Zero(_) | Kind::Flush => Answer::Done,
        };
        let result = active.failure.map_or(Ok(answer), |error| Err(Failure::Io(error)));
        if !active.answered {
            self.outbox.reply(active.id, result);
        }
        if active.late {
            self.not_late(active.volume);
        }
        self.leave(request, active.locked, active.volume);
    }

    /// A request lets go of its blocks and of its volume.
    pub(super) fn leave(&mut self, request: usize, locked: bool, index: u16) {
        let (ready, requests) = (&mut self.ready, &mut self.requests);
        let volume = self.volumes[usize::from(index)].as_mut().expect("has requests");
        if locked {
            volume.locks.leave(request, |granted| {
                assert!(!requests[granted].granted, "who waits does not have its blocks");
                requests[granted].granted = true;
                ready.push_back(granted);
            });
        }
        assert!(volume.requests > volume.late, "a request under way counts; late ones do twice");
        volume.requests -= 1;
        self.detach_if_quiet(index);
    }

    /// A volume that is known to exist because it has a request or command under way.
    pub(super) fn volume(&mut self, index: u16) -> &mut Volume {
        self.volumes[usize::from(index)].as_mut().expect("a volume in use")
    }
}

/// Whether a request can be served.
fn check<P>(
    volume: &Volume,
    op: &Op<P>,
    room: bool,
    late: u32,
    bounds: &Bounds,
) -> Result<(), Failure> {
    if volume.state != VolumeState::Attached {
        return Err(Failure::NoVolume);
    }
    if !room {
        return Err(Failure::Limit);
    }
    // Its backend is silent, and what it was asked before may still land: enough of that. What is
    // to be dropped does not concern the backend, and is served as long as it is not.
    let asks = !matches!(op, Op::Invalidate { .. });
    let silent = volume.late >= bounds.volume_late || volume.late > 0 && late >= bounds.late;
    if asks && silent {
        return Err(Failure::Io(IoError::TimedOut));
    }
    let (span, writes, data) = match op {
        Op::Flush => return Ok(()),
        Op::Read { span, .. } => (span, false, true),
        Op::Write { span, .. } => (span, true, true),
        Op::Trim { span, .. } | Op::WriteZeroes { span, .. } => (span, true, false),
        Op::Invalidate { span } => (span, false, false),
    };
    let aligned = span.offset.is_multiple_of(SECTOR_BYTES) && span.len.is_multiple_of(SECTOR_BYTES);
    let inside = span.offset.checked_add(span.len).is_some_and(|end| end <= volume.spec.size_bytes);
    if !aligned || span.len == 0 || !inside || (data && span.len > DATA_BYTES_MAX) {
        return Err(Failure::Invalid);
    }
    if writes && volume.spec.read_only {
        return Err(Failure::ReadOnly);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::engine::Engine;
    use crate::engine::rig::{Nothing, Rig, volume};
    use crate::seam::{Action, Command, Event, IoDone, Op, Request, RequestId};
    use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};

    /// Guests of two volumes, drawn by a seed: one has a hundred requests under way, the other one a few. Each
    /// that comes looks at the locks of its own volume once, each that ends twice.
    fn looks(mut seed: u64) {
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut rig = Rig::new(Engine::without_device(Config::default()));
        rig.ask(["deep", "shallow"].map(|name| Command::Attach(volume(name))).into());
        let (mut ios, mut actions) = (Vec::new(), Vec::new());
        for number in 0..2000 {
            let requests = |engine: &Engine<Nothing>| {
                [0, 1].map(|at: usize| engine.volumes[at].as_ref().expect("attached").requests)
            };
            let before = requests(&rig.engine);
            let at = usize::from(draw(50) == 0);
            let depth = [100, 3][at];
            let event = if before[at] < depth && (ios.is_empty() || draw(3) > 0) {
                let span = ByteSpan::new(draw(60) * BLOCK_BYTES, (1 + draw(4)) * BLOCK_BYTES);
                let op = Op::Read { span, data: Nothing };
                let volume = VolumeId(at as u16);
                Event::Submit(Request { id: RequestId(1000 + number), volume, op })
            } else {
                Event::IoDone(IoDone::new(ios.swap_remove(draw(ios.len() as u64) as usize), Ok(())))
            };
            let comes = matches!(event, Event::Submit(_));
            rig.engine.apply(rig.now, &mut vec![event], &mut actions);
            ios.extend(actions.drain(..).filter_map(|action| match action {
                Action::Io(io) => Some(io.id),
                _ => None,
            }));
            for (of, before) in before.into_iter().enumerate() {
                let locks = &mut rig.engine.volumes[of].as_mut().expect("attached").locks;
                let looked_at = std::mem::take(&mut locks.looked_at);
                let most = match comes {
                    true if of == at => before as usize,
                    true => 0,
                    false => 2 * before as usize,
                };
                assert!(looked_at <= most, "seed {seed}, {number}: {looked_at} of volume {of}");
            }
        }
    }

    #[test]
    fn a_request_looks_at_locks_of_its_own_volume_alone() {
        let seeds = std::env::var("CINNABAR_RUNS").map_or(20, |n| n.parse().expect("a number"));
        (0..seeds).for_each(looks);
    }
}
