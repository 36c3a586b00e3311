//! What a thread leaves for the one that runs a shard, besides events: questions, the rest of a turn, and
//! what is told of health.

use super::*;
use crate::health_news::KnownHealth;
use cinnabar_engine::IoError;
use cinnabar_engine::health::PassThroughReason;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;

/// A shard that always has more to do, and questions asked of it while it is run.
struct Busy<'a> {
    pool: &'a Pool,
    doors: Doors,
    volume: VolumeId,
    batches: u64,
    /// Batches until there is nothing more to do.
    more: u64,
    /// Asked in the middle of a batch.
    asked: Option<Receiver<()>>,
    answered: u64,
    /// Asked in the moment before the shard is let go of.
    last: Option<Receiver<()>>,
}

impl<'a> Busy<'a> {
    fn new(pool: &'a Pool, volume: VolumeId, more: u64) -> Self {
        let doors = Doors::default();
        Self { pool, doors, volume, batches: 0, more, asked: None, answered: 0, last: None }
    }
}

impl ShardIo<NoData> for Busy<'_> {
    type Volume = usize;

    fn applied(&mut self) {
        self.batches += 1;
        if let Some(asked) = self.asked.take() {
            asked.try_recv().expect("it is answered before the next batch");
            self.answered += 1;
        }
        self.asked = Some(self.pool.ask_later(0, |_| ()));
        if self.batches < self.more {
            self.pool.leave(0, &mut vec![read(self.batches, self.volume)], None);
        }
    }
    fn start_on_cache(&mut self, _: u32, _: IoId, _: IoOp<NoData>) {
        unreachable!("there is no cache device");
    }
    fn start_on_backend(&mut self, shard: u32, id: IoId, volume: usize, op: IoOp<NoData>) {
        self.doors.start_on_backend(shard, id, volume, op);
    }
    fn reply(&mut self, shard: u32, reply: Reply<NoData>) {
        self.doors.reply(shard, reply);
    }
    fn letting_go(&mut self, _: u32) {
        self.last = Some(self.pool.ask_later(0, |_| ()));
    }
}

/// Counted in batches of the thread that runs the shard: no clock says how long that is.
#[test]
fn a_question_waits_for_one_batch_of_a_shard_that_is_always_busy() {
    let (pool, volume) = pool(1);
    let mut busy = Busy::new(&pool, volume, u64::MAX);
    let mut events = vec![read(0, volume)];
    assert_eq!(pool.run(0, 0, Instant(0), &mut events, &mut busy), Ran::More);
    assert_eq!(busy.batches, u64::from(BATCHES_MAX));
    assert_eq!(busy.answered, busy.batches - 1, "each before the next batch");
    busy.asked.expect("the last one").try_recv().expect("at the latest behind the last batch");
}

/// Others leave something between two batches of a turn, and once more when the shard is about to be let
/// go of.
struct Endless<'a>(&'a Pool, VolumeId, Doors, u64);

impl Endless<'_> {
    fn leave(&self) {
        self.0.leave(0, &mut vec![read(self.3, self.1)], None);
    }
}

impl ShardIo<NoData> for Endless<'_> {
    type Volume = usize;

    fn applied(&mut self) {
        self.3 += 1;
        if !self.3.is_multiple_of(5) {
            self.leave();
        }
    }
    fn start_on_cache(&mut self, _: u32, _: IoId, _: IoOp<NoData>) {
        unreachable!("there is no cache device");
    }
    fn start_on_backend(&mut self, shard: u32, id: IoId, volume: usize, op: IoOp<NoData>) {
        self.2.start_on_backend(shard, id, volume, op);
    }
    fn reply(&mut self, shard: u32, reply: Reply<NoData>) {
        self.2.reply(shard, reply);
    }
    fn letting_go(&mut self, _: u32) {
        self.leave();
    }
}

