//! The world of one run: two hosts, the image between them, guests, oracle, clock.

use crate::hosts::clocks::Clock;
use crate::hosts::commands::Control;
use crate::hosts::host::Host;
use crate::hosts::image::Image;
use crate::hosts::io::Flight;
use crate::hosts::judge::Judge;
use crate::hosts::messages::Message;
use crate::hosts::operator::Fate;
use crate::hosts::profile::Profile;
use crate::hosts::requests::{Client, Pending};
use crate::hosts::steps::Step;
use crate::hosts::{HostFault, HostOptions, HostReport};
use crate::medium::Media;
use crate::rng::Rng;
use crate::stamp::{Stamp, mix};
use crate::violation::Violation;
use cinnabar_driver::ownership::Attempt;
use cinnabar_engine::RequestId;
use cinnabar_engine::units::Instant;
use std::collections::{BTreeMap, VecDeque};

/// What takes longer than this never ends, in ns.
const PATIENCE_NS: u64 = 12_000_000_000_000;
/// More than any run needs.
const STEPS_MAX: u64 = 2_000_000;
/// Tells the random numbers of a run's events from those of its profile.
const EVENTS: u64 = 0x2057_5000_0000;
/// The same of what worlds lean towards, and of hosts' clocks.
const AIMS: u64 = 0x2057_a000_0000;

/// Something that will happen.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// To a run of a host's daemon; it waits while that is frozen.
    At(usize, u64, Work),
    /// A message arrives at a host, whichever run that is in.
    Message(usize, Message),
    /// A part of an I/O reaches the image.
    Land(u64, usize, usize),
    /// A standby's read reaches the image.
    Look(RequestId),
    /// A part of the image learns of a map.
    Learn(u64, u64),
    /// An owner's look at its lock reaches the image: of a session, and when it began by its host's clock.
    LookAtLock(usize, u64),
    /// A host that was cut off is reached again, if it runs still.
    Rejoin(usize, u64),
    /// A daemon is started.
    Start(usize),
    /// The operator, or fate, does something.
    Operate,
}

/// What a daemon does.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// An I/O is sent.
    Send(u64),
    /// An I/O has ended.
    Finish(u64),
    /// The engine is woken.
    Wake(u64),
    /// A step of giving or taking has ended.
    Step(Step),
    /// It waits for an answer no longer.
    GiveUp(Attempt),
    /// The pause after an attempt is over.
    Again,
    /// A standby's read has ended.
    Looked(RequestId, Vec<Stamp>),
    /// A look at the lock has ended: of a session, when it began, and whether it has the lock.
    SawLock(usize, u64, bool),
    /// A guest may make a request.
    Arrive(usize),
    /// It was frozen until now.
    Thaw,
}

pub(super) struct World {
    pub(super) options: HostOptions,
    pub(super) profile: Profile,
    pub(super) rng: Rng,
    pub(super) now: Instant,
    agenda: BTreeMap<(u64, u64), Item>,
    numbers: u64,
    pub(super) hosts: [Host; 2],
    pub(super) image: Image,
    pub(super) judge: Judge,
    /// I/O under way.
    pub(super) flights: BTreeMap<u64, Flight>,
    pub(super) pending: BTreeMap<RequestId, Pending>,
    pub(super) controls: BTreeMap<RequestId, (usize, Control)>,
    pub(super) clients: Vec<Client>,
    /// The guest that is meant to run.
    pub(super) guest: usize,
    pub(super) fate: Fate,
    /// Version of the newest write.
    pub(super) version: u64,
    /// Requests that guests may still make.
    pub(super) budget: u64,
    /// Things may go wrong.
    pub(super) faults_on: bool,
    pub(super) count: HostReport,
    lines: Option<VecDeque<String>>,
    digest: u64,
}

impl World {
    pub(super) fn new(seed: u64, options: HostOptions, words: bool) -> Self {
        let mut aims = Rng::new(mix(seed ^ AIMS));
        let profile = Profile::draw(&mut Rng::new(mix(seed)), options.mutants).lean(&mut aims);
        let rng = Rng::new(mix(seed ^ EVENTS));
        let hosts = [0, 1].map(|one| Host::new(one, &profile, &options, Clock::draw(&mut aims)));
        let image = Image::new(&profile, options.mutants);
        let judge = Judge::new(image.backend.sectors());
        let fate = Fate::new(profile.acts);
        let budget = options.requests * profile.more;
        Self {
            options,
            profile,
            rng,
            now: Instant(1),
            agenda: BTreeMap::new(),
            numbers: 0,
            hosts,
            image,
            judge,
            flights: BTreeMap::new(),
            pending: BTreeMap::new(),
            controls: BTreeMap::new(),
            clients: Vec::new(),
            guest: 0,
            fate,
            version: 0,
            budget,
            faults_on: true,
            count: HostReport::default(),
            lines: words.then(VecDeque::new),
            digest: 0,
        }
    }

