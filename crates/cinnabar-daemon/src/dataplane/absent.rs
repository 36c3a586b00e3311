//! Volumes whose back end is not there, or whose address something else has: they wait, others are served, and
//! each is served as soon as its back end can be opened and its address is free.
//!
//! A storage server that is down, a file system that is not mounted or a disk that another host
//! still holds costs the guests on it their disks, and no other guests. What is wrong in the
//! configuration itself ([`StartErrorKind::may_pass`]) still ends the start. A tenant who owns the folder of
//! a socket, or an account that takes a port, costs the guests of that volume their disk, and no other guests.
//!
//! NBD clients of a volume that waits find its socket, and are turned away with the reason; a
//! vhost-user socket appears with the volume, for that protocol has no words for a reason.

use super::background::{Opening, Task};
use super::clock::after;
use super::clones;
use super::control::command_error;
use super::disks::{OpenedVolume, Taken};
use super::plane::DataPlane;
use cinnabar_config::messages::{
    AnswerTo, CommandError, CommandErrorKind, NbdAddress, Peer, StartConfig, StartError,
    StartErrorKind, Subject, VolumeConfig, Waiting,
};
use cinnabar_config::peer::check_movable;
use cinnabar_engine::units::{Instant, SECTOR_BYTES};
use cinnabar_frontend::nbd::{Export, ExportId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Until the second try; each pause is twice the last one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause: a guest waits no longer than this for storage that is back.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time for the first tries beyond the wait for locks. A back end that takes longer does not keep
/// others from being served.
const FIRST_TRY_MAX: Duration = Duration::from_secs(10);
/// How often the start looks at a wish to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Numbers of stand-ins for exports; volumes have those below.
const STAND_INS: u32 = 1 << 31;

/// A volume that waits.
struct Absent {
    config: Box<VolumeConfig>,
    /// Why, as the last try found.
    reason: String,
    since: Instant,
    /// Tries that have failed.
    tries: u32,
    next_try: Instant,
    /// Number of the try under way.
    trying: Option<u64>,
    /// Its place at the NBD server.
    stand_in: Option<ExportId>,
    /// Its NBD address was refused by the last try: a stand-in would not get it either.
    nbd_refused: bool,
    /// The data thread that has it.
    thread: usize,
    /// Who wants it as a standby.
    asker: Option<AnswerTo<()>>,
}

impl Absent {
    /// One whose first try has failed now.
    fn new(config: VolumeConfig, reason: String, now: Instant) -> Self {
        Self {
            config: Box::new(config),
            reason,
            since: now,
            tries: 1,
            next_try: after(now, pause(1)),
            trying: None,
            stand_in: None,
            nbd_refused: false,
            thread: 0,
            asker: None,
        }
    }
}

/// All of them, in the order in which they were found absent.
#[derive(Default)]
pub(super) struct Absents {
    list: Vec<Absent>,
    next_try: u64,
    next_stand_in: u32,
}

impl Absents {
    /// Settings, reason and waiting of each.
    pub(super) fn all(&self, now: Instant) -> impl Iterator<Item = (&VolumeConfig, &str, Waiting)> {
        self.list.iter().map(move |absent| {
            let between = |a: Instant, b: Instant| Duration::from_nanos(b.since_ns(a));
            let waiting = Waiting {
                tries: absent.tries,
                since: between(absent.since, now),
                next_try: absent.trying.is_none().then(|| between(now, absent.next_try)),
            };
            (&*absent.config, absent.reason.as_str(), waiting)
        })
    }

    /// Why a volume waits, if it does.
    pub(super) fn reason(&self, name: &str) -> Option<&str> {
        self.list.iter().find(|a| a.config.name == name).map(|a| a.reason.as_str())
    }

    /// The thread that listens at an NBD address for a volume that waits.
    pub(super) fn thread_at(&self, address: &NbdAddress) -> Option<usize> {
        let stands = |absent: &&Absent| {
            absent.stand_in.is_some() && absent.config.nbd.as_ref() == Some(address)
        };
        self.list.iter().find(stands).map(|absent| absent.thread)
    }

    fn position(&self, attempt: u64) -> Option<usize> {
        self.list.iter().position(|absent| absent.trying == Some(attempt))
    }

    fn number(&mut self) -> u64 {
        self.next_try += 1;
        self.next_try
    }
}

/// The n-th pause.
fn pause(tries: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(PAUSE_MAX)
}

impl DataPlane {
    /// Opens the configured back ends, all at once, and gives those that could be. The others wait.
    ///
    /// # Errors
    /// What is wrong in the configuration itself, or the start was given up.
    pub(super) fn open_backends(
        &mut self,
        config: &StartConfig,
        mut taken: Vec<Taken>,
    ) -> Result<Vec<OpenedVolume>, StartError> {
        let since = self.data_thread.clock.now();
        let first = self.absents.next_try + 1;
        for volume in &config.volumes {
            let attempt = self.absents.number();
            self.background.start(Task::Open(Opening {
                config: Box::new(volume.clone()),
                options: self.open_options.clone(),
                taken: taken.clone(),
                claims: self.known_claims(),
                keep: None,
                answer: None,
                attempt: Some(attempt),
            }));
            let reason = "the back end does not answer".to_owned();
            self.absents.list.push(Absent {
                tries: 0,
                next_try: since,
                trying: Some(attempt),
                ..Absent::new(volume.clone(), reason, since)
            });
        }
        let mut results = self.first_tries(config, first)?;
        check_twins(config, first, &results)?;
        let mut mismatches = mismatches(config, first, &results);
        let mut opened = Vec::new();
        for (volume, attempt) in config.volumes.iter().zip(first..) {
            let Some(result) = results.remove(&attempt) else { continue };
            let mismatch = mismatches.remove(&attempt).map_or(Ok(()), Err);
            let result = result.and_then(|found| {
                super::disks::check_taken(volume, &found.identity(), &taken)?;
                mismatch.map(|()| found)
            });
            match result {
                Ok(found) => {
                    self.absents.list.retain(|absent| absent.trying != Some(attempt));
                    taken.push(found.taken());
                    opened.push(*found);
                }
                Err(error) if error.kind.may_pass() => self.still_absent(attempt, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(opened)
    }

    /// What became of the first tries, as far as they end in time.
    fn first_tries(&mut self, config: &StartConfig, first: u64) -> Result<Results, StartError> {
        let until = std::time::Instant::now() + config.lock_wait_max + FIRST_TRY_MAX;
        let mut results = Results::new();
        while results.len() < config.volumes.len() && std::time::Instant::now() < until {
            if let Some((attempt, result)) = self.background.opened_within(LOOK_EVERY) {
                debug_assert!(attempt >= first);
                results.insert(attempt, result);
            }
            // Those that wait for a lock say so themselves, but one that hangs does not.
            if config.cancel.load(Relaxed) {
                let message = "given up while the volumes were being opened";
                let kind = StartErrorKind::Cancelled;
                return Err(StartError::new(kind, Subject::Daemon, message, ""));
            }
        }
        Ok(results)
    }

    /// Puts up the stand-ins of volumes that wait, where that can be done now.
    pub(super) fn listen_for_absents(&mut self) -> Result<(), StartError> {
        for at in 0..self.absents.list.len() {
            if self.absents.list[at].nbd_refused {
                continue;
            }
            match self.stand_in(at) {
                Err(error) if error.kind.is_of_address() => no_socket(&error),
                result => result?,
            }
        }
        Ok(())
    }

    /// A configured volume is not served because of its address, which may pass.
    pub(super) fn waits_for_address(&mut self, config: VolumeConfig, error: &StartError) {
        let now = self.data_thread.clock.now();
        let (volume, reason) = (&config.name, error.message.clone());
        tracing::error!(
            volume,
            reason,
            hint = error.hint,
            "the volume waits for its address; others are served, it is tried again"
        );
        let nbd_refused = error.nbd_refused;
        self.absents.list.push(Absent { nbd_refused, ..Absent::new(config, reason, now) });
    }

    /// Clients of a volume that waits are told so.
    fn stand_in(&mut self, at: usize) -> Result<(), StartError> {
        let Absents { list, next_stand_in, .. } = &mut self.absents;
        let absent = &mut list[at];
        if absent.config.nbd.is_none() {
            return Ok(());
        }
        let id = ExportId(STAND_INS | *next_stand_in);
        *next_stand_in = (*next_stand_in + 1) % STAND_INS;
        absent.stand_in = Some(id);
        let config = absent.config.clone();
        let reason = self.absents.list[at].reason.clone();
        let export = Export {
            id,
            name: config.name.clone(),
            size_bytes: 0,
            read_only: true,
            min_block_bytes: SECTOR_BYTES as u32,
            shared: true,
            description: "waiting: not served yet".to_owned(),
        };
        let thread = self.thread_at(&config).unwrap_or(0);
        self.absents.list[at].thread = thread;
        let listens = self.listen_as(thread, &config, export, turned_away(&config.name, &reason));
        if listens.is_err() {
            self.take_down(at);
        }
        listens
    }

    fn take_down(&mut self, at: usize) {
        let absent = &mut self.absents.list[at];
        if let Some(id) = absent.stand_in.take() {
            let thread = absent.thread;
            self.ask_thread(thread, |front| front.remove(id), move |hands| hands.front.remove(id));
        }
    }

    /// A volume that was served, or was about to be, can't be for now.
    pub(super) fn becomes_absent(&mut self, config: VolumeConfig, reason: String) {
        let now = self.data_thread.clock.now();
        tracing::error!(volume = config.name, reason, "the volume waits; it is tried again");
        self.absents.list.push(Absent::new(config, reason, now));
        if let Err(error) = self.stand_in(self.absents.list.len() - 1) {
            no_socket(&error);
        }
        self.retry_absent(now);
    }

    /// Tries those that are due, and sees to it that the next ones are.
    pub(super) fn retry_absent(&mut self, now: Instant) {
        if self.stop.is_some() || self.absents.list.is_empty() {
            return;
        }
        for at in 0..self.absents.list.len() {
            let absent = &self.absents.list[at];
            if absent.trying.is_none() && absent.next_try <= now {
                self.try_again(at);
            }
        }
        let idle = self.absents.list.iter().filter(|absent| absent.trying.is_none());
        if let Some(next) = idle.map(|absent| absent.next_try).min() {
            self.look_at = Some(self.look_at.map_or(next, |at| at.min(next)));
        }
    }

    /// A volume that waits is one of two hosts' from now on: it is tried at once. Answered when it stands by,
    /// or that has failed; then it goes on waiting.
    pub(super) fn try_as_standby(
        &mut self,
        now: Instant,
        name: &str,
        peer: Peer,
        answer: AnswerTo<()>,
    ) {
        let found = self.absents.list.iter_mut().find(|absent| absent.config.name == name);
        let absent = found.filter(|_| self.stop.is_none());
        let Some(absent) = absent else { return drop(answer.send(Err(CommandError::gone()))) };
        if let Err(error) = check_movable(&absent.config) {
            let error = CommandError::new(CommandErrorKind::Invalid, error.message, error.hint);
            return drop(answer.send(Err(error)));
        }
        absent.config.peer = Some(peer);
        // What comes of a try under way is closed again: it would serve the volume.
        (absent.asker, absent.trying, absent.next_try) = (Some(answer), None, now);
        self.retry_absent(now);
    }

    fn try_again(&mut self, at: usize) {
        let attempt = self.absents.number();
        let absent = &mut self.absents.list[at];
        absent.trying = Some(attempt);
        let config = absent.config.clone();
        self.background.start(Task::Open(Opening {
            config,
            options: self.open_options.clone(),
            taken: self.taken(),
            claims: self.known_claims(),
            keep: Some((self.ledger.clone(), self.cache.identity())),
            answer: None,
            attempt: Some(attempt),
        }));
    }

    /// A try has ended.
    pub(super) fn tried(
        &mut self,
        now: Instant,
        attempt: u64,
        result: Result<Box<OpenedVolume>, StartError>,
    ) {
        // Removed meanwhile, or the daemon stops: it is closed again.
        let Some(at) = self.absents.position(attempt).filter(|_| self.stop.is_none()) else {
            return;
        };
        let device = self.cache.identity().map(|(id, _)| id);
        match result {
            // Its generation is not known, or that of a device that is not in use any more.
            Ok(opened) if !opened.kept || opened.kept_on != device || self.replacing.is_some() => {
                let absent = &mut self.absents.list[at];
                (absent.trying, absent.next_try) = (None, now);
                if self.replacing.is_some() {
                    absent.next_try = after(now, PAUSE_MIN);
                }
            }
            Ok(opened) => self.came(at, *opened),
            Err(error) => self.still_absent(attempt, &error),
        }
        self.retry_absent(now);
    }

    fn came(&mut self, at: usize, opened: OpenedVolume) {
        // Its socket is the stand-in's until now.
        self.take_down(at);
        match self.install(opened) {
            Ok(key) => {
                let absent = self.absents.list.remove(at);
                let now = self.data_thread.clock.now();
                let waited_s = now.since_ns(absent.since) / 1_000_000_000;
                tracing::info!(
                    volume = absent.config.name,
                    tries = absent.tries + 1,
                    waited_s,
                    "back end and address are there"
                );
                self.attach(key, absent.asker);
            }
            Err(error) => {
                if let Some(attempt) = self.absents.list[at].trying {
                    self.still_absent(attempt, &error);
                }
            }
        }
    }

    /// A try has failed.
    fn still_absent(&mut self, attempt: u64, error: &StartError) {
        let Some(at) = self.absents.position(attempt) else { return };
        let now = self.data_thread.clock.now();
        let absent = &mut self.absents.list[at];
        absent.trying = None;
        if let Some(asker) = absent.asker.take() {
            let _ = asker.send(Err(command_error(error)));
        }
        absent.tries += 1;
        absent.nbd_refused = error.nbd_refused;
        let pause = pause(absent.tries);
        absent.next_try = after(now, pause);
        let reason = error.message.clone();
        let name = &absent.config.name;
        // Once for each reason: a server that is down for a day is not a thousand lines.
        if absent.tries == 1 || reason != absent.reason {
            let what = if error.kind.is_of_address() { "address" } else { "back end" };
            tracing::error!(
                volume = name,
                reason,
                hint = error.hint,
                "the volume waits for its {what}; others are served, it is tried again"
            );
        } else {
            tracing::debug!(volume = name, tries = absent.tries, ?pause, "it still waits");
        }
        let words = turned_away(name, &reason);
        absent.reason = reason;
        if let Some(id) = absent.stand_in {
            let (thread, same) = (absent.thread, words.clone());
            self.ask_thread(
                thread,
                |front| front.nbd.set_unavailable(id, words),
                move |hands| hands.front.nbd.set_unavailable(id, same),
            );
        } else if absent.tries > 1
            && !absent.nbd_refused
            && let Err(error) = self.stand_in(at)
        {
            // After its first try all have theirs, as far as that could be done. What keeps it from one may
            // have gone since; where this try has just met it, it is the reason, and is not met twice.
            tracing::debug!(reason = %error, "clients of a volume that waits find no socket");
        }
    }

    /// Gives up a volume that waits, and gives its settings; `None` if there is none of this name.
    pub(super) fn remove_absent(&mut self, name: &str) -> Option<VolumeConfig> {
        let at = self.absents.list.iter().position(|a| a.config.name == name)?;
        self.take_down(at);
        let absent = self.absents.list.remove(at);
        tracing::info!(volume = name, "the volume does not wait any more: it was removed");
        Some(*absent.config)
    }
}

/// Clones that are none of their parent volumes, as far as both are open.
fn mismatches(config: &StartConfig, first: u64, results: &Results) -> BTreeMap<u64, StartError> {
    let disk = |attempt: u64| results.get(&attempt)?.as_ref().ok().map(|opened| &opened.disk);
    let named = |name: &String| {
        let mut all = config.volumes.iter().zip(first..);
        all.find(|(volume, _)| volume.name == *name).and_then(|(_, attempt)| disk(attempt))
    };
    let wrong = |(volume, attempt): (&VolumeConfig, u64)| {
        let parent = volume.parent.as_ref().and_then(named);
        let error = clones::check(volume, disk(attempt)?, parent).err()?;
        Some((attempt, error))
    };
    config.volumes.iter().zip(first..).filter_map(wrong).collect()
}

/// Two volumes that are one file: the second one opened finds it locked, whichever that was.
fn check_twins(config: &StartConfig, first: u64, results: &Results) -> Result<(), StartError> {
    let all = || config.volumes.iter().zip(first..);
    for (at, (locked, attempt)) in all().enumerate() {
        let Some(Err(error)) = results.get(&attempt) else { continue };
        if error.kind != StartErrorKind::BackendInUse {
            continue;
        }
        for (other, (holder, attempt)) in all().enumerate() {
            let Some(Ok(opened)) = results.get(&attempt) else { continue };
            if error.backend.as_ref() == Some(&opened.identity()) {
                let (one, two) = if at < other { (locked, holder) } else { (holder, locked) };
                return Err(super::disks::twice(
                    two,
                    &format!("the backend of volume {:?}", one.name),
                ));
            }
        }
    }
    Ok(())
}

type Results = BTreeMap<u64, Result<Box<OpenedVolume>, StartError>>;

fn no_socket(error: &StartError) {
    tracing::warn!(reason = %error, "clients of a volume that waits find no socket");
}

/// What clients read: one line, of a length that the protocol allows.
fn turned_away(name: &str, reason: &str) -> String {
    let text = format!("volume {name:?} is waiting, not served yet: {reason}");
    text.chars().filter(|c| !c.is_control()).take(1000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let seconds: Vec<u64> = (1..9).map(|tries| pause(tries).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(pause(u32::MAX), PAUSE_MAX);
    }
}
