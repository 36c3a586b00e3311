//! Threads that can't be had, and threads that hang.

mod drawn;

use super::threads::{Class, Job, LOOK_EVERY, Queue, Spawn, Threads};
use crate::dataplane::clock::{Clock, after};
use cinnabar_backend::port::{self, IoMode};
use cinnabar_driver::slow_work::Places;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::Instant;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

/// Longest wait for a thread.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Work that says which thread did it.
struct Work {
    place: (Class, Option<Queue>),
    can_be_given_up: bool,
}

impl Work {
    const fn proof(volume: usize) -> Self {
        Self { place: (Class::Urgent, Some(Queue::Volume(volume))), can_be_given_up: false }
    }
}

impl Job for Work {
    type Done = Option<ThreadId>;

    fn place(&self) -> (Class, Option<Queue>) {
        self.place
    }

    fn run(self) -> Option<ThreadId> {
        Some(std::thread::current().id())
    }

    fn give_up(self) -> Result<Option<ThreadId>, Self> {
        if self.can_be_given_up { Ok(None) } else { Err(self) }
    }
}

/// Threads, a count of those that there are, and a switch that has no more be had.
struct World<J: Job> {
    threads: Threads<J>,
    spawned: Arc<AtomicUsize>,
    limit: Arc<AtomicUsize>,
    now: Instant,
}

impl<J: Job> World<J> {
    /// Threads that are had really do the work, or keep it without an end.
    fn new(limit: usize, hang: bool, mutants: Mutants) -> Self {
        let spawned = Arc::new(AtomicUsize::new(0));
        let limit = Arc::new(AtomicUsize::new(limit));
        let hung = Mutex::new(Vec::new());
        let (count, most) = (Arc::clone(&spawned), Arc::clone(&limit));
        let spawn: Spawn = Box::new(move |work| {
            if count.load(SeqCst) >= most.load(SeqCst) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            count.fetch_add(1, SeqCst);
            if hang {
                hung.lock().expect("no panic").push(work);
                return Ok(());
            }
            std::thread::Builder::new().spawn(work).map(drop)
        });
        let clock = Clock::start();
        let port = port::open(IoMode::Threads).expect("there are files and threads");
        let threads = Threads::new(port.waker(), clock, spawn, mutants);
        Self { threads, spawned, limit, now: clock.now() }
    }

    fn spawned(&self) -> usize {
        self.spawned.load(SeqCst)
    }

    /// Some time later.
    fn look(&mut self) {
        self.now = after(self.now, LOOK_EVERY * 2);
        self.threads.look(self.now);
    }
}

/// What was done where no thread could be had, and by this thread.
fn done_here(mutants: Mutants) -> usize {
    let mut world = World::new(0, false, mutants);
    for volume in 0..100 {
        world.threads.start(Work::proof(volume));
    }
    world.look();
    let own = std::thread::current().id();
    std::iter::from_fn(|| world.threads.take()).filter(|by| *by == Some(own)).count()
}

#[test]
fn what_no_thread_can_be_had_for_is_not_done_by_the_data_thread() {
    assert_eq!(done_here(Mutants::default()), 0);
    assert_eq!(done_here(Mutants::only(Mutant::SlowWorkOnDataThread)), 100, "the mutant is found");
}

#[test]
fn what_waits_for_a_thread_is_tried_again() {
    let mut world = World::new(0, false, Mutants::default());
    for volume in 0..100 {
        world.threads.start(Work::proof(volume));
    }
    assert!(world.threads.deadline().is_some(), "it is looked at again");
    world.look();
    assert_eq!(world.threads.count(Class::Urgent), (100, 0));
    world.limit.store(1, SeqCst);
    world.look();
    for _ in 0..100 {
        let by = world.threads.take_within(WAIT_MAX).expect("it is done");
        assert_ne!(by, Some(std::thread::current().id()));
    }
    assert_eq!(world.spawned(), 1, "one thread does it all, for there are no more");
    world.look();
    assert_eq!(world.threads.deadline(), None, "nothing is left to be looked at");
}

#[test]
fn what_can_be_given_up_is_answered_when_no_thread_can_be_had_for_long() {
    let mut world = World::new(0, false, Mutants::default());
    for volume in 0..4 {
        let proof = Work::proof(volume);
        world.threads.start(Work { can_be_given_up: volume < 3, ..proof });
    }
    assert_eq!(world.threads.take(), None, "not at once");
    (0..10).for_each(|_| world.look());
    let given_up = std::iter::from_fn(|| world.threads.take()).collect::<Vec<_>>();
    assert_eq!(given_up, [None; 3]);
    assert_eq!(world.threads.count(Class::Urgent), (1, 0), "the other one waits on");
}

#[test]
fn thousands_of_volumes_that_hang_take_a_bounded_number_of_threads() {
    let mut world = World::new(usize::MAX, true, Mutants::default());
    for volume in 0..4095 {
        world.threads.start(Work::proof(volume));
        // A second question to the same back end needs no thread of its own.
        world.threads.start(Work::proof(volume));
    }
    let at_once = world.spawned();
    (0..100).for_each(|_| world.look());
    let in_the_end = world.spawned();
    assert!(at_once < in_the_end, "what hangs leaves its place to others");
    assert!(in_the_end <= 256, "{in_the_end} threads");
    let usual = Work { place: (Class::Usual, None), can_be_given_up: false };
    world.threads.start(usual);
    assert_eq!(world.spawned(), in_the_end + 1, "other work has places of its own");
    let state = Work { place: (Class::State, Some(Queue::State)), can_be_given_up: false };
    world.threads.start(state);
    assert_eq!(world.spawned(), in_the_end + 2, "guests' writes may wait for this");
}
