//! How many requests of a volume's destage are under way at a time: as many as its guests' misses bear.
//!
//! The destage and guests' misses share a back end. About every tick (100 ms) the driver says how long
//! reads of the back end took ([`Misses`]), and then:
//!
//! | misses since the last decision | requests at a time |
//! |---|---|
//! | none for five ticks | as many as end within half a tick |
//! | the first ones after that | one |
//! | half as long again as usual, or longer | half as many |
//! | quicker than that, and requests had to wait | one more |
//!
//! What is *usual* follows the misses while nothing is destaged, or one request at a time. A destage that
//! has more of them goes with one for a moment every 10 s: else it would count as usual what misses suffer
//! from it.
//!
//! Never fewer than one; and no fewer than it takes for what is dirty to be at the back end when half of
//! `rpo` is over, at the pace of the last writes. From then on, while the log is half as full as it may
//! be, or when a command or a guest waits for the destage, it goes as if no guest read.
//!
//! Without misses, too, only so many are under way that each takes at most half a tick (or twice as long
//! as one that nothing is before): what lies in a slow back end's queue can't be called back, and the first miss
//! waits behind it. It is enough to keep a back end busy: twice as many each tick that has them wait,
//! half as many once they take longer, but never fewer than 8, and 32 if the destage must not wait.

use crate::destage::Destage;
use crate::format::{SEGMENT_PAGES, VOLUMES_MAX};
use crate::log::{EngineIo, WriteLog};
use crate::mutant::Mutant;
use crate::seam::{LogVolumeId, Misses};
use cinnabar_engine::limits::REQUESTS_MAX;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{Op, Payload};
use free::Free;
pub(crate) use free::Sent;

mod free;

/// Ticks without a miss after which guests don't count as reading.
const IDLE_TICKS: u64 = 5;
/// Fewer misses say too little.
const READS_MIN: u64 = 4;
/// Most requests at a time that a volume comes to one by one.
const DEPTH_MAX: u32 = 256;
/// So often a destage goes with one request for a moment, to learn what misses take usually.
const PROBE_NS: u64 = 10_000_000_000;
/// A destage may have so many requests under way, however many others have.
const FEW: u32 = 8;
const _: () = assert!(FEW as usize * VOLUMES_MAX as usize <= REQUESTS_MAX / 4);
/// No bound.
const ALL: u32 = u32::MAX;

/// What decides on the pace of a destage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaceReason {
    /// Nothing is paced.
    #[default]
    Off,
    /// No guest reads from the back end.
    Idle,
    /// The log fills up, or something waits for the destage.
    Pressed,
    /// `rpo` needs more than misses would bear.
    Rpo,
    /// Guests read from the back end again: it begins with one request.
    Begun,
    /// Misses are as quick as usual.
    Quick,
    /// Misses have become slow.
    Slow,
}

/// The pace of a destage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceStatus {
    /// Requests at a time, at most; `None`: all that there are.
    pub at_most: Option<u32>,
    /// Why.
    pub reason: PaceReason,
    /// How long a miss took lately, and usually, in ns; 0: not known.
    pub miss_ns: (u64, u64),
}

/// What has to be destaged, and by when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) dirty_blocks: u64,
    pub(crate) age_ns: u64,
    pub(crate) rpo_ns: u64,
    /// It must not wait.
    pub(crate) pressed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// As misses have it.
    depth: u32,
    /// As `rpo` has it.
    floor: u32,
    reason: PaceReason,
    decided: Instant,
    misses: Misses,
    /// When there was one, if ever.
    missed: Option<Instant>,
    /// How long a miss takes usually, when that was last learnt, and how long it took lately.
    usual_ns: Option<u64>,
    learnt: Instant,
    lately_ns: u64,
    /// It goes with one request to learn what is usual: how many it had, and whether those may still be
    /// under way.
    probe: Option<(u32, bool)>,
    /// A guest has read past the log since the driver last told.
    reads: bool,
    /// Since the last decision requests of the destage were under way; some had to wait.
    wrote: bool,
    waited: bool,
    /// Time that a block of the destage takes, in ns.
    block_ns: u64,
    /// How many while guests' misses don't pace it.
    free: Free,
    /// More are under way than would be begun now: some are of a time with another bound.
    crowded: bool,
}