    pub(super) fn report(&self) -> HostReport {
        let mut report = self.count.clone();
        (report.seeds, report.virtual_ns, report.digest) = (1, self.now.0, self.digest);
        report
    }

    pub(super) fn last_lines(self) -> Vec<String> {
        self.lines.map(Vec::from).unwrap_or_default()
    }

    pub(super) fn note(&mut self, words: impl FnOnce() -> String) {
        let Some(lines) = &mut self.lines else { return };
        if lines.len() >= self.options.lines.max(1) {
            lines.pop_front();
        }
        lines.push_back(format!("{:>14} ns  {}", self.now.0, words()));
    }

    pub(super) fn happened(&mut self, fault: HostFault) {
        self.count.note(fault);
    }

    /// A number never given before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn enter(&mut self, ns: u64, item: Item) {
        let number = self.number();
        self.agenda.insert((self.now.plus_ns(ns).0, number), item);
    }

    /// Enters an item some time between now and `ns_max` later.
    pub(super) fn soon(&mut self, ns_max: u64, item: Item) {
        let ns = self.rng.below(ns_max + 1);
        self.enter(ns, item);
    }

    /// The same, of this run of a host.
    pub(super) fn soon_at(&mut self, host: usize, ns_max: u64, work: Work) {
        let run = self.hosts[host].run;
        self.soon(ns_max, Item::At(host, run, work));
    }

    /// Does something with a host's media, which has the image meanwhile.
    pub(super) fn with_media<T>(&mut self, host: usize, act: impl FnOnce(&mut Media) -> T) -> T {
        let host = &mut self.hosts[host];
        self.image.backend.generation = host.generation;
        std::mem::swap(&mut self.image.backend, &mut host.media.backends[0]);
        let result = act(&mut host.media);
        std::mem::swap(&mut self.image.backend, &mut host.media.backends[0]);
        host.generation = self.image.backend.generation;
        result
    }

    /// The whole run: guests under faults, then everything is read from both hosts.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        for host in 0..2 {
            self.start(host)?;
        }
        self.guest = self.begin_guest(0);
        self.soon(self.profile.act_ns_max, Item::Operate);
        self.pump(|world| world.budget == 0 && world.fate.acts == 0)?;
        self.end_well()
    }

    /// Lets things happen until `done`.
    pub(super) fn pump(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        let began = self.now;
        for _ in 0..STEPS_MAX {
            if done(self) {
                return Ok(());
            }
            let Some(((at, number), item)) = self.agenda.pop_first() else {
                return Err(self.stuck("nothing is left to happen"));
            };
            let at = self.now.max(Instant(at));
            if at.since_ns(began) > PATIENCE_NS {
                return Err(self.stuck("it does not end"));
            }
            self.image.backend.pass_ns(at.since_ns(self.now));
            self.now = at;
            self.digest = mix(self.digest ^ at.0 ^ number << 40);
            if let Some((until, item)) = self.frozen(&item) {
                self.agenda.insert((until.0, number), item);
                continue;
            }
            self.happen(item)?;
        }
        Err(self.stuck("it takes too many steps"))
    }

    /// If it is a host's, and that is frozen: until when.
    fn frozen(&self, item: &Item) -> Option<(Instant, Item)> {
        let (Item::At(host, ..) | Item::Message(host, _)) = item else { return None };
        let until = self.hosts[*host].frozen.filter(|until| *until > self.now)?;
        Some((until, item.clone()))
    }

    fn happen(&mut self, item: Item) -> Result<(), Violation> {
        match item {
            Item::At(host, run, work) if self.hosts[host].up && self.hosts[host].run == run => {
                self.thaw(host);
                self.work(host, work)
            }
            Item::At(..) => Ok(()),
            Item::Message(host, message) => {
                self.thaw(host);
                self.hear(host, message)
            }
            Item::Land(flight, start, end) => {
                self.land(flight, start..end);
                Ok(())
            }
            Item::Look(request) => {
                self.look(request);
                Ok(())
            }
            Item::LookAtLock(session, began) => {
                self.look_at_lock(session, began);
                Ok(())
            }
            Item::Rejoin(host, run) => {
                self.rejoin(host, run);
                Ok(())
            }
            Item::Learn(region, map) => {
                self.image.learn(region, map);
                Ok(())
            }
            Item::Start(host) => self.start_again(host),
            Item::Operate => self.operate(),
        }
    }

    fn work(&mut self, host: usize, work: Work) -> Result<(), Violation> {
        match work {
            Work::Send(flight) => {
                self.send(flight);
                Ok(())
            }
            Work::Finish(flight) => self.finish(flight),
            Work::Wake(number) => self.wake(host, number),
            Work::Step(step) => self.stepped(host, step),
            Work::GiveUp(attempt) => self.give_up(host, attempt),
            Work::Again => self.again(host),
            Work::Looked(request, values) => self.done(request, Ok(Some(values))),
            Work::SawLock(session, began, held) => self.saw_lock(host, session, began, held),
            Work::Arrive(client) => self.arrive(client),
            Work::Thaw => Ok(()),
        }
    }
}
