//! A log on two SSDs, either of which may fail, be away, lost, replaced or rotten.

use super::memory::Mem;
use super::rng::Rng;
use super::settings::Settings;
use super::ssd::Ssd;
use super::world::{Checked, SEGMENTS, World};
use cinnabar_engine::{IoDone, IoError, IoId, IoOp};
use cinnabar_writeback::mirror::{
    Half, HalfState, Mark, MarkState, Mirror, Out, Pair, force_alone, read_mark, start,
};
use cinnabar_writeback::recover::{OpenError, superblock};
use cinnabar_writeback::{Event, WriteLog};
use rand::RngExt;
use std::collections::{BTreeSet, VecDeque};

/// How a run with two SSDs is. Probabilities are for each I/O, but the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MirrorSettings {
    /// A single one fails.
    pub(crate) fails: f64,
    /// A half fails, or does not answer, until the next start.
    pub(crate) dies: f64,
    /// At a crash: something happens to a half.
    pub(crate) changes: f64,
}

impl MirrorSettings {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut pick = |list: &[f64]| list[rng.random_range(0..list.len())];
        Self {
            fails: pick(&[0.0, 0.0005, 0.005]),
            dies: pick(&[0.0, 0.0005, 0.005]),
            changes: pick(&[0.2, 0.6]),
        }
    }
}

/// See the module. The first half is the world's SSD.
pub(crate) struct Mirrored {
    settings: MirrorSettings,
    rng: Rng,
    second: Ssd,
    mirror: Mirror<Mem>,
    /// Ended, and on the way to the log.
    done: VecDeque<IoDone>,
    /// Reads of the log under way.
    reads: BTreeSet<IoId>,
    /// A half that ends nothing but with this.
    trouble: [Option<IoError>; 2],
    /// What a half held once.
    old: [Option<Ssd>; 2],
    /// Halves of which something is rotten or can't be read; each page has a good copy.
    rotten: [bool; 2],
    /// Pages that were.
    bad: [BTreeSet<u64>; 2],
}

/// What happens to a half between two sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    /// It is away, and comes back.
    Away,
    /// It is lost; an empty one takes its place.
    Lost,
    /// What it held once takes its place.
    Stale,
    /// Some of its pages rot, or can't be read.
    Rots,
    /// It fails while the log is opened.
    Fails,
}

/// With the pages that were healed.
type Ready = (WriteLog<Mem>, Mirror<Mem>, u64);
type Opened = Result<Ready, OpenError>;

/// What opening needs besides the devices.
struct How<'a> {
    host: &'a super::host::Hosted,
    settings: &'a Settings,
    lost: bool,
    pair: u64,
}

fn open(how: &How<'_>, halves: [Option<&Ssd>; 2]) -> Opened {
    let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
    let config = how.settings.config();
    let halves = halves.map(|half| half.map(|media| Half { media, bytes }));
    let pair: Pair<'_, Ssd> = start::<Mem, Ssd>(halves, how.pair, config.mutants)?;
    let mut log = how.host.open(&pair, pair.bytes(), config, how.lost)?;
    let healed = pair.levelled().pages.iter().sum();
    let mirror = pair.finish(&mut log)?;
    Ok((log, mirror, healed))
}

/// A copy with the same mark can't be told from the half that it is of.
fn mark_of(ssd: &Ssd) -> Option<Mark> {
    let log = superblock(ssd).ok()?;
    read_mark(ssd, log.uuid).ok().flatten()
}

impl Mirrored {
    /// The first half was just made; the other one is empty.
    pub(crate) fn new(
        seed: u64,
        settings: &Settings,
        first: &Ssd,
        host: &super::host::Hosted,
    ) -> Option<(Self, WriteLog<Mem>)> {
        let of = settings.mirror?;
        let mut rng = Rng::seed_from_u64(seed ^ 0x3122_0112);
        first.spare(seed % 2);
        let second = first.beside();
        let how = How { host, settings, lost: false, pair: rng.random() };
        let opened = open(&how, [Some(first), Some(&second)]);
        let (log, mirror, _) = opened.expect("nothing has happened yet");
        let (done, reads) = (VecDeque::new(), BTreeSet::new());
        let (trouble, old, rotten) = ([None; 2], [None, None], [false; 2]);
        let bad = Default::default();
        let settings = of;
        Some((Self { settings, rng, second, mirror, done, reads, trouble, old, rotten, bad }, log))
    }

