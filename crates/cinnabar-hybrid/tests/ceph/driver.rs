//! The smallest driver of a volume: each call waits until what it began has ended.

use anyhow::{Context, Result, bail, ensure};
use cinnabar_hybrid::buffers::Buffers;
use cinnabar_hybrid::pools::{Answer, Completion, Contents, Op, OpError, Place, Pools, Wait};
use cinnabar_placement::Pool;
use cinnabar_placement::volume::{
    Action, Admission, Copied, Event, Io, MoveEnd, Op as IoOp, Route, Settings, Stored, Volume,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smallvec::smallvec;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(100);

pub(crate) struct Driver {
    pub(crate) volume: Volume,
    pub(crate) pools: Box<dyn Pools>,
    pub(crate) ended: Vec<(u32, MoveEnd)>,
    pub(crate) fenced: bool,
    pending: BTreeMap<u64, Action>,
    released: VecDeque<(u64, Result<Route>)>,
    token: u64,
    begun: Instant,
}

impl Driver {
    pub(crate) fn open(place: &mut impl Place) -> Result<Self> {
        let (contents, pools) = place.take_over(&mut |wait| wait == Wait::Lease)?;
        Self::new(contents, pools)
    }

    pub(crate) fn new(contents: Contents, pools: Box<dyn Pools>) -> Result<Self> {
        let settings = Settings { copy_bytes_per_s: 1 << 30, ..Settings::default() };
        let volume = Volume::open(contents.header, contents.records, settings)?;
        Ok(Self {
            volume,
            pools,
            ended: Vec::new(),
            fenced: false,
            pending: BTreeMap::new(),
            released: VecDeque::new(),
            token: 0,
            begun: Instant::now(),
        })
    }

    /// Carries out what the volume wants, and tells it what has ended.
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<Vec<Completion>> {
        let mut actions = Vec::new();
        self.volume.tick(self.begun.elapsed().as_nanos() as u64, &mut actions);
        self.carry_out(actions);
        let wait = Timespec::try_from(wait)?;
        poll(&mut [PollFd::from_borrowed_fd(self.pools.events(), PollFlags::IN)], Some(&wait))?;
        let (mut found, mut others) = (Vec::new(), Vec::new());
        self.pools.completions(&mut found);
        for completion in found {
            let Some(action) = self.pending.remove(&completion.token) else {
                others.push(completion);
                continue;
            };
            let event = event(action, completion.result)?;
            let mut actions = Vec::new();
            self.volume.apply(event, &mut actions);
            self.carry_out(actions);
        }
        Ok(others)
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            let op = match action.clone() {
                Action::Release { token, route } => {
                    self.released.push_back((token, Ok(route)));
                    continue;
                }
                Action::Fail { token, why } => {
                    self.released.push_back((token, Err(why.into())));
                    continue;
                }
                Action::Ended { extent, outcome } => {
                    self.ended.push((extent, outcome));
                    continue;
                }
                Action::Fenced => {
                    self.fenced = true;
                    continue;
                }
                Action::Store { extent, expected, new, epoch } => {
                    Op::StoreRecord { extent, expected, new, epoch }
                }
                Action::StoreHeader { expected, new } => Op::StoreHeader { expected, new },
                Action::Probe { object } => Op::Probe { object },
                Action::Copy { from, to } => Op::Copy { from, to },
                Action::Patch { from, to, ranges } => Op::Patch { from, to, ranges },
                Action::Delete { object } => Op::Delete { object },
            };
            let token = self.next();
            self.pending.insert(token, action);
            self.pools.submit(token, op);
        }
    }

    fn next(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    /// Submits an operation and waits for its end; the volume goes on meanwhile.
    pub(crate) fn op(&mut self, op: Op) -> Result<Result<Answer, OpError>> {
        let (token, begun) = (self.next(), Instant::now());
        self.pools.submit(token, op);
        while begun.elapsed() < LIMIT {
            let found = self.turn(Duration::from_millis(100))?;
            if let Some(found) = found.into_iter().find(|completion| completion.token == token) {
                return Ok(found.result);
            }
        }
        bail!("an operation takes longer than {LIMIT:?}; {:?}", self.pools.trouble())
    }

    /// Where a request goes; `None`: zeros.
    fn route(&mut self, op: IoOp, offset: u64, length: u64) -> Result<Option<Route>> {
        let (token, begun) = (self.next(), Instant::now());
        let (io, mut actions) = (Io { token, op, offset, length }, Vec::new());
        let admission = self.volume.begin(io, &mut actions);
        self.carry_out(actions);
        match admission {
            Admission::Go(route) => return Ok(Some(route)),
            Admission::Zeros => return Ok(None),
            Admission::Held => {}
            Admission::Refused(why) => return Err(why.into()),
        }
        while begun.elapsed() < LIMIT {
            self.turn(Duration::from_millis(100))?;
            if let Some(at) = self.released.iter().position(|(held, _)| *held == token) {
                let (_, route) = self.released.remove(at).context("it was found")?;
                return route.map(Some);
            }
        }
        bail!("a write is held for longer than {LIMIT:?}")
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0xee; length];
        let Some(route) = self.route(IoOp::Read, offset, length as u64)? else {
            return Ok(vec![0; length]);
        };
        let memory = memory(&mut bytes);
        let (object, may_be_missing) = (route.object, route.may_be_missing);
        let offset = offset % super::EXTENT;
        let read = self.done(route, Op::Read { object, offset, memory, may_be_missing });
        if read.is_err() {
            // It may be under way still.
            std::mem::forget(bytes);
            return read.map(|()| Vec::new());
        }
        Ok(bytes)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let route = self.route(IoOp::Write, offset, bytes.len() as u64)?.context("a place")?;
        let mut bytes = bytes.to_vec();
        let memory = memory(&mut bytes);
        let (object, may_be_missing) = (route.object, route.may_be_missing);
        let offset = offset % super::EXTENT;
        self.done(route, Op::Write { object, offset, memory, may_be_missing, durable: true })
    }

    pub(crate) fn zero(&mut self, offset: u64, length: u64) -> Result<()> {
        let route = self.route(IoOp::Write, offset, length)?.context("a place")?;
        let (object, may_be_missing) = (route.object, route.may_be_missing);
        let offset = offset % super::EXTENT;
        let (punch, durable) = (true, true);
        self.done(route, Op::Zero { object, offset, length, may_be_missing, punch, durable })
    }

    fn done(&mut self, route: Route, op: Op) -> Result<()> {
        let result = self.op(op)?;
        let mut actions = Vec::new();
        self.volume.end(route.ticket, result.is_ok(), &mut actions);
        self.carry_out(actions);
        ensure!(result? == Answer::Done, "a request has ended");
        Ok(())
    }

    /// Moves extents, and waits until all of that has ended.
    pub(crate) fn move_to(&mut self, pool: Pool, extents: &[u32]) -> Result<()> {
        // An extent whose first write was just recorded does not move yet.
        self.settle()?;
        self.volume.set_moves(extents.iter().map(|extent| (*extent, pool)));
        self.settle()
    }

    /// Waits until nothing is under way.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !(self.volume.is_quiet() && self.pending.is_empty()) {
            ensure!(begun.elapsed() < LIMIT, "moves take longer than {LIMIT:?}");
            ensure!(!self.fenced, "fenced off");
            self.turn(Duration::from_millis(20))?;
        }
        Ok(())
    }
}

pub(crate) fn memory(bytes: &mut [u8]) -> Buffers {
    let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: callers wait for the operation's end, or leak what is read into. What is written is copied when it
    // is submitted.
    unsafe { Buffers::new(smallvec![part]) }
}

#[expect(clippy::needless_pass_by_value, reason = "it has ended")]
fn event(action: Action, result: Result<Answer, OpError>) -> Result<Event> {
    if let Err(error) = &result {
        println!("{action:?}: {error:?}");
    }
    let stored = |result: &Result<Answer, OpError>| match result {
        Ok(_) => Stored::Done,
        Err(OpError::Fenced) => Stored::NotOwner,
        Err(_) => Stored::Failed,
    };
    Ok(match action {
        Action::Store { extent, .. } => Event::Stored { extent, outcome: stored(&result) },
        Action::StoreHeader { .. } => Event::HeaderStored(stored(&result)),
        Action::Probe { object } => {
            let exists = if let Ok(Answer::Exists(exists)) = result { Some(exists) } else { None };
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
        Action::Patch { from, .. } => Event::Patched { extent: from.extent, done: result.is_ok() },
        Action::Delete { object } => Event::Deleted { extent: object.extent, done: result.is_ok() },
        other => bail!("{other:?} has no end"),
    })
}