impl Pace {
    /// How many requests may be under way.
    pub(crate) fn at_most(&self) -> u32 {
        match self.reason {
            PaceReason::Off | PaceReason::Idle => self.free.depth.max(self.floor),
            PaceReason::Pressed => self.pressed(),
            _ => self.depth.max(self.floor).max(1),
        }
    }

    /// How many while something waits for the destage.
    pub(crate) fn pressed(&self) -> u32 {
        self.depth.max(self.floor).max(self.free.hurried())
    }

    pub(crate) fn status(&self) -> PaceStatus {
        let at_most = Some(self.at_most()).filter(|_| self.reason != PaceReason::Off);
        let miss_ns = (self.lately_ns, self.usual_ns.unwrap_or(0));
        PaceStatus { at_most, reason: self.reason, miss_ns }
    }

    /// A guest's read has been passed on to the engine, or has come back.
    pub(crate) const fn reads(&mut self) {
        self.reads = true;
    }

    /// Reads of the back end took so long. The engine reads there for the destage, too: what lies around
    /// a part of a block.
    pub(crate) fn saw(&mut self, now: Instant, misses: Misses) {
        if !std::mem::take(&mut self.reads) {
            return;
        }
        if misses.reads > 0 {
            self.missed = Some(now);
        }
        self.misses.reads = self.misses.reads.saturating_add(misses.reads);
        self.misses.total_ns = self.misses.total_ns.saturating_add(misses.total_ns);
    }

    /// So many requests of the destage are under way; `waits`: others have to wait for their turn.
    pub(crate) fn writes(&mut self, under_way: u32, waits: bool) {
        self.wrote = true;
        self.waited |= waits;
        self.free.waited |= waits;
        self.crowded |= under_way > self.at_most();
    }

    /// One of them has ended.
    pub(crate) fn wrote(&mut self, blocks: u64, sent: Sent, took_ns: u64) {
        let each = took_ns / blocks.max(1);
        self.block_ns = if self.block_ns == 0 { each } else { (self.block_ns * 7 + each) / 8 };
        self.free.ended(sent, took_ns);
    }

    /// Decides, if a tick is over. A tick of 0: nothing is paced.
    pub(crate) fn decide(&mut self, now: Instant, tick_ns: u64, load: &Load) {
        if tick_ns == 0 || now.since_ns(self.decided) < tick_ns {
            return;
        }
        self.decided = now;
        let bounds = (self.free.depth..=self.free.hurried()).contains(&self.at_most());
        self.free.decide(now, tick_ns, bounds);
        let since = self.missed.map_or(u64::MAX, |at| now.since_ns(at));
        let was_free = matches!(self.reason, PaceReason::Off | PaceReason::Idle);
        if since >= tick_ns.saturating_mul(IDLE_TICKS) {
            (self.reason, self.misses) = (PaceReason::Idle, Misses::default());
            (self.wrote, self.waited) = (false, false);
        } else if was_free {
            (self.depth, self.reason, self.probe) = (1, PaceReason::Begun, None);
        }
        if self.misses.reads >= READS_MIN {
            self.follow_misses(now, !was_free);
            (self.wrote, self.waited) = (false, false);
        }
        self.crowded = false;
        self.floor = self.needs(load);
        if self.reason == PaceReason::Idle {
            // What misses bore once says nothing of now.
            self.depth = 0;
            return;
        }
        if load.pressed {
            self.reason = PaceReason::Pressed;
        } else if self.floor > self.depth {
            self.reason = PaceReason::Rpo;
        } else if matches!(self.reason, PaceReason::Pressed | PaceReason::Rpo) {
            // With as many as misses bore before.
            self.reason = PaceReason::Quick;
        }
    }

