//! A guest, the write log, an SSD and a back end, and what happens to them.

use crate::disk::{Disk, sectors, span_of};
use crate::memory::Mem;
use crate::oracle::Oracle;
use crate::ssd::Ssd;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{Answer, Failure, IoDone, Op, RequestId};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::recover::{Media, format, open};
use cinnabar_writeback::{Action, Command, Config, Done, Event, Place, Refusal, WriteLog};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Rng;
use std::collections::BTreeMap;

const SEGMENTS: u32 = 8;

/// How a run is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    steps: u32,
    blocks: u64,
    /// Sectors behind the last whole block.
    tail: u64,
    flush: f64,
    fua: f64,
    crash: f64,
    restart: f64,
    rot: f64,
    partial: f64,
    range: f64,
    large: f64,
    in_flight: usize,
    /// Preference for ending SSD I/O, engine I/O, and new requests.
    weights: [f64; 3],
    pub(crate) mutants: Mutants,
}

impl Settings {
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut rng = Rng::seed_from_u64(seed ^ 0x5E77_1965);
        let mut pick = |list: &[f64]| list[rng.random_range(0..list.len())];
        let (flush, fua) = (pick(&[0.0, 0.02, 0.1, 0.3]), pick(&[0.0, 0.05, 0.3]));
        let (crash, restart) = (pick(&[0.0, 0.002, 0.01]), pick(&[0.0, 0.0, 0.01]));
        let (partial, range, large) =
            (pick(&[0.0, 0.2, 0.8]), pick(&[0.0, 0.05, 0.3]), pick(&[0.0, 0.0, 0.1]));
        let rot = pick(&[0.0, 0.0, 0.005]);
        let weights = [pick(&[1.0, 4.0]), pick(&[1.0, 4.0]), pick(&[1.0, 4.0])];
        Self {
            steps: rng.random_range(200..1_500),
            blocks: [4, 12, 40][rng.random_range(0..3)],
            tail: [0, 0, 3][rng.random_range(0..3)],
            flush,
            fua,
            crash,
            restart,
            rot,
            partial,
            range,
            large,
            in_flight: [1, 4, 12][rng.random_range(0..3)],
            weights,
            mutants: Mutants::default(),
        }
    }
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    writes: u64,
    reads: u64,
    flushes: u64,
    kills: u64,
    power_cuts: u64,
    restarts: u64,
    /// Sectors that a power cut has set back.
    lost: u64,
    backend_writes: u64,
    backend_flushes: u64,
    ssd_fua: u64,
    ssd_flushes: u64,
    drains: u64,
    failed: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.reads += other.reads;
        self.flushes += other.flushes;
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.restarts += other.restarts;
        self.lost += other.lost;
        self.backend_writes += other.backend_writes;
        self.backend_flushes += other.backend_flushes;
        self.ssd_fua += other.ssd_fua;
        self.ssd_flushes += other.ssd_flushes;
        self.drains += other.drains;
        self.failed += other.failed;
    }

    /// Everything that a run can meet has been met.
    pub(crate) fn check(&self) {
        let Self {
            kills, power_cuts, restarts, lost, drains, ssd_fua, ssd_flushes, failed, ..
        } = *self;
        let all = [kills, power_cuts, restarts, lost, drains, ssd_fua, ssd_flushes, failed];
        assert!(all.iter().all(|count| *count > 0), "{self:?}");
    }
}

struct Asked {
    op: Op<Mem>,
    submitted: u64,
}

/// See the module.
pub(crate) struct World {
    rng: Rng,
    settings: Settings,
    now: Instant,
    log: WriteLog<Mem>,
    place: Place,
    ssd: Ssd,
    disk: Disk,
    oracle: Oracle,
    asked: BTreeMap<u64, Asked>,
    draining: Option<RequestId>,
    next_id: u64,
    next_value: u64,
    wake: Option<Instant>,
    events: Vec<Event<Mem>>,
    actions: Vec<Action<Mem>>,
    answers: Vec<(RequestId, Result<Done, Refusal>)>,
    /// A page has changed by itself: requests may fail, but nothing wrong may be seen.
    rotten: bool,
    /// A request has failed for that reason.
    over: bool,
    traces: bool,
    pub(crate) counts: Counts,
}

type Checked<T = ()> = Result<T, String>;

