//! The queues in which backend I/O waits for its turn: those of two threads over one scheduler, with
//! drawn settings that change, letters between the threads that take their time, and volumes that leave.

use crate::driver::agenda::Item;
use crate::driver::io::place_on;
use crate::driver::world::{World, panic_text};
use crate::machine::Factory;
use crate::rng::Rng;
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_driver::QosQueue;
use cinnabar_driver::qos::{Client, ClientId, Config, Op, Scheduler, Settings, Work};
use cinnabar_driver::qos_queue::{Admission, QosPermit, QosRequest, Turn, turns_of_left};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{IoDone, IoError, IoId, IoOp, IoRequest};
use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

const THREADS: usize = 2;
/// A letter from one thread to the other takes up to this long, in ns.
const LETTER_NS_MAX: u64 = 2_000_000;
/// Up to this long, in ns, passes between an arrival or an end and the thread's next turn.
const TURN_NS_MAX: u64 = 200_000;

/// See the module.
pub(super) struct QosQueues {
    rng: Rng,
    mutants: Mutants,
    /// `None`: I/O waits for no turn in this run.
    group: Option<Scheduler>,
    threads: Vec<QosQueue<IoId>>,
    /// When each queue's next turn is on the agenda, and its number there.
    due: Vec<Option<(Instant, u64)>>,
    /// By backend: the client that it is in this attachment.
    clients: Vec<Option<ClientId>>,
    /// Attachments so far: none has another one's name.
    names: u64,
    waiting: BTreeMap<IoId, Waiting>,
    /// Of I/O that has waited and is under way.
    places: BTreeMap<IoId, (usize, QosPermit)>,
    letters: BTreeMap<u64, (usize, Turn)>,
}

struct Waiting {
    request: IoRequest<Stamped>,
    backend: usize,
    /// The number by which a doubt knows it.
    born: u64,
}

impl QosQueues {
    pub(super) fn new(seed: u64, on: bool, backends: usize, mutants: Mutants) -> Self {
        let mut qos_queues = Self {
            rng: Rng::new(seed),
            mutants,
            group: None,
            threads: Vec::new(),
            due: Vec::new(),
            clients: vec![None; backends],
            names: 0,
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            letters: BTreeMap::new(),
        };
        if on {
            qos_queues.begin();
        }
        qos_queues
    }

    fn begin(&mut self) {
        let depth = self.rng.within(1..9) as usize;
        // A short queue is full now and then.
        let waiting_max = self.rng.pick(&[2, 16, 4096]);
        let config = Config { depth, waiting_max, ..Config::default() };
        self.group = Some(Scheduler::new(config).expect("within its bounds"));
        self.threads = (0..THREADS).map(|thread| QosQueue::new(thread, self.mutants)).collect();
        self.due = vec![None; THREADS];
        self.clients.fill(None);
        self.waiting.clear();
        self.places.clear();
        self.letters.clear();
    }

    /// The machine is gone: another process has a scheduler of its own.
    pub(super) fn forget(&mut self) {
        if self.group.is_some() {
            self.begin();
        }
    }

