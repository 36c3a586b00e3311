//! One shard over doors that write down what goes through.

use super::*;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Answer, Config, Failure};

/// Data that are not there.
#[derive(Clone, Debug)]
struct NoData;

impl Payload for NoData {
    fn alloc(_: u32) -> Self {
        Self
    }
    fn copy_from(&self, _: u64, _: &Self, _: u64, _: u64) {}
    fn zero(&self, _: u64, _: u64) {}
    fn checksum(&self, _: u64, _: u64) -> u32 {
        0
    }
}

#[derive(Default)]
struct Doors {
    /// Of each I/O on a backend: the driver's volume and the engine's id.
    backend: Vec<(usize, IoId)>,
    replies: Vec<Reply<NoData>>,
}

impl ShardIo<NoData> for Doors {
    type Volume = usize;

    fn start_on_cache(&mut self, _: u32, _: IoId, _: IoOp<NoData>) {
        unreachable!("there is no cache device");
    }
    fn start_on_backend(&mut self, _: u32, id: IoId, volume: usize, _: IoOp<NoData>) {
        self.backend.push((volume, id));
    }
    fn reply(&mut self, _: u32, reply: Reply<NoData>) {
        self.replies.push(reply);
    }
}

struct Rig {
    shard: Shard<NoData, usize>,
    doors: Doors,
}

impl Rig {
    fn new(mutants: Mutants) -> Self {
        let engine = Engine::without_device(Config::default());
        Self { shard: Shard::new(0, engine, mutants), doors: Doors::default() }
    }

    fn command(&mut self, command: Command) -> Result<Answer<NoData>, Failure> {
        self.shard.events.push(Event::Control(RequestId(1), command));
        while !self.shard.events.is_empty() {
            self.shard.apply(Instant(0), &mut self.doors);
        }
        self.doors.replies.pop().expect("it is answered at once").result
    }

    fn attach(&mut self, name: &str) -> VolumeId {
        let spec = VolumeSpec::new(name.into(), 8 * BLOCK_BYTES);
        match self.command(Command::Attach(spec)) {
            Ok(Answer::Attached { volume, .. }) => volume,
            other => panic!("{other:?}"),
        }
    }

    /// Submits a read; gives the backends asked because of it.
    fn read(&mut self, volume: VolumeId) -> Vec<(usize, IoId)> {
        let op = Op::Read { span: ByteSpan::new(0, BLOCK_BYTES), data: NoData::alloc(1) };
        self.shard.events.push(Event::Submit(Request { id: RequestId(2), volume, op }));
        while !self.shard.events.is_empty() {
            self.shard.apply(Instant(0), &mut self.doors);
        }
        std::mem::take(&mut self.doors.backend)
    }
}

/// A server may have grown, and ranges are coarse where there are many: what is not inside the
/// engine's volume would be refused.
#[test]
fn what_a_server_lost_goes_to_its_volume_as_far_as_there_is_volume() {
    let mut rig = Rig::new(Mutants::default());
    let volume = rig.attach("v");
    let beyond = ByteSpan::new(1 << 30, BLOCK_BYTES);
    let lost = [ByteSpan::new(BLOCK_BYTES, 1 << 40), beyond];
    rig.shard.drop_lost(5, &lost);
    assert!(rig.shard.events.is_empty(), "it is not bound");
    rig.shard.bind(volume, Binding::Volume(5), &mut rig.doors);
    rig.shard.drop_lost(4, &lost);
    assert!(rig.shard.events.is_empty(), "another volume's");
    rig.shard.drop_lost(5, &lost);
    let [Event::Submit(request)] = &rig.shard.events[..] else { panic!("one is to be dropped") };
    assert_eq!((request.id, request.volume), (OWN_COMMAND, volume));
    let Op::Invalidate { span } = request.op else { panic!("{:?}", request.op) };
    assert_eq!(span, ByteSpan::new(BLOCK_BYTES, 7 * BLOCK_BYTES));
}

#[test]
fn io_of_a_volume_waits_until_it_is_bound() {
    let mut rig = Rig::new(Mutants::default());
    let volume = rig.attach("v");
    assert!(rig.read(volume).is_empty(), "nobody knows whose it is");
    rig.shard.bind(volume, Binding::Volume(3), &mut rig.doors);
    let [(3, _)] = rig.doors.backend[..] else { panic!("{:?}", rig.doors.backend) };
}

/// What becomes of a read that waits when its volume is detached before it is bound.
fn refused(mutants: Mutants) -> Option<Result<Answer<NoData>, Failure>> {
    let mut rig = Rig::new(mutants);
    let volume = rig.attach("v");
    assert!(rig.read(volume).is_empty());
    rig.shard.events.push(Event::Control(RequestId(1), Command::Detach(volume)));
    while !rig.shard.events.is_empty() {
        rig.shard.apply(Instant(0), &mut rig.doors);
    }
    assert!(rig.doors.backend.is_empty(), "no backend is asked");
    let read = rig.doors.replies.into_iter().find(|reply| reply.id == RequestId(2));
    read.map(|reply| reply.result)
}

#[test]
fn io_of_a_volume_that_another_shard_refused_fails() {
    assert!(matches!(refused(Mutants::default()), Some(Err(Failure::Io(_)))));
    assert!(refused(Mutants::only(Mutant::RefusedVolumeAwaited)).is_none(), "it is never answered");
}

/// Backends asked for a volume that is not bound, when another volume had its name before.
fn asked_for_the_next_volume(mutants: Mutants) -> usize {
    let mut rig = Rig::new(mutants);
    let volume = rig.attach("v");
    rig.shard.bind(volume, Binding::Volume(3), &mut rig.doors);
    rig.shard.events.push(Event::Control(RequestId(1), Command::Detach(volume)));
    rig.shard.apply(Instant(0), &mut rig.doors);
    for (_, id) in std::mem::take(&mut rig.doors.backend) {
        rig.shard.events.push(Event::IoDone(IoDone::new(id, Ok(()))));
        rig.shard.apply(Instant(0), &mut rig.doors);
    }
    rig.command(Command::Seal(volume, None)).expect("it is sealed");
    rig.doors = Doors::default();
    let next = rig.attach("w");
    assert_eq!(next, volume, "the engine's name is free");
    rig.read(next).len()
}

#[test]
fn a_binding_ends_with_its_volume() {
    assert_eq!(asked_for_the_next_volume(Mutants::default()), 0, "it waits for its own binding");
    let mutants = Mutants::only(Mutant::BindingKept);
    assert_eq!(asked_for_the_next_volume(mutants), 1, "of another volume");
}