impl World {
    pub(crate) fn new(seed: u64, settings: Settings) -> Self {
        let ssd = Ssd::default();
        let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
        let uuid = ((u128::from(seed) << 64) + 77).to_le_bytes();
        format(&ssd, bytes, uuid).expect("it is large enough");
        let config = Self::config(&settings);
        let log = open(&ssd, bytes, config).expect("just formatted");
        let sectors = (settings.blocks * 8 + settings.tail) as usize;
        Self {
            rng: Rng::seed_from_u64(seed),
            settings,
            now: Instant(1),
            log,
            place: Place(0),
            ssd,
            disk: Disk::new(sectors),
            oracle: Oracle::new(sectors),
            asked: BTreeMap::new(),
            draining: None,
            next_id: 0,
            next_value: 0,
            wake: None,
            events: Vec::new(),
            actions: Vec::new(),
            answers: Vec::new(),
            rotten: false,
            over: false,
            traces: std::env::var_os("CINNABAR_TRACE").is_some(),
            counts: Counts::default(),
        }
    }

    fn config(settings: &Settings) -> Config {
        Config { destage_after_ns: 1_000_000, mutants: settings.mutants, ..Config::default() }
    }

    fn size_bytes(&self) -> u64 {
        self.settings.blocks * 4096 + self.settings.tail * 512
    }

    pub(crate) fn run(&mut self) -> Checked {
        self.attach()?;
        for _ in 0..self.settings.steps {
            self.step()?;
            if self.over {
                return self.check_backend();
            }
        }
        // The end: everything is answered, drained, and where it should be.
        self.finish_requests()?;
        self.drain()?;
        if self.over {
            return self.check_backend();
        }
        for sector in 0..self.disk.durable.len() {
            let (is, newest) = (self.disk.durable[sector], self.oracle.newest(sector));
            if is != newest || self.disk.volatile.iter().any(|(at, _)| *at == sector) {
                return Err(format!("drained, but sector {sector} holds {is} for {newest}"));
            }
        }
        let (flushes, fua, _) = self.ssd.counts();
        (self.counts.ssd_flushes, self.counts.ssd_fua) = (flushes, fua);
        (self.counts.backend_writes, self.counts.backend_flushes) =
            (self.disk.writes, self.disk.flushes);
        Ok(())
    }

    fn attach(&mut self) -> Checked {
        let (name, size_bytes) = ("volume".to_owned(), self.size_bytes());
        let incarnation = self.rng.random();
        let id = self.new_id();
        self.apply(Event::Control(id, Command::Attach { name, size_bytes, incarnation }))?;
        for _ in 0..10_000 {
            if let Some((_, result)) = self.answers.pop() {
                let Ok(Done::Attached(place)) = result else {
                    return Err(format!("attach: {result:?}"));
                };
                self.place = place;
                return Ok(());
            }
            self.end_something()?;
        }
        Err("the attach is not answered".to_owned())
    }

