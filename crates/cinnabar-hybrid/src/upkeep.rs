//! What is done to a volume that nothing serves: another size, out of the fast pool, without garbage, without what is
//! lost. This process is its owner for as long, as if it served it.

use crate::pools::{
    Answer, Completion, Contents, Listed, Op, OpError, OpenError, Place, Pools, Wait,
};
use cinnabar_placement::volume::{Action, Copied, Event, Settings, Stored, Verdict, Volume};
use cinnabar_placement::{Header, Object, Pool, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Bytes that are copied a second: as fast as the pools can.
const COPY_BYTES_PER_S: u64 = 1 << 40;
/// Until failed steps are tried again, and the progress is told.
const TURN: Duration = Duration::from_millis(100);
/// Between two looks while nothing is under way.
const PAUSE: Duration = Duration::from_millis(5);
/// Failures without a success in between after which the command ends.
const FAILURES_MAX: u32 = 100;
/// Moves that the state machine takes at a time.
const MOVES_PLANNED: usize = 256;
/// How often the owner is asked.
const CHECK_EVERY: Duration = Duration::from_secs(3);
/// Deletions under way at a time.
const DELETES_MAX: usize = 16;

/// Told some times a second how many objects are left in the fast pool, and what is wrong. A command may be killed at
/// any moment: the next owner goes on where it was.
pub type Progress<'a> = dyn FnMut(u32, Option<&str>) + 'a;

/// A volume that is taken over for upkeep.
pub struct Upkeep {
    /// Goes first: the lock is let go of behind all that is under way.
    pools: Box<dyn Pools>,
    volume: Volume,
    pending: Slab<Pending>,
    actions: Vec<Action>,
    /// What was asked for by [`Upkeep::call`] and has ended.
    answers: Vec<(usize, Result<Answer, OpError>)>,
    began: Instant,
    ticked: Option<Instant>,
    checked: Instant,
    told: Instant,
    failures: u32,
    /// The last one.
    failed: String,
    lost: Option<String>,
    /// The volume's state machine does what it has to.
    goes_on: bool,
}

enum Pending {
    /// Of the volume's state machine.
    Step(Action),
    Own,
    Check,
}

impl Upkeep {
    /// Takes the volume over; `wait` as with [`Place::take_over`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        place: &mut dyn Place,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
        progress: &mut Progress<'_>,
    ) -> Result<Self, OpenError> {
        let (contents, pools) = place.take_over(wait)?;
        let mut upkeep = Self::resting(contents, pools)?;
        upkeep.goes_on = true;
        upkeep.settle(progress)?;
        Ok(upkeep)
    }

    /// One whose state machine does nothing yet: it would miss what is lost.
    fn resting(contents: Contents, pools: Box<dyn Pools>) -> Result<Self, OpenError> {
        let settings = Settings { copy_bytes_per_s: COPY_BYTES_PER_S, ..Settings::default() };
        let volume = Volume::open(contents.header, contents.records, settings)
            .map_err(|error| OpenError::Table(error.to_string()))?;
        let now = Instant::now();
        Ok(Self {
            pools,
            volume,
            pending: Slab::new(),
            actions: Vec::new(),
            answers: Vec::new(),
            began: now,
            ticked: None,
            checked: now,
            told: now,
            failures: 0,
            failed: String::new(),
            lost: None,
            goes_on: false,
        })
    }

    /// What the table says of the volume.
    pub fn header(&self) -> &Header {
        self.volume.header()
    }

    /// Gives the volume another size. A smaller one loses what is behind it, and is refused unless `may_shrink`.
    ///
    /// # Errors
    /// [`OpenError::Other`] if it can't have the size; whatever else fails.
    pub fn resize(
        &mut self,
        bytes: u64,
        may_shrink: bool,
        progress: &mut Progress<'_>,
    ) -> Result<(), OpenError> {
        let before = self.header().geometry.bytes();
        if bytes == before {
            return Ok(());
        }
        if bytes < before && !may_shrink {
            return Err(OpenError::Other(format!("the volume has {before} bytes, which is more")));
        }
        self.volume
            .resize(bytes, &mut self.actions)
            .map_err(|error| OpenError::Other(error.to_string()))?;
        self.settle(progress)?;
        if self.header().geometry.bytes() == bytes {
            return Ok(());
        }
        Err(OpenError::Other(format!("the table has no room for a volume of {bytes} bytes")))
    }

    /// Gives the volume no more room in the fast pool, and moves out what is there. `progress` is told how many
    /// objects are left, and what is wrong, if something is. Gives how many there were.
    ///
    /// # Errors
    /// [`OpenError::Other`] if some can't be moved: for want of room, or because they are lost.
    pub fn evacuate(&mut self, progress: &mut Progress<'_>) -> Result<u32, OpenError> {
        if self.header().budget_bytes > 0 {
            self.volume
                .set_budget(0, &mut self.actions)
                .map_err(|error| OpenError::Other(error.to_string()))?;
            self.settle(progress)?;
            if self.header().budget_bytes > 0 {
                return Err(OpenError::Other(format!(
                    "the table was not written: {}",
                    self.failed
                )));
            }
        }
        let all = self.volume.table().objects(Pool::Fast);
        let mut tried = BTreeSet::new();
        loop {
            let table = self.volume.table();
            let fast = |extent: &u32| table.get(*extent).occupies(Pool::Fast);
            let left = (0..table.len()).filter(fast).filter(|extent| !tried.contains(extent));
            // As many as are taken at a time.
            let moves: Vec<u32> = left.take(MOVES_PLANNED).collect();
            if moves.is_empty() {
                break;
            }
            self.volume.set_moves(moves.iter().map(|extent| (*extent, Pool::Slow)));
            self.settle(progress)?;
            tried.extend(moves);
        }
        match self.volume.table().objects(Pool::Fast) {
            0 => Ok(all),
            left => Err(OpenError::Other(format!(
                "{left} objects are still in the fast pool ({}); its budget is 0 from now on all the same",
                self.failed
            ))),
        }
    }

    /// Deletes objects of the volume that nothing needs; how many these were.
    ///
    /// # Errors
    /// When a pool can't be listed, or an object not be deleted.
    pub fn collect(&mut self, progress: &mut Progress<'_>) -> Result<u64, OpenError> {
        let mut deleted = 0;
        for pool in [Pool::Slow, Pool::Fast] {
            let mut after = None;
            loop {
                let listed = self.call(Op::List { pool, after }, progress)?;
                let Answer::Listed(listing) = listed else {
                    return Err(OpenError::Other(format!("the {pool} pool was not listed")));
                };
                let objects = listing.objects.into_iter().filter_map(|listed| match listed {
                    Listed::Object(object) => Some(object),
                    Listed::Foreign(_) => None,
                });
                let left: Vec<Object> =
                    objects.filter(|object| self.volume.judge(*object) == Verdict::Left).collect();
                deleted += left.len() as u64;
                for some in left.chunks(DELETES_MAX) {
                    self.delete(some, progress)?;
                }
                match listing.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        Ok(deleted)
    }

    fn delete(&mut self, objects: &[Object], progress: &mut Progress<'_>) -> Result<(), OpenError> {
        let keys: Vec<usize> =
            objects.iter().map(|object| self.begin(Op::Delete { object: *object })).collect();
        for key in keys {
            self.end(key, progress)?.map_err(|error| OpenError::Other(error.to_string()))?;
        }
        Ok(())
    }

    /// Begins an operation of our own.
    fn begin(&mut self, op: Op) -> usize {
        let key = self.pending.insert(Pending::Own);
        self.pools.submit(key as u64, op);
        key
    }

    /// Waits for it.
    fn end(
        &mut self,
        key: usize,
        progress: &mut Progress<'_>,
    ) -> Result<Result<Answer, OpError>, OpenError> {
        loop {
            if let Some(at) = self.answers.iter().position(|(ended, _)| *ended == key) {
                return Ok(self.answers.swap_remove(at).1);
            }
            self.turn(progress)?;
        }
    }

    fn ask(
        &mut self,
        op: Op,
        progress: &mut Progress<'_>,
    ) -> Result<Result<Answer, OpError>, OpenError> {
        let key = self.begin(op);
        self.end(key, progress)
    }

    fn call(&mut self, op: Op, progress: &mut Progress<'_>) -> Result<Answer, OpenError> {
        self.ask(op, progress)?.map_err(|error| OpenError::Other(error.to_string()))
    }

    /// Goes on until nothing of the volume is under way.
    fn settle(&mut self, progress: &mut Progress<'_>) -> Result<(), OpenError> {
        loop {
            self.turn(progress)?;
            if self.volume.is_quiet() && self.pending.is_empty() {
                return Ok(());
            }
        }
    }

    /// Carries out what the volume wants, waits a moment, and tells it what has ended.
    fn turn(&mut self, progress: &mut Progress<'_>) -> Result<(), OpenError> {
        if self.told.elapsed() >= TURN {
            self.told = Instant::now();
            progress(self.volume.table().objects(Pool::Fast), self.pools.trouble().as_deref());
        }
        // Not at once: a step that has failed would fail again and again.
        let is_time = self.ticked.is_none_or(|ticked| ticked.elapsed() >= TURN);
        if self.goes_on && (is_time || self.pending.is_empty() || self.volume.has_more()) {
            self.ticked = Some(Instant::now());
            let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.volume.tick(now_ns, &mut self.actions);
            self.carry_out();
        }
        if self.checked.elapsed() >= CHECK_EVERY {
            self.checked = Instant::now();
            let epoch = self.header().epoch;
            let key = self.pending.insert(Pending::Check);
            self.pools.submit(key as u64, Op::Check { epoch });
        }
        if self.pending.is_empty() {
            // Nothing, or a step that has failed and is tried again.
            std::thread::sleep(PAUSE);
        } else {
            let timeout = Timespec::try_from(TURN).expect("a moment");
            let mut fds = [PollFd::from_borrowed_fd(self.pools.events(), PollFlags::IN)];
            // An error is a signal: what is ready is looked at all the same.
            let _ready = poll(&mut fds, Some(&timeout));
        }
        let mut ended = Vec::new();
        self.pools.completions(&mut ended);
        for completion in ended {
            self.ended(completion);
        }
        if self.pending.is_empty() || self.failures == 0 {
            self.carry_out();
        }
        if self.failures >= FAILURES_MAX {
            let text = format!("{}, {} times in a row", self.failed, self.failures);
            return Err(OpenError::Other(text));
        }
        match self.lost.take() {
            Some(why) => Err(OpenError::Other(why)),
            None => Ok(()),
        }
    }

    fn carry_out(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            let op = match action.clone() {
                Action::Store { extent, expected, new, epoch } => {
                    Op::StoreRecord { extent, expected, new, epoch }
                }
                Action::StoreHeader { expected, new } => Op::StoreHeader { expected, new },
                Action::Probe { object } => Op::Probe { object },
                Action::Copy { from, to } => Op::Copy { from, to },
                Action::Patch { from, to, ranges } => Op::Patch { from, to, ranges },
                Action::Delete { object } => Op::Delete { object },
                // There are no requests.
                Action::Release { .. } | Action::Fail { .. } => continue,
                Action::Ended { extent, outcome } => {
                    tracing::debug!(extent, ?outcome, "a move has ended");
                    continue;
                }
                Action::Fenced => {
                    self.lost.get_or_insert("another host has taken the volume over".into());
                    continue;
                }
            };
            let key = self.pending.insert(Pending::Step(action));
            self.pools.submit(key as u64, op);
        }
    }

    fn ended(&mut self, Completion { token, result }: Completion) {
        match &result {
            Err(OpError::Fenced) => self.volume.fence(&mut self.actions),
            Err(OpError::Unsure(_)) => {
                self.lost = result.as_ref().err().map(ToString::to_string);
                self.volume.fence(&mut self.actions);
            }
            _ => {}
        }
        let action = match self.pending.remove(token as usize) {
            Pending::Step(action) => action,
            Pending::Own => return self.answers.push((token as usize, result)),
            Pending::Check => return,
        };
        match &result {
            Ok(_) => self.failures = 0,
            Err(error) => {
                self.failures += 1;
                self.failed = error.to_string();
            }
        }
        if let Some(event) = event(&action, &result) {
            self.volume.apply(event, &mut self.actions);
        }
    }
}

/// What the end of an operation means to the volume that wanted it.
fn event(action: &Action, result: &Result<Answer, OpError>) -> Option<Event> {
    let done = result.is_ok();
    let stored = match result {
        Ok(_) => Stored::Done,
        Err(OpError::Fenced | OpError::Unsure(_)) => Stored::NotOwner,
        Err(_) => Stored::Failed,
    };
    Some(match action {
        Action::Store { extent, .. } => Event::Stored { extent: *extent, outcome: stored },
        Action::StoreHeader { .. } => Event::HeaderStored(stored),
        Action::Probe { object } => {
            let exists = match result {
                Ok(Answer::Exists(exists)) => Some(*exists),
                Err(OpError::Missing) => Some(false),
                Ok(_) | Err(_) => None,
            };
            Event::Probed { extent: object.extent, exists }
        }
        Action::Copy { from, .. } => {
            let outcome = match result {
                Ok(Answer::Changed) => Copied::Changed,
                Ok(_) => Copied::Done,
                Err(_) => Copied::Failed,
            };
            Event::Copied { extent: from.extent, outcome }
        }
        Action::Patch { from, .. } => Event::Patched { extent: from.extent, done },
        Action::Delete { object } => Event::Deleted { extent: object.extent, done },
        Action::Release { .. } | Action::Fail { .. } | Action::Ended { .. } | Action::Fenced => {
            return None;
        }
    })
}

/// What became of an object that was lost when the pools were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Its extent reads as zeros from now on.
    Forgotten,
    /// It is there, though too short: it stays.
    There,
    /// The table has another one by now: nothing was changed.
    Other,
}

