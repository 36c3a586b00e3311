//! Threads that meet at a shard.

mod meeting;
mod world;

use super::*;
use cinnabar_engine::{Command, Config, IoId, IoOp, Reply, RequestId};
use world::*;

/// Each thread runs what it has or leaves it, and none comes back for what it left.
#[test]
fn nothing_that_was_left_stays() {
    const THREADS: usize = 4;
    const READS: u64 = 3000;
    let (pool, volume) = pool(THREADS);
    let work = |thread: usize| {
        let (mut doors, mut events) = (Doors::default(), Vec::new());
        let mut again = false;
        for number in 0..READS {
            events.push(read(thread as u64 * READS + number, volume));
            // Completions come to the thread that began the I/O.
            while again || !events.is_empty() {
                let ran = pool.run(0, thread, Instant(number), &mut events, &mut doors);
                again = ran == Ran::More;
                events.append(&mut doors.done);
            }
        }
        doors.replies
    };
    let mut replies: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        let all = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
        all.map(|reply| reply.result.map(|_| reply.id.0).expect("it is read")).collect()
    });
    replies.sort_unstable();
    let all: Vec<u64> = (0..THREADS as u64 * READS).collect();
    assert_eq!(replies, all, "each is answered once");
    assert!(!pool.is_filled(0));
    assert_eq!(pool.ask(0, |shard| shard.engine.in_flight().0), 0);
}

/// Only if it is run elsewhere, and only if that is earlier than what it knows.
#[test]
fn the_home_is_told_of_an_earlier_wake_up() {
    let (pool, volume) = pool(2);
    let run = |thread, wake| {
        // As if the engine had asked for it.
        pool.seats[0].hold().expect("it is free").shard.wake = Some(Instant(wake));
        let mut doors = Doors::default();
        pool.run(0, thread, Instant(0), &mut vec![read(1, volume)], &mut doors);
        pool.run(0, thread, Instant(0), &mut doors.done, &mut Doors::default());
        assert_eq!(pool.wake(0), Some(Instant(wake)));
        doors.told
    };
    assert_eq!(run(1, 9000), [(0, 0, Instant(9000))]);
    assert_eq!(run(1, 9000), [], "it knows");
    assert_eq!(run(1, 9500), [], "it looks before that");
    assert_eq!(run(0, 8000), [], "it is the home");
    assert_eq!(run(1, 7000), [(0, 0, Instant(7000))]);
}

/// A thread may have looked at the clock before another one that ran the shard first.
#[test]
fn a_shard_never_goes_back_in_time() {
    let (pool, volume) = pool(2);
    let mut doors = Doors::default();
    let mut events = vec![read(1, volume)];
    pool.run(0, 0, Instant(5000), &mut events, &mut doors);
    events.append(&mut doors.done);
    events.push(read(2, volume));
    pool.run(0, 1, Instant(4000), &mut events, &mut doors);
    events.append(&mut doors.done);
    pool.run(0, 1, Instant(4000), &mut events, &mut doors);
    assert_eq!(doors.replies.len(), 2);
}