    /// Whether an I/O of this name waits.
    pub(super) fn has(&self, id: IoId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Whether an I/O on this backend waits.
    pub(super) fn has_of(&self, backend: usize) -> bool {
        self.waiting.values().any(|waiting| waiting.backend == backend)
    }

    /// Writes that wait to change any of these sectors.
    pub(super) fn writes_on(&self, backend: usize, sectors: &Range<u64>) -> Vec<u64> {
        let meets = |waiting: &&Waiting| {
            let writes = !matches!(waiting.request.op, IoOp::Read { .. } | IoOp::Flush);
            let place = place_on(Some(waiting.backend), &waiting.request);
            writes
                && waiting.backend == backend
                && place.is_some_and(|(_, at)| at.start < sectors.end && sectors.start < at.end)
        };
        self.waiting.values().filter(meets).map(|waiting| waiting.born).collect()
    }

    fn draw_settings(rng: &mut Rng) -> Settings {
        let reservation_iops = rng.pick(&[0, 0, 20, 500, 5000]);
        let limit = rng.pick(&[0, 0, 30, 300, 3000]);
        let limit_iops = (limit > 0).then_some(limit.max(reservation_iops));
        Settings { reservation_iops, limit_iops, weight: rng.pick(&[1, 100, 10_000]) }
    }

    /// The client of a backend, which it becomes with its first I/O.
    fn client(&mut self, now: Instant, backend: usize) -> ClientId {
        if let Some(client) = self.clients[backend] {
            return client;
        }
        self.names += 1;
        let client = Client { volume: self.names, work: Work::Guest };
        let settings = Self::draw_settings(&mut self.rng);
        let group = self.group.as_mut().expect("only then there are clients");
        let client = group.add(now.0, client, settings).expect("it is new");
        self.clients[backend] = Some(client);
        client
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// Has an I/O wait for its turn; gives back what does not wait.
    pub(super) fn park(
        &mut self,
        backend: Option<usize>,
        request: IoRequest<Stamped>,
    ) -> Option<IoRequest<Stamped>> {
        let waits = !matches!(request.op, IoOp::Prove | IoOp::BumpGeneration { .. });
        let backend = backend.filter(|_| waits && self.qos_queues.group.is_some());
        let Some(backend) = backend else { return Some(request) };
        // A volume that leaves waits for nothing.
        if self.volumes[backend]
            .life
            .as_ref()
            .is_none_or(|life| life.id().is_some() && life.serving().is_none())
        {
            return Some(request);
        }
        let (id, born, now) = (request.id, self.number(), self.now);
        let patience_ns = match request.op {
            IoOp::Flush => None,
            _ => self.bound_ns_of(Some(backend)),
        };
        self.count.parked += 1;
        let qos_queues = &mut self.qos_queues;
        let wish = QosRequest {
            client: qos_queues.client(now, backend),
            op: op_of(&request.op),
            patience_ns,
        };
        let queue = qos_queues.rng.below(THREADS as u64) as usize;
        qos_queues.waiting.insert(id, Waiting { request, backend, born });
        qos_queues.threads[queue].arrive(now, wish, id);
        self.have_turn(queue);
        None
    }

    /// Puts the next turn of a queue on the agenda.
    fn have_turn(&mut self, queue: usize) {
        let Some(at) = self.qos_queues.threads[queue].deadline() else { return };
        let at = if at > self.now {
            at
        } else {
            self.now.plus_ns(self.qos_queues.rng.below(TURN_NS_MAX))
        };
        if self.qos_queues.due[queue].is_none_or(|(due, _)| at < due) {
            let number = self.number();
            self.qos_queues.due[queue] = Some((at, number));
            self.agenda.enter(at, Item::Turn(queue, number));
        }
    }

    /// A queue has its turn.
    pub(super) fn turn(&mut self, queue: usize, number: u64) -> Result<(), Violation> {
        let now = self.now;
        let qos_queues = &mut self.qos_queues;
        if qos_queues.due[queue].is_none_or(|(_, due)| due != number) {
            return Ok(());
        }
        qos_queues.due[queue] = None;
        let group = qos_queues.group.as_mut().expect("it has doors");
        if qos_queues.rng.chance(0.01)
            && let Some(client) = qos_queues.clients.iter().flatten().next()
        {
            let settings = QosQueues::draw_settings(&mut qos_queues.rng);
            group.change(now.0, *client, settings).expect("it is there");
        }
        let mut passed = Vec::new();
        let thread = &mut qos_queues.threads[queue];
        let turn = || thread.turn(now, group, &mut passed);
        catch_unwind(AssertUnwindSafe(turn)).map_err(|panic| panicked(&*panic))?;
        for one in passed {
            match one {
                Admission::Begins(place, id) => self.pass(queue, place, id)?,
                Admission::GivenUp(id) => self.give_up_waiting(id)?,
                Admission::Elsewhere(other, turn) => {
                    let number = self.number();
                    self.qos_queues.letters.insert(number, (other, turn));
                    let at = now.plus_ns(self.qos_queues.rng.below(LETTER_NS_MAX));
                    self.agenda.enter(at, Item::Letter(number));
                }
            }
        }
        self.have_turn(queue);
        Ok(())
    }

    /// A queue hears that it is the turn of one of its own.
    pub(super) fn letter(&mut self, number: u64) -> Result<(), Violation> {
        let Some((queue, turn)) = self.qos_queues.letters.remove(&number) else { return Ok(()) };
        let (thread, now) = (&mut self.qos_queues.threads[queue], self.now);
        let admit = || thread.admit(now, turn);
        let admitted = catch_unwind(AssertUnwindSafe(admit)).map_err(|panic| panicked(&*panic))?;
        if let Some((place, id)) = admitted {
            self.pass(queue, place, id)?;
        }
        self.have_turn(queue);
        Ok(())
    }

    fn pass(&mut self, queue: usize, place: QosPermit, id: IoId) -> Result<(), Violation> {
        let Waiting { request, born, .. } = self.qos_queues.waiting.remove(&id).expect("it waits");
        self.qos_queues.places.insert(id, (queue, place));
        self.begin_flight(request, Some(born))
    }

    /// It has waited for as long as it may, and never happens.
    fn give_up_waiting(&mut self, id: IoId) -> Result<(), Violation> {
        let Waiting { backend, born, .. } = self.qos_queues.waiting.remove(&id).expect("it waits");
        self.count.given_up += 1;
        self.volumes[backend].errors += 1;
        self.volumes[backend].time_up = Some(self.now);
        self.settle_flown(born);
        self.deliver(backend, IoDone::new(id, Err(IoError::TimedOut)))
    }

    /// An I/O that may have waited has ended.
    pub(super) fn end_at_door(&mut self, id: IoId) {
        if let Some((queue, place)) = self.qos_queues.places.remove(&id) {
            self.qos_queues.threads[queue].end(place);
            self.have_turn(queue);
        }
    }

    /// An I/O takes too long.
    pub(super) fn free_at_door(&mut self, id: IoId) {
        if let Some((queue, place)) = self.qos_queues.places.get(&id).copied() {
            self.qos_queues.threads[queue].free(place);
            self.have_turn(queue);
        }
    }

    /// A volume is about to leave: what waits of it begins now, or with its queue's next turn.
    pub(super) fn leave_doors(&mut self, volume: usize) {
        let Some(client) = self.qos_queues.clients[volume].take() else { return };
        let mut tokens = Vec::new();
        let group = self.qos_queues.group.as_mut().expect("it has clients");
        group.remove(self.now.0, client, &mut tokens).expect("it is there");
        for (queue, turn) in turns_of_left(&tokens) {
            let number = self.number();
            self.qos_queues.letters.insert(number, (queue, turn));
            self.agenda.enter(self.now, Item::Letter(number));
        }
        for queue in 0..THREADS {
            self.have_turn(queue);
        }
    }
}

/// An assertion of the queue's or of the scheduler's breaks.
fn panicked(panic: &(dyn Any + Send)) -> Violation {
    Violation::new(Kind::Panic, panic_text(panic))
}

/// What an operation counts as.
fn op_of(op: &IoOp<Stamped>) -> Op {
    let length = |data: &cinnabar_engine::Slices<Stamped>| {
        u32::try_from(data.iter().map(|slice| slice.len).sum::<u64>()).unwrap_or(u32::MAX)
    };
    match op {
        IoOp::Read { data, .. } => Op::Read { length: length(data) },
        IoOp::Write { data, .. } => Op::Write { length: length(data) },
        IoOp::Flush => Op::Flush,
        _ => Op::Clear,
    }
}
