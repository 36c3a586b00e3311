//! Threads that run out, and work that hangs, drawn by a seed: whatever comes, the data thread does none of the
//! work, nothing is lost or overtaken in its queue, no class has more than its places, and what has a place and
//! a thread begins.

use super::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::mpsc;

const CLASSES: [Class; 6] =
    [Class::State, Class::Urgent, Class::Usual, Class::Device, Class::Question, Class::Try];

/// Work that says when it begins, and ends when it is let.
struct Hung {
    number: usize,
    place: (Class, Option<Queue>),
    can_be_given_up: bool,
    data_thread: ThreadId,
    begins: mpsc::Sender<usize>,
    ends: mpsc::Receiver<()>,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Done,
    OnDataThread,
    GivenUp,
}

impl Job for Hung {
    type Done = (usize, End);

    fn place(&self) -> (Class, Option<Queue>) {
        self.place
    }

    fn run(self) -> (usize, End) {
        if std::thread::current().id() == self.data_thread {
            return (self.number, End::OnDataThread);
        }
        self.begins.send(self.number).expect("the test listens");
        // It ends with the test, too.
        let _let_go = self.ends.recv();
        (self.number, End::Done)
    }

    fn give_up(self) -> Result<(usize, End), Self> {
        if self.can_be_given_up { Ok((self.number, End::GivenUp)) } else { Err(self) }
    }
}

/// What the test knows of a piece of work.
struct Known {
    place: (Class, Option<Queue>),
    can_be_given_up: bool,
    end: mpsc::Sender<()>,
}

struct Search {
    rng: Xoshiro256PlusPlus,
    world: World<Hung>,
    begins: mpsc::Sender<usize>,
    begun: mpsc::Receiver<usize>,
    /// By number.
    waiting: BTreeMap<usize, Known>,
    running: BTreeMap<usize, Known>,
    next: usize,
}

impl Search {
    fn new(seed: u64, mutants: Mutants) -> Self {
        let (begins, begun) = mpsc::channel();
        let (waiting, running) = (BTreeMap::new(), BTreeMap::new());
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let world = World::new(usize::MAX, false, mutants);
        Self { rng, world, begins, begun, waiting, running, next: 0 }
    }

    fn start(&mut self) {
        let class = CLASSES[self.rng.random_range(0..CLASSES.len())];
        let queue = match class {
            Class::State => Some(Queue::State),
            _ => self.rng.random_bool(0.7).then(|| Queue::Volume(self.rng.random_range(0..6))),
        };
        let (number, place) = (self.next, (class, queue));
        let can_be_given_up = self.rng.random_bool(0.3);
        let (end, ends) = mpsc::channel();
        self.next += 1;
        self.waiting.insert(number, Known { place, can_be_given_up, end });
        let data_thread = std::thread::current().id();
        let begins = self.begins.clone();
        let work = Hung { number, place, can_be_given_up, data_thread, begins, ends };
        self.world.threads.start(work);
    }

    /// No more threads can be had than this, or any number.
    fn limit(&mut self, more: Option<usize>) {
        let limit = more.map_or(usize::MAX, |more| self.world.spawned() + more);
        self.world.limit.store(limit, SeqCst);
        self.world.look();
    }

    /// Lets something that runs end.
    fn end(&mut self) -> Result<(), String> {
        if self.running.is_empty() {
            return Ok(());
        }
        let at = self.rng.random_range(0..self.running.len());
        let (&number, known) = self.running.iter().nth(at).expect("there are so many");
        known.end.send(()).expect("it waits for that");
        while self.running.contains_key(&number) {
            let ended = self.world.threads.take_within(WAIT_MAX);
            self.ended(ended.ok_or("what was let go does not end")?)?;
        }
        Ok(())
    }

    fn ended(&mut self, (number, end): (usize, End)) -> Result<(), String> {
        let is_right = match end {
            End::Done => self.running.remove(&number).is_some(),
            End::GivenUp => self.waiting.remove(&number).is_some_and(|known| known.can_be_given_up),
            End::OnDataThread => false,
        };
        if is_right { Ok(()) } else { Err(format!("work {number}: {end:?}")) }
    }

    /// Hears what has begun and what was given up, and checks all.
    fn check(&mut self) -> Result<(), String> {
        while let Some(ended) = self.world.threads.take() {
            self.ended(ended)?;
        }
        let under_way = CLASSES.map(|class| self.world.threads.count(class).1);
        while self.running.len() < under_way.iter().sum() {
            let begun = self.begun.recv_timeout(WAIT_MAX);
            let number = begun.map_err(|_| "what is under way does not begin")?;
            let known = self.waiting.remove(&number).ok_or("it begins twice")?;
            self.running.insert(number, known);
        }
        for (number, known) in &self.running {
            let (class, queue) = known.place;
            let beside = self.running.values().filter(|other| other.place.1 == queue).count();
            if queue.is_some() && beside > 1 {
                return Err(format!("{beside} of {queue:?} are under way"));
            }
            let overtaken =
                self.waiting.range(..number).find(|(_, other)| other.place == known.place);
            if let Some((other, _)) = overtaken {
                return Err(format!("{number} has overtaken {other} of {class:?}, {queue:?}"));
            }
        }
        for (class, under_way) in CLASSES.into_iter().zip(under_way) {
            let Places { usual, slow } = Class::PLACES[class as usize];
            if under_way > usual + slow {
                return Err(format!("{under_way} of {class:?} are under way"));
            }
            if under_way < usual && self.world.limit.load(SeqCst) == usize::MAX {
                self.none_waits_without_need(class)?;
            }
        }
        Ok(())
    }

    /// There are places and threads: what waits is behind work of its queue.
    fn none_waits_without_need(&self, class: Class) -> Result<(), String> {
        let is_behind = |queue: Queue| self.running.values().any(|one| one.place.1 == Some(queue));
        let mut waiting = self.waiting.iter().filter(|(_, known)| known.place.0 == class);
        match waiting.find(|(_, known)| !known.place.1.is_some_and(is_behind)) {
            Some((number, _)) => Err(format!("{number} of {class:?} waits for nothing")),
            None => Ok(()),
        }
    }
}

fn search(seed: u64, mutants: Mutants) -> Result<(), String> {
    let mut search = Search::new(seed, mutants);
    for _ in 0..300 {
        match search.rng.random_range(0..10) {
            0..5 => search.start(),
            5..8 => search.end()?,
            8 => search.world.look(),
            _ => {
                let more = [None, None, Some(0), Some(1), Some(3)];
                let at = search.rng.random_range(0..more.len());
                search.limit(more[at]);
            }
        }
        search.check()?;
    }
    search.limit(None);
    search.check()?;
    while !search.running.is_empty() {
        search.end()?;
        search.check()?;
    }
    let left = search.waiting.len();
    if left == 0 { Ok(()) } else { Err(format!("{left} are never begun")) }
}

/// `CINNABAR_RUNS` says of how many seeds.
#[test]
fn whatever_runs_out_or_hangs_work_is_done_in_its_order_and_by_no_data_thread() {
    let seeds = std::env::var("CINNABAR_RUNS").map_or(20, |n| n.parse().expect("a number"));
    for seed in 0..seeds {
        search(seed, Mutants::default()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    let bug = Mutants::only(Mutant::SlowWorkOnDataThread);
    assert!((0..10).any(|seed| search(seed, bug).is_err()), "the mutant is found");
}
