//! Looking for trouble: each session has a few pairs of a moment and an incident that it aims at, and
//! kinds of I/O that are slow in it.
//!
//! Pairs are drawn from all that are possible, so that rare ones are aimed at as often as common
//! ones; what a seed aims at depends on nothing but the seed. When the moment has come, the incident
//! is brought about, now and then: a request is made, an I/O completes before its time or fails, the
//! daemon dies.

use crate::driver::duo::Duo;
use crate::driver::guests::State;
use crate::driver::world::World;
use crate::machine::Factory;
use crate::pairs::{Edge, Incident, IoKind, Pair, possible};
use crate::rng::Rng;
use crate::stamp::Stamped;
use crate::violation::Violation;
use crate::workload::{Ending, Wanted};
use cinnabar_engine::{Event, IoError, IoId};

/// Pairs that a session aims at.
const AIMS: usize = 8;
/// How often an aim is followed in a session.
const ACTS_MAX: u32 = 6;
/// An I/O that is held up ends within this time, in ns.
const HELD_NS_MAX: u64 = 500_000_000;

/// What a session looks for.
#[derive(Debug)]
pub(super) struct Steering {
    pub(super) rng: Rng,
    aims: Vec<(Pair, u32)>,
    /// Kinds of I/O that are slow, and how many times slower they are.
    slow: Vec<(IoKind, u64)>,
    /// This session is to end by a crash, of the host or not.
    pub(super) crashes: bool,
    /// Two mechanisms that are brought together, and requests that may still provoke them.
    pub(super) duo: Option<Duo>,
    pub(super) provocations: u32,
    /// It is all that this session is about just now.
    pub(super) drilling: bool,
    /// It begins, and what is to be brought together does, too.
    pub(super) starting: bool,
    /// The next session is to look at everything before its guests change it.
    pub(super) looks: bool,
    /// Blocks that a crash would leave cached, of this session's drill: volume and block.
    pub(super) targets: Vec<(usize, u64)>,
    /// The crash that is wanted: of the host?
    pub(super) crash: Option<bool>,
}