/// Its own port waits as long as it runs a shard for others.
#[test]
fn a_thread_runs_a_shard_for_a_bounded_number_of_batches_however_often_it_lets_go() {
    let (pool, volume) = pool(2);
    let mut doors = Endless(&pool, volume, Doors::default(), 1);
    let mut events = vec![read(0, volume)];
    assert_eq!(pool.run(0, 0, Instant(0), &mut events, &mut doors), Ran::More);
    assert_eq!(doors.3, 1 + u64::from(BATCHES_MAX));
    assert!(pool.is_filled(0), "the rest is there for the next turn");
}

fn is_answered_at_last(mutants: Mutants) -> bool {
    let (pool, volume) = pool_with(1, mutants);
    let mut busy = Busy::new(&pool, volume, 0);
    pool.run(0, 0, Instant(0), &mut vec![read(0, volume)], &mut busy);
    busy.last.expect("it was asked").try_recv().is_ok()
}

#[test]
fn a_question_left_in_the_last_moment_is_answered() {
    assert!(is_answered_at_last(Mutants::default()));
    assert!(!is_answered_at_last(Mutants::only(Mutant::QuestionNotLookedAtAgain)));
}

/// Threads that run the shard and one that asks; each question waits for the batch under way, and one
/// that began before it was seen.
#[test]
fn questions_to_a_shard_that_threads_fight_for_wait_for_a_batch() {
    const RUNNERS: usize = 3;
    const QUESTIONS: u64 = 2000;
    // Enough that there is always more to do, and not more than memory has room for.
    const UNDER_WAY: u64 = 64;
    struct Counting<'a>(Doors, &'a AtomicU64, &'a AtomicU64);
    impl ShardIo<NoData> for Counting<'_> {
        type Volume = usize;
        fn applied(&mut self) {
            self.1.fetch_add(1, SeqCst);
        }
        fn start_on_cache(&mut self, _: u32, _: IoId, _: IoOp<NoData>) {
            unreachable!("there is no cache device");
        }
        fn start_on_backend(&mut self, shard: u32, id: IoId, volume: usize, op: IoOp<NoData>) {
            self.0.start_on_backend(shard, id, volume, op);
        }
        fn reply(&mut self, shard: u32, reply: Reply<NoData>) {
            self.2.fetch_sub(1, SeqCst);
            self.0.reply(shard, reply);
        }
    }
    let (pool, volume) = pool(RUNNERS);
    let (stop, batches) = (AtomicBool::new(false), std::sync::Arc::new(AtomicU64::new(0)));
    let under_way = AtomicU64::new(0);
    let work = |thread: usize| {
        let (mut doors, mut events) =
            (Counting(Doors::default(), &batches, &under_way), Vec::new());
        let (mut number, mut again) = (thread as u64 * 1_000_000_000, false);
        while !stop.load(Relaxed) || again || !events.is_empty() {
            if !stop.load(Relaxed) && under_way.load(SeqCst) < UNDER_WAY {
                under_way.fetch_add(1, SeqCst);
                number += 1;
                events.push(read(number, volume));
            }
            again = pool.run(0, thread, Instant(0), &mut events, &mut doors) == Ran::More;
            events.append(&mut doors.0.done);
            doors.0.replies.clear();
        }
    };
    let most = std::thread::scope(|scope| {
        for thread in 0..RUNNERS {
            let work = &work;
            scope.spawn(move || work(thread));
        }
        let ask = |_| {
            let counter = std::sync::Arc::clone(&batches);
            let answered = pool.ask_later(0, move |_| counter.load(SeqCst));
            let asked = batches.load(SeqCst);
            answered.recv().expect("it is answered").saturating_sub(asked)
        };
        let most = (0..QUESTIONS).map(ask).max();
        stop.store(true, Relaxed);
        most.expect("there are questions")
    });
    assert!(most <= 2, "{most} batches");
}

/// Of a volume whose I/O is refused: each read takes one batch more than there is, so that something is
/// left over of a turn.
struct Refused<'a>(&'a Pool, VolumeId, Doors, u64);

