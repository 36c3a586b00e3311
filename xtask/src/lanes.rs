//! Jobs side by side, each in a lane: what computes has one, what waits for files, time-outs and
//! clients others, so that waiting costs nobody a processor.
//!
//! Output of a job is kept and shown when it has ended: all of it if it failed, else what it skipped
//! and a line. Lines of clients are shown as they come: their jobs take minutes.

use crate::shell::{skipped, words};
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What a job needs while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A processor, all of the time.
    Computes,
    /// Time.
    Waits,
    /// An end-to-end lane of its own.
    Clients,
    /// The machine: it runs when all others have ended.
    Alone,
}

/// Longest silence of a program of tests, which says a line for each: one that hangs must not keep the
/// others' outcome from being told.
pub(crate) const SILENCE_MAX: Duration = Duration::from_mins(15);

/// Lanes of each kind.
const WORKERS: [(Lane, usize); 3] = [(Lane::Computes, 1), (Lane::Waits, 2), (Lane::Clients, 3)];

/// A program that ends by itself.
#[derive(Debug)]
pub(crate) struct Job {
    /// What the line about it begins with.
    pub(crate) name: String,
    pub(crate) lane: Lane,
    pub(crate) command: Command,
    /// It is killed, and has failed, when it has said nothing for so long.
    pub(crate) silence_max: Option<Duration>,
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Reasons for which tests were skipped.
    pub(crate) skipped: Vec<String>,
    pub(crate) failed: Vec<String>,
    /// Tests that passed, of those programs that count them.
    pub(crate) passed: u64,
}

/// Jobs that wait for a lane, and whether more may come.
#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// Where jobs are handed in.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    queue: Mutex<Queue>,
    changed: Condvar,
    outcome: Mutex<Outcome>,
}

impl Lanes {
    pub(crate) fn push(&self, job: Job) {
        lock(&self.queue).jobs.push_back(job);
        self.changed.notify_all();
    }

    /// Runs `fill`, which hands jobs in, and meanwhile those jobs; what became of them.
    ///
    /// # Errors
    /// That of `fill`, when all jobs that it handed in have ended, or those jobs that failed.
    pub(crate) fn run(fill: impl FnOnce(&Self) -> Result<()>) -> Result<Outcome> {
        let lanes = Self::default();
        let filled = thread::scope(|scope| {
            for (lane, workers) in WORKERS {
                for _ in 0..workers {
                    scope.spawn({
                        let lanes = &lanes;
                        move || lanes.work(lane)
                    });
                }
            }
            let filled = fill(&lanes);
            lock(&lanes.queue).closed = true;
            lanes.changed.notify_all();
            filled
        });
        // What is left is for an idle machine.
        for job in std::mem::take(&mut *lock(&lanes.queue)).jobs {
            lanes.carry_out(job);
        }
        filled?;
        let outcome = lanes.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !outcome.failed.is_empty() {
            bail!("failed: {}", outcome.failed.join(", "));
        }
        Ok(outcome)
    }

    fn work(&self, lane: Lane) {
        while let Some(job) = self.next(lane) {
            self.carry_out(job);
        }
    }

