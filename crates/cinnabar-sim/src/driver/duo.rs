//! Two mechanisms at a time, brought together on purpose: the I/O that the first one waits for is held
//! up until the second one has begun, and then either ends first.
//!
//! Aims ([`steer`](super::steer)) wait for a moment and bring about one event. Some faults need more:
//! a checkpoint that lasts until the journal is being rewritten for the second time, and ends while
//! the last page of that is being written. Each order of begins and ends of two mechanisms is drawn
//! as often as any other, and what makes the second one begin is provoked: writes that invalidate cached
//! blocks, one journal page each, fill the journal; misses fill the log.

use crate::driver::world::{Halt, World};
use crate::machine::Factory;
use crate::pairs::{Incident, IoKind};
use crate::rng::Rng;
use crate::stamp::Stamped;
use crate::workload::Wanted;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Phase, Phases};

/// Batches until the first mechanism must have begun, and then until they are over.
const BATCHES_MAX: (u32, u32) = (600, 1500);
/// I/O is held up no longer, in ns; that of a back end not half as long as a driver waits for it.
const HELD_NS_MAX: u64 = 500_000_000;
/// That of the cache device in a drill, and while a session begins with a drill to come.
const HELD_IN_DRILL_NS_MAX: u64 = 5_000_000_000;
/// How long an I/O that is held up waits until it is looked at again, in ns.
const AGAIN_NS_MAX: u64 = 1_000_000;
/// Pages of a journal in which a rebase pays once it is half full, if the live records are few.
const REBASED_PAGES_MIN: u64 = 40;
/// Live records at which a checkpoint begins, if a few requests are to bring it about.
const RECORDS_MAX: usize = 100;
/// Requests of a session that provoke something, beside what its guests ask for.
const PROVOCATIONS_MAX: u32 = 100;
const DRILL_PROVOCATIONS_MAX: u32 = 600;

/// What writes the device's metadata: the mechanisms that share a journal.
const OF_METADATA: &[&[Phase]] = &[
    &[
        Phase::CheckpointChunks,
        Phase::CheckpointPages,
        Phase::CheckpointFlush,
        Phase::CheckpointHead,
    ],
    &[Phase::Rebase, Phase::RebaseLast],
    &[Phase::CleanAnnounced, Phase::CleanScan, Phase::CleanReads, Phase::CleanParked],
    &[Phase::LogFlush],
];

/// All others that take some time.
const OTHERS: &[&[Phase]] = &[
    &[Phase::LoadPages, Phase::LoadHeaders, Phase::LoadReplay, Phase::LoadPassed],
    &[Phase::DetachWaits, Phase::DetachFlush, Phase::Detached],
    &[Phase::Recording],
    &[Phase::Reserving, Phase::Sweeping],
    &[Phase::Prove],
    &[Phase::Draining, Phase::Replacing, Phase::Reopening, Phase::NoDevice],
    &[Phase::Gate],
    &[Phase::ChunkWrite],
    &[Phase::BumpGeneration],
];

/// How far two mechanisms have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The first one has not begun.
    Awaited,
    /// It lasts, and the second one has not begun so often.
    First,
    Both,
}

/// Two mechanisms.
#[derive(Debug)]
pub(super) struct Duo {
    /// The phase that is held up until the other one begins.
    first: Phase,
    second: Phase,
    /// All phases of the two.
    all: (Phases, Phases),
    /// The second one begins so often.
    times: u32,
    /// The first one ends while the second one lasts; otherwise the other way round.
    crossing: bool,
    step: Step,
    since: Instant,
    batches: u32,
}

/// Those of a drill: they can be provoked, and meet seldom by themselves. Those that share the journal
/// are likelier, and so are their last steps: what they have written counts by then.
const DRILLED: &[&[Phase]] = &[
    &[Phase::CheckpointPages, Phase::CheckpointFlush, Phase::CheckpointHead],
    &[Phase::CheckpointFlush, Phase::CheckpointHead],
    &[Phase::Rebase, Phase::RebaseLast],
    &[Phase::RebaseLast],
    &[Phase::CleanAnnounced, Phase::CleanScan, Phase::CleanReads, Phase::CleanParked],
    &[Phase::DetachWaits, Phase::DetachFlush, Phase::Detached],
    &[Phase::Draining, Phase::Replacing, Phase::Reopening],
];

