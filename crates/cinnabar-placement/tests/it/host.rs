//! A host with the volume, and its operations on their way to the pools.

use crate::media::{KeptOut, Media, Parts};
use crate::oracle::Writing;
use crate::settings::Settings;
use cinnabar_placement::volume::{Action, Copied, Event, Io, Route, Stored, Ticket, Volume};
use cinnabar_placement::{Header, Object, Pool, Record};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};

/// What a guest waits for.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Read { id: u64 },
    Write(Writing),
}

/// A copy in chunks, of a source that must keep its version; it appears whole or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Asserts {
    pub(crate) version: u64,
    pub(crate) got: Parts,
}

/// An operation on its way. Each goes on part by part, so that others come in between.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Store { extent: u32, expected: Record, new: Record },
    StoreHeader { expected: Header, new: Header },
    Probe { object: Object },
    Copy { from: Object, to: Object, at: usize, asserts: Option<Asserts> },
    Patch { from: Object, to: Object, parts: Vec<usize> },
    Delete { object: Object, of_volume: bool },
    Read { route: Route, io: Io, got: Parts },
    Write { route: Route, io: Io, version: u64, at: usize },
}

/// How an operation has ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Event(Event),
    Collected,
    /// What a read gave; `None`: it failed.
    Read(u64, Ticket, Option<Parts>),
    Write(u64, Ticket, bool),
    /// An object that must be there was not.
    Missing(Object),
}

#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) work: Work,
    pub(crate) epoch: u64,
    /// It fails here, after what it has done so far.
    fails: bool,
    /// It had its effect, and the answer is under way.
    ended: Option<Ended>,
    /// The pool has refused it: another host owns the volume.
    pub(crate) kept_out: bool,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) volume: Volume,
    pub(crate) ops: Vec<Op>,
    pub(crate) requests: BTreeMap<u64, Request>,
    pub(crate) ios: BTreeMap<u64, Io>,
    pub(crate) listed: Vec<Object>,
}

impl Host {
    pub(crate) fn new(header: Header, media: &Media, settings: &Settings) -> Result<Self, String> {
        let volume = Volume::open(header, media.records(), settings.volume);
        let mut volume = volume.map_err(|error| format!("the table is refused: {error}"))?;
        volume.set_devices(settings.devices());
        let (requests, ios) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { volume, ops: Vec::new(), requests, ios, listed: Vec::new() })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.volume.header().epoch
    }

    pub(crate) fn push(&mut self, work: Work, fails: bool) {
        self.ops.push(Op { work, epoch: self.epoch(), fails, ended: None, kept_out: false });
    }

    /// Writes that wait.
    pub(crate) fn held(&self) -> Vec<u64> {
        let sent = |op: &Op| match &op.work {
            Work::Write { io, .. } => Some(io.token),
            _ => None,
        };
        let sent: BTreeSet<u64> = self.ops.iter().filter_map(sent).collect();
        let writes = |(token, request): (&u64, &Request)| {
            (matches!(request, Request::Write(_)) && !sent.contains(token)).then_some(*token)
        };
        self.requests.iter().filter_map(writes).collect()
    }

    /// Sends a request to where it goes.
    pub(crate) fn send(&mut self, token: u64, route: Route, fails: bool) {
        let io = self.ios[&token];
        let work = match &self.requests[&token] {
            Request::Read { .. } => Work::Read { route, io, got: Vec::new() },
            Request::Write(writing) => Work::Write { route, io, version: writing.version, at: 0 },
        };
        self.push(work, fails);
    }
}

/// The operation that an action is.
pub(crate) fn work_of(action: Action, part_bytes: u64) -> Option<Work> {
    Some(match action {
        Action::Store { extent, expected, new, .. } => Work::Store { extent, expected, new },
        Action::StoreHeader { expected, new } => Work::StoreHeader { expected, new },
        Action::Probe { object } => Work::Probe { object },
        Action::Copy { from, to } => Work::Copy { from, to, at: 0, asserts: None },
        Action::Patch { from, to, ranges } => {
            let parts =
                |range: std::ops::Range<u64>| range.start / part_bytes..range.end / part_bytes;
            let parts = ranges.into_iter().flat_map(parts).map(|part| part as usize).collect();
            Work::Patch { from, to, parts }
        }
        Action::Delete { object } => Work::Delete { object, of_volume: true },
        Action::Release { .. } | Action::Fail { .. } | Action::Ended { .. } | Action::Fenced => {
            return None;
        }
    })
}

