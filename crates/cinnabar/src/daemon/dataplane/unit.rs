//! One engine on a data thread: what it is told, what it says, whose its I/O is.

use super::clock::Clock;
use super::desk::Desk;
use cinnabar_backend::Memory;
use cinnabar_backend::port::doubts;
use cinnabar_engine::shards::OWN_COMMAND;
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::{
    Action, Command, Engine, Event, IoDone, IoError, IoId, IoOp, IoRequest, Op, Reply, Request,
    RequestId, Target,
};

/// See the module.
pub(super) struct Unit {
    pub(super) shard: u32,
    pub(super) engine: Engine<Memory>,
    /// For the engine in the next batch.
    pub(super) events: Vec<Event<Memory>>,
    actions: Vec<Action<Memory>>,
    /// When the engine wants to be woken.
    pub(super) wake: Option<Instant>,
    /// Whose its volumes are, by its names for them.
    volumes: Vec<Option<Whose>>,
    /// I/Os of volumes whose attach has not been answered yet.
    early: Vec<(VolumeId, IoId, IoOp<Memory>)>,
    /// Commands under way that may end a volume here.
    endings: Vec<Ending>,
}

/// A command that may end a volume: its name is free with the answer.
struct Ending {
    id: RequestId,
    volume: VolumeId,
    /// A seal ends it in any case, a detach only when it fails.
    seal: bool,
}

/// Whose a volume is that an engine has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The plane's volume of this key.
    Volume(usize),
    /// Another shard refused it: its I/O fails.
    Nobodys,
}

impl Unit {
    pub(super) fn new(shard: u32, engine: Engine<Memory>) -> Self {
        Self {
            shard,
            engine,
            events: Vec::new(),
            actions: Vec::new(),
            wake: None,
            volumes: Vec::new(),
            early: Vec::new(),
            endings: Vec::new(),
        }
    }

    /// Wakes the engine if its time has come.
    pub(super) fn look_at_time(&mut self, now: Instant) {
        if self.wake.is_some_and(|at| at <= now) {
            self.wake = None;
            self.events.push(Event::Wake);
        }
    }

