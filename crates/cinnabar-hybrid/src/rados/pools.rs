//! A volume on a cluster that is open.

use super::flights::{self, Flight, Inbox, News, Patch, Step, ended, failed, then};
use super::keeper::{self, Keeper, List};
use super::names::{self, Prefix};
use super::place::Connected;
use crate::librados::lock_state::{LockState, SeenLock, now_ns};
use crate::librados::{Patience, ReadOp, WriteOp};
use crate::pools::{Answer, Completion, Listing, Op, OpError, OpenError, Pools};
use cinnabar_placement::{Device, Header, Object, Pool, Record, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ranges that a patch copies in one operation, and their bytes, unless one is larger.
const PATCH_RANGES: usize = 64;
const PATCH_BYTES: u64 = 4 << 20;
/// How long what is under way may take when the volume is closed.
const CLOSE: Duration = Duration::from_secs(15);
/// Bytes of an object that the servers copy in one operation on it (`osd_copyfrom_max_chunk`).
const COPY_CHUNK: u64 = 8 << 20;
/// How long an operation takes until the operator is told.
const SLOW: Duration = Duration::from_secs(10);

/// A volume on a cluster that is open. Dropped, it waits up to 15 s for what is under way; if all of that has
/// ended, the next owner need not fence this client off.
#[derive(Debug)]
pub(super) struct RadosPools {
    keeper: Keeper,
    connected: Connected,
    prefix: Prefix,
    epoch: u64,
    /// An extent is copied in more than one chunk: its version has to stay.
    in_chunks: bool,
    takings: [u64; 2],
    seen: Arc<SeenLock>,
    devices: Option<[Device; 2]>,
    inbox: Arc<Inbox>,
    flights: Slab<Flight>,
    /// Ends that were known at once.
    ready: Vec<Completion>,
    moved_bytes: u64,
    fenced: bool,
}

impl RadosPools {
    /// Of a volume whose lock was taken by an operation that began at `seen_ns`; `takings` as of [`Pools`].
    pub(super) fn new(
        connected: Connected,
        header: &Header,
        seen_ns: u64,
        takings: [u64; 2],
        devices: Option<[Device; 2]>,
    ) -> Result<Self, OpenError> {
        let io = |during: &str| {
            let during = during.to_owned();
            move |errno| OpenError::Io { during, errno }
        };
        let inbox = Inbox::new().map_err(io("an eventfd"))?;
        let table = (Arc::clone(&connected.table), connected.object.clone());
        let seen = Arc::new(SeenLock::new(seen_ns));
        let keeper = Keeper::start(Arc::clone(&inbox), table, header.epoch, Arc::clone(&seen))
            .map_err(|error| io("a thread")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(Self {
            keeper,
            prefix: Connected::prefix(header),
            connected,
            epoch: header.epoch,
            in_chunks: header.geometry.extent_bytes() > COPY_CHUNK,
            takings,
            seen,
            devices,
            inbox,
            flights: Slab::new(),
            ready: Vec::new(),
            moved_bytes: 0,
            fenced: false,
        })
    }

    pub(super) fn connected(&self) -> &Connected {
        &self.connected
    }

    /// Whether it is known to be another host's.
    pub(super) fn is_lost(&self) -> bool {
        self.seen.lock_state() == LockState::Lost
    }

    fn pool(&self, pool: Pool) -> &Arc<crate::librados::Pool> {
        match pool {
            Pool::Slow => &self.connected.slow,
            Pool::Fast => &self.connected.fast,
        }
    }

    fn fly(&mut self, token: u64, step: Step) -> usize {
        self.flights.insert(Flight { token, began: Instant::now(), step })
    }

    fn write(&self, flight: usize, object: Object, op: WriteOp) {
        let name = self.prefix.object(object);
        self.pool(object.pool).begin_write(&name, op, then(&self.inbox, flight, News::Wrote));
    }

    fn read(&self, flight: usize, object: Object, op: ReadOp, ordered: bool) {
        let name = self.prefix.object(object);
        self.pool(object.pool).begin_read(
            &name,
            op,
            ordered,
            then(&self.inbox, flight, News::Read),
        );
    }

    fn change_table(&mut self, token: u64, step: Step, op: WriteOp) {
        let flight = self.fly(token, step);
        let Connected { table, object, .. } = &self.connected;
        table.begin_write(object, op, then(&self.inbox, flight, News::Wrote));
    }

    /// An end that is known at once.
    fn end(&mut self, token: u64, result: Result<Answer, OpError>) {
        self.ready.push(ended(token, result));
        self.inbox.ring();
    }

    fn store_record(&mut self, token: u64, extent: u32, change: [Record; 2], epoch: u64) {
        let [expected, new] = change;
        let (key, absent) = (names::record(extent), |r: Record| r.state == State::Absent);
        let before = if absent(expected) { Vec::new() } else { expected.encode(extent).to_vec() };
        let op = WriteOp::new()
            .compare_entry(names::EPOCH, &epoch.to_le_bytes())
            .compare_entry(&key, &before);
        let op = if absent(new) {
            op.remove_entry(&key)
        } else {
            op.set_entry(&key, &new.encode(extent))
        };
        self.change_table(token, Step::Store, op);
    }

    fn list(&mut self, token: u64, pool: Pool, after: Option<String>) {
        let flight = self.fly(token, Step::List(pool));
        let list = List { flight, pool: Arc::clone(self.pool(pool)), after };
        if self.keeper.list(list).is_err() {
            self.inbox.put(flight, News::Listed(Err(Errno::IO)));
        }
    }

    fn patch(&self, flight: usize, patch: &mut Patch) {
        let (mut op, mut bytes) = (ReadOp::new(), 0);
        patch.taken = 0;
        for range in patch.ranges.iter().take(PATCH_RANGES) {
            let length = range.end - range.start;
            if bytes > 0 && bytes + length > PATCH_BYTES {
                break;
            }
            op = op.read(range.start, length as usize);
            (bytes, patch.taken) = (bytes + length, patch.taken + 1);
        }
        self.read(flight, patch.from, op, true);
    }

    /// An operation came to an end, or to its next step.
    fn landed(&mut self, flight: usize, news: News, out: &mut Vec<Completion>) {
        let Flight { token, began, step } = self.flights.remove(flight);
        let result = news.result();
        let changes =
            !matches!(step, Step::Read { .. } | Step::Probe | Step::Look { .. } | Step::List(_));
        if result == Err(Errno::TIMEDOUT) && changes {
            // No time-out is set. If there is one, the operation may still be carried out: it has not ended.
            tracing::error!(?step, "a time-out of an operation that may still be carried out");
            self.flights.insert(Flight { token, began, step });
            return;
        }
        self.fenced |= result == Err(Errno::SHUTDOWN);
        let ended_as = match (step, news) {
            (Step::Read { memory, .. }, News::Read(mut landed)) if result.is_ok() => {
                flights::fill(&memory, &landed.op.take_read(0));
                Ok(Answer::Done)
            }
            (Step::Read { memory, may_be_missing: true }, _) if result == Err(Errno::NOENT) => {
                memory.zero_from(0);
                Ok(Answer::Done)
            }
            (Step::Delete, _) if result == Err(Errno::NOENT) => Ok(Answer::Done),
            (Step::Probe, _) if result == Err(Errno::NOENT) => Ok(Answer::Exists(false)),
            (Step::Probe, _) if result.is_ok() => Ok(Answer::Exists(true)),
            (Step::Look { from, to }, News::Read(landed)) if result.is_ok() => {
                return self.copy(token, (from, landed.version), to);
            }
            // The version is another one, or it changed while it was read.
            (Step::Copy(_), _) if matches!(result, Err(Errno::RANGE | Errno::OVERFLOW)) => {
                Ok(Answer::Changed)
            }
            (Step::PatchRead(patch), News::Read(landed)) if result.is_ok() => {
                return self.write_patch(token, patch, landed.op);
            }
            (Step::PatchWrite(mut patch), _) if result.is_ok() => {
                let done = patch.ranges.drain(..patch.taken).map(|range| range.end - range.start);
                self.moved_bytes += done.sum::<u64>();
                if !patch.ranges.is_empty() {
                    return self.go_on(token, patch);
                }
                Ok(Answer::Done)
            }
            (step @ (Step::Store | Step::Check { .. }), _) => {
                if let Step::Check { began_ns } = step {
                    keeper::note(&self.seen, began_ns, result);
                }
                match result {
                    Ok(()) => Ok(Answer::Done),
                    Err(errno) if keeper::is_lost(errno) => {
                        self.fenced = true;
                        Err(OpError::Fenced)
                    }
                    Err(errno) => Err(failed(errno, Pool::Slow)),
                }
            }
            (Step::List(pool), News::Listed(Ok(page))) => {
                let listed = page.names.iter().filter_map(|name| self.prefix.listed(name, pool));
                Ok(Answer::Listed(Listing { objects: listed.collect(), next: page.next }))
            }
            (step, _) => match result {
                Ok(()) => Ok(Answer::Done),
                Err(errno) => Err(failed(errno, pool_of(&step))),
            },
        };
        if self.fenced {
            self.seen.lose();
        }
        out.push(ended(token, ended_as));
    }

    fn copy(&mut self, token: u64, (from, version): (Object, u64), to: Object) {
        let flight = self.fly(token, Step::Copy(to.pool));
        let (to_name, from_name) = (self.prefix.object(to), self.prefix.object(from));
        let source = (&**self.pool(from.pool), from_name.as_str());
        let then = then(&self.inbox, flight, News::Copied);
        self.pool(to.pool).begin_copy(&to_name, source, version, then);
    }

    fn go_on(&mut self, token: u64, mut patch: Patch) {
        let flight = self.fly(token, Step::Probe);
        self.patch(flight, &mut patch);
        self.flights[flight].step = Step::PatchRead(patch);
    }

    fn write_patch(&mut self, token: u64, patch: Patch, mut read: ReadOp) {
        let mut op = WriteOp::new().assert_exists();
        for (index, range) in patch.ranges.iter().take(patch.taken).enumerate() {
            op = op.write(range.start, &read.take_read(index));
        }
        let to = patch.to;
        let flight = self.fly(token, Step::PatchWrite(patch));
        self.write(flight, to, op);
    }

    /// Waits until what is under way has ended, for a bounded time.
    fn drain(&mut self) -> bool {
        let begun = Instant::now();
        let mut out = Vec::new();
        while !self.flights.is_empty() {
            let Some(left) = CLOSE.checked_sub(begun.elapsed()) else { return false };
            let left = Timespec::try_from(left).expect("seconds");
            let mut fds = [PollFd::from_borrowed_fd(self.inbox.bell(), PollFlags::IN)];
            if poll(&mut fds, Some(&left)).is_err_and(|errno| errno != Errno::INTR) {
                return false;
            }
            self.completions(&mut out);
            out.clear();
        }
        true
    }
}

/// Where an operation changes something.
fn pool_of(step: &Step) -> Pool {
    match step {
        Step::Change(pool) | Step::Copy(pool) => *pool,
        Step::PatchWrite(patch) => patch.to.pool,
        _ => Pool::Slow,
    }
}

impl Pools for RadosPools {
    fn submit(&mut self, token: u64, op: Op) {
        match op {
            Op::Read { object, offset, memory, may_be_missing } => {
                let read = ReadOp::new().read(offset, memory.len_bytes() as usize);
                let flight = self.fly(token, Step::Read { memory, may_be_missing });
                self.read(flight, object, read, false);
            }
            // What is acknowledged is always durable here.
            Op::Write { object, offset, memory, may_be_missing, durable: _ } => {
                let write = WriteOp::new();
                let write = if may_be_missing { write } else { write.assert_exists() };
                let write = flights::gather(write, offset, &memory);
                let flight = self.fly(token, Step::Change(object.pool));
                self.write(flight, object, write);
            }
            Op::Zero { object, offset, length, may_be_missing, .. } => {
                let zero = WriteOp::new();
                let zero = if may_be_missing { zero.create(false) } else { zero.assert_exists() };
                let flight = self.fly(token, Step::Change(object.pool));
                self.write(flight, object, zero.zero(offset, length));
            }
            Op::Flush => self.end(token, Ok(Answer::Done)),
            Op::Probe { object } => {
                let flight = self.fly(token, Step::Probe);
                self.read(flight, object, ReadOp::new().stat(), true);
            }
            // The state machine knows what was written meanwhile: one chunk may have caught it or not.
            Op::Copy { from, to } if !self.in_chunks => self.copy(token, (from, 0), to),
            Op::Copy { from, to } => {
                let flight = self.fly(token, Step::Look { from, to });
                self.read(flight, from, ReadOp::new().stat(), true);
            }
            Op::Patch { from, to, ranges } => {
                let ranges: VecDeque<_> = ranges.into_iter().filter(|r| r.start < r.end).collect();
                if ranges.is_empty() {
                    return self.end(token, Ok(Answer::Done));
                }
                self.go_on(token, Patch { from, to, ranges, taken: 0 });
            }
            Op::Delete { object } => {
                let flight = self.fly(token, Step::Delete);
                self.write(flight, object, WriteOp::new().remove());
            }
            Op::StoreRecord { extent, expected, new, epoch } => {
                self.store_record(token, extent, [expected, new], epoch);
            }
            Op::StoreHeader { expected, new } => {
                let store = WriteOp::new()
                    .compare_entry(names::HEADER, &expected.encode())
                    .set_entry(names::HEADER, &new.encode())
                    .set_entry(names::EPOCH, &new.epoch.to_le_bytes());
                self.change_table(token, Step::Store, store);
            }
            Op::List { pool, after } => self.list(token, pool, after),
            Op::Check { epoch } => match keeper::check(epoch) {
                Ok(check) => self.change_table(token, Step::Check { began_ns: now_ns() }, check),
                Err(errno) => self.end(token, Err(OpError::Other(errno))),
            },
        }
    }

    fn completions(&mut self, out: &mut Vec<Completion>) {
        for (flight, news) in self.inbox.take() {
            self.landed(flight, news, out);
        }
        out.append(&mut self.ready);
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.inbox.bell()
    }

    fn seen_lock(&self) -> Option<Arc<SeenLock>> {
        Some(Arc::clone(&self.seen))
    }

    fn devices(&self) -> Option<[Device; 2]> {
        self.devices.clone()
    }

    fn takings(&self) -> Option<[u64; 2]> {
        Some(self.takings)
    }

    fn moved_through_host(&self) -> u64 {
        self.moved_bytes
    }

    fn trouble(&self) -> Option<String> {
        let oldest = self.flights.iter().map(|(_, flight)| flight.began).min()?;
        let since = oldest.elapsed();
        (since >= SLOW).then(|| {
            format!("OSDs of the pools do not answer since {} s; see ceph -s", since.as_secs())
        })
    }
}

impl Drop for RadosPools {
    fn drop(&mut self) {
        // The lock is renewed as long as something is under way.
        let drained = self.drain();
        let kept = self.keeper.stop();
        let clean = drained && kept && !self.fenced && !self.is_lost();
        if let Err(errno) = self.connected.cluster.set_patience(Patience::Opening) {
            tracing::debug!(%errno, "librados does not take a time-out");
            return;
        }
        if !clean {
            return;
        }
        // Behind the last operation's end.
        if let Err(errno) = self.connected.let_go(self.epoch) {
            let object = &self.connected.object;
            tracing::warn!(%errno, object, "a hybrid volume was not let go of: the next owner waits");
        }
    }
}
