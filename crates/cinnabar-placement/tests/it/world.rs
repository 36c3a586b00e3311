//! One run: a guest, its host, hosts before it that are dead or don't know yet, and the pools.

use crate::host::{Asserts, Ended, Host, Op, Request, Work, work_of};
use crate::media::Media;
use crate::oracle::Oracle;
use crate::settings::{Counts, Settings};
use cinnabar_placement::mutant::Mutant;
use cinnabar_placement::volume::{
    Action, Admission, GivenUp, Io, MoveEnd, Op as IoOp, Stored, Verdict,
};
use cinnabar_placement::{Geometry, Header, Object, Pool, Record, State};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;

/// The smallest extents there are: eight parts of a sector each.
pub(crate) const EXTENT_LOG2: u8 = 12;
const PARTS: usize = 8;
const EXTENTS_MAX: u32 = 8;

pub(crate) struct World {
    settings: Settings,
    rng: Xoshiro256PlusPlus,
    media: Media,
    oracle: Oracle,
    owner: Host,
    /// Hosts that have lost the volume and go on with what they had begun.
    before: Vec<Host>,
    /// Operations of dead hosts that are still on their way.
    late: Vec<Op>,
    now_ns: u64,
    token: u64,
    /// Nothing fails and nothing new begins.
    settling: bool,
    /// When the fast pool is full: drawn apart, so that the other draws of a seed stay as they are.
    full: Xoshiro256PlusPlus,
    /// Extents that are to leave it.
    leaving: BTreeSet<u32>,
    pub(crate) counts: Counts,
}