    fn new_id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId(self.next_id)
    }

    fn step(&mut self) -> Checked {
        self.now = self.now.plus_ns(self.rng.random_range(1..20_000));
        if self.wake.is_some_and(|at| at <= self.now) {
            self.wake = None;
            self.apply(Event::Wake)?;
        }
        if self.rng.random_bool(self.settings.rot) {
            self.rotten |= self.ssd.rot(&mut self.rng);
        }
        if !self.rotten && self.rng.random_bool(self.settings.crash) {
            let power = self.rng.random_bool(0.5);
            return self.crash(power);
        }
        if self.rng.random_bool(self.settings.restart) {
            self.counts.restarts += 1;
            self.disk.restart(&mut self.rng);
            self.check_backend()?;
            return self.apply(Event::Control(RequestId(0), Command::Restarted(self.place)));
        }
        if self.draining.is_none() && self.rng.random_bool(0.002) {
            let id = self.new_id();
            self.draining = Some(id);
            return self.apply(Event::Control(id, Command::Drain(self.place)));
        }
        let [ssd, disk, guest] = self.settings.weights;
        let choice = self.rng.random_range(0.0..ssd + disk + guest);
        if choice < ssd {
            self.end_ssd()
        } else if choice < ssd + disk {
            self.end_disk()
        } else if self.asked.len() < self.settings.in_flight {
            self.ask()
        } else {
            self.end_something()
        }
    }

    fn end_ssd(&mut self) -> Checked {
        match self.ssd.under_way() {
            0 => Ok(()),
            count => {
                let id = self.ssd.end(self.rng.random_range(0..count));
                self.apply(Event::LogDone(IoDone::new(id, Ok(()))))
            }
        }
    }

    fn end_disk(&mut self) -> Checked {
        let count = self.disk.under_way();
        if count == 0 {
            return Ok(());
        }
        let which = self.rng.random_range(0..count);
        if let Some((id, answer)) = self.disk.end(which) {
            self.check_backend()?;
            return self.apply(Event::EngineDone(id, Ok(answer)));
        }
        Ok(())
    }

    fn end_something(&mut self) -> Checked {
        if self.ssd.under_way() == 0 && self.disk.under_way() == 0 {
            let at = self.wake.take().unwrap_or(self.now);
            self.now = self.now.max(at);
            return self.apply(Event::Wake);
        }
        self.end_ssd()?;
        self.end_disk()
    }

    fn check_backend(&self) -> Checked {
        self.oracle
            .check_image(|sector| self.disk.candidates(sector).collect())
            .map_err(|wrong| format!("the back end's image is illegal: {wrong}"))
    }

    fn ask(&mut self) -> Checked {
        let total = self.size_bytes() / 512;
        let settings = self.settings;
        if self.rng.random_bool(settings.flush) {
            let submitted = self.oracle.now();
            return self.submit(Op::Flush, submitted);
        }
        let blocks_max = if self.rng.random_bool(settings.large) { settings.blocks } else { 3 };
        let span = if self.rng.random_bool(settings.partial) {
            let first = self.rng.random_range(0..total);
            let len = self.rng.random_range(1..=20.min(total - first));
            ByteSpan::new(first * 512, len * 512)
        } else {
            let first = self.rng.random_range(0..settings.blocks);
            let len = self.rng.random_range(1..=blocks_max.min(settings.blocks - first));
            let end =
                if first + len == settings.blocks { total * 512 } else { (first + len) * 4096 };
            ByteSpan::new(first * 4096, end - first * 4096)
        };
        let head = (span.offset % 4096) as usize / 512;
        if self.rng.random_bool(0.4) {
            let submitted = self.oracle.now();
            self.counts.reads += 1;
            let data = <Mem as cinnabar_engine::Payload>::alloc(span.blocks() as u32);
            return self.submit(Op::Read { span, data }, submitted);
        }
        let busy = self.asked.values().any(|asked| {
            let writes = !matches!(asked.op, Op::Read { .. } | Op::Flush);
            let other = span_of(&asked.op);
            writes
                && other.is_some_and(|other| other.offset < span.end() && span.offset < other.end())
        });
        if busy {
            return self.end_something();
        }
        self.counts.writes += 1;
        let fua = self.rng.random_bool(settings.fua);
        let op = if self.rng.random_bool(settings.range) {
            match self.rng.random_range(0..3) {
                0 => Op::WriteZeroes { span, fua, may_punch: false },
                1 => Op::WriteZeroes { span, fua, may_punch: true },
                // Of a trim only whole blocks count.
                _ if span.offset % 4096 == 0 && span.end() % 4096 == 0 => Op::Trim { span, fua },
                _ => Op::WriteZeroes { span, fua, may_punch: true },
            }
        } else {
            self.next_value += 1;
            let values = vec![self.next_value; (span.len / 512) as usize];
            Op::Write { span, data: Mem::of(head, &values), fua }
        };
        let value = if matches!(op, Op::Write { .. }) { self.next_value } else { 0 };
        self.oracle.write(sectors(span), value);
        self.submit(op, 0)
    }

    fn submit(&mut self, op: Op<Mem>, submitted: u64) -> Checked {
        let id = self.new_id();
        // A guest may use its buffer again: what was taken of it must be a copy.
        let given = match &op {
            Op::Write { span, data, fua } => {
                let own = <Mem as cinnabar_engine::Payload>::alloc(span.blocks() as u32);
                cinnabar_engine::Payload::copy_from(&own, 0, data, 0, span.blocks() * 4096);
                Op::Write { span: *span, data: own, fua: *fua }
            }
            op => op.clone(),
        };
        self.asked.insert(id.0, Asked { op, submitted });
        self.apply(Event::Submit(id, self.place, given))
    }

    fn apply(&mut self, event: Event<Mem>) -> Checked {
        self.trace("<-", &event);
        self.events.push(event);
        let mut actions = std::mem::take(&mut self.actions);
        self.log.apply(self.now, &mut self.events, &mut actions);
        for action in actions.drain(..) {
            self.trace("->", &action);
            match action {
                Action::Log(id, op) => self.ssd.submit(id, op),
                Action::Engine(id, _, op) => self.disk.submit(id, op),
                Action::Reply(id, result) => self.replied(id, result)?,
                Action::Answer(id, result) => {
                    self.over |= self.rotten && result.is_err();
                    if self.draining == Some(id) {
                        self.draining = None;
                        self.counts.drains += 1;
                    } else {
                        self.answers.push((id, result));
                    }
                }
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                }
            }
        }
        self.actions = actions;
        Ok(())
    }

    /// With `CINNABAR_TRACE` each event and action is printed, without data.
    fn trace(&self, way: &str, what: &impl std::fmt::Debug) {
        if !self.traces {
            return;
        }
        let text = format!("{what:?}");
        let mut short = String::new();
        for part in text.split("RefCell { value: [") {
            // Bytes of memory say nothing here.
            let rest =
                if short.is_empty() { part } else { part.split_once(']').map_or("", |p| p.1) };
            short.push_str(rest);
        }
        let short = short.split("MetaPage(").next().unwrap_or_default().to_owned();
        eprintln!("{} {way} {short}", self.now.0);
    }

    fn replied(&mut self, id: RequestId, result: Result<Answer<Mem>, Failure>) -> Checked {
        let asked = self.asked.remove(&id.0).ok_or("an answer to nothing")?;
        if self.rotten && result.is_err() {
            // Later requests of this sector may or may not have happened.
            self.over = true;
            self.counts.failed += 1;
            return Ok(());
        }
        let answer = result.map_err(|failure| format!("{:?} failed: {failure}", asked.op))?;
        match asked.op {
            Op::Flush => {
                self.counts.flushes += 1;
                self.oracle.barrier(asked.submitted);
            }
            Op::Read { span, .. } => {
                let Answer::Data(data) = answer else { return Err("a read without data".into()) };
                for (n, sector) in sectors(span).enumerate() {
                    let value = data.value((span.offset % 4096) as usize / 512 + n);
                    let value = value.ok_or_else(|| format!("sector {sector} is torn"))?;
                    if !self.oracle.check_read(sector, value, asked.submitted) {
                        return Err(format!("sector {sector} was read as {value}: stale"));
                    }
                }
            }
            Op::Write { span, fua, .. }
            | Op::Trim { span, fua }
            | Op::WriteZeroes { span, fua, .. } => {
                self.oracle.written(sectors(span));
                if fua {
                    // It covers its own write, and no other that a flush has to.
                    self.oracle.fua(sectors(span));
                }
            }
            Op::Invalidate { .. } => unreachable!("never asked"),
        }
        Ok(())
    }

    fn crash(&mut self, power: bool) -> Checked {
        if power {
            self.counts.power_cuts += 1;
        } else {
            self.counts.kills += 1;
        }
        self.disk.abandon(&mut self.rng);
        self.trace("crash", &power);
        self.check_backend()?;
        if power {
            self.ssd.power_cut(&mut self.rng);
        } else {
            self.ssd.kill(&mut self.rng);
        }
        self.asked.clear();
        (self.draining, self.wake) = (None, None);
        self.events.clear();
        let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
        let config = Self::config(&self.settings);
        self.log = open(&self.ssd, bytes, config).map_err(|error| error.to_string())?;
        Media::<Mem>::flush(&self.ssd).expect("never fails");
        self.attach()?;
        // What the guest finds is what was, from now on.
        let span = ByteSpan::new(0, self.size_bytes());
        let data = <Mem as cinnabar_engine::Payload>::alloc(span.blocks() as u32);
        let id = self.new_id();
        let op = Op::Read { span, data: data.clone() };
        self.asked.insert(id.0, Asked { op: op.clone(), submitted: 0 });
        self.apply(Event::Submit(id, self.place, op))?;
        self.finish_requests()?;
        for sector in 0..self.disk.durable.len() {
            let value = data.value(sector).ok_or_else(|| format!("sector {sector} is torn"))?;
            if !self.oracle.check_after_crash(sector, value, power) {
                let newest = self.oracle.newest(sector);
                return Err(format!(
                    "after a crash (power: {power}) sector {sector} holds {value}; newest {newest}"
                ));
            }
            self.counts.lost += u64::from(value != self.oracle.newest(sector));
            self.oracle.decide(sector, value);
        }
        self.oracle.crash_barrier();
        self.check_backend()
    }

    fn finish_requests(&mut self) -> Checked {
        for _ in 0..100_000 {
            if self.asked.is_empty() || self.over {
                return Ok(());
            }
            self.end_something()?;
        }
        Err(format!("{} requests are never answered", self.asked.len()))
    }

    fn drain(&mut self) -> Checked {
        let id = self.new_id();
        self.draining = Some(id);
        self.apply(Event::Control(id, Command::Drain(self.place)))?;
        for _ in 0..100_000 {
            if self.over {
                return Ok(());
            }
            if self.draining.is_none() {
                self.oracle.settled();
                return Ok(());
            }
            self.end_something()?;
        }
        Err("the drain is never answered".to_owned())
    }
}
