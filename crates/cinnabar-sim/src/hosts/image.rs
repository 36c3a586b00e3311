//! The image that both hosts have: who has opened it for writing, whom its lock fences off, and what it
//! proves of the time since.
//!
//! A cluster's lock is broken once its holder's watch is over. The holder is then fenced off by a newer map.
//! Each part of the image learns of that by itself after a while, or with the first operation of a client that
//! knows the map (`rbd/sys/cluster.rs`: a client that has broken a lock waits for the newest map). A fence ends by
//! itself; a client that goes on behind that has sent again what was under way, and it is carried out.

use crate::hosts::profile::{Profile, Storage};
use crate::medium::Backend;
use crate::medium::proof::judge_one;
use crate::stamp::BLOCK_SECTORS;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::{Belief, ProofToken, Recorded};

/// Parts of an image that learn by themselves who is fenced off.
pub(super) const REGIONS: u64 = 4;
/// The part that the header is in.
const HEADER: u64 = 0;
/// A cluster gives up on a silent client after this time, in ns.
pub(super) const WATCH_NS: u64 = 30_000_000_000;
/// For how long a client is fenced off, in ns: a week; and a deliberate bug, Ceph's default of an hour.
const FENCE_NS: u64 = 7 * 24 * 3_600_000_000_000;
const SHORT_FENCE_NS: u64 = 3_600_000_000_000;

/// A host that has opened the image for writing.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) host: usize,
    /// It was closed, or its process is gone.
    pub(super) over: bool,
    /// Since when it shows no sign of life.
    pub(super) silent_since: Option<Instant>,
    /// The map that fences it off, and until when it does.
    fenced: Option<(u64, Instant)>,
    /// The newest map that it knows.
    knows: u64,
    /// Version of the header under which it found the image.
    found: u64,
    /// A flush of it has failed: all later ones do.
    pub(super) sync_failed: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) backend: Backend,
    storage: Storage,
    proves: bool,
    pub(super) sessions: Vec<Session>,
    lock: Option<usize>,
    /// Of the header: each change of the lock raises it.
    version: u64,
    /// The newest map, and the one that each part knows.
    map: u64,
    regions: [u64; REGIONS as usize],
    mutants: Mutants,
}

impl Image {
    pub(super) fn new(profile: &Profile, mutants: Mutants) -> Self {
        let sectors = profile.blocks * BLOCK_SECTORS as u64;
        Self {
            backend: Backend::new(0, sectors, 512, false),
            storage: profile.storage,
            proves: profile.proves,
            sessions: Vec::new(),
            lock: None,
            version: 1,
            map: 0,
            regions: [0; REGIONS as usize],
            mutants,
        }
    }

    /// The part that a sector is in.
    pub(super) fn region_of(&self, sector: u64) -> u64 {
        (sector * REGIONS / self.backend.sectors()).min(REGIONS - 1)
    }

    /// A session whose lock a host may break where that fences, and whether it may serve on. `by_word`: the
    /// operator vouches that it does not.
    pub(super) fn breakable(
        &self,
        host: usize,
        now: Instant,
        by_word: bool,
    ) -> Option<(usize, bool)> {
        let holder = self.lock.filter(|_| self.storage == Storage::Rbd)?;
        let session = &self.sessions[holder];
        let silent = session.silent_since.is_some_and(|at| now.since_ns(at) >= WATCH_NS);
        let dead = session.over && session.host == host;
        // A client that is fenced off has no watch.
        let gone = silent || dead || by_word || session.fenced.is_some();
        gone.then_some((holder, !dead))
    }

    /// Fences a session off.
    pub(super) fn fence(&mut self, session: usize, now: Instant) {
        let early = self.mutants.is(Mutant::FenceEndsEarly);
        let until = now.plus_ns(if early { SHORT_FENCE_NS } else { FENCE_NS });
        // Who knows of an earlier one that lasts still refuses it on.
        let known = self.sessions[session].fenced.filter(|(_, until)| now < *until);
        if known.is_none() {
            self.map += 1;
        }
        let map = known.map_or(self.map, |(map, _)| map);
        self.sessions[session].fenced = Some((map, until));
        if !self.mutants.is(Mutant::FenceNotAwaited) {
            self.learn(HEADER, self.map);
        }
    }