/// A checkpoint, when its pages are copied, and what goes on in the journal meanwhile: most drills.
const SHARED: (&[Phase], &[Phase]) = (
    &[Phase::CheckpointPages, Phase::CheckpointFlush, Phase::CheckpointHead],
    &[
        Phase::RebaseLast,
        Phase::RebaseLast,
        Phase::RebaseLast,
        Phase::RebaseLast,
        Phase::Rebase,
        Phase::CleanAnnounced,
    ],
);

/// What can be brought about in a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means {
    /// A checkpoint begins by itself, or a few records bring it about.
    checkpoint: bool,
    /// The journal is rewritten when it is half full.
    rebase: bool,
    /// It is about the first checkpoint behind a crash: until that ends, each write is recorded.
    doubtful: bool,
}

impl Duo {
    /// Two that can be provoked.
    fn drill(rng: &mut Rng, now: Instant, means: Means) -> Self {
        loop {
            let phase = |rng: &mut Rng| {
                let some = rng.pick(DRILLED);
                rng.pick(some)
            };
            let (first, second) = if rng.chance(if means.doubtful { 0.8 } else { 0.6 }) {
                // Both write the journal's tail.
                (rng.pick(SHARED.0), rng.pick(SHARED.1))
            } else {
                (phase(rng), phase(rng))
            };
            let missing = |phase| match phase {
                Phase::CheckpointPages | Phase::CheckpointFlush | Phase::CheckpointHead => {
                    !means.checkpoint
                }
                Phase::Rebase | Phase::RebaseLast => !means.rebase,
                _ => false,
            };
            let whole = |phase| {
                let all = OF_METADATA.iter().chain(OTHERS);
                all.copied().find(|some| some.contains(&phase)).map(set_of)
            };
            let (Some(one), Some(other)) = (whole(first), whole(second)) else { continue };
            // Now and then what is out of reach is tried all the same.
            if one == other || (missing(first) || missing(second)) && rng.chance(0.95) {
                continue;
            }
            let (times, crossing) = (rng.pick(&[1, 2, 2, 3]), rng.chance(0.75));
            let (step, batches) = (Step::Awaited, 0);
            let all = (one, other);
            return Self { first, second, all, times, crossing, step, since: now, batches };
        }
    }

    pub(super) fn draw(rng: &mut Rng, now: Instant) -> Self {
        loop {
            let mut mechanism = || {
                let some = if rng.chance(0.6) { OF_METADATA } else { OTHERS };
                let phases = rng.pick(some);
                (rng.pick(phases), set_of(phases))
            };
            let ((first, one), (second, other)) = (mechanism(), mechanism());
            // What waits for the same I/O can't be told apart by holding it up.
            let held = IoKind::of_phase(first);
            if one == other || held.is_some() && held == IoKind::of_phase(second) {
                continue;
            }
            return Self {
                first,
                second,
                all: (one, other),
                times: rng.pick(&[1, 2, 3]),
                crossing: rng.chance(0.5),
                step: Step::Awaited,
                since: now,
                batches: 0,
            };
        }
    }

    /// What does not end for the time being, for so many ns at most.
    fn held(&self, now: Instant, ns: u64) -> Option<IoKind> {
        if now.since_ns(self.since) > ns {
            return None;
        }
        match self.step {
            Step::Awaited => None,
            Step::Both if self.crossing => IoKind::of_phase(self.second),
            Step::First | Step::Both => IoKind::of_phase(self.first),
        }
    }

    fn reaches(&mut self, step: Step, now: Instant) {
        (self.step, self.since, self.batches) = (step, now, 0);
    }

    /// The phase that is to begin next, and how likely something is done for it after a batch: most
    /// of it when the first one waits.
    fn awaited(&self) -> Option<(Phase, f64)> {
        match self.step {
            Step::Awaited => Some((self.first, 0.2)),
            Step::First => Some((self.second, 0.6)),
            Step::Both => None,
        }
    }

