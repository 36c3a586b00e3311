//! A side of the comparison: a hybrid volume with a daemon of its own.

use super::load::{Figures, Load, Trace};
use super::place::{Place, Size};
use anyhow::{Context, Result, ensure};
use e2e::{Config, Daemon, Fio, MIB, Site, Volume};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All on SSD: the pools have changed their parts, and nothing moves.
    AllSsd,
    /// Our planner, with a budget.
    Benefit,
    /// The authors' planner, without one.
    Mobbs,
    /// Our planner with as much SSD as the authors' took.
    Equal,
    /// All on HDD: nothing moves.
    AllHdd,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AllSsd => "all-SSD",
            Self::Benefit => "benefit",
            Self::Mobbs => "mobbs",
            Self::Equal => "benefit, SSD as mobbs",
            Self::AllHdd => "all-HDD",
        }
    }

    const fn volume(self) -> &'static str {
        match self {
            Self::AllSsd => "allssd",
            Self::Benefit => "benefit",
            Self::Mobbs => "mobbs",
            Self::Equal => "equal",
            Self::AllHdd => "allhdd",
        }
    }

    pub(super) const fn moves(self) -> bool {
        matches!(self, Self::Benefit | Self::Mobbs | Self::Equal)
    }
}

/// How extents are moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) round_seconds: f64,
    pub(super) horizon_s: f64,
    pub(super) copy_mib_s: u64,
    /// Longest time until moves have settled.
    pub(super) settle_s: f64,
}

/// Rounds in which next to nothing must have moved.
const QUIET_ROUNDS: f64 = 4.0;
/// One of so many extents may still move in that time: two that are about as hot change places.
const QUIET_PART: u64 = 100;
/// How old the status may be, and more.
const STATUS_AGE: Duration = Duration::from_millis(1500);
const LOOK: Duration = Duration::from_millis(250);
const EVACUATE_LIMIT: Duration = Duration::from_mins(3);
/// Memory of the cache that the daemon must have, and does not use.
const CACHE: u64 = 32 * MIB;

/// What the status tells of a hybrid volume.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    pub(super) extents: u64,
    pub(super) objects_fast: u64,
    pub(super) fast_bytes: u64,
    pub(super) moving: u64,
    /// To either pool.
    pub(super) moved: u64,
    pub(super) given_up: u64,
    pub(super) host_bytes: u64,
    pub(super) held_writes: u64,
    extent_bytes: u64,
}

impl Look {
    /// Moves that have ended, and that were given up, since another look.
    pub(super) const fn moves_since(&self, earlier: &Self) -> [u64; 2] {
        [self.moved - earlier.moved, self.given_up - earlier.given_up]
    }

    pub(super) fn moved_bytes(&self) -> u64 {
        self.moved * self.extent_bytes
    }
}

pub(super) struct Side<'a> {
    pub(super) kind: Kind,
    place: &'a Place,
    site: Site,
    daemon: Option<Daemon>,
    pub(super) size: Size,
    pace: Pace,
    budget: u64,
}

/// What one load came to.
pub(super) struct Cell {
    pub(super) steady: Figures,
    /// Of the extents, those on SSD in the end, in per cent.
    pub(super) ssd_percent: f64,
    pub(super) fast_bytes: u64,
    /// Seconds until moves had settled; none: they had not.
    pub(super) settled_s: Option<f64>,
    pub(super) last: Look,
    /// From which second of the load on counts what is measured.
    pub(super) from_s: f64,
    /// What the status told, by the second of the load.
    pub(super) looks: Vec<(f64, Look)>,
    pub(super) trace: Trace,
}

impl<'a> Side<'a> {
    /// Makes and fills a volume.
    pub(super) fn new(
        place: &'a Place,
        kind: Kind,
        size: Size,
        pace: Pace,
        budget: u64,
    ) -> Result<Self> {
        let site = Site::new()?;
        place.create(kind.volume(), kind == Kind::AllSsd, kind.moves(), size)?;
        let mut side = Self { kind, place, site, daemon: None, size, pace, budget };
        eprintln!("filling {}: {} MiB", kind.volume(), size.bytes / MIB);
        side.serve(&["copy_mib_s=0".into()])?;
        let fill = Fio::nbd(&side.uri()).arg("rw", "write").arg("bs", size.extent_bytes.min(MIB));
        fill.arg("iodepth", 8).arg("size", size.bytes).arg("end_fsync", 1).run()?;
        thread::sleep(STATUS_AGE);
        let (found, extents) = (side.look()?.extents, size.extents());
        ensure!(found == extents, "{found} extents of {extents} were filled");
        Ok(side)
    }

