//! Plays I/Os on a target: at their own times, or so many at a time.
//!
//! Open loop: an I/O whose time has come is submitted whatever became of the ones before it, and its
//! latency counts from that time, so that a storage that stalls can't hide what it did to the I/Os
//! that had to wait (no coordinated omission).

pub use super::target::DEPTH_MAX;

use super::target::{Io, Target, TargetError};
use slab::Slab;
use std::time::{Duration, Instant};

/// Shorter waits are spent looking: the kernel would oversleep them.
const LOOK: Duration = Duration::from_micros(80);
/// Between two ticks.
const TICK: Duration = Duration::from_millis(100);
/// Longest time in which not one of the I/Os under way ends: a disk that recovers from an error takes
/// half a minute, a server that is started again may take more.
const SILENCE_MAX: Duration = Duration::from_mins(2);

/// An I/O to be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// When, in ns on the source's own clock, which does not go back.
    pub at_ns: u64,
    /// Which unit of the target.
    pub unit: usize,
    pub write: bool,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// What it is counted under.
    pub stream: usize,
}

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At the source's times from `from_ns` on, so many times as fast.
    Open {
        /// The source's time of the start.
        from_ns: u64,
        /// 2.0: in half the time.
        speed: f64,
    },
    /// So many under way, whatever the source's times say.
    Closed {
        /// 1 to [`DEPTH_MAX`].
        depth: usize,
    },
}

/// An I/O that has been played.
#[derive(Clone, Debug)]
pub struct Played {
    /// Which.
    pub io: Timed,
    /// Latency from its time on, in ns; in a closed loop from its submission.
    pub scheduled_ns: u64,
    /// Latency from its submission on, in ns.
    pub dispatched_ns: u64,
    /// What went wrong.
    pub failure: Option<String>,
}

/// Who looks on.
pub trait Observer {
    /// An I/O is done.
    fn played(&mut self, played: &Played);

    /// Ten times a second. `false` ends the play: nothing more is submitted.
    fn tick(&mut self, elapsed: Duration, target: &Target) -> bool;
}

/// Why a play ended early.
#[derive(Debug, thiserror::Error)]
pub enum DriveError<E> {
    #[error(transparent)]
    Source(E),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("{0} I/Os are under way, and none of them was answered for {limit} s", limit = SILENCE_MAX.as_secs())]
    Hung(usize),
}

/// How a play went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elapsed {
    /// From the start to the last submission, or to the last I/O's time if that is later.
    pub submitting: Duration,
    /// From the start to the last completion.
    pub all: Duration,
}

struct Flight {
    io: Timed,
    due: Duration,
    submitted: Duration,
}

/// Plays a source to its end.
///
/// # Errors
/// [`DriveError`].
pub fn drive<E>(
    target: &mut Target,
    source: &mut impl Iterator<Item = Result<Timed, E>>,
    pace: Pace,
    observer: &mut impl Observer,
) -> Result<Elapsed, DriveError<E>> {
    drive_within(target, source, pace, observer, SILENCE_MAX)
}

fn drive_within<E>(
    target: &mut Target,
    source: &mut impl Iterator<Item = Result<Timed, E>>,
    pace: Pace,
    observer: &mut impl Observer,
    silence_max: Duration,
) -> Result<Elapsed, DriveError<E>> {
    let begin = Instant::now();
    let mut flights: Slab<Flight> = Slab::with_capacity(DEPTH_MAX);
    let depth = match pace {
        Pace::Open { .. } => DEPTH_MAX,
        Pace::Closed { depth } => depth.clamp(1, DEPTH_MAX),
    };
    let mut next = source.next().transpose().map_err(DriveError::Source)?;
    let (mut next_tick, mut submitting) = (TICK, Duration::ZERO);
    let mut heard = Duration::ZERO;
    loop {
        let mut now = begin.elapsed();
        while let Some(io) = next
            && flights.len() < depth
        {
            let due = due(pace, io.at_ns, now);
            if due > now {
                break;
            }
            let tag = flights.insert(Flight { io, due, submitted: now }) as u64;
            let Timed { unit, write, offset, len, .. } = io;
            target.submit(Io { tag, unit, write, offset, len })?;
            submitting = now;
            next = source.next().transpose().map_err(DriveError::Source)?;
            now = begin.elapsed();
        }
        if next.is_none() && flights.is_empty() {
            return Ok(Elapsed { submitting, all: now });
        }
        let room = flights.len() < depth;
        let until_next =
            next.filter(|_| room).map(|io| due(pace, io.at_ns, now).saturating_sub(now));
        let limit = until_next.unwrap_or(TICK).min(next_tick.saturating_sub(now));
        let limit = if limit < LOOK { Duration::ZERO } else { limit };
        let waiting = flights.len();
        target.poll(Some(limit), |io, failure| {
            let Flight { io, due, submitted } = flights.remove(io.tag as usize);
            let now = begin.elapsed();
            let since = |from: Duration| now.saturating_sub(from).as_nanos() as u64;
            let (scheduled_ns, dispatched_ns) = (since(due), since(submitted));
            observer.played(&Played { io, scheduled_ns, dispatched_ns, failure });
        })?;
        let now = begin.elapsed();
        if now >= next_tick {
            next_tick = now + TICK;
            if !observer.tick(now, target) {
                next = None;
            }
        }
        if waiting == 0 || flights.len() < waiting {
            heard = now;
        } else if now > heard + silence_max {
            return Err(DriveError::Hung(flights.len()));
        }
    }
}