    /// The next job of a lane, once there is one; none when no more can come.
    fn next(&self, lane: Lane) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(at) = queue.jobs.iter().position(|job| job.lane == lane) {
                return queue.jobs.remove(at);
            }
            if queue.closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn carry_out(&self, mut job: Job) {
        let begun = Instant::now();
        let at_once = job.lane == Lane::Clients || job.lane == Lane::Alone;
        let done = output(&mut job.command, at_once, job.silence_max);
        let mut outcome = lock(&self.outcome);
        match done {
            Ok((true, text)) => {
                let (passed, skips) = (passed(&text), skipped(&text));
                for skip in skips.iter().filter(|_| !at_once) {
                    println!("skipped: {skip}");
                }
                slow(&text).for_each(|line| println!("{}: {line}", job.name));
                println!("{}", line(&job.name, passed, begun.elapsed()));
                outcome.passed += passed;
                outcome.skipped.extend(skips);
            }
            Ok((false, text)) => {
                let text = if at_once { "" } else { &text };
                println!(
                    "{text}\n{} FAILED after {:.1} s",
                    job.name,
                    begun.elapsed().as_secs_f64()
                );
                println!("$ {}", words(&job.command));
                outcome.failed.push(job.name);
            }
            Err(error) => {
                println!("{}: {error:#}", job.name);
                outcome.failed.push(job.name);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line(name: &str, passed: u64, took: Duration) -> String {
    format!("{name:<28} {passed:>5} passed {:>7.1} s", took.as_secs_f64())
}

/// Whether it succeeded, and all that it printed, which is shown `at_once` or not at all.
fn output(
    command: &mut Command,
    at_once: bool,
    silence_max: Option<Duration>,
) -> Result<(bool, String)> {
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    let errors = writer.try_clone().context("sharing a pipe")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("starting {}", words(command)))?;
    // Ours are still in the command; the pipe would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, lines) = mpsc::channel();
    // Not waited for: what a killed program has started may hold its end of the pipe.
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut text = String::new();
    let mut keep = |line: &str| {
        if at_once {
            println!("{line}");
        }
        text.push_str(line);
        text.push('\n');
    };
    loop {
        let next = match silence_max {
            Some(max) => lines.recv_timeout(max),
            None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok(line) => keep(&String::from_utf8_lossy(&line)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                keep("it has said nothing for too long, and is killed");
                child.kill().context("killing it")?;
                break;
            }
        }
    }
    Ok((child.wait()?.success(), text))
}

/// Tests that passed, as the harness counts them.
fn passed(text: &str) -> u64 {
    let counts = text.lines().filter_map(|line| line.trim().strip_prefix("test result: ok. "));
    counts.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Lines of tests that took seconds, where the harness was asked for times.
fn slow(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| {
        let seconds = line.strip_suffix("s>").and_then(|line| line.rsplit_once('<'));
        seconds.is_some_and(|(_, seconds)| seconds.parse::<f64>().is_ok_and(|took| took >= 2.0))
    })
}

#[cfg(test)]
mod tests {
    use super::{Job, Lane, Lanes, passed};
    use std::process::Command;
    use std::time::{Duration, Instant};

    fn job(name: &str, lane: Lane, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), lane, command, silence_max: None }
    }

    #[test]
    fn a_failed_job_leaves_the_others_alone_and_fails_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("mark");
        let failed = Lanes::run(|lanes| {
            lanes.push(job("bad", Lane::Computes, "exit 3"));
            lanes.push(job("good", Lane::Computes, &format!("touch {}", mark.display())));
            Ok(())
        });
        assert_eq!(failed.expect_err("one failed").to_string(), "failed: bad");
        assert!(mark.exists());
    }

    #[test]
    fn what_wants_the_machine_runs_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("mark");
        let outcome = Lanes::run(|lanes| {
            lanes.push(job("alone", Lane::Alone, &format!("test -e {}", mark.display())));
            lanes.push(job("other", Lane::Waits, &format!("sleep .2; touch {}", mark.display())));
            Ok(())
        });
        outcome.expect("the mark was there");
    }

    #[test]
    fn a_job_that_hangs_is_killed_and_has_failed() {
        let begun = Instant::now();
        let failed = Lanes::run(|lanes| {
            let hangs = job("hangs", Lane::Waits, "echo begun; exec sleep 600");
            lanes.push(Job { silence_max: Some(Duration::from_millis(300)), ..hangs });
            Ok(())
        });
        assert_eq!(failed.expect_err("it hung").to_string(), "failed: hangs");
        assert!(begun.elapsed() < Duration::from_mins(5));
    }

    #[test]
    fn passed_tests_are_counted() {
        let outcome = Lanes::run(|lanes| {
            lanes.push(job("x", Lane::Waits, "echo 'test result: ok. 12 passed; 0 failed'"));
            Ok(())
        });
        assert_eq!(outcome.expect("it passes").passed, 12);
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed"), 0);
    }
}