    /// `paced`: the destage was bounded meanwhile.
    fn follow_misses(&mut self, now: Instant, paced: bool) {
        let Misses { reads, total_ns } = std::mem::take(&mut self.misses);
        let mean = total_ns / reads;
        self.lately_ns = mean;
        let alone = !self.wrote || paced && self.at_most() == 1 && !self.crowded;
        match self.probe {
            // What was under way before has ended by now.
            Some((depth, true)) => return self.probe = Some((depth, false)),
            Some((depth, false)) => (self.depth, self.probe) = (depth, None),
            None if !paced || self.crowded => {}
            None if self.wrote && self.usual_ns.is_some_and(|usual| mean > usual + usual / 2) => {
                (self.depth, self.reason) = ((self.depth / 2).max(1), PaceReason::Slow);
            }
            None => {
                self.depth = (self.depth + u32::from(self.waited)).min(DEPTH_MAX);
                self.reason = PaceReason::Quick;
            }
        }
        let usual = self.usual_ns.unwrap_or(mean);
        if alone {
            (self.usual_ns, self.learnt) = (Some(usual / 2 + mean / 2), now);
        } else if paced && !self.crowded {
            self.usual_ns = Some(usual.min(mean));
            if self.floor <= 1 && now.since_ns(self.learnt) >= PROBE_NS {
                self.probe = Some((self.depth, true));
                self.depth = 1;
            }
        }
    }

    /// How many requests it takes for all of it to be there in time.
    fn needs(&self, load: &Load) -> u32 {
        let left_ns = (load.rpo_ns / 2).saturating_sub(load.age_ns);
        if left_ns == 0 {
            return self.free.hurried();
        }
        // What is under way at a time is what ends in a time, by how long each takes.
        let work_ns = u128::from(load.dirty_blocks) * u128::from(self.block_ns);
        work_ns.div_ceil(u128::from(left_ns)).min(u128::from(self.free.hurried())) as u32
    }
}

/// A request of the destage that waits for its turn.
#[derive(Debug)]
pub(crate) struct Ready<P> {
    pub(crate) span: ByteSpan,
    pub(crate) data: P,
    pub(crate) fua: bool,
}

impl<P: Payload> WriteLog<P> {
    /// Reads of the back end of a volume took so long: its pace is decided on.
    pub(crate) fn missed(&mut self, LogVolumeId(place): LogVolumeId, misses: Misses) {
        let (now, tick_ns) = (self.now, self.config.pace_ns);
        if self.volumes.get(usize::from(place)).is_none_or(Option::is_none) {
            return;
        }
        let load = self.load(place);
        let volume = self.volume(place);
        if let Destage::Running(run) = &volume.destage
            && run.writing > 0
        {
            volume.pace.writes(run.writing, !run.ready.is_empty());
        }
        volume.pace.saw(now, misses);
        volume.pace.decide(now, tick_ns, &load);
        self.touched.add(place);
    }

    /// Gives the engine as many requests of a destage as its pace allows, in order.
    pub(crate) fn send_writes(&mut self, place: u16) {
        let now = self.now;
        let is_pressed = self.load(place).pressed;
        let is_paced = self.config.pace_ns > 0;
        let most = match &self.volume(place).pace {
            _ if !is_paced => ALL,
            pace if is_pressed => pace.pressed(),
            pace => pace.at_most(),
        };
        let last_first = self.config.mutants.is(Mutant::PacedUnordered);
        loop {
            let is_full = self.asked.len() >= self.config.bounds.asked;
            let volume = self.volume(place);
            let Destage::Running(run) = &mut volume.destage else { return };
            let crowded = is_full && run.writing >= FEW;
            if run.ready.is_empty() || run.writing >= most || crowded {
                let waits = !run.ready.is_empty();
                if run.writing > 0 {
                    volume.pace.writes(run.writing, waits);
                }
                return;
            }
            let next = if last_first { run.ready.pop_back() } else { run.ready.pop_front() };
            let Ready { span, data, fua } = next.expect("just looked at");
            let sent = Sent { at: now, alone: run.writing == 0 };
            run.writing += 1;
            let blocks = span.blocks();
            volume.destaged_blocks += blocks;
            volume.destaged_writes += 1;
            let io = EngineIo::Write { place, blocks, sent };
            self.ask(io, place, Op::Write { span, data, fua });
        }
    }

    fn load(&mut self, place: u16) -> Load {
        let pressed = self.is_pressed(place);
        let (now, rpo_ns) = (self.now, self.config.age_max_ns);
        let all = self.segments.all.len() as u64 * u64::from(SEGMENT_PAGES);
        let half = all * u64::from(self.config.dirty_max_percent) / 200;
        let volume = self.volume(place);
        Load {
            dirty_blocks: volume.pages,
            age_ns: volume.age_ns(now),
            rpo_ns,
            pressed: pressed || volume.pages > half,
        }
    }
}

#[cfg(test)]
mod tests;