    /// Goes on after a batch; `Some`: it is over, as wanted or not.
    fn goes_on(&mut self, lasting: Phases, begun: Phases, now: Instant, ns: u64) -> Option<bool> {
        self.batches += 1;
        let last = (is_any(lasting, self.all.0), is_any(lasting, self.all.1));
        match self.step {
            Step::Awaited if lasting.has(self.first) => self.reaches(Step::First, now),
            Step::First if begun.has(self.second) => {
                self.times -= 1;
                if self.times == 0 {
                    self.reaches(Step::Both, now);
                }
            }
            Step::First if !last.0 => return Some(false),
            Step::Both if !last.0 || !last.1 => return Some(last.1 == self.crossing),
            _ => {}
        }
        let awaited = self.step == Step::Awaited;
        let late = !awaited && now.since_ns(self.since) > ns;
        let batches_max = if awaited { BATCHES_MAX.0 } else { BATCHES_MAX.1 };
        (late || self.batches > batches_max).then_some(false)
    }
}

fn set_of(phases: &[Phase]) -> Phases {
    phases.iter().fold(Phases::default(), |all, phase| all.or(Phases(1 << *phase as u8)))
}

/// Whether the first one has begun since.
fn is_aimed(before: Step, duo: Option<&Duo>) -> bool {
    before == Step::Awaited && duo.is_some_and(|duo| duo.step == Step::First)
}

