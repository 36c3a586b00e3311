//! Whatever is asked in whatever order: nothing is lost, and what is promised of every moment holds.

use cinnabar_driver::qos::{
    Admitted, Client, ClientId, Config, Dispatch, Op, Request, Scheduler, Settings, Ticket, Work,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const DEPTH: usize = 4;
const WAITING_MAX: usize = 6;

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    Submit { client: usize, length: u32 },
    Complete(usize),
    Pass(u64),
    Withdraw(usize, usize),
    Change(usize, Settings),
    Replace(usize),
}

fn settings() -> impl Strategy<Value = Settings> {
    (0u32..300, prop::option::of(0u32..2000), 1u32..500).prop_map(|(reservation, more, weight)| {
        Settings {
            reservation_iops: reservation,
            limit_iops: more.map(|more| (reservation + more).max(1)),
            weight,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..4, 0u32..300_000)
            .prop_map(|(client, length)| Step::Submit { client, length }),
        6 => any::<usize>().prop_map(Step::Complete),
        6 => (0u64..30_000_000).prop_map(Step::Pass),
        1 => (0usize..4, any::<usize>()).prop_map(|(client, which)| Step::Withdraw(client, which)),
        1 => (0usize..4, settings()).prop_map(|(client, settings)| Step::Change(client, settings)),
        1 => (0usize..4).prop_map(Step::Replace),
    ]
}

/// A client as the model knows it.
struct Model {
    id: ClientId,
    settings: Settings,
    waiting: VecDeque<(u64, Ticket)>,
    /// Since the settings were changed: when, and the cost in units of 1/65,536.
    begun: Vec<(u64, u64)>,
}

impl Model {
    /// In no window more than its limit, 20 ms and one request.
    fn within_limit(&self) -> Result<(), TestCaseError> {
        let Some(limit) = self.settings.limit_iops else { return Ok(()) };
        for (first, (from, _)) in self.begun.iter().enumerate() {
            let mut sum = 0u128;
            for (at, cost) in &self.begun[first..] {
                // Without the last one.
                let allowed = u128::from(limit) * 65_536 * u128::from(at - from + 20_000_000);
                prop_assert!(sum * 1_000_000_000 <= allowed, "{sum} units in {} ns", at - from);
                sum += u128::from(*cost);
            }
        }
        Ok(())
    }
}

struct Run {
    group: Scheduler,
    clients: Vec<Model>,
    under_way: Vec<Dispatch>,
    costs: BTreeMap<u64, u64>,
    now_ns: u64,
    tokens: u64,
}

impl Run {
    fn new(all: Vec<Settings>) -> Self {
        let config = Config { depth: DEPTH, waiting_max: WAITING_MAX, ..Config::default() };
        let mut group = Scheduler::new(config).expect("it is right");
        let clients = all.into_iter().enumerate().map(|(volume, settings)| {
            let client = Client { volume: volume as u64, work: Work::Guest };
            let id = group.add(0, client, settings).expect("it is new");
            Model { id, settings, waiting: VecDeque::new(), begun: Vec::new() }
        });
        let clients = clients.collect();
        let (under_way, costs) = (Vec::new(), BTreeMap::new());
        Self { group, clients, under_way, costs, now_ns: 0, tokens: 0 }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let now_ns = self.now_ns;
        match *step {
            Step::Submit { client, length } => self.submit(client, length)?,
            Step::Complete(which) if !self.under_way.is_empty() => {
                let done = self.under_way.swap_remove(which % self.under_way.len());
                self.group.complete(now_ns, &[done.ticket]);
            }
            Step::Complete(_) => {}
            Step::Pass(ns) => self.now_ns += ns,
            Step::Withdraw(client, which) => {
                let model = &mut self.clients[client];
                if !model.waiting.is_empty() {
                    let place = which % model.waiting.len();
                    let (token, ticket) = model.waiting.remove(place).expect("it is there");
                    prop_assert_eq!(self.group.withdraw(now_ns, ticket), Some(token));
                }
            }
            Step::Change(client, settings) => {
                let model = &mut self.clients[client];
                prop_assert_eq!(self.group.change(now_ns, model.id, settings), Ok(()));
                (model.settings, model.begun) = (settings, Vec::new());
            }
            Step::Replace(client) => self.replace(client)?,
        }
        self.take()
    }

    fn submit(&mut self, client: usize, length: u32) -> Result<(), TestCaseError> {
        self.tokens += 1;
        let model = &mut self.clients[client];
        let token = self.tokens;
        let request = Request { client: model.id, op: Op::Read { length }, token };
        let admitted = self.group.submit(self.now_ns, request);
        prop_assert_eq!(admitted.is_err(), model.waiting.len() == WAITING_MAX);
        if let Ok(Admitted::Waits(ticket)) = admitted {
            model.waiting.push_back((token, ticket));
            self.costs.insert(token, 65_536 + u64::from(length));
        }
        Ok(())
    }

    fn replace(&mut self, client: usize) -> Result<(), TestCaseError> {
        let mut given_back = Vec::new();
        let model = &mut self.clients[client];
        let removed = self.group.remove(self.now_ns, model.id, &mut given_back);
        prop_assert_eq!(removed, Ok(()));
        let waiting: Vec<u64> = model.waiting.drain(..).map(|(token, _)| token).collect();
        prop_assert_eq!(given_back, waiting);
        let name = Client { volume: client as u64, work: Work::Guest };
        model.id = self.group.add(self.now_ns, name, model.settings).expect("it is new");
        model.begun = Vec::new();
        Ok(())
    }

    fn take(&mut self) -> Result<(), TestCaseError> {
        let mut begin = Vec::new();
        self.group.take(self.now_ns, &mut begin);
        for dispatch in begin {
            let client = self.clients.iter_mut().find(|model| model.id == dispatch.client);
            let model = client.expect("it is one of the clients");
            let first = model.waiting.pop_front().map(|(token, _)| token);
            prop_assert_eq!(first, Some(dispatch.token), "each client's requests keep their order");
            let cost = self.costs[&dispatch.token];
            prop_assert_eq!(dispatch.cost.units(), cost);
            model.begun.push((self.now_ns, cost));
            self.under_way.push(dispatch);
        }
        prop_assert!(self.under_way.len() <= DEPTH);
        if self.under_way.len() < DEPTH {
            for model in &self.clients {
                let idle = model.waiting.is_empty() || model.settings.limit_iops.is_some();
                prop_assert!(idle, "the server has room, and a request without a limit waits");
            }
        }
        let report = self.group.report();
        let waiting: usize = self.clients.iter().map(|model| model.waiting.len()).sum();
        prop_assert_eq!((report.waiting, report.under_way), (waiting, self.under_way.len()));
        Ok(())
    }

    /// All that waits begins in the end, and the group says when.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        while self.clients.iter().any(|model| !model.waiting.is_empty()) {
            for done in std::mem::take(&mut self.under_way) {
                self.group.complete(self.now_ns, &[done.ticket]);
            }
            let wake_ns = self.group.wake_at();
            prop_assert!(wake_ns.is_some(), "something waits, and nothing is under way");
            let before = self.group.report().waiting;
            self.now_ns = self.now_ns.max(wake_ns.unwrap_or(0));
            self.take()?;
            prop_assert!(self.group.report().waiting < before, "a wake-up for nothing");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked(
        all in prop::collection::vec(settings(), 4),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut run = Run::new(all);
        for step in &steps {
            run.step(step)?;
        }
        run.drain()?;
        for model in &run.clients {
            model.within_limit()?;
        }
    }
}