    /// Which halves hold everything that was ever acknowledged.
    fn complete(&self) -> [bool; 2] {
        if self.mirror.holds() {
            return [true; 2];
        }
        self.mirror.states().map(|state| state == HalfState::Member)
    }

    pub(crate) fn rests(&self) -> bool {
        self.done.is_empty() && self.second.under_way() == 0
    }
}

impl World {
    /// An I/O of the log.
    pub(crate) fn submit_log(&mut self, id: IoId, op: IoOp<Mem>) {
        let Some(of) = &mut self.mirrored else { return self.ssd.submit(id, op) };
        if matches!(op, IoOp::Read { .. }) {
            of.reads.insert(id);
        }
        let (again, mut out) = (self.log.reads_again(id), Out::default());
        of.mirror.submit(id, op, again, &mut out);
        self.take(out);
    }

    /// After each event of the log.
    pub(crate) fn advance_mirror(&mut self) {
        let Some(of) = self.mirrored.as_mut().filter(|_| !self.host.is_killed()) else { return };
        let mut out = Out::default();
        of.mirror.advance(&self.log, &mut out);
        self.take(out);
    }

    fn take(&mut self, out: Out<Mem>) {
        for (half, id, op) in out.ios {
            self.trace(&format!("half {half} {id:?}"), &op);
            let of = self.mirrored.as_ref().expect("there is a mirror");
            [&self.ssd, &of.second][half].submit(id, op);
        }
        self.mirrored.as_mut().expect("there is a mirror").done.extend(out.done);
    }

    /// Ends an I/O of one of the halves.
    pub(crate) fn end_half(&mut self) -> Checked<bool> {
        let calm = self.calm;
        let of = self.mirrored.as_mut().expect("there is a mirror");
        if let Some(done) = of.done.pop_front() {
            // A half that is silent is not asked again, if it is the only one; none is once the pair has
            // failed, which may have been with a mark.
            let is_read = of.reads.remove(&done.id);
            let gone = of.mirror.has_failed() || done.result == Err(IoError::TimedOut);
            let lost = !is_read || gone;
            if done.result.is_err() && lost && !self.lost {
                (self.lost, self.counts.ssd_lost) = (true, self.counts.ssd_lost + 1);
            }
            self.apply(Event::LogDone(done))?;
            return Ok(true);
        }
        let halves = [&self.ssd, &of.second];
        let all = halves.map(Ssd::under_way);
        if all == [0; 2] {
            return Ok(false);
        }
        let which = of.rng.random_range(0..all[0] + all[1]);
        let (half, which) = if which < all[0] { (0, which) } else { (1, which - all[0]) };
        if !calm && of.rng.random_bool(of.settings.dies) {
            let how = [IoError::Io, IoError::TimedOut][of.rng.random_range(0..2)];
            of.trouble[half] = Some(how);
            if of.rng.random_bool(0.2) {
                of.trouble[1 - half] = Some(how);
            }
        }
        let fails = !calm && of.rng.random_bool(of.settings.fails);
        // Reads of the only half fail with its first write: what they would have brought is not known.
        let spared = halves[half].is_read(which)
            && (of.mirror.states()[1 - half] != HalfState::Member
                || of.trouble[1 - half].is_some());
        let done = match of.trouble[half].filter(|_| !spared) {
            Some(error) => IoDone::new(halves[half].give_up(which, &mut of.rng), Err(error)),
            None => match fails.then(|| halves[half].fail(which, &mut of.rng)).flatten() {
                Some((id, _)) => IoDone::new(id, Err(IoError::Io)),
                None => halves[half].end(which),
            },
        };
        let was = of.mirror.states();
        let mut out = Out::default();
        of.mirror.done(half, &done, &mut out);
        let is = of.mirror.states();
        for half in (0..2).filter(|half| was[*half] != is[*half]) {
            match is[half] {
                HalfState::Gone => self.counts.halves_dropped += 1,
                _ => self.counts.halves_filled += 1,
            }
        }
        // Of what is rotten there was another copy.
        self.rotten |= (0..2).any(|half| of.rotten[half] && is[1 - half] != HalfState::Member);
        self.take(out);
        Ok(true)
    }