    /// Serves the volume with these options from now on.
    fn serve(&mut self, options: &[String]) -> Result<()> {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop()?;
        }
        let (name, swapped) = (self.kind.volume(), self.kind == Kind::AllSsd);
        let volume = Volume::new(name, &self.place.backend(name, swapped, options));
        let volume = volume.key("mode = \"pass-through\"");
        self.daemon = Some(self.site.serve(&Config::new(CACHE).volume(volume))?);
        Ok(())
    }

    fn uri(&self) -> String {
        self.site.uri(self.kind.volume())
    }

    /// Another budget, from the next [`begin`](Self::begin) on.
    pub(super) fn set_budget(&mut self, bytes: u64) {
        self.budget = bytes;
    }

    /// What the status tells now.
    pub(super) fn look(&self) -> Result<Look> {
        let status = self.daemon.as_ref().context("it is served")?.glance()?;
        let own = &status.volume(self.kind.volume())?["hybrid"];
        let count =
            |key: &str| own[key].as_u64().with_context(|| format!("no number {key} in {own}"));
        ensure!(own["lost_objects"] == 0, "objects are lost: {own}");
        Ok(Look {
            extents: count("extents")?,
            objects_fast: count("objects_fast")?,
            fast_bytes: count("fast_bytes")?,
            moving: count("moving")?,
            moved: count("moved_fast")? + count("moved_slow")?,
            given_up: count("given_up")?,
            host_bytes: count("host_bytes")?,
            held_writes: count("held_writes")?,
            extent_bytes: count("extent_bytes")?,
        })
    }

    /// All extents are where they were when they were written, and nothing of earlier loads is known.
    pub(super) fn begin(&mut self) -> Result<()> {
        if !self.kind.moves() {
            return self.serve(&["copy_mib_s=0".into()]);
        }
        thread::sleep(STATUS_AGE);
        if self.look()?.objects_fast > 0 {
            let options = ["round_s=0.2", "budget_mib=0", "copy_mib_s=4096"].map(String::from);
            self.serve(&options)?;
            let begun = Instant::now();
            // At first the status tells of nothing.
            thread::sleep(STATUS_AGE);
            while self.look()?.objects_fast > 0 {
                let look = self.look()?;
                ensure!(begun.elapsed() < EVACUATE_LIMIT, "the fast pool is not left: {look:?}");
                thread::sleep(LOOK);
            }
        }
        let planner = if self.kind == Kind::Mobbs { "mobbs" } else { "benefit" };
        let Pace { round_seconds, horizon_s, copy_mib_s, .. } = self.pace;
        self.serve(&[
            format!("planner={planner}"),
            format!("round_s={round_seconds}"),
            format!("horizon_s={horizon_s}"),
            format!("copy_mib_s={copy_mib_s}"),
            format!("budget_mib={}", self.budget / MIB),
        ])
    }

    /// One load: until moves have settled, and `seconds` more, which count.
    pub(super) fn measure(&self, load: &Load, seconds: f64) -> Result<Cell> {
        let limit = Duration::from_secs_f64(self.pace.settle_s + seconds + 30.0);
        let folder = self.site.path("");
        let going = load.start(&self.uri(), self.size.bytes, limit, &folder)?;
        let mut looks = vec![(0.0, self.look()?)];
        let mut settled_s = None;
        // Without moves there is nothing to wait for but the first requests.
        let settle_s = if self.kind.moves() { self.pace.settle_s } else { 2.0 };
        let from = loop {
            thread::sleep(LOOK);
            let (now, look) = (going.age_s(), self.look()?);
            looks.push((now, look));
            if self.kind.moves() && self.is_quiet(&looks, now) {
                settled_s = Some(now);
                break now;
            }
            if now > settle_s {
                break now;
            }
        };
        let to = from + seconds;
        while going.age_s() < to {
            thread::sleep(LOOK);
            looks.push((going.age_s(), self.look()?));
        }
        let (last, trace) = (self.look()?, going.end()?);
        let (steady, percent) = (trace.figures(from, to), self.ssd_percent(&last));
        let fast_bytes = last.fast_bytes;
        ensure!(steady.writes > 0, "{} has written nothing", self.kind.name());
        let [moved, given_up] = last.moves_since(&looks[0].1);
        eprintln!(
            "  {}: {:.0} IOPS, p99 {:.1} ms, {percent:.1} % on SSD, {moved} moves in {from:.0} s, {given_up} given up",
            self.kind.name(),
            steady.iops,
            steady.p99_ms
        );
        let from_s = from;
        Ok(Cell { steady, from_s, ssd_percent: percent, fast_bytes, settled_s, last, looks, trace })
    }

    /// Of the extents, those on SSD, in per cent.
    fn ssd_percent(&self, look: &Look) -> f64 {
        let percent = look.objects_fast as f64 / look.extents.max(1) as f64 * 100.0;
        if self.kind == Kind::AllSsd { 100.0 - percent } else { percent }
    }

    /// Next to nothing has moved in the last rounds; there were some.
    fn is_quiet(&self, looks: &[(f64, Look)], now: f64) -> bool {
        let since = now - QUIET_ROUNDS * self.pace.round_seconds;
        let before = looks.iter().rev().find(|(at, _)| *at <= since);
        let Some((_, before)) = before else { return false };
        let (_, last) = looks[looks.len() - 1];
        let few = self.size.extents() / QUIET_PART;
        // An extent goes up after three rounds at the earliest.
        now > 2.0 * QUIET_ROUNDS * self.pace.round_seconds
            && last.moved - before.moved <= few
            && last.moving <= few
    }

    pub(super) fn stop(mut self) -> Result<()> {
        self.daemon.take().map_or(Ok(()), Daemon::stop)
    }
}