impl World {
    pub(crate) fn new(seed: u64, settings: &Settings) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut media = Media::default();
        media.parts = PARTS;
        media.epoch_ignored = settings.volume.mutants.is(Mutant::EpochIgnored);
        let bytes = u64::from(settings.extents) << EXTENT_LOG2;
        let geometry = Geometry::new(bytes, EXTENT_LOG2).expect("a size");
        let header = Header::new([7; 16], geometry, settings.budget_extents << EXTENT_LOG2);
        media.create(&header);
        let owner = Host::new(header, &media, settings).expect("an empty table is sound");
        let mut oracle = Oracle::default();
        oracle.resize(settings.extents as usize * PARTS);
        let counts = Counts::default();
        let (before, late) = (Vec::new(), Vec::new());
        let settings = settings.clone();
        let full = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xf011);
        let leaving = BTreeSet::new();
        Self {
            settings,
            rng,
            media,
            oracle,
            owner,
            before,
            late,
            now_ns: 0,
            token: 0,
            settling: false,
            full,
            leaving,
            counts,
        }
    }

    /// Runs all of it; what is wrong, if anything is. At step `crash_at` the owner dies.
    pub(crate) fn run(&mut self, crash_at: Option<u32>) -> Result<(), String> {
        for step in 0..self.settings.steps {
            self.step().map_err(|what| format!("step {step}: {what}"))?;
            if crash_at == Some(step) {
                self.take_over(false).map_err(|what| format!("step {step}: {what}"))?;
            }
        }
        self.settle().map_err(|what| format!("at the end: {what}"))
    }

    fn step(&mut self) -> Result<(), String> {
        self.now_ns += self.rng.random_range(0..1000);
        let settings = self.settings.clone();
        if self.rng.random_bool(settings.crash) {
            self.take_over(false)?;
        }
        if self.rng.random_bool(settings.partition) && self.before.len() < 2 {
            self.take_over(true)?;
        }
        if self.owner.requests.len() < settings.depth && self.rng.random_bool(0.5) {
            self.request()?;
        }
        if self.rng.random_bool(settings.moves) {
            self.plan();
        }
        if self.rng.random_bool(settings.resize) {
            self.resize()?;
        }
        if self.rng.random_bool(settings.junk) {
            self.throw_in();
        }
        if self.rng.random_bool(settings.collect) {
            if self.owner.listed.is_empty() {
                self.owner.listed = self.media.list();
            } else {
                self.collect()?;
            }
        }
        if self.rng.random_bool(settings.silent) {
            self.fall_silent()?;
        }
        if self.full.random_bool(settings.full) {
            self.fill_up()?;
        }
        if self.rng.random_bool(0.2) {
            self.tick()?;
        }
        for _ in 0..self.rng.random_range(1..=3) {
            self.go_on()?;
        }
        let fast = self.media.fast_objects();
        let budget = self.settings.budget_extents;
        if fast > budget {
            return Err(format!("{fast} objects in the fast pool; the budget is {budget}"));
        }
        Ok(())
    }

    /// A request of the guest.
    fn request(&mut self) -> Result<(), String> {
        let extents = (self.oracle.len() / PARTS) as u32;
        if self.rng.random_bool(0.05) {
            return self.request_behind_the_end(extents);
        }
        let hot = self.settings.hot.min(extents);
        let most = self.rng.random_bool(0.8);
        let extent = self.rng.random_range(0..if most { hot } else { extents }) as usize;
        let first = self.rng.random_range(0..PARTS);
        let count = self.rng.random_range(1..=(PARTS - first).min(4));
        let part = extent * PARTS + first;
        let read = self.rng.random_bool(self.settings.reads);
        if !read && self.oracle.is_written(part, count) {
            return Ok(());
        }
        let op = if read { IoOp::Read } else { IoOp::Write };
        self.token += 1;
        let token = self.token;
        let io = Io { token, op, offset: part as u64 * 512, length: count as u64 * 512 };
        let mut actions = Vec::new();
        let admission = self.owner.volume.begin(io, &mut actions);
        if let Admission::Refused(_) = admission {
            return Ok(());
        }
        let request = match op {
            IoOp::Read => Request::Read { id: self.oracle.read_begins(part, count) },
            IoOp::Write => Request::Write(self.oracle.write_begins(part, count)),
        };
        match (admission, &request) {
            (Admission::Zeros, Request::Read { id }) => {
                self.counts.reads += 1;
                return self.oracle.read_ends(*id, Some(&vec![0; count]));
            }
            (Admission::Held, Request::Read { .. }) => return Err("a read waits".into()),
            (Admission::Zeros, Request::Write(_)) => return Err("a write gives zeros".into()),
            _ => {}
        }
        self.owner.requests.insert(token, request);
        self.owner.ios.insert(token, io);
        if let Admission::Go(route) = admission {
            let fails = self.fails();
            self.owner.send(token, route, fails);
        }
        self.carry_out(None, actions)
    }

    fn request_behind_the_end(&mut self, extents: u32) -> Result<(), String> {
        let offset = u64::from(extents) << EXTENT_LOG2;
        let op = if self.rng.random() { IoOp::Read } else { IoOp::Write };
        let io = Io { token: 0, op, offset, length: 512 };
        match self.owner.volume.begin(io, &mut Vec::new()) {
            Admission::Refused(_) => Ok(()),
            admission => Err(format!("behind the end: {admission:?}")),
        }
    }

    fn fails(&mut self) -> bool {
        !self.settling && self.rng.random_bool(self.settings.fails)
    }

    fn plan(&mut self) {
        let extents = self.owner.volume.header().geometry.extents();
        let draw = |rng: &mut Xoshiro256PlusPlus| {
            let pool = if rng.random_bool(0.6) { Pool::Fast } else { Pool::Slow };
            (rng.random_range(0..extents), pool)
        };
        let moves: Vec<_> = (0..3).map(|_| draw(&mut self.rng)).collect();
        self.owner.volume.set_moves(moves);
    }

    fn resize(&mut self) -> Result<(), String> {
        let extents = self.rng.random_range(1..=EXTENTS_MAX);
        let mut actions = Vec::new();
        let _ = self.owner.volume.resize(u64::from(extents) << EXTENT_LOG2, &mut actions);
        self.carry_out(None, actions)
    }

    /// An object under a name that is used up, as a pool that is put back from a copy has them.
    fn throw_in(&mut self) {
        let header = self.media.header().expect("the volume is there");
        let extent = self.rng.random_range(0..EXTENTS_MAX);
        let record = self.media.record(extent);
        let (truth, second) = (record.truth(extent), record.second(extent));
        let used = if record == Record::ABSENT { header.floor } else { record.highest() };
        if used == 0 {
            return;
        }
        let generation = self.rng.random_range(1..=used);
        let named = [truth, second].iter().flatten().any(|object| object.generation == generation);
        let pool = if self.rng.random() { Pool::Fast } else { Pool::Slow };
        let object = Object { extent, pool, generation };
        // The owner may not know yet, or know of a first write whose record is under way.
        if !named && self.owner.volume.judge(object) == Verdict::Left {
            self.media.throw_in(object, u64::MAX);
        }
    }

    /// Judges one of the listed objects.
    fn collect(&mut self) -> Result<(), String> {
        let Some(object) = self.owner.listed.pop() else { return Ok(()) };
        match self.owner.volume.judge(object) {
            Verdict::InUse => {}
            Verdict::Left => {
                let fails = self.fails();
                self.owner.push(Work::Delete { object, of_volume: false }, fails);
                self.counts.collected += 1;
            }
            Verdict::Foreign => {
                let record = self.media.record(object.extent);
                return Err(format!("{object} in {} is foreign: {record:?}", object.pool));
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), String> {
        // At the end hosts that are cut off begin nothing: what they try again is never done.
        let before = if self.settling { 0 } else { self.before.len() };
        for at in std::iter::once(None).chain((0..before).map(Some)) {
            let mut actions = Vec::new();
            let now_ns = self.now_ns;
            self.host(at).volume.tick(now_ns, &mut actions);
            self.carry_out(at, actions)?;
        }
        Ok(())
    }

    fn host(&mut self, at: Option<usize>) -> &mut Host {
        match at {
            None => &mut self.owner,
            Some(at) => &mut self.before[at],
        }
    }

    /// One operation of one host goes on.
    fn go_on(&mut self) -> Result<(), String> {
        let hosts = self.before.len() + 2;
        match self.rng.random_range(0..hosts + 2) {
            0 if !self.late.is_empty() => {
                let at = self.rng.random_range(0..self.late.len());
                self.late_step(at);
                Ok(())
            }
            n if (1..=self.before.len()).contains(&n) => self.host_step(Some(n - 1)),
            _ => self.host_step(None),
        }
    }

    fn late_step(&mut self, at: usize) {
        self.late[at].step(&mut self.media, &mut self.rng);
        if self.late[at].is_applied() {
            let op = self.late.swap_remove(at);
            self.counts.late += 1;
            self.counts.kept_out += u64::from(op.kept_out);
        }
    }

    fn host_step(&mut self, of: Option<usize>) -> Result<(), String> {
        let count = self.host(of).ops.len();
        if count == 0 {
            return Ok(());
        }
        let at = self.rng.random_range(0..count);
        self.op_step(of, at).map(drop)
    }

    /// Whether the operation has ended.
    fn op_step(&mut self, of: Option<usize>, at: usize) -> Result<bool, String> {
        let host = match of {
            None => &mut self.owner,
            Some(at) => &mut self.before[at],
        };
        let Some(ended) = host.ops[at].step(&mut self.media, &mut self.rng) else {
            return Ok(false);
        };
        let op = host.ops.swap_remove(at);
        self.ended(of, op, ended).map(|()| true)
    }

    /// A pool answers nothing for a while: no write waits for it whose data are in the other one.
    fn fall_silent(&mut self) -> Result<(), String> {
        let silent = if self.rng.random() { Pool::Fast } else { Pool::Slow };
        for _ in 0..32 {
            self.now_ns += self.settings.volume.hold_max_ns;
            self.tick()?;
            let mut at = 0;
            while let Some(op) = self.owner.ops.get(at) {
                at += usize::from(op.waits_for(silent) || !self.op_step(None, at)?);
            }
        }
        for token in self.owner.held() {
            let extent = (self.owner.ios[&token].offset >> EXTENT_LOG2) as u32;
            if self.owner.volume.table().get(extent).pool != silent {
                return Err(format!(
                    "a write of extent {extent} waits for the silent {silent} pool"
                ));
            }
        }
        self.counts.silences += 1;
        Ok(())
    }

    /// The fast pool has no room for an extent, or for any: it leaves, whatever it is at.
    fn fill_up(&mut self) -> Result<(), String> {
        let extents = self.owner.volume.header().geometry.extents();
        let (one, all) = (self.full.random_range(0..extents), self.full.random_bool(0.3));
        for extent in if all { 0..extents } else { one..one + 1 } {
            let mut actions = Vec::new();
            if self.owner.volume.leave_fast(extent, &mut actions) {
                self.leaving.insert(extent);
            }
            self.carry_out(None, actions)?;
        }
        Ok(())
    }

    fn ended(&mut self, of: Option<usize>, op: Op, ended: Ended) -> Result<(), String> {
        let mut actions = Vec::new();
        self.counts.kept_out += u64::from(op.kept_out);
        match ended {
            Ended::Missing(object) if of.is_none() => {
                return Err(format!("{object} is not in the {} pool", object.pool));
            }
            Ended::Missing(_) => {
                let failed = op.failed();
                return self.ended(of, op, failed);
            }
            Ended::Collected => {}
            Ended::Event(event) => self.host(of).volume.apply(event, &mut actions),
            Ended::Read(token, ticket, found) => {
                self.host(of).volume.end(ticket, found.is_some(), &mut actions);
                let request = self.host(of).requests.remove(&token);
                if let (None, Some(Request::Read { id })) = (of, request) {
                    self.counts.reads += 1;
                    self.oracle.read_ends(id, found.as_deref())?;
                }
            }
            Ended::Write(token, ticket, done) => {
                self.host(of).volume.end(ticket, done, &mut actions);
                let request = self.host(of).requests.remove(&token);
                if let (None, Some(Request::Write(writing))) = (of, request) {
                    self.counts.writes += 1;
                    self.oracle.write_ends(&writing, done);
                }
            }
        }
        if of.is_none() {
            self.sizes();
        }
        self.carry_out(of, actions)
    }

    /// The oracle hears of the size that the owner knows.
    fn sizes(&mut self) {
        let parts = self.owner.volume.header().geometry.extents() as usize * PARTS;
        if parts != self.oracle.len() {
            self.counts.grown += u64::from(parts > self.oracle.len());
            self.counts.shrunk += u64::from(parts < self.oracle.len());
            self.oracle.resize(parts);
        }
        self.leaving.retain(|extent| (*extent as usize) < parts / PARTS);
    }

    fn carry_out(&mut self, of: Option<usize>, actions: Vec<Action>) -> Result<(), String> {
        for action in actions {
            match action {
                Action::Release { token, route } => {
                    let fails = self.fails();
                    self.host(of).send(token, route, fails);
                }
                Action::Fail { token, .. } => {
                    let request = self.host(of).requests.remove(&token);
                    match (of, request) {
                        (None, Some(Request::Write(w))) => self.oracle.write_ends(&w, false),
                        (None, _) => return Err("what is no held write fails".into()),
                        _ => {}
                    }
                }
                Action::Ended { extent, outcome: MoveEnd::Moved(Pool::Slow) } if of.is_none() => {
                    self.counts.left += u64::from(self.leaving.remove(&extent));
                }
                Action::Ended { extent, outcome: MoveEnd::GivenUp(why) }
                    if of.is_none()
                        && why != GivenUp::Restart
                        && !self.settling
                        && self.settings.is_calm() =>
                {
                    return Err(format!("extent {extent} stays, though nothing failed: {why}"));
                }
                Action::Ended { extent, outcome: MoveEnd::GivenUp(_) } if of.is_none() => {
                    self.leaving.remove(&extent);
                }
                Action::Ended { .. } => {}
                Action::Fenced if of.is_none() => return Err("the owner is fenced".into()),
                Action::Fenced => self.counts.fenced += 1,
                action => {
                    let fails = self.fails();
                    let mut work = work_of(action, 512).expect("an operation");
                    if let (true, Work::Copy { from, asserts, .. }) =
                        (self.settings.asserts, &mut work)
                    {
                        let version = self.media.version(*from);
                        *asserts = Some(Asserts { version, got: Vec::new() });
                    }
                    self.host(of).push(work, fails);
                }
            }
        }
        Ok(())
    }

    /// The owner dies, or is cut off and does not know; the next host takes the volume over.
    fn take_over(&mut self, cut_off: bool) -> Result<(), String> {
        self.note_counts();
        self.oracle.owner_gone();
        for _ in 0..self.rng.random_range(0..4) {
            self.go_on_before()?;
        }
        let header = self.media.header().expect("the volume is there");
        let next = header.taken_over();
        let stored = self.media.store_header(&header, &next);
        assert_eq!(stored, Stored::Done, "one host takes over at a time");
        let host = Host::new(next, &self.media, &self.settings)?;
        let gone = std::mem::replace(&mut self.owner, host);
        self.leaving.clear();
        if cut_off {
            self.before.push(gone);
            self.counts.partitions += 1;
        } else {
            let (lost, rng) = (self.settings.lost, &mut self.rng);
            let on_their_way = gone.ops.into_iter();
            self.late.extend(on_their_way.filter(|op| !op.is_applied() && !rng.random_bool(lost)));
            self.counts.crashes += 1;
        }
        self.sizes();
        if self.settings.full > 0.0 || self.rng.random() {
            self.move_what_is_late();
        }
        self.tick()
    }

    /// The next owner moves extents to which writes of the last one are still on their way.
    fn move_what_is_late(&mut self) {
        let on_their_way = self.late.iter().chain(self.before.iter().flat_map(|host| &host.ops));
        let object = |op: &Op| match &op.work {
            Work::Write { route, .. } => Some((route.object.extent, route.object.pool.other())),
            _ => None,
        };
        let moves: Vec<_> = on_their_way.filter_map(object).collect();
        self.owner.volume.set_moves(moves);
    }

    /// Something of hosts that are gone still happens.
    fn go_on_before(&mut self) -> Result<(), String> {
        if self.late.is_empty() {
            return if self.before.is_empty() { Ok(()) } else { self.host_step(Some(0)) };
        }
        let at = self.rng.random_range(0..self.late.len());
        self.late_step(at);
        Ok(())
    }

    fn note_counts(&mut self) {
        let of = self.owner.volume.counts();
        self.counts.held += of.held;
        self.counts.copies += of.copies;
        self.counts.patched += of.patched_bytes / 512;
        self.counts.demoted += of.moved[0];
        self.counts.promoted += of.moved[1];
        self.counts.given_up += of.given_up;
        self.counts.over_budget += of.over_budget;
    }

    /// All that is under way ends; then the pools hold what the table says, and nothing else.
    fn settle(&mut self) -> Result<(), String> {
        self.note_counts();
        self.settling = true;
        let mut rounds = 0;
        let quiet = |world: &Self| {
            let done = world.owner.ops.is_empty() && world.owner.volume.is_quiet();
            done && world.late.is_empty() && world.before.iter().all(|host| host.ops.is_empty())
        };
        while !quiet(self) {
            self.now_ns += 1_000_000;
            self.tick()?;
            for of in std::iter::once(None).chain((0..self.before.len()).map(Some)) {
                self.host_step(of)?;
            }
            if !self.late.is_empty() {
                self.late_step(0);
            }
            rounds += 1;
            if rounds > 20_000 {
                let requests = self.owner.requests.len();
                return Err(format!("no end: {requests} requests, {:?}", self.owner.volume));
            }
        }
        if !self.owner.requests.is_empty() || self.owner.volume.requests() > 0 {
            return Err(format!("{} requests wait", self.owner.requests.len()));
        }
        if !self.leaving.is_empty() {
            return Err(format!("extents {:?} stay in a full pool", self.leaving));
        }
        self.owner.listed = self.media.list();
        while !self.owner.listed.is_empty() || !self.owner.ops.is_empty() {
            self.collect()?;
            self.host_step(None)?;
        }
        self.objects_are_those_of_the_table()?;
        for part in 0..self.oracle.len() {
            self.look(part)?;
        }
        Ok(())
    }

    fn objects_are_those_of_the_table(&mut self) -> Result<(), String> {
        let mut objects = self.media.list();
        for (extent, record) in self.media.records() {
            if record != self.owner.volume.table().get(extent) {
                return Err(format!("the table and the owner differ in extent {extent}"));
            }
            let truth = record.truth(extent);
            let there = objects.iter().position(|object| Some(*object) == truth);
            match (record.state, there) {
                (State::Stable | State::Fresh, Some(at)) => _ = objects.swap_remove(at),
                (State::Fresh, None) => {}
                _ => return Err(format!("extent {extent} is {record:?}, object {there:?}")),
            }
            let first = extent as usize * PARTS;
            if !self.oracle.is_touched(first, PARTS) {
                return Err(format!("extent {extent} was never written and takes room"));
            }
        }
        if objects.is_empty() { Ok(()) } else { Err(format!("left: {objects:?}")) }
    }

    fn look(&mut self, part: usize) -> Result<(), String> {
        let id = self.oracle.read_begins(part, 1);
        let io = Io { token: 0, op: IoOp::Read, offset: part as u64 * 512, length: 512 };
        let found = match self.owner.volume.begin(io, &mut Vec::new()) {
            Admission::Zeros => 0,
            Admission::Go(route) => {
                let epoch = self.owner.epoch();
                let found = self.media.read(route.object, part % PARTS, epoch);
                let found = found.map_err(|_| "the owner is kept out")?;
                self.owner.volume.end(route.ticket, true, &mut Vec::new());
                found.or(route.may_be_missing.then_some(0)).ok_or("an object is lost")?
            }
            admission => return Err(format!("a read at the end: {admission:?}")),
        };
        self.oracle.read_ends(id, Some(&[found]))
    }
}
