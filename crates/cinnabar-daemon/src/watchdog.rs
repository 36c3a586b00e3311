//! Whether all threads of the daemon turn: the data threads and the control thread.
//!
//! A data thread waits for nothing but its port, whatever back ends, the SSD, guests and the log do; one
//! that does not turn serves its guests no more, and no later one of them will. So each is asked again
//! and again, and one that does not answer within a bound is *late*.

use cinnabar_config::messages::pulse::Pulse;
use std::time::{Duration, Instant};

/// See the module. The time is its caller's.
#[derive(Debug)]
pub(crate) struct Watchdog {
    threads: Vec<Thread>,
    late_after: Duration,
    last_round: Instant,
}

#[derive(Debug)]
struct Thread {
    pulse: Pulse,
    asked_at: Instant,
    late: bool,
}

/// What a round has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Names of threads that are late since this round.
    pub(crate) stuck: Vec<String>,
    /// Threads that were late and turn again, and how long they did not.
    pub(crate) turn_again: Vec<(String, Duration)>,
    /// No thread is late.
    pub(crate) all_turn: bool,
}

impl Watchdog {
    /// Of these threads. An answer that takes longer than `late_after` is late.
    pub(crate) fn new(now: Instant, pulses: Vec<Pulse>, late_after: Duration) -> Self {
        let thread = |pulse| Thread { pulse, asked_at: now, late: false };
        let threads = pulses.into_iter().map(thread).collect();
        Self { threads, late_after, last_round: now }
    }

    /// How often to make a round.
    pub(crate) fn every(&self) -> Duration {
        self.late_after / 2
    }

    /// Looks for answers, and asks those that have given them.
    pub(crate) fn round(&mut self, now: Instant) -> Round {
        // The process was stopped, or the machine was: others have not had the time either.
        let was_stopped = now - self.last_round > self.late_after;
        self.last_round = now;
        let mut found = Round::default();
        for thread in &mut self.threads {
            if thread.pulse.is_answered() {
                if std::mem::take(&mut thread.late) {
                    let name = thread.pulse.name().to_owned();
                    found.turn_again.push((name, now - thread.asked_at));
                }
                thread.asked_at = now;
                thread.pulse.ask();
            } else if was_stopped && !thread.late {
                thread.asked_at = now;
            } else if now - thread.asked_at > self.late_after && !thread.late {
                thread.late = true;
                found.stuck.push(thread.pulse.name().to_owned());
            }
        }
        found.all_turn = self.threads.iter().all(|thread| !thread.late);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_config::messages::pulse::Beat;
    use std::sync::{Arc, Mutex};

    const LATE: Duration = Duration::from_secs(30);
    const STEP: Duration = Duration::from_secs(15);

    /// Questions that a thread has not answered.
    #[derive(Clone, Default)]
    struct Asked(Arc<Mutex<Vec<Beat>>>);

    impl Asked {
        fn pulse(&self, name: &str) -> Pulse {
            let asked = self.clone();
            Pulse::new(name, move |beat| asked.0.lock().expect("no panic").push(beat))
        }

        fn answer(&self) -> usize {
            let all = std::mem::take(&mut *self.0.lock().expect("no panic"));
            let count = all.len();
            all.into_iter().for_each(Beat::answer);
            count
        }
    }

    #[test]
    fn threads_that_answer_turn() {
        let asked = Asked::default();
        let mut now = Instant::now();
        let mut watchdog = Watchdog::new(now, vec![asked.pulse("data")], LATE);
        for _ in 0..10 {
            assert_eq!(watchdog.round(now), Round { all_turn: true, ..Round::default() });
            assert_eq!(asked.answer(), 1, "each round asks");
            now += watchdog.every();
        }
    }

    #[test]
    fn one_that_does_not_answer_is_named_once_and_asked_once() {
        let (good, bad) = (Asked::default(), Asked::default());
        let begun = Instant::now();
        let mut watchdog =
            Watchdog::new(begun, vec![good.pulse("data"), bad.pulse("data-1")], LATE);
        let mut now = begun;
        for _ in 0..3 {
            assert!(watchdog.round(now).all_turn, "not late yet");
            good.answer();
            now += STEP;
        }
        let found = watchdog.round(now);
        assert_eq!(found, Round { stuck: vec!["data-1".into()], ..Round::default() });
        good.answer();
        now += STEP;
        assert_eq!(watchdog.round(now), Round::default(), "it is named once");
        good.answer();
        now += STEP;
        assert_eq!(bad.answer(), 1, "it is not asked again meanwhile");
        let turn_again = vec![("data-1".to_owned(), now - begun)];
        let found = watchdog.round(now);
        assert_eq!(found, Round { stuck: vec![], turn_again, all_turn: true });
    }

    #[test]
    fn a_process_that_was_stopped_is_given_time() {
        let asked = Asked::default();
        let mut now = Instant::now();
        let mut watchdog = Watchdog::new(now, vec![asked.pulse("data")], LATE);
        assert!(watchdog.round(now).all_turn);
        now += Duration::from_hours(1);
        assert!(watchdog.round(now).all_turn);
        now += STEP;
        assert!(watchdog.round(now).all_turn);
        now += STEP + Duration::from_secs(1);
        assert!(!watchdog.round(now).all_turn, "that does not make it turn");
    }
}
