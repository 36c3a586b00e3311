//! A pool of one shard without a device, whose I/O is done as soon as it begins.

use super::*;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Answer, Command, Config, IoDone, IoId, IoOp, Op, Reply, Request, RequestId};

/// Data that are not there.
#[derive(Clone, Debug)]
pub(super) struct NoData;

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

pub(super) type Pool = ShardPool<NoData, usize>;

/// Of one thread: I/O is done as soon as it begins.
#[derive(Default)]
pub(super) struct Doors {
    pub(super) done: Vec<Event<NoData>>,
    pub(super) replies: Vec<Reply<NoData>>,
    pub(super) told: Vec<(u32, usize, Instant)>,
    pub(super) news: Vec<HealthNews>,
}

impl ShardIo<NoData> for Doors {
    type Volume = usize;

    fn start_on_cache(&mut self, _: u32, _: IoId, _: IoOp<NoData>) {
        unreachable!("there is no cache device");
    }
    fn start_on_backend(&mut self, _: u32, id: IoId, _: usize, op: IoOp<NoData>) {
        assert!(matches!(op, IoOp::Read { .. }), "nothing is written");
        self.done.push(Event::IoDone(IoDone::new(id, Ok(()))));
    }
    fn reply(&mut self, _: u32, reply: Reply<NoData>) {
        self.replies.push(reply);
    }
    fn tell_home(&mut self, shard: u32, home: usize, at: Instant) {
        self.told.push((shard, home, at));
    }
    fn health(&mut self, _: u32, news: HealthNews) {
        self.news.push(news);
    }
}

/// A pool of one shard for so many threads, with a volume.
pub(super) fn pool(threads: usize) -> (Pool, VolumeId) {
    pool_with(threads, Mutants::default())
}

/// A pool of one shard that no thread has run yet.
pub(super) fn empty_pool(threads: usize, mutants: Mutants) -> Pool {
    Pool::new(vec![Engine::without_device(Config::default())], threads, mutants)
}

/// A pool with a volume and a deliberate bug.
pub(super) fn pool_with(threads: usize, mutants: Mutants) -> (Pool, VolumeId) {
    let pool = empty_pool(threads, mutants);
    let mut doors = Doors::default();
    let spec = VolumeSpec::new("vm".into(), 64 * BLOCK_BYTES);
    let mut events = vec![Event::Control(RequestId(0), Command::Attach(spec))];
    assert_eq!(pool.run(0, 0, Instant(0), &mut events, &mut doors), Ran::Done);
    let Ok(Answer::Attached { volume, .. }) = doors.replies.pop().expect("an answer").result else {
        panic!("it is attached");
    };
    pool.leave(0, &mut events, Some(Left::Bind(volume, 0)));
    assert!(pool.is_filled(0));
    assert_eq!(pool.run(0, 0, Instant(0), &mut events, &mut doors), Ran::Done);
    assert!(!pool.is_filled(0));
    (pool, volume)
}

pub(super) fn read(id: u64, volume: VolumeId) -> Event<NoData> {
    let span = ByteSpan::new(id % 64 * BLOCK_BYTES, BLOCK_BYTES);
    let op = Op::Read { span, data: NoData };
    Event::Submit(Request { id: RequestId(id), volume, op })
}