impl ShardIo<NoData> for Refused<'_> {
    type Volume = usize;

    fn applied(&mut self) {
        self.3 += 1;
        if self.3 < u64::from(BATCHES_MAX) {
            self.0.leave(0, &mut vec![read(self.3, self.1)], None);
        }
    }
    fn start_on_cache(&mut self, _: u32, _: IoId, _: IoOp<NoData>) {
        unreachable!("there is no cache device");
    }
    fn start_on_backend(&mut self, _: u32, _: IoId, _: usize, _: IoOp<NoData>) {
        unreachable!("the volume is refused");
    }
    fn reply(&mut self, shard: u32, reply: Reply<NoData>) {
        self.2.reply(shard, reply);
    }
}

/// Whether a thread that finds the shard taken by an asker, and forgets about it, is missed by nobody:
/// something says that the shard is to be run, and whoever does that answers everything.
fn what_is_left_over_is_known(mutants: Mutants) -> bool {
    let (pool, volume) = pool_with(2, mutants);
    let mut doors = Refused(&pool, volume, Doors::default(), 0);
    pool.seats[0].hold().expect("it is free").shard.bind(volume, Binding::Refused, &mut doors);
    let mut events = vec![read(0, volume)];
    assert_eq!(pool.run(0, 0, Instant(0), &mut events, &mut doors), Ran::More);
    assert_eq!(doors.3, u64::from(BATCHES_MAX));
    pool.try_ask(0, |_| {
        let ran = pool.run(0, 0, Instant(0), &mut Vec::new(), &mut Doors::default());
        assert_eq!(ran, Ran::Taken, "it is being asked");
    })
    .expect("it is free");
    if !pool.is_filled(0) {
        return false;
    }
    assert_eq!(pool.run(0, 1, Instant(0), &mut events, &mut doors), Ran::Done);
    doors.2.replies.len() as u64 == u64::from(BATCHES_MAX)
}

#[test]
fn what_is_left_over_of_a_turn_is_for_whoever_runs_the_shard_next() {
    assert!(what_is_left_over_is_known(Mutants::default()));
    assert!(!what_is_left_over_is_known(Mutants::only(Mutant::RestKeptInShard)));
}

/// Two threads have run a shard one after the other, and are heard the other way round.
fn known_at_last(mutants: Mutants) -> Health {
    let told = |number, health| HealthNews { number, health };
    let failed = Health::PassThrough(PassThroughReason::Failed(IoError::Io));
    let mut known = KnownHealth::new(Health::Opening, mutants);
    known.hear(told(1, Health::Loading { pages: 0, of: 1 }));
    known.hear(told(3, failed));
    known.hear(told(2, Health::Serving));
    known.health()
}

#[test]
fn health_that_is_heard_late_does_not_hide_a_loss() {
    assert!(matches!(known_at_last(Mutants::default()), Health::PassThrough(_)));
    assert_eq!(known_at_last(Mutants::only(Mutant::OldHealthHeard)), Health::Serving);
}

/// The numbers are the shard's, whichever thread tells of it.
#[test]
fn what_two_threads_tell_of_a_shard_has_numbers_in_order() {
    struct Told(Vec<HealthNews>);
    impl ShardIo<NoData> for Told {
        type Volume = usize;
        fn start_on_cache(&mut self, _: u32, _: IoId, _: IoOp<NoData>) {
            unreachable!("there is no cache device");
        }
        fn start_on_backend(&mut self, _: u32, _: IoId, _: usize, _: IoOp<NoData>) {
            unreachable!("nothing is asked for");
        }
        fn reply(&mut self, _: u32, _: Reply<NoData>) {}
        fn health(&mut self, _: u32, news: HealthNews) {
            self.0.push(news);
        }
    }
    let engine = Engine::without_device(Config::default());
    let pool = Pool::new(vec![engine], 2, Mutants::default());
    let (mut first, mut second) = (Told(Vec::new()), Told(Vec::new()));
    let close = Event::Control(RequestId(1), Command::Close);
    pool.run(0, 0, Instant(0), &mut vec![Event::Wake], &mut first);
    pool.run(0, 1, Instant(0), &mut vec![close], &mut second);
    let numbers = |told: &Told| told.0.iter().map(|news| news.number).collect::<Vec<_>>();
    assert_eq!((numbers(&first), numbers(&second)), (vec![1], vec![2]));
}