impl Steering {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            aims: Vec::new(),
            slow: Vec::new(),
            crashes: false,
            duo: None,
            provocations: 0,
            drilling: false,
            starting: false,
            looks: false,
            targets: Vec::new(),
            crash: None,
        }
    }

    /// Draws what the next session looks for; says whether mechanisms are to be brought together in it.
    pub(super) fn begin_session(&mut self, ending: Ending, regions: bool) -> bool {
        self.aims.clear();
        self.slow.clear();
        (self.duo, self.drilling, self.starting) = (None, false, false);
        self.crash = None;
        self.crashes = ending != Ending::Stop;
        // Some sessions go as they go.
        if self.rng.chance(0.2) {
            return false;
        }
        for _ in 0..self.rng.below(4) {
            self.slow.push((self.rng.pick(IoKind::ALL), self.rng.pick(&[5, 30, 300])));
        }
        while self.aims.len() < AIMS {
            let pair = self.rng.pick(possible(regions));
            let crash = pair.1.is_crash();
            // Two aims of a session that is to crash are its crash, the others none.
            if crash == (self.crashes && self.aims.len() < 2) {
                self.aims.push((pair, ACTS_MAX));
            }
        }
        self.rng.chance(0.9)
    }

    /// Nothing more of this session is wanted.
    pub(super) fn end_session(&mut self) {
        self.aims.clear();
        self.slow.clear();
        (self.duo, self.drilling, self.starting) = (None, false, false);
        self.crash = None;
        self.targets.clear();
    }

    /// How long an I/O takes that would take so long, in ns.
    pub(super) fn stretch(&mut self, kind: IoKind, lasts_ns: u64) -> u64 {
        let slow = self.slow.iter().find(|(slow, _)| *slow == kind).map(|(_, times)| *times);
        let Some(times) = slow.filter(|_| self.rng.chance(0.3)) else { return lasts_ns };
        lasts_ns.max((lasts_ns * times).min(HELD_NS_MAX))
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// If a moment has come that this session aims at, what it aims at happens, perhaps.
    pub(super) fn steer(&mut self) -> Result<(), Violation> {
        self.advance_duo();
        if self.steering.drilling {
            // One thing at a time.
            return Ok(());
        }
        for at in 0..self.steering.aims.len() {
            let (pair, left) = self.steering.aims[at];
            if left == 0 || !self.meeting.comes(pair.0) {
                continue;
            }
            let likely = if pair.0.edge == Edge::Lasts { 0.1 } else { 0.6 };
            if self.steering.rng.chance(likely) && self.bring_about(pair.1)? {
                self.steering.aims[at].1 -= 1;
            }
        }
        Ok(())
    }

    /// Lets something happen, if it can; says whether it does.
    fn bring_about(&mut self, incident: Incident) -> Result<bool, Violation> {
        let wanted = match incident {
            Incident::Kill | Incident::PowerCut => {
                return Ok(self.crash_now(incident == Incident::PowerCut));
            }
            Incident::Read => Wanted::Read,
            Incident::Write => Wanted::Write,
            Incident::Flush => Wanted::Flush,
            Incident::Trim => Wanted::Trim,
            Incident::Zeroes => Wanted::Zeroes,
            Incident::Overdue => return Ok(self.declare_overdue()),
            Incident::Done(kind) => return self.pull(|of| of == kind, None),
            Incident::CacheFails | Incident::BackendFails => {
                let cache = incident == Incident::CacheFails;
                let features = self.features();
                let allowed = if cache { features.cache_faults } else { features.backend_faults };
                if !allowed || !self.faults_on {
                    return Ok(false);
                }
                return self.pull(|kind| kind.on_cache() == cache, Some(IoError::Io));
            }
            Incident::Begins(phase) | Incident::Ends(phase) => {
                return match IoKind::of_phase(phase) {
                    Some(kind) => self.pull(|of| of == kind, None),
                    None => Ok(false),
                };
            }
            Incident::Wake => {
                // Before its time, as a driver may.
                self.batch.push(Event::Wake);
                return Ok(true);
            }
            // They follow upon these.
            Incident::Replace => return Ok(self.order(Incident::Abandon)),
            Incident::Seal => return Ok(self.order(Incident::Detach)),
            Incident::Close => return Ok(false),
            _ => return Ok(self.order(incident)),
        };
        Ok(self.demand(wanted))
    }

    /// A crash at the next batch.
    fn crash_now(&mut self, host: bool) -> bool {
        let wanted = self.steering.crashes && (!host || self.features().power_cuts);
        if wanted {
            self.fuse = Some(0);
            self.steering.crash = Some(host);
        }
        wanted
    }

    /// A command of the operator, beside the guests.
    pub(super) fn order(&mut self, incident: Incident) -> bool {
        if self.quota == 0 {
            return false;
        }
        let features = self.features();
        let volume = self.steering.rng.below(self.volumes.len() as u64) as usize;
        let attached = self.volumes[volume].state() == State::Attached;
        match incident {
            Incident::Plan if features.plans => self.new_plan(),
            Incident::Invalidate if features.invalidations && attached => {
                self.write_beneath(volume);
            }
            Incident::Detach if features.detaches && attached => self.detach_for_a_while(volume),
            Incident::Abandon if features.replacements => self.change_device(true),
            Incident::Attach | Incident::Forget => {
                let away = |volume: &usize| self.volumes[*volume].state() == State::Away;
                let Some(volume) = (0..self.volumes.len()).find(away) else { return false };
                if incident == Incident::Forget && features.forgets {
                    self.forget(volume);
                } else {
                    self.come_back(volume);
                }
            }
            _ => return false,
        }
        true
    }

    /// A guest asks for this, now.
    fn demand(&mut self, wanted: Wanted) -> bool {
        if self.quota == 0 {
            return false;
        }
        let volume = self.steering.rng.below(self.volumes.len() as u64) as usize;
        self.demand_of(volume, wanted)
    }

    /// A backend's I/O takes too long, from now on.
    fn declare_overdue(&mut self) -> bool {
        let may = self.features().stalls && self.faults_on;
        let late = |flight: &crate::driver::io::Flight| flight.may_be_overdue();
        let some: Vec<IoId> = if may { self.flights_that(late) } else { Vec::new() };
        if some.is_empty() {
            return false;
        }
        let id = self.steering.rng.pick(&some);
        self.overdue(id);
        true
    }

    /// An I/O of such a kind ends before its time, well or not.
    fn pull(
        &mut self,
        wanted: impl Fn(IoKind) -> bool,
        error: Option<IoError>,
    ) -> Result<bool, Violation> {
        let free = |kind| wanted(kind) && !self.is_held_up(kind);
        let some = self.flights_that(|flight| free(flight.kind));
        if some.is_empty() {
            return Ok(false);
        }
        let id = self.steering.rng.pick(&some);
        self.end_early(id, error)?;
        Ok(true)
    }
}

impl IoKind {
    pub(super) fn on_cache(self) -> bool {
        !matches!(
            self,
            Self::BackendRead
                | Self::BackendWrite
                | Self::BackendFlush
                | Self::Prove
                | Self::BumpGeneration
        )
    }
}
