//! What must be so in whatever order threads meet at a shard, and a deliberate bug that each scenario finds.

#[path = "../../../src/pool/tests/world.rs"]
mod world;

use super::*;
use crate::health_news::KnownHealth;
use crate::sync::UNFENCED;
use cinnabar_engine::{Command, RequestId};
use loom::thread::{Builder, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Count;
use world::*;

/// Words of a thread's stack: an engine needs more than loom gives.
const STACK: usize = 1 << 16;

type Scenario = fn(Mutants) -> Result<(), String>;

/// Each scenario, and the bugs that it finds: none is that fences do nothing.
const SCENARIOS: &[(Scenario, &[Option<Mutant>])] = &[
    (what_is_left_is_taken, &[Some(Mutant::InboxNotLookedAtAgain), None]),
    (questions_are_answered, &[Some(Mutant::QuestionNotLookedAtAgain), None]),
    (what_comes_while_it_is_asked_is_seen, &[None]),
    (what_was_last_is_believed, &[Some(Mutant::OldHealthHeard)]),
    (the_home_knows_when_to_wake, &[Some(Mutant::WakeNotPassedOn)]),
];

/// Runs a scenario in every order with at most so many preemptions: how many orders there are, or the first that
/// is wrong.
fn explore(scenario: Scenario, mutants: Mutants, preemptions: usize) -> Result<u64, String> {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    let orders = Arc::new(Count::new(0));
    let (wrong, found) = mpsc::sync_channel(1);
    let count = Arc::clone(&orders);
    model.check(move || {
        let order = count.fetch_add(1, Relaxed);
        if let Err(what) = thread(move || scenario(mutants)).join().expect("no panic") {
            // The first one will do.
            let _ = wrong.try_send(format!("order {order}: {what}"));
        }
    });
    found.try_recv().map_or_else(|_| Ok(orders.load(Relaxed)), Err)
}

/// `CINNABAR_PREEMPTIONS=6` looks further than four, which it takes to find that each fence is needed.
#[test]
fn in_every_order_nothing_is_lost_and_each_bug_is_found() {
    let preemptions = std::env::var("CINNABAR_PREEMPTIONS");
    let preemptions = preemptions.map_or(4, |n| n.parse().expect("a number"));
    let mut failures = Vec::new();
    for (number, (scenario, bugs)) in SCENARIOS.iter().enumerate() {
        match explore(*scenario, Mutants::default(), preemptions) {
            Ok(orders) => println!("scenario {number}: {orders} orders"),
            Err(wrong) => failures.push(format!("scenario {number}, {wrong}")),
        }
        for bug in *bugs {
            UNFENCED.set(bug.is_none());
            let mutants = bug.map_or(Mutants::default(), Mutants::only);
            match explore(*scenario, mutants, 2) {
                Ok(orders) => failures.push(format!("{bug:?} is not found in {orders} orders")),
                Err(wrong) => println!("{bug:?}, {wrong}"),
            }
            UNFENCED.set(false);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().stack_size(STACK).spawn(work).expect("it is simulated")
}

fn check(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

/// A thread's part: runs the shard with these events, and with what comes of them.
fn work(pool: &Pool, thread: usize, mut events: Vec<Event<NoData>>) -> Doors {
    let (mut doors, mut again) = (Doors::default(), true);
    while again {
        let ran = pool.run(0, thread, Instant(0), &mut events, &mut doors);
        events.append(&mut doors.done);
        again = ran == Ran::More || !events.is_empty();
    }
    doors
}

/// Two threads have a read each, and neither comes back for what it left to the other.
fn what_is_left_is_taken(mutants: Mutants) -> Result<(), String> {
    let (pool, volume) = pool_with(2, mutants);
    let pool = Arc::new(pool);
    let other = Arc::clone(&pool);
    let other = thread(move || work(&other, 1, vec![read(1, volume)]).replies.len());
    let own = work(&pool, 0, vec![read(0, volume)]).replies.len();
    let other = other.join().expect("no panic");
    check(!pool.is_filled(0), || "something is left, and nobody runs the shard".into())?;
    check(own + other == 2, || format!("of 2 reads {} are answered", own + other))
}

/// One thread asks while another one runs the shard.
fn questions_are_answered(mutants: Mutants) -> Result<(), String> {
    let (pool, volume) = pool_with(1, mutants);
    let pool = Arc::new(pool);
    let asked = Arc::clone(&pool);
    let runner = thread(move || drop(work(&asked, 0, vec![read(0, volume)])));
    let answers = [(); 2].map(|()| pool.ask_later(0, |shard| shard.engine.in_flight().0));
    runner.join().expect("no panic");
    let answered = answers.iter().filter(|answer| answer.try_recv().is_ok()).count();
    check(answered == 2, || format!("of 2 questions {answered} are answered"))
}

/// One thread finds the shard taken by another one that only asks, and forgets about it.
fn what_comes_while_it_is_asked_is_seen(mutants: Mutants) -> Result<(), String> {
    let (pool, volume) = pool_with(1, mutants);
    let pool = Arc::new(pool);
    let other = Arc::clone(&pool);
    let other = thread(move || work(&other, 0, vec![read(0, volume)]).replies.len());
    let asked = pool.try_ask(0, |_| ()).is_some();
    // Who asks has the home look.
    let home =
        if asked && pool.is_filled(0) { work(&pool, 0, Vec::new()).replies.len() } else { 0 };
    let answered = home + other.join().expect("no panic");
    check(answered == 1, || format!("of 1 read {answered} are answered"))
}

/// Two threads bring about a change of health each, and are heard in any order.
fn what_was_last_is_believed(mutants: Mutants) -> Result<(), String> {
    let pool = Arc::new(empty_pool(2, mutants));
    let known = Arc::new(Mutex::new(KnownHealth::new(Health::Opening, mutants)));
    let run = |thread: usize, event: Event<NoData>| {
        let (pool, known) = (Arc::clone(&pool), Arc::clone(&known));
        move || {
            for news in work(&pool, thread, vec![event]).news {
                known.lock().expect("no panic").hear(news);
            }
        }
    };
    let other = thread(run(1, Event::Control(RequestId(1), Command::Close)));
    run(0, Event::Wake)();
    other.join().expect("no panic");
    let is = pool.try_ask(0, |shard| shard.engine.health()).expect("nobody runs it");
    let known = known.lock().expect("no panic").health();
    check(known == is, || format!("it is {is:?}, and known as {known:?}"))
}

/// The home looks when to wake the shard, while another thread has that be earlier.
fn the_home_knows_when_to_wake(mutants: Mutants) -> Result<(), String> {
    let (pool, volume) = pool_with(2, mutants);
    let pool = Arc::new(pool);
    pool.seats[0].hold().expect("it is free").shard.wake = Some(Instant(9000));
    let other = Arc::clone(&pool);
    let other = thread(move || {
        while other.seats[0].hold().map(|mut held| held.shard.wake = Some(Instant(7000))).is_none()
        {
            loom::thread::yield_now();
        }
        work(&other, 1, vec![read(1, volume)]).told
    });
    work(&pool, 0, vec![read(0, volume)]);
    let looked = pool.wake(0);
    let told = other.join().expect("no panic");
    let known = looked.into_iter().chain(told.iter().map(|(_, _, at)| *at)).min();
    let wants = pool.wake(0);
    check(known == wants, || {
        format!("it wants to be woken at {wants:?}, its home knows of {known:?}")
    })
}
