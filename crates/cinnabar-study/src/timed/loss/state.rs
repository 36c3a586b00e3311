//! How far a loss has come: the phases of each host, whether the one that lost its cache is warm again,
//! and the limit of its back-end I/O until then.
//!
//! Nothing here takes time, and nothing knows of caches.

use super::super::config::Config;
use super::report::{HostPhase, LossReport, Phase, WARM_SHARE, WINDOW_READS};
use super::settings::LossSettings;

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Blocks that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Found {
    pub(in super::super) hits: u64,
    pub(in super::super) misses: u64,
}

impl Found {
    fn since(self, earlier: Self) -> Self {
        Self { hits: self.hits - earlier.hits, misses: self.misses - earlier.misses }
    }

    /// 0 without any.
    fn hit_share(self) -> f64 {
        let reads = self.hits + self.misses;
        if reads == 0 { 0.0 } else { self.hits as f64 / reads as f64 }
    }
}

/// See the module.
pub(in super::super) struct Loss {
    settings: LossSettings,
    /// From the beginning of measuring to the loss, scaled.
    after_ns: u64,
    phase: Phase,
    /// When measuring, the second and the third phase began.
    began_ns: [Option<u64>; 3],
    hosts: Vec<[HostPhase; 3]>,
    /// What each host had found when the phase began.
    marks: Vec<Found>,
    /// What each host's tiers have found so far; an engine counts by itself.
    pub(super) found: Vec<Found>,
    /// Share that the host found before.
    share_before: f64,
    /// What it had found when the window began, and its reads since then.
    window: Found,
    window_reads: u32,
    /// When its next I/O may set out.
    next_io_ns: u64,
}

impl Loss {
    pub(in super::super) fn new(config: &Config) -> Self {
        let hosts = config.hosts as usize;
        Self {
            settings: config.loss,
            after_ns: config.loss.at_ns / u64::from(config.scale),
            phase: Phase::Before,
            began_ns: [None; 3],
            hosts: vec![Default::default(); hosts],
            marks: vec![Found::default(); hosts],
            found: vec![Found::default(); hosts],
            share_before: 0.0,
            window: Found::default(),
            window_reads: 0,
            next_io_ns: 0,
        }
    }

    pub(super) fn host(&self) -> usize {
        self.settings.host as usize
    }

    pub(super) fn ram_too(&self) -> bool {
        self.settings.ram_too
    }

    /// Measuring begins; gives when the cache is to be lost.
    pub(super) fn measure(&mut self, now: u64) -> u64 {
        self.began_ns[Phase::Before as usize] = Some(now);
        now + self.after_ns
    }

    /// The cache is lost, now that hosts have found so much.
    pub(super) fn lose(&mut self, now: u64, found: &[Found]) {
        self.close_phase(found);
        self.share_before = self.hosts[self.host()][Phase::Before as usize].hit_share();
        self.window = found[self.host()];
        self.enter(Phase::During, now);
    }

    /// An operation is done; says whether it is time to look whether the host is warm again.
    #[inline]
    pub(in super::super) fn record(
        &mut self,
        host: usize,
        write: bool,
        started_ns: u64,
        now: u64,
    ) -> bool {
        let begun = |began: Option<u64>| began.is_some_and(|began| started_ns >= began);
        let phase = match self.began_ns {
            [_, _, after] if begun(after) => Phase::After,
            [_, during, _] if begun(during) => Phase::During,
            _ => Phase::Before,
        };
        let seen = &mut self.hosts[host][phase as usize];
        let latency = if write { &mut seen.writes } else { &mut seen.reads };
        latency.record(now - started_ns);
        if self.phase != Phase::During || host != self.host() || write {
            return false;
        }
        self.window_reads += 1;
        self.window_reads == WINDOW_READS
    }

    /// A window is full, and the host has found so much by now: is it warm again? One that found
    /// nothing before the loss never is.
    pub(super) fn is_warm(&mut self, found: Found) -> bool {
        let share = found.since(self.window).hit_share();
        (self.window, self.window_reads) = (found, 0);
        share > 0.0 && share >= WARM_SHARE * self.share_before && self.share_before > 0.0
    }

    /// It is warm again.
    pub(super) fn end(&mut self, now: u64, found: &[Found]) {
        self.close_phase(found);
        self.enter(Phase::After, now);
    }

    /// Is it warming up?
    pub(super) fn warms_up(&self, host: usize) -> bool {
        self.phase == Phase::During && host == self.host()
    }

    /// Is this host in a hurry?
    pub(super) fn hurries(&self, host: usize) -> bool {
        self.settings.hurry && self.warms_up(host)
    }

    /// When an I/O of a host to the file server may set out, if it has to wait for its turn. An I/O that
    /// asks later than it might have gives the others no more: there is no credit.
    #[inline]
    pub(super) fn turn(&mut self, now: u64, host: usize) -> Option<u64> {
        if self.settings.iops == 0 || !self.warms_up(host) {
            return None;
        }
        let turn = self.next_io_ns.max(now);
        self.next_io_ns = turn + SECOND_NS / u64::from(self.settings.iops);
        (turn > now).then_some(turn)
    }

    /// The run is over. Gives what was found; or, if the cache was not lost, how long the run would
    /// have had to be measured.
    pub(super) fn report(mut self, now: u64, found: &[Found]) -> Result<LossReport, u64> {
        let [Some(before), Some(during), after] = self.began_ns else { return Err(self.after_ns) };
        self.close_phase(found);
        let lasted = |from: u64, to: u64| to.saturating_sub(from);
        let (warm, ended) = (after.is_some(), after.unwrap_or(now));
        let phases_ns =
            [lasted(before, during), lasted(during, ended), after.map_or(0, |at| lasted(at, now))];
        Ok(LossReport { host: self.settings.host, phases_ns, warm, hosts: self.hosts })
    }

    fn close_phase(&mut self, found: &[Found]) {
        for ((host, mark), found) in self.hosts.iter_mut().zip(&mut self.marks).zip(found) {
            let Found { hits, misses } = found.since(*mark);
            let seen = &mut host[self.phase as usize];
            (seen.hits, seen.misses) = (hits, misses);
            *mark = *found;
        }
    }

    fn enter(&mut self, phase: Phase, now: u64) {
        self.phase = phase;
        self.began_ns[phase as usize] = Some(now);
        self.window_reads = 0;
    }
}