/// When an I/O of this time is due, since the start.
fn due(pace: Pace, at_ns: u64, now: Duration) -> Duration {
    match pace {
        Pace::Closed { .. } => now,
        Pace::Open { from_ns, speed } => {
            Duration::from_secs_f64(at_ns.saturating_sub(from_ns) as f64 / 1e9 / speed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::UnitSpec;
    use std::convert::Infallible;

    #[derive(Default)]
    struct Seen {
        played: Vec<Played>,
        stop_after: Option<Duration>,
        deepest: usize,
    }

    impl Observer for Seen {
        fn played(&mut self, played: &Played) {
            self.played.push(played.clone());
        }

        fn tick(&mut self, elapsed: Duration, target: &Target) -> bool {
            self.deepest = self.deepest.max(target.under_way());
            // A busy machine may take longer to begin.
            self.stop_after.is_none_or(|stop| elapsed < stop || self.deepest == 0)
        }
    }

    fn target(folder: &std::path::Path, model: &str) -> Target {
        let path = folder.join("disk");
        std::fs::write(&path, vec![1; 1 << 20]).expect("a file");
        let unit = UnitSpec {
            name: "unit".into(),
            places: vec![format!("{model}file:{}", path.display())],
            read_only: false,
            cached: true,
        };
        Target::open(&[unit], None).expect("it opens")
    }

    fn reads(count: u64, gap_ns: u64) -> impl Iterator<Item = Result<Timed, Infallible>> {
        (0..count).map(move |index| {
            let offset = index % 256 * 4096;
            Ok(Timed { at_ns: index * gap_ns, unit: 0, write: false, offset, len: 4096, stream: 0 })
        })
    }

    #[test]
    fn who_waits_for_a_place_has_waited_since_his_time() {
        let folder = tempfile::tempdir().expect("a folder");
        // One at a time, 20 ms each, asked for every 10 ms: the last of ten waits for 110 ms.
        let mut target = target(folder.path(), "sim:ssd,depth=1,read=20ms,bandwidth=0:");
        let mut seen = Seen::default();
        let pace = Pace::Open { from_ns: 0, speed: 1.0 };
        drive(&mut target, &mut reads(10, 10_000_000), pace, &mut seen).expect("it plays");
        assert_eq!(seen.played.len(), 10);
        let last = seen.played.iter().max_by_key(|played| played.io.at_ns).expect("ten");
        assert!(last.scheduled_ns >= 105_000_000, "{last:?}");
    }

    #[test]
    fn a_closed_loop_keeps_its_depth_and_a_play_can_be_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut target = target(folder.path(), "sim:ssd,read=20ms:");
        let mut seen = Seen { stop_after: Some(Duration::from_millis(300)), ..Seen::default() };
        let pace = Pace::Closed { depth: 4 };
        let elapsed = drive(&mut target, &mut reads(1_000_000, 0), pace, &mut seen);
        let elapsed = elapsed.expect("it plays");
        assert_eq!(seen.deepest, 4);
        assert!(elapsed.all < Duration::from_secs(20), "{elapsed:?}");
        assert!((8..4000).contains(&seen.played.len()), "{}", seen.played.len());
        assert!(seen.played.iter().all(|played| played.scheduled_ns == played.dispatched_ns));
        target.close().expect("it closes");
    }

    #[test]
    fn storage_that_answers_nothing_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        // With I/Os left to submit and no place for them, and with none left.
        for (count, under_way) in [(1_000_000, DEPTH_MAX), (3, 3)] {
            let mut target = target(folder.path(), "sim:ssd,read=1000s:");
            let mut seen = Seen::default();
            let pace = Pace::Open { from_ns: 0, speed: 1.0 };
            let limit = Duration::from_millis(300);
            let ended = drive_within(&mut target, &mut reads(count, 1000), pace, &mut seen, limit);
            let error = ended.expect_err("it hangs");
            assert!(matches!(error, DriveError::Hung(ios) if ios == under_way), "{error}");
        }
    }

    #[test]
    fn failures_are_told_with_their_io() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut target = target(folder.path(), "sim:ssd,read_errors=1:");
        let mut seen = Seen::default();
        drive(&mut target, &mut reads(3, 0), Pace::Closed { depth: 1 }, &mut seen).expect("plays");
        assert!(seen.played.iter().all(|played| played.failure.is_some()), "{:?}", seen.played);
    }
}