const fn is_any(lasting: Phases, of: Phases) -> bool {
    lasting.0 & of.0 != 0
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// A batch was taken: the two go on, or two others are drawn.
    pub(super) fn advance_duo(&mut self) {
        let (lasting, begun) = self.meeting.now();
        let ns = self.held_ns_max();
        let starting = self.steering.starting;
        let Some(duo) = &mut self.steering.duo else { return };
        if starting {
            // It may take long until the index is there, and everything has been looked at.
            duo.batches = 0;
        }
        let before = duo.step;
        if let Some(as_wanted) = duo.goes_on(lasting, begun, self.now, ns) {
            self.count.duos += u64::from(as_wanted);
            let steering = &mut self.steering;
            let drill = std::mem::take(&mut steering.drilling);
            let another = || Duo::draw(&mut steering.rng, self.now);
            steering.duo = (!drill).then(another);
            let likely = if drill { 0.9 } else { 0.5 };
            if as_wanted && self.steering.crashes && self.steering.rng.chance(likely) {
                // What went wrong may need a few I/Os more to be durable.
                self.crash_soon();
            }
        }
        if is_aimed(before, self.steering.duo.as_ref()) {
            self.take_aim();
        }
        self.stir();
        self.provoke();
    }

    /// Whether this I/O ends later than it would.
    pub(super) fn is_held_up(&self, kind: IoKind) -> bool {
        let held = |duo: &Duo| duo.held(self.now, self.held_ns_max());
        self.steering.duo.as_ref().and_then(held) == Some(kind)
    }

    fn held_ns_max(&self) -> u64 {
        let drill = self.steering.starting || self.steering.drilling;
        let most = if drill { HELD_IN_DRILL_NS_MAX } else { HELD_NS_MAX };
        // What takes longer than its bound is reported, or given up.
        let bounded = |ns: u64, backend| {
            self.bound_ns_of(backend).map_or(ns, |bound_ns| ns.min(bound_ns / 2))
        };
        let most = bounded(most, None);
        let on_cache = |phase| IoKind::of_phase(phase).is_none_or(IoKind::on_cache);
        let duo = self.steering.duo.as_ref();
        if duo.is_some_and(|duo| on_cache(duo.first) && on_cache(duo.second)) {
            return most;
        }
        (0..self.volumes.len()).map(Some).fold(most, bounded)
    }

    /// When an I/O that is held up is looked at again.
    pub(super) fn again_at(&mut self) -> Instant {
        self.now.plus_ns(1 + self.steering.rng.below(AGAIN_NS_MAX))
    }

    /// Something is done, perhaps, that lets the awaited phase begin.
    pub(super) fn provoke(&mut self) {
        let Some((phase, likely)) = self.steering.duo.as_ref().and_then(Duo::awaited) else {
            return;
        };
        let steering = &mut self.steering;
        let may = self.quota > 0 || steering.drilling;
        // Nothing else is to do in a drill.
        let likely = if steering.drilling { 0.8 } else { likely };
        if !may || steering.provocations == 0 || !steering.rng.chance(likely) {
            return;
        }
        match phase {
            Phase::DetachWaits | Phase::DetachFlush | Phase::Detached => {
                self.order_rarely(Incident::Detach);
            }
            Phase::Recording | Phase::Reserving | Phase::Sweeping => {
                let incident = self.steering.rng.pick(&[Incident::Detach, Incident::Attach]);
                self.order_rarely(incident);
            }
            Phase::Draining | Phase::Replacing | Phase::Reopening | Phase::NoDevice => {
                self.order_rarely(Incident::Abandon);
            }
            Phase::CleanAnnounced
            | Phase::CleanScan
            | Phase::CleanReads
            | Phase::CleanParked
            | Phase::LogFlush
            | Phase::ChunkWrite => {
                self.provoke_by(&[Wanted::Read, Wanted::Read, Wanted::Write]);
            }
            Phase::Prove => {}
            // A journal page each.
            _ if self.meeting.now().0.has(Phase::JournalWrite) => {}
            _ if self.steering.drilling && self.hit_target() => {
                self.steering.provocations -= 1;
            }
            _ => self.provoke_by(&[Wanted::Write, Wanted::Write, Wanted::Trim, Wanted::Zeroes]),
        }
    }

    fn order_rarely(&mut self, incident: Incident) {
        if self.steering.rng.chance(0.1) {
            self.order(incident);
        }
    }

    /// A few small requests at once, beside those of the guests.
    fn provoke_by(&mut self, some: &[Wanted]) {
        for _ in 0..self.steering.rng.pick(&[1, 2, 6]) {
            let wanted = self.steering.rng.pick(some);
            let volume = self.steering.rng.below(self.volumes.len() as u64) as usize;
            if self.steering.provocations > 0 && self.demand_small(volume, wanted) {
                self.steering.provocations -= 1;
            }
        }
    }

    /// Two mechanisms are brought together now, whatever the guests have left to ask: those that the
    /// session began with, if the first one waits for the second since then, or two others.
    pub(super) fn drill(&mut self) -> Result<(), Halt> {
        let goes_on = std::mem::take(&mut self.steering.starting) && self.steering.duo.is_some();
        let skipped = if self.steering.crashes { 0.3 } else { 0.6 };
        if goes_on {
            if self.is_loading() {
                self.await_load()?;
            }
        } else if self.steering.duo.is_none() || self.steering.rng.chance(skipped) {
            return Ok(());
        }
        let means = self.means(false);
        let steering = &mut self.steering;
        match &mut steering.duo {
            Some(duo) if goes_on => (duo.since, duo.batches) = (self.now, 0),
            duo => *duo = Some(Duo::drill(&mut steering.rng, self.now, means)),
        }
        self.take_aim();
        self.steering.provocations = DRILL_PROVOCATIONS_MAX;
        self.steering.drilling = true;
        for _ in 0..BATCHES_MAX.0 {
            if self.steering.duo.is_none() {
                break;
            }
            self.provoke();
            self.pump(|world| world.steering.duo.is_none() || world.agenda.next_at().is_none())?;
        }
        self.steering.drilling = false;
        self.steering.duo = Some(Duo::draw(&mut self.steering.rng, self.now));
        Ok(())
    }

    /// What may be provoked in a session, and what it begins with: behind a crash a checkpoint comes at
    /// once, and until it ends every write is recorded.
    pub(super) fn begin_duos(&mut self) {
        self.steering.provocations = PROVOCATIONS_MAX;
        let doubtful = self.crash_note.is_some();
        self.steering.starting = self.steering.rng.chance(if doubtful { 0.9 } else { 0.5 });
        let means = self.means(doubtful);
        let (rng, now) = (&mut self.steering.rng, self.now);
        self.steering.duo = Some(if self.steering.starting {
            Duo::drill(rng, now, means)
        } else {
            Duo::draw(rng, now)
        });
    }

    fn means(&self, doubtful: bool) -> Means {
        let setup = &self.profile.setup;
        Means {
            checkpoint: doubtful || setup.config.bounds.live_records <= RECORDS_MAX,
            rebase: setup.journal_pages.is_none_or(|pages| pages >= REBASED_PAGES_MIN)
                && setup.config.bounds.live_records <= RECORDS_MAX,
            doubtful,
        }
    }
}