/// Has extents whose objects are missing read as zeros from now on, if they still are. Says of each what became of it.
///
/// # Errors
/// [`OpenError`].
pub fn forget(
    place: &mut dyn Place,
    lost: &[Object],
    wait: &mut dyn FnMut(Wait<'_>) -> bool,
    progress: &mut Progress<'_>,
) -> Result<Vec<Lost>, OpenError> {
    let (contents, pools) = place.take_over(wait)?;
    let (header, records) = (contents.header, contents.records.clone());
    let records: BTreeMap<u32, Record> = records.into_iter().collect();
    let mut upkeep = Upkeep::resting(contents, pools)?;
    let mut fates = Vec::new();
    let mut missing = Vec::new();
    for object in lost {
        let record = records.get(&object.extent).copied().unwrap_or(Record::ABSENT);
        let fate = if record.truth(object.extent) == Some(*object) {
            match upkeep.ask(Op::Probe { object: *object }, progress)? {
                Ok(Answer::Exists(false)) | Err(OpError::Missing) => Lost::Forgotten,
                // The latter of a local file that has lost its end.
                Ok(_) | Err(OpError::Other(Errno::NODATA)) => Lost::There,
                Err(error) => return Err(OpenError::Other(error.to_string())),
            }
        } else {
            Lost::Other
        };
        if fate == Lost::Forgotten {
            missing.push((object.extent, record));
        }
        fates.push(fate);
    }
    let Some(highest) = missing.iter().map(|(_, record)| record.highest()).max() else {
        return Ok(fates);
    };
    // Objects that these extents get later have names that none of theirs ever had.
    let floor = header.floor.max(highest);
    let new = Header { floor, changed: header.epoch, ..header };
    upkeep.call(Op::StoreHeader { expected: header, new }, progress)?;
    for (extent, expected) in missing {
        let epoch = header.epoch;
        upkeep.call(Op::StoreRecord { extent, expected, new: Record::ABSENT, epoch }, progress)?;
    }
    Ok(fates)
}