    /// The host has lost power, or the daemon was killed.
    pub(crate) fn crash_second(&mut self, power: bool) {
        let Some(of) = &mut self.mirrored else { return };
        of.done.clear();
        of.reads.clear();
        if power {
            of.second.power_cut(&mut of.rng);
        } else {
            of.second.kill(&mut of.rng);
        }
    }

    /// The log was closed, and its memory is not needed any more.
    pub(crate) fn release_memory(&self) {
        let states = self.mirrored.as_ref().map(|of| of.mirror.states());
        if states.is_none_or(|states| states[0] == HalfState::Member) {
            super::host::Hosted::release(&self.ssd);
        }
        if let Some(of) = &self.mirrored
            && of.mirror.states()[1] == HalfState::Member
        {
            super::host::Hosted::release(&of.second);
        }
    }

    /// Opens the log again, after something may have happened to a half.
    pub(crate) fn open_pair(&mut self, lost: bool) -> Checked {
        let mut of = self.mirrored.take().expect("there is a mirror");
        let opened = self.open_changed(&mut of, lost);
        let Some((log, mirror, healed)) = opened? else {
            // Nothing that is left holds everything.
            (self.over, self.mirrored) = (true, Some(of));
            return Ok(());
        };
        self.counts.pages_healed += healed;
        of.trouble = [None; 2];
        (self.log, of.mirror) = (log, mirror);
        // What was refilled is not rotten any more.
        let members = of.mirror.states().map(|state| state == HalfState::Member);
        self.over = (0..2).any(|half| of.rotten[half] && !members[1 - half]);
        for half in (0..2).filter(|half| !members[*half]) {
            of.rotten[half] = false;
            of.bad[half].clear();
        }
        if of.rng.random_bool(0.1) {
            of.old = [Some(self.ssd.copy()), Some(of.second.copy())];
        }
        self.mirrored = Some(of);
        Ok(())
    }

    fn draw_change(&self, of: &mut Mirrored) -> (usize, Change) {
        let half = of.rng.random_range(0..2);
        let all = [Change::Away, Change::Lost, Change::Stale, Change::Rots, Change::Fails];
        let change = all[of.rng.random_range(0..5)];
        let complete = of.complete();
        let fits = match change {
            Change::Lost => complete[1 - half] || of.rng.random_bool(0.3),
            Change::Stale => {
                let other = mark_of(self.half(of, 1 - half));
                complete[1 - half] && of.old[half].as_ref().is_some_and(|old| mark_of(old) != other)
            }
            Change::Rots => complete == [true; 2] && !of.mirror.holds(),
            Change::Fails => complete[1 - half],
            Change::Away | Change::Nothing => true,
        };
        let happens = of.rng.random_bool(of.settings.changes) && fits;
        (half, if happens { change } else { Change::Nothing })
    }