impl Op {
    /// Goes on by a bit; gives the answer when it has arrived.
    pub(crate) fn step(
        &mut self,
        media: &mut Media,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Ended> {
        if let Some(ended) = self.ended.take() {
            return Some(ended);
        }
        self.ended = match self.act(media, rng) {
            Ok(None) => None,
            Ok(Some(ended)) => Some(ended),
            Err(KeptOut) => {
                self.kept_out = true;
                Some(self.failed())
            }
        };
        if self.fails && self.ended.is_none() && rng.random_bool(0.3) {
            self.ended = Some(self.failed());
        }
        None
    }

    pub(crate) fn is_applied(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether it waits for this pool.
    pub(crate) fn waits_for(&self, pool: Pool) -> bool {
        let on = |object: &Object| object.pool == pool;
        let waits = match &self.work {
            Work::Store { .. } | Work::StoreHeader { .. } => false,
            Work::Copy { .. } | Work::Patch { .. } => true,
            Work::Probe { object } | Work::Delete { object, .. } => on(object),
            Work::Read { route, .. } | Work::Write { route, .. } => on(&route.object),
        };
        waits && !self.is_applied()
    }

    fn act(
        &mut self,
        media: &mut Media,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Result<Option<Ended>, KeptOut> {
        let (epoch, fails) = (self.epoch, self.fails);
        Ok(match &mut self.work {
            Work::Store { extent, expected, new } => {
                let failed = fails.then_some(Stored::Failed);
                let store = || media.store(*extent, *expected, *new, epoch);
                let outcome = failed.unwrap_or_else(store);
                Some(Ended::Event(Event::Stored { extent: *extent, outcome }))
            }
            Work::StoreHeader { expected, new } => {
                let failed = fails.then_some(Stored::Failed);
                let outcome = failed.unwrap_or_else(|| media.store_header(expected, new));
                Some(Ended::Event(Event::HeaderStored(outcome)))
            }
            Work::Probe { object } => {
                let exists = media.exists(*object, epoch)?;
                let extent = object.extent;
                Some(Ended::Event(Event::Probed { extent, exists: (!fails).then_some(exists) }))
            }
            Work::Copy { from, to, at, asserts } => {
                for part in *at..media.parts.min(*at + rng.random_range(1..=4)) {
                    let Some(version) = media.read_by_server(*from, part) else {
                        return Ok(Some(self.failed()));
                    };
                    match asserts {
                        None => _ = media.write(*to, part, version, true, epoch)?,
                        Some(asserts) => asserts.got.push(version),
                    }
                    *at = part + 1;
                }
                if *at < media.parts || fails {
                    return Ok(None);
                }
                let mut outcome = Copied::Done;
                if let Some(Asserts { version, got }) = asserts {
                    if media.version(*from) == *version {
                        for (part, version) in got.iter().enumerate() {
                            media.write(*to, part, *version, true, epoch)?;
                        }
                    } else {
                        outcome = Copied::Changed;
                    }
                }
                Some(Ended::Event(Event::Copied { extent: from.extent, outcome }))
            }
            Work::Patch { from, to, parts } => {
                if let Some(part) = parts.pop() {
                    let Some(version) = media.read(*from, part, epoch)? else {
                        return Ok(Some(Ended::Missing(*from)));
                    };
                    if !media.write(*to, part, version, false, epoch)? {
                        return Ok(Some(Ended::Missing(*to)));
                    }
                }
                let done = Event::Patched { extent: from.extent, done: true };
                (parts.is_empty() && !fails).then_some(Ended::Event(done))
            }
            Work::Delete { object, of_volume } => {
                if !fails {
                    media.delete(*object, epoch)?;
                }
                let event = Event::Deleted { extent: object.extent, done: !fails };
                Some(if *of_volume { Ended::Event(event) } else { Ended::Collected })
            }
            Work::Read { .. } | Work::Write { .. } => self.request(media)?,
        })
    }

    /// A part of a request.
    fn request(&mut self, media: &mut Media) -> Result<Option<Ended>, KeptOut> {
        let (epoch, fails) = (self.epoch, self.fails);
        Ok(match &mut self.work {
            Work::Read { route, io, got } => {
                let first = (io.offset % (media.parts as u64 * 512) / 512) as usize;
                let version = media.read(route.object, first + got.len(), epoch)?;
                let Some(version) = version.or(route.may_be_missing.then_some(0)) else {
                    return Ok(Some(Ended::Missing(route.object)));
                };
                got.push(version);
                let whole = got.len() as u64 * 512 == io.length;
                let found = (!fails).then(|| got.clone());
                whole.then_some(Ended::Read(io.token, route.ticket, found))
            }
            Work::Write { route, io, version, at } => {
                let part = (io.offset % (media.parts as u64 * 512) / 512) as usize + *at;
                let makes = route.may_be_missing;
                if !media.write(route.object, part, *version, makes, epoch)? {
                    return Ok(Some(Ended::Missing(route.object)));
                }
                *at += 1;
                // The last part may still fail: it stays, and is not acknowledged.
                let whole = *at as u64 * 512 == io.length;
                whole.then_some(Ended::Write(io.token, route.ticket, !fails))
            }
            work => panic!("no request: {work:?}"),
        })
    }

    pub(crate) fn failed(&self) -> Ended {
        match &self.work {
            Work::Store { extent, .. } => {
                Ended::Event(Event::Stored { extent: *extent, outcome: Stored::Failed })
            }
            Work::StoreHeader { .. } => Ended::Event(Event::HeaderStored(Stored::Failed)),
            Work::Probe { object } => {
                Ended::Event(Event::Probed { extent: object.extent, exists: None })
            }
            Work::Copy { from, at, .. } => {
                let outcome = if at % 2 == 0 { Copied::Failed } else { Copied::Changed };
                Ended::Event(Event::Copied { extent: from.extent, outcome })
            }
            Work::Patch { from, .. } => {
                Ended::Event(Event::Patched { extent: from.extent, done: false })
            }
            Work::Delete { of_volume: false, .. } => Ended::Collected,
            Work::Delete { object, .. } => {
                Ended::Event(Event::Deleted { extent: object.extent, done: false })
            }
            Work::Read { route, io, .. } => Ended::Read(io.token, route.ticket, None),
            Work::Write { route, io, .. } => Ended::Write(io.token, route.ticket, false),
        }
    }
}
