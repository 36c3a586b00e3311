//! One shard: its engine, the events that wait for it, its wake-up, and the binding of its volumes.
//!
//! A shard's engine names its volumes itself. Which volume of the driver such a name belongs to is
//! known when every shard has answered the attach, or when one of them has refused it; until then the
//! engine's I/O to that volume waits here.

use crate::health_news::HealthNews;
use crate::lost_ranges::bounded;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::shards::OWN_COMMAND;
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::{
    Action, Command, Engine, Event, IoDone, IoError, IoId, IoOp, IoRequest, Op, Payload, Reply,
    Request, RequestId, Target,
};

/// The doors of a shard: where its I/O, its replies and its wake-ups go.
pub trait ShardIo<P> {
    /// The driver's own name for a volume.
    type Volume: Copy + PartialEq;

    /// The engine has taken its events. Deadlines of what follows need not count the time it took.
    fn applied(&mut self) {}

    /// Starts an I/O on the cache device. Its offset counts from the device's first byte.
    fn start_on_cache(&mut self, shard: u32, id: IoId, op: IoOp<P>);

    /// Starts an I/O on a volume's backend.
    fn start_on_backend(&mut self, shard: u32, id: IoId, volume: Self::Volume, op: IoOp<P>);

    /// The engine has answered a request or a command.
    fn reply(&mut self, shard: u32, reply: Reply<P>);

    /// The engine wants to be woken then; [`Shard::wake`] keeps the earliest such instant.
    fn wake_at(&mut self, _at: Instant) {}

    /// A shard that is run away from its home wants to be woken earlier than that thread knows.
    fn tell_home(&mut self, _shard: u32, _home: usize, _at: Instant) {}

    /// How the engine is has changed; progress while it loads is not told. Threads that run the shard in
    /// turn may be heard in another order: [`KnownHealth`](crate::health_news::KnownHealth).
    fn health(&mut self, _shard: u32, _news: HealthNews) {}

    /// All events are taken; the shard is about to be let go of.
    fn letting_go(&mut self, _shard: u32) {}
}

/// Which volume of the driver's an engine's volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding<V> {
    /// This one.
    Volume(V),
    /// None: another shard refused it, and its I/O here fails.
    Refused,
}

/// See the module.
pub struct Shard<P, V> {
    pub number: u32,
    pub engine: Engine<P>,
    /// For the engine in the next batch.
    pub events: Vec<Event<P>>,
    /// Empty between two batches.
    actions: Vec<Action<P>>,
    /// When the engine wants to be woken.
    pub wake: Option<Instant>,
    /// The latest time that the engine was told: threads that run it in turn have looked at the clock
    /// at different moments.
    latest: Instant,
    /// By the engine's names.
    bindings: Vec<Option<Binding<V>>>,
    /// I/Os of volumes that are not bound yet.
    early: Vec<(VolumeId, IoId, IoOp<P>)>,
    /// Commands under way that may end a volume here.
    endings: Vec<Ending>,
    mutants: Mutants,
}

/// A command that may end a volume: the engine's name for it is free with the answer.
struct Ending {
    id: RequestId,
    volume: VolumeId,
    /// A seal ends it in any case, a detach only when it fails.
    seal: bool,
}

impl<P: Payload, V: Copy + PartialEq> Shard<P, V> {
    /// A shard of this number; the mutants are those of tests.
    pub fn new(number: u32, engine: Engine<P>, mutants: Mutants) -> Self {
        Self {
            number,
            engine,
            events: Vec::new(),
            actions: Vec::new(),
            wake: None,
            latest: Instant::default(),
            bindings: Vec::new(),
            early: Vec::new(),
            endings: Vec::new(),
            mutants,
        }
    }

    /// Wakes the engine if its time has come.
    pub fn look_at_time(&mut self, now: Instant) {
        if self.wake.is_some_and(|at| at <= now) {
            self.wake = None;
            if !self.mutants.is(Mutant::WakeForgotten) {
                self.events.push(Event::Wake);
            }
        }
    }