    /// Lets the engine take its events, and does what it says but for the replies.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        clock: Clock,
        desk: &mut Desk,
        mut reply: impl FnMut(Reply<Memory>),
    ) {
        self.watch_for_endings(now, desk);
        self.engine.apply(now, &mut self.events, &mut self.actions);
        // Deadlines don't count what the batch itself took.
        let then = clock.now();
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Io(request) => self.start(then, request, desk),
                Action::Reply(said) => {
                    self.end_volume(&said);
                    reply(said);
                }
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                }
                Action::Sample(_) => {}
            }
        }
        self.actions = actions;
    }

    fn start(&mut self, now: Instant, request: IoRequest<Memory>, desk: &mut Desk) {
        let IoRequest { id, target, op } = request;
        match target {
            Target::Cache => {
                // Where its region begins; another device may have another place for it.
                let base = self.engine.superblock().region_start();
                desk.cache_io(now, (self.shard, id), base, op);
            }
            Target::Backend(volume) => self.start_on_backend(now, volume, id, op, desk),
        }
    }

    fn start_on_backend(
        &mut self,
        now: Instant,
        volume: VolumeId,
        id: IoId,
        op: IoOp<Memory>,
        desk: &mut Desk,
    ) {
        match self.volumes.get(usize::from(volume.0)).copied().flatten() {
            Some(Whose::Volume(key)) => desk.backend_io(now, (self.shard, id), key, op),
            Some(Whose::Nobodys) => {
                self.events.push(Event::IoDone(IoDone::new(id, Err(IoError::Io))));
            }
            // A heartbeat of a volume whose attach is not answered yet.
            None => self.early.push((volume, id, op)),
        }
    }

    /// It is known whose a volume is, and what was asked of it can be done.
    pub(super) fn bind(&mut self, now: Instant, inner: VolumeId, whose: Whose, desk: &mut Desk) {
        let place = usize::from(inner.0);
        if self.volumes.len() <= place {
            self.volumes.resize(place + 1, None);
        }
        self.volumes[place] = Some(whose);
        let early = std::mem::take(&mut self.early);
        for (volume, id, op) in early {
            self.start_on_backend(now, volume, id, op, desk);
        }
    }

    /// Drops what is cached here of a volume's ranges, which its server may have lost. Nobody waits for
    /// the answer: the plane sees to all shards, and to what can't be dropped.
    pub(super) fn drop_lost(&mut self, key: usize, ranges: &[ByteSpan]) {
        let whose = Some(Whose::Volume(key));
        let Some(place) = self.volumes.iter().position(|volume| *volume == whose) else { return };
        let volume = VolumeId(place as u16);
        let Some((all, under_way)) = self.engine.invalidations(volume) else { return };
        for range in doubts(ranges, under_way).iter().filter(|range| range.offset < all.len) {
            let span = ByteSpan::new(range.offset, range.len.min(all.len - range.offset));
            let request = Request { id: OWN_COMMAND, volume, op: Op::Invalidate { span } };
            self.events.push(Event::Submit(request));
        }
    }

    /// A volume that is to be detached before anybody bound it is one that another shard refused.
    fn watch_for_endings(&mut self, now: Instant, desk: &mut Desk) {
        let endings = self.events.iter().filter_map(|event| match *event {
            Event::Control(id, Command::Detach(volume)) => Some(Ending { id, volume, seal: false }),
            Event::Control(id, Command::Seal(volume, _)) => Some(Ending { id, volume, seal: true }),
            _ => None,
        });
        let before = self.endings.len();
        self.endings.extend(endings);
        for at in before..self.endings.len() {
            let volume = self.endings[at].volume;
            if self.volumes.get(usize::from(volume.0)).copied().flatten().is_none() {
                self.bind(now, volume, Whose::Nobodys, desk);
            }
        }
    }

    /// The engine may give the name to another volume now.
    fn end_volume(&mut self, reply: &Reply<Memory>) {
        if self.endings.is_empty() {
            return;
        }
        if let Some(at) = self.endings.iter().position(|ending| ending.id == reply.id) {
            let Ending { volume, seal, .. } = self.endings.swap_remove(at);
            if seal || reply.result.is_err() {
                self.volumes[usize::from(volume.0)] = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_backend::port;
    use cinnabar_engine::units::BLOCK_BYTES;
    use cinnabar_engine::volume::VolumeSpec;
    use cinnabar_engine::{Answer, Config};
    use std::time::Duration;

    /// A server may have grown, and ranges are coarse where there are many: what is not inside the
    /// engine's volume would be refused.
    #[test]
    fn what_a_server_lost_goes_to_its_volume_as_far_as_there_is_volume() {
        let port = port::open(port::IoMode::Threads).expect("a port");
        let mut desk = Desk::new(port, Duration::ZERO);
        let mut unit = Unit::new(0, Engine::without_device(Config::default()));
        let spec = VolumeSpec::new("v".into(), 8 * BLOCK_BYTES);
        unit.events.push(Event::Control(RequestId(1), Command::Attach(spec)));
        let (clock, mut named) = (Clock::start(), None);
        unit.apply(clock.now(), clock, &mut desk, |reply| {
            if let Ok(Answer::Attached { volume, .. }) = reply.result {
                named = Some(volume);
            }
        });
        let volume = named.expect("it is attached");
        let beyond = ByteSpan::new(1 << 30, BLOCK_BYTES);
        let lost = [ByteSpan::new(BLOCK_BYTES, 1 << 40), beyond];
        unit.drop_lost(5, &lost);
        assert!(unit.events.is_empty(), "nobody knows whose it is");
        unit.bind(clock.now(), volume, Whose::Volume(5), &mut desk);
        unit.drop_lost(4, &lost);
        assert!(unit.events.is_empty(), "another volume's");
        unit.drop_lost(5, &lost);
        let [Event::Submit(request)] = &unit.events[..] else { panic!("one is to be dropped") };
        assert_eq!((request.id, request.volume), (OWN_COMMAND, volume));
        let Op::Invalidate { span } = request.op else { panic!("{:?}", request.op) };
        assert_eq!(span, ByteSpan::new(BLOCK_BYTES, 7 * BLOCK_BYTES));
        drop(unit);
        desk.end();
    }
}