    /// `None`: there is nothing to go on with.
    fn open_changed(&mut self, of: &mut Mirrored, lost: bool) -> Checked<Option<Ready>> {
        let (complete, holds) = (of.complete(), of.mirror.holds());
        let (half, change) = self.draw_change(of);
        self.trace("change", &(half, change, complete, of.mirror.states()));
        let other = 1 - half;
        // What is rotten has no other copy if that half goes.
        let rots = of.rotten[other]
            && matches!(change, Change::Away | Change::Lost | Change::Stale | Change::Fails)
            || (0..2).any(|half| of.rotten[half] && (holds || !complete[1 - half]));
        if rots {
            return Ok(None);
        }
        match change {
            Change::Lost => self.replace(of, half, None),
            Change::Stale => {
                let old = of.old[half].as_ref().map(Ssd::copy);
                self.replace(of, half, old);
            }
            Change::Rots => {
                of.rotten[half] = true;
                let ssd = if half == 0 { &self.ssd } else { &of.second };
                for _ in 0..of.rng.random_range(1..4) {
                    let page = ssd.rot_any(&mut of.rng, &of.bad[other]);
                    of.bad[half].insert(page);
                }
            }
            _ => {}
        }
        let kill_at = of.rng.random_bool(0.3).then(|| of.rng.random_range(0..30));
        self.ssd.kill_at(kill_at);
        let ops = (change == Change::Fails).then(|| of.rng.random_range(0..60));
        self.half(of, half).fail_after(ops);
        let away = (change == Change::Away).then_some(half);
        let opened = self.open_halves(of, away, lost);
        self.ssd.kill_at(None);
        self.half(of, half).fail_after(None);
        let refused = match opened {
            Ok(_) if change == Change::Away && complete == [true; 2] && !holds => {
                return Err("a half was served without the other one".to_owned());
            }
            Ok(_) if matches!(change, Change::Away | Change::Lost) && !complete[other] => {
                return Err("a half that is not complete was served".to_owned());
            }
            Ok(opened) => return Ok(Some(opened)),
            Err(error) => error,
        };
        self.counts.halves_refused += 1;
        // Once it has failed, a mark under way may still become durable: the other one would count, too.
        let says_both = mark_of(self.half(of, other)).is_some_and(|is| is.state == MarkState::Both);
        let settled = !(of.mirror.is_marking() || of.mirror.has_failed() && says_both);
        let alone = complete[other] && !complete[half] && settled;
        if change == Change::Away && alone && kill_at.is_none() {
            return Err(format!("the half that counts was refused: {refused}"));
        }
        self.open_anyway(of, (half, change, complete), lost)
    }

    /// What was refused, or killed, is opened for good: with all halves there are, and the operator's
    /// word where it is true.
    fn open_anyway(
        &mut self,
        of: &mut Mirrored,
        (half, change, complete): (usize, Change, [bool; 2]),
        lost: bool,
    ) -> Checked<Option<Ready>> {
        let gone = matches!(change, Change::Lost | Change::Stale);
        for _ in 0..3 {
            let error = match self.open_halves(of, None, lost) {
                Ok(_) if gone && !complete[1 - half] => {
                    return Err("a half that is not complete was served".to_owned());
                }
                Ok(opened) => return Ok(Some(opened)),
                Err(error) => error,
            };
            self.trace("refused", &error);
            match error {
                OpenError::HalfMissing | OpenError::Incomplete if gone && !complete[1 - half] => {
                    return Ok(None);
                }
                // It had everything, and did not get to say so.
                OpenError::Incomplete if gone => return Ok(None),
                OpenError::HalfMissing if gone => {
                    self.counts.halves_forced += 1;
                    match force_alone(self.half(of, 1 - half)) {
                        Ok(_) => {}
                        Err(OpenError::Incomplete) => return Ok(None),
                        Err(error) => return Err(error.to_string()),
                    }
                }
                OpenError::Split if change == Change::Stale => self.replace(of, half, None),
                error => return Err(error.to_string()),
            }
        }
        Err("the log is never opened".to_owned())
    }

    fn half<'a>(&'a self, of: &'a Mirrored, half: usize) -> &'a Ssd {
        if half == 0 { &self.ssd } else { &of.second }
    }

    fn open_halves(&mut self, of: &mut Mirrored, away: Option<usize>, lost: bool) -> Opened {
        let pair = of.rng.random();
        let how = How { host: &self.host, settings: &self.settings, lost, pair };
        let mut halves = [Some(&self.ssd), Some(&of.second)];
        if let Some(away) = away {
            halves[away] = None;
        }
        open(&how, halves)
    }

    fn replace(&mut self, of: &mut Mirrored, half: usize, with: Option<Ssd>) {
        let with = with.unwrap_or_else(|| self.ssd.beside());
        of.rotten[half] = false;
        of.bad[half].clear();
        *(if half == 0 { &mut self.ssd } else { &mut of.second }) = with;
    }
}