    /// Lets the engine take its events, and does what it says.
    pub fn apply(&mut self, now: Instant, io: &mut impl ShardIo<P, Volume = V>) {
        self.watch_for_endings(io);
        self.latest = self.latest.max(now);
        self.engine.apply(self.latest, &mut self.events, &mut self.actions);
        io.applied();
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Io(request) => self.start(request, io),
                Action::Reply(reply) => {
                    self.end_volume(&reply);
                    io.reply(self.number, reply);
                }
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                    io.wake_at(at);
                }
            }
        }
        self.actions = actions;
    }

    fn start(&mut self, request: IoRequest<P>, io: &mut impl ShardIo<P, Volume = V>) {
        let IoRequest { id, target, mut op } = request;
        match target {
            Target::Cache => {
                // Asked each time: another device may have another place for the region.
                if !self.mutants.is(Mutant::RegionNotAdded) {
                    op.shift(self.engine.superblock().region_start());
                }
                io.start_on_cache(self.number, id, op);
            }
            Target::Backend(volume) => self.start_on_backend(volume, id, op, io),
        }
    }

    fn start_on_backend(
        &mut self,
        volume: VolumeId,
        id: IoId,
        op: IoOp<P>,
        io: &mut impl ShardIo<P, Volume = V>,
    ) {
        match self.binding(volume) {
            Some(Binding::Volume(bound)) => io.start_on_backend(self.number, id, bound, op),
            Some(Binding::Refused) => {
                self.events.push(Event::IoDone(IoDone::new(id, Err(IoError::Io))));
            }
            // A heartbeat of a volume whose attach is not answered yet.
            None => self.early.push((volume, id, op)),
        }
    }

    fn binding(&self, volume: VolumeId) -> Option<Binding<V>> {
        self.bindings.get(usize::from(volume.0)).copied().flatten()
    }

    /// Binds a volume of the engine's, and starts its I/O that has waited for that.
    pub fn bind(
        &mut self,
        volume: VolumeId,
        binding: Binding<V>,
        io: &mut impl ShardIo<P, Volume = V>,
    ) {
        let place = usize::from(volume.0);
        if self.bindings.len() <= place {
            self.bindings.resize(place + 1, None);
        }
        self.bindings[place] = Some(binding);
        let early = std::mem::take(&mut self.early);
        for (volume, id, op) in early {
            self.start_on_backend(volume, id, op, io);
        }
    }

    /// Drops what is cached here of ranges of a volume that its server may have lost. The answer goes
    /// nowhere: who leads all shards has them all drop it, and repeats what could not be dropped.
    pub fn drop_lost(&mut self, volume: V, ranges: &[ByteSpan]) {
        let bound = Some(Binding::Volume(volume));
        let Some(place) = self.bindings.iter().position(|binding| *binding == bound) else {
            return;
        };
        let volume = VolumeId(place as u16);
        let Some((all, under_way)) = self.engine.invalidations(volume) else { return };
        // A server may have grown: what is not inside the engine's volume would be refused.
        for range in bounded(ranges, under_way).iter().filter(|range| range.offset < all.len) {
            let span = ByteSpan::new(range.offset, range.len.min(all.len - range.offset));
            let request = Request { id: OWN_COMMAND, volume, op: Op::Invalidate { span } };
            self.events.push(Event::Submit(request));
        }
    }

    /// A volume that is to be detached before it was bound is one that another shard refused.
    fn watch_for_endings(&mut self, io: &mut impl ShardIo<P, Volume = V>) {
        let before = self.endings.len();
        self.endings.extend(self.events.iter().filter_map(|event| match *event {
            Event::Control(id, Command::Detach(volume)) => Some(Ending { id, volume, seal: false }),
            Event::Control(id, Command::Seal(volume, _)) => Some(Ending { id, volume, seal: true }),
            _ => None,
        }));
        for at in before..self.endings.len() {
            let volume = self.endings[at].volume;
            let awaited = self.mutants.is(Mutant::RefusedVolumeAwaited);
            if self.binding(volume).is_none() && !awaited {
                self.bind(volume, Binding::Refused, io);
            }
        }
    }

    /// The engine may give the name to another volume now.
    fn end_volume(&mut self, reply: &Reply<P>) {
        if self.endings.is_empty() {
            return;
        }
        if let Some(at) = self.endings.iter().position(|ending| ending.id == reply.id) {
            let Ending { volume, seal, .. } = self.endings.swap_remove(at);
            let ends = seal || reply.result.is_err();
            if ends
                && !self.mutants.is(Mutant::BindingKept)
                && let Some(binding) = self.bindings.get_mut(usize::from(volume.0))
            {
                *binding = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