    /// An operation of a session reaches the header: whether it finds its lock there.
    pub(super) fn shows_lock(&mut self, session: usize, now: Instant) -> bool {
        self.admits(session, HEADER, now) && self.lock == Some(session)
    }

    /// Opens it for writing. `is_busy` says whether I/O of a session may still reach it. `None`: it is locked.
    /// Also says whether a lock was broken.
    pub(super) fn open(
        &mut self,
        host: usize,
        now: Instant,
        by_word: bool,
        is_busy: impl Fn(usize) -> bool,
    ) -> Option<(usize, bool)> {
        let holder = self.lock.map(|holder| (holder, &self.sessions[holder]));
        let mut broken = None;
        match (self.storage, holder) {
            (_, None) | (Storage::Nbd, _) => {}
            (Storage::FarFile, Some((_, session))) if session.host != host => {}
            (Storage::Rbd, Some(_)) => broken = Some(self.breakable(host, now, by_word)?),
            (Storage::File | Storage::FarFile, Some((holder, session))) => {
                if !session.over || is_busy(holder) {
                    return None;
                }
            }
        }
        let found = self.version;
        if broken.is_some() {
            self.version += 1;
        }
        self.version += 1;
        let waits = !self.mutants.is(Mutant::FenceNotAwaited);
        let knows = if waits { self.map } else { 0 };
        self.lock = Some(self.sessions.len());
        self.sessions.push(Session {
            host,
            over: false,
            silent_since: None,
            fenced: None,
            knows,
            found,
            sync_failed: false,
        });
        Some((self.sessions.len() - 1, broken.is_some()))
    }

    /// A session lets go of it.
    pub(super) fn close(&mut self, session: usize) {
        self.sessions[session].over = true;
        if self.lock == Some(session) && !self.is_fenced(session) {
            self.lock = None;
            self.version += 1;
        }
    }

    /// The newest map.
    pub(super) const fn map(&self) -> u64 {
        self.map
    }

    /// A part learns of a map.
    pub(super) fn learn(&mut self, region: u64, map: u64) {
        let known = &mut self.regions[region as usize];
        *known = (*known).max(map);
    }

    /// An operation of a session reaches a part: whether it is carried out.
    pub(super) fn admits(&mut self, session: usize, region: u64, now: Instant) -> bool {
        self.learn(region, self.sessions[session].knows);
        let known = self.regions[region as usize];
        self.sessions[session].fenced.is_none_or(|(map, until)| known < map || now >= until)
    }

    /// Whether a session's lock was broken.
    pub(super) fn is_fenced(&self, session: usize) -> bool {
        self.sessions[session].fenced.is_some()
    }

    /// The change proof as it stands for a session.
    pub(super) fn proof(&self, session: usize) -> Option<ProofToken> {
        if !self.proves {
            return None;
        }
        match self.storage {
            Storage::Rbd => Some(packed(self.version, self.sessions[session].found)),
            _ => Some(self.backend.proof()),
        }
    }

    /// The same for the end of a volume, which is followed by the release of the lock.
    pub(super) fn take_proof(&mut self, session: usize) -> Option<ProofToken> {
        // A client that is fenced off can't ask.
        if !self.proves || self.is_fenced(session) {
            return None;
        }
        match self.storage {
            Storage::Rbd => Some(packed(self.version + 1, self.sessions[session].found)),
            _ => self.backend.take_proof(),
        }
    }

    /// What it says of the time since a recorded proof.
    pub(super) fn judge(&self, recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
        match self.storage {
            Storage::Rbd => judge_version(recorded, now),
            _ => judge_one(recorded, now, self.mutants),
        }
    }
}

/// A version of the header, and the one that was found.
fn packed(version: u64, found: u64) -> ProofToken {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes[8..16].copy_from_slice(&found.to_le_bytes());
    ProofToken(bytes)
}

/// As `rbd/proof.rs` judges; that knows a cluster, and is no crate below this one.
fn judge_version(recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
    let (Some(then), Some(now)) = (&recorded.proof, now) else { return Belief::Unknown };
    let field = |token: &ProofToken, at: usize| {
        u64::from_le_bytes(token.0[at..at + 8].try_into().expect("eight bytes"))
    };
    match field(then, 0).cmp(&field(now, 8)) {
        std::cmp::Ordering::Equal => Belief::Unchanged,
        std::cmp::Ordering::Less => Belief::Unknown,
        std::cmp::Ordering::Greater => Belief::Changed,
    }
}
