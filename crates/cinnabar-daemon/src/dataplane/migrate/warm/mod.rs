//! What is hot comes along: after a volume was taken, the blocks that the other host has cached of it are
//! fetched from there, hottest first, paced, for a while (docs/design/migration.md).
//!
//! One request to the other host is under way at a time, and a page of its list is kept. What it sends goes
//! to the engines by reads that no guest waits for ([`door`]).

mod door;
mod exchange;
mod keep;
mod wire;

pub(in super::super) use door::Door;
pub(in super::super) use exchange::{Arrival, WarmDone, WarmStep, WarmTask};
pub(super) use keep::Left;

use super::Moves;
use crate::dataplane::background::Task;
use crate::dataplane::clock::after;
use crate::dataplane::plane::DataPlane;
use crate::dataplane::requests::Origin;
use cinnabar_backend::{Memory, Proof};
use cinnabar_config::messages::{VolumeMode, WarmSettings, WarmStatus};
use cinnabar_engine::health::Health;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant};
use cinnabar_engine::volume::{Belief, ProofToken, Recorded};
use cinnabar_engine::{Op, Payload};
use exchange::{Page, Refused};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wire::Received;

/// Reads that offer blocks, under way at a time.
const READS_MAX: usize = 32;
/// Blocks that one of them offers, at most.
const RUN_BLOCKS_MAX: u64 = 16;
/// Failures in a row after which it ends, and the pause behind each of the others.
const FAILURES_MAX: u32 = 3;
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// The pause if the other host answers others at the moment.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// What a page of the list counts as, in bytes: it costs the other host's data thread a look at many slots.
const PAGE_COST_BYTES: u64 = 64 << 10;
/// More damaged blocks than this end it: something is wrong with the way, or with the other host.
const DAMAGED_MAX: u64 = 256;

/// What may come along at the next hand-over that ends here.
#[derive(Clone, Debug, Default)]
pub(super) struct Due {
    /// The epoch with which the other host has let go of the volume.
    pub(super) epoch: Option<u64>,
    /// The back end's proof when it was locked here, before anything was written.
    pub(super) proof: Option<ProofToken>,
}

/// Blocks of a volume that was taken are on their way.
pub(super) struct Warming {
    door: Arc<Door>,
    epoch: u64,
    /// Tells arrivals of a volume apart.
    number: u64,
    /// The back end's proof when the volume was taken.
    proof: Option<ProofToken>,
    until: Instant,
    /// Bytes a second.
    rate_bytes: u64,
    /// Nothing is asked for before that.
    next_at: Instant,
    /// When the request under way was made; `None`: none is.
    asked_at: Option<Instant>,
    /// Where the next page begins; `None`: there is none.
    after: Option<u64>,
    /// The proof of the other host was compared.
    judged: bool,
    /// Bytes of the volume, at most as many as there were at the hand-over.
    size_bytes: u64,
    /// Of the page at hand, still to be fetched.
    listed: VecDeque<u64>,
    /// Runs of blocks that are here, still to be offered.
    runs: VecDeque<(u64, Memory)>,
    /// Reads that offer something.
    reads: usize,
    failures: u32,
    /// Blocks whose checksum was another.
    damaged: u64,
    status: WarmStatus,
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.door.close();
    }
}

impl Warming {
    fn new(
        door: Arc<Door>,
        epoch: u64,
        size_bytes: u64,
        settings: WarmSettings,
        now: Instant,
    ) -> Self {
        Self {
            door,
            epoch,
            number: 0,
            proof: None,
            until: after(now, settings.time_max),
            rate_bytes: settings.rate_bytes,
            next_at: now,
            asked_at: None,
            after: Some(0),
            judged: false,
            size_bytes,
            listed: VecDeque::new(),
            runs: VecDeque::new(),
            reads: 0,
            failures: 0,
            damaged: 0,
            status: WarmStatus::default(),
        }
    }

    pub(super) fn status(&self) -> WarmStatus {
        self.status.clone()
    }

    /// Blocks that may be fetched now: the next ones of the page that nothing has changed here.
    fn next_blocks(&mut self) -> Vec<u64> {
        let whole = self.size_bytes / BLOCK_BYTES;
        let mut blocks = Vec::new();
        while blocks.len() < wire::BLOCKS_MAX {
            let Some(block) = self.listed.pop_front() else { break };
            if block < whole && self.door.is_unchanged(block) {
                blocks.push(block);
            } else {
                self.status.skipped += 1;
            }
        }
        blocks.sort_unstable();
        let before = blocks.len();
        blocks.dedup();
        self.status.skipped += (before - blocks.len()) as u64;
        blocks
    }

    /// Makes runs of neighbours of what has come. A run does not cross a boundary of `run_blocks`, so that
    /// one shard has all of it.
    fn keep(&mut self, blocks: Vec<(u64, Memory)>, run_blocks: u64) {
        let mut run: Vec<(u64, Memory)> = Vec::new();
        let mut runs = Vec::new();
        for (block, data) in blocks {
            let follows = run.last().is_some_and(|(last, _)| {
                last + 1 == block && last / run_blocks == block / run_blocks
            });
            if !follows && !run.is_empty() {
                runs.push(joined(std::mem::take(&mut run)));
            }
            run.push((block, data));
        }
        if !run.is_empty() {
            runs.push(joined(run));
        }
        // Backwards, or they would look like a guest's scan, which is not cached.
        self.runs.extend(runs.into_iter().rev());
    }

    /// Nothing was sent of these blocks; false if that is the end of it. A host that many volumes have left
    /// serves them in turns: that is no failure.
    fn goes_on(&mut self, now: Instant, refused: &Refused, asked: Vec<u64>) -> bool {
        if refused.busy {
            asked.into_iter().rev().for_each(|block| self.listed.push_front(block));
            self.next_at = after(now, BUSY_PAUSE);
            return true;
        }
        self.status.skipped += asked.len() as u64;
        self.failures += 1;
        self.next_at = after(now, FAILURE_PAUSE);
        refused.again && self.failures < FAILURES_MAX
    }

    /// Not before the bytes of a request have had their time, from its beginning on.
    fn pace(&mut self, asked_at: Instant, bytes: u64) {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate_bytes.max(1));
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        self.next_at = self.next_at.max(asked_at).plus_ns(ns);
    }
}

/// Blocks that one read may offer so that it is no large or sequential one, which is not cached. A power
/// of two, as stripes are. Zero bytes: no limit.
fn run_blocks_max(limits: [u64; 2]) -> u64 {
    let limit = limits.into_iter().filter(|limit| *limit > 0).min();
    let below = limit.map_or(RUN_BLOCKS_MAX, |limit| (limit - 1) / BLOCK_BYTES);
    1 << below.clamp(1, RUN_BLOCKS_MAX).ilog2()
}

/// Neighbours in one piece of memory.
fn joined(mut run: Vec<(u64, Memory)>) -> (u64, Memory) {
    if run.len() == 1 {
        return run.remove(0);
    }
    let all = Memory::alloc(run.len() as u32);
    let first = run[0].0;
    for (place, (_, data)) in (0..).zip(&run) {
        all.copy_from(place * BLOCK_BYTES, data, 0, BLOCK_BYTES);
    }
    (first, all)
}

/// The 64 bytes of a proof in hexadecimal.
fn proof_of(text: &str) -> Option<ProofToken> {
    let mut bytes = [0; 64];
    if text.len() != 2 * bytes.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(ProofToken(bytes))
}

impl DataPlane {
    fn warming(&mut self, key: usize) -> Option<&mut Warming> {
        let moves = self.volumes.get_mut(key)?.moves.as_deref_mut()?;
        moves.warm.as_deref_mut().filter(|warm| warm.status.ended.is_none())
    }

    /// This host owns the volume from now on; no request of a guest has come to the engines yet.
    pub(super) fn warm_begins(&mut self, now: Instant, key: usize) {
        self.warm_ends(key, "the volume was taken again");
        let volume = &mut self.volumes[key];
        let settings = volume.config.warm;
        let moves = volume.moves.as_deref_mut().expect("it moves");
        let due = std::mem::take(&mut moves.due);
        let wanted = settings.rate_bytes > 0 && !settings.time_max.is_zero();
        let wanted = wanted && volume.config.mode != VolumeMode::PassThrough;
        // Requests that other threads take don't pass the door.
        let Some(epoch) = due.epoch.filter(|_| wanted && volume.thread == 0) else { return };
        let size_bytes = volume.io.disk.size_bytes();
        let door = Arc::new(Door::new(size_bytes));
        if !volume.io.open_door(&door) {
            return;
        }
        let arrivals = moves.warm.as_ref().map_or(0, |warm| warm.status.arrivals);
        let mut warm = Warming::new(door, epoch, size_bytes, settings, now);
        (warm.number, warm.proof, warm.status.arrivals) = (arrivals, due.proof, arrivals);
        moves.warm = Some(Box::new(warm));
        self.warm_on(now, key);
    }

    /// It is over.
    pub(super) fn warm_ends(&mut self, key: usize, why: &str) {
        let Some(warm) = self.warming(key) else { return };
        warm.door.close();
        (warm.listed, warm.runs) = (VecDeque::new(), VecDeque::new());
        warm.status.arrivals += 1;
        warm.status.ended = Some(why.to_owned());
        let WarmStatus { listed, fetched, bytes, skipped, .. } = warm.status;
        let volume = &self.volumes[key].config.name;
        tracing::info!(volume, listed, fetched, bytes, skipped, why, "the warm arrival has ended");
    }

    /// Goes on as far as that is possible now.
    pub(super) fn warm_on(&mut self, now: Instant, key: usize) {
        self.offer_runs(now, key);
        let is_leaving = self.stop.is_some() || self.is_over_to_move(key);
        let (io, health) = (Arc::clone(&self.volumes[key].io), self.shard_set.health());
        let Some(warm) = self.warming(key) else { return };
        if is_leaving {
            return self.warm_ends(key, "the volume leaves");
        }
        if !io.has_door(&warm.door) {
            return self.warm_ends(key, "the volume was attached again");
        }
        if now >= warm.until {
            return self.warm_ends(key, "its time is over");
        }
        if warm.asked_at.is_some() || warm.reads > 0 || !warm.runs.is_empty() {
            return;
        }
        // What comes while the index is being loaded is not kept.
        match health {
            Health::Serving => {}
            Health::Opening | Health::Loading { .. } => {
                warm.next_at = warm.next_at.max(after(now, FAILURE_PAUSE));
            }
            Health::PassThrough(_) | Health::Closed => {
                return self.warm_ends(key, "the cache is not in use here");
            }
        }
        if warm.next_at > now {
            let at = warm.next_at.min(warm.until);
            self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
            return;
        }
        let blocks = warm.next_blocks();
        let (epoch, number, after) = (warm.epoch, warm.number, warm.after);
        if blocks.is_empty() && after.is_none() {
            return self.warm_ends(key, "all that the other host has named is through");
        }
        warm.asked_at = Some(now);
        let volume = &self.volumes[key];
        let peer = volume.moves.as_ref().expect("it moves").peer.clone();
        let name = volume.config.name.clone();
        let step = match after {
            Some(after) if blocks.is_empty() => WarmStep::List { peer, name, epoch, after },
            _ => WarmStep::Fetch { peer, name, epoch, blocks },
        };
        let of = Arrival { subject: self.subject(key), epoch, number };
        self.background.start(Task::Warm(WarmTask { of, step }));
    }

    /// A background thread has done its part.
    pub(in super::super) fn warm_done(&mut self, now: Instant, of: Arrival, what: WarmDone) {
        let what = match what {
            WarmDone::Read(bytes, answer) => return self.kept_was_read(of, bytes, answer),
            what => what,
        };
        let Some(key) = self.key_of(of.subject) else { return };
        let is_its = |warm: &&mut Warming| (warm.epoch, warm.number) == (of.epoch, of.number);
        let warm = self.warming(key).filter(is_its);
        let Some(asked_at) = warm.and_then(|warm| warm.asked_at.take()) else { return };
        match what {
            WarmDone::Listed(Ok(page)) => self.warm_listed(key, asked_at, page),
            WarmDone::Fetched(asked, Ok(received)) => {
                self.warm_fetched(key, asked_at, asked.len() as u64, received);
            }
            WarmDone::Listed(Err(refused)) => self.warm_refused(now, key, &refused, Vec::new()),
            WarmDone::Fetched(asked, Err(refused)) => {
                self.warm_refused(now, key, &refused, asked);
            }
            WarmDone::Read(..) => unreachable!("taken above"),
        }
        self.warm_on(now, key);
    }

    fn warm_listed(&mut self, key: usize, asked_at: Instant, page: Page) {
        let volume = &self.volumes[key];
        let (disk, exclusive) = (Arc::clone(&volume.io.disk), volume.config.exclusive);
        let Some(warm) = self.warming(key) else { return };
        if !warm.judged {
            let proof = page.proof.as_deref().and_then(proof_of);
            let recorded = Recorded { proof, written: false };
            let belief = disk.judge_elsewhere(&recorded, warm.proof.as_ref());
            let believed = match belief {
                Belief::Unchanged => true,
                Belief::Unknown => exclusive,
                Belief::Changed => false,
            };
            if !believed {
                return self.warm_ends(
                    key,
                    match belief {
                        Belief::Changed => "the back end was changed after the hand-over",
                        _ => "nothing proves that the back end was not changed after the hand-over",
                    },
                );
            }
            warm.judged = true;
            warm.size_bytes = warm.size_bytes.min(page.size_bytes);
        }
        warm.failures = 0;
        warm.status.listed += page.blocks.len() as u64;
        warm.after = page.next;
        warm.pace(asked_at, PAGE_COST_BYTES);
        warm.listed = page.blocks.into();
    }

    fn warm_fetched(&mut self, key: usize, asked_at: Instant, asked: u64, received: Received) {
        let map = self.shard_set.map();
        let stripe = if map.shards() == 1 { u64::MAX } else { map.stripe_bytes() / BLOCK_BYTES };
        let config = &self.volumes[key].config;
        let most = run_blocks_max([config.bypass_large_bytes, config.bypass_sequential_bytes]);
        let Some(warm) = self.warming(key) else { return };
        warm.failures = 0;
        let Received { blocks, damaged } = received;
        warm.status.skipped += damaged;
        let before = warm.damaged;
        warm.damaged += damaged;
        if warm.damaged > DAMAGED_MAX {
            return self.warm_ends(key, "too many blocks from the other host are damaged");
        }
        if before == 0 && damaged > 0 {
            let volume = &self.volumes[key].config.name;
            tracing::warn!(volume, "blocks from the other host's cache are damaged");
        }
        let Some(warm) = self.warming(key) else { return };
        let count = blocks.len() as u64;
        warm.status.skipped += asked.saturating_sub(count + damaged);
        warm.pace(asked_at, (count + damaged) * BLOCK_BYTES);
        warm.keep(blocks, most.min(stripe));
    }

    fn warm_refused(&mut self, now: Instant, key: usize, refused: &Refused, asked: Vec<u64>) {
        let Some(warm) = self.warming(key) else { return };
        if !warm.goes_on(now, refused, asked) {
            self.warm_ends(key, &refused.reason);
        }
    }

    /// Has the engines read what has come, as many at a time as they may.
    fn offer_runs(&mut self, now: Instant, key: usize) {
        while let Some(warm) = self.warming(key).filter(|warm| warm.reads < READS_MAX) {
            let Some((first, from)) = warm.runs.pop_front() else { return };
            let count = cinnabar_engine::RawMemory::len_bytes(&from) / BLOCK_BYTES;
            let unchanged = |block: &u64| warm.door.is_unchanged(*block);
            if !(first..first + count).all(|block| unchanged(&block)) {
                // Those that can still be had, one by one.
                for block in (first..first + count).filter(unchanged).filter(|_| count > 1) {
                    let one = Memory::alloc(1);
                    one.copy_from(0, &from, (block - first) * BLOCK_BYTES, BLOCK_BYTES);
                    warm.runs.push_front((block, one));
                }
                let left = (first..first + count).filter(unchanged).count() as u64;
                warm.status.skipped += if count > 1 { count - left } else { 1 };
                continue;
            }
            let into = Memory::alloc(count as u32);
            let door = Arc::clone(&warm.door);
            door.offer(first, from, into.clone());
            warm.reads += 1;
            let asker = Origin::Warm(door, into.clone());
            let span = ByteSpan::new(first * BLOCK_BYTES, count * BLOCK_BYTES);
            if self.volumes[key].life.serving().is_some() {
                self.submit_for(now, key, Op::Read { span, data: into }, asker);
            } else {
                self.warm_read(now, key, &asker, false);
            }
        }
    }

    /// A read that offered something has ended.
    pub(in super::super) fn warm_read(
        &mut self,
        now: Instant,
        key: usize,
        asker: &Origin,
        ok: bool,
    ) {
        let Origin::Warm(door, into) = asker else { return };
        door.end_offer(into);
        let bytes = cinnabar_engine::RawMemory::len_bytes(into);
        let Some(warm) = self.warming(key).filter(|warm| Arc::ptr_eq(&warm.door, door)) else {
            return;
        };
        warm.reads -= 1;
        if ok {
            warm.status.fetched += bytes / BLOCK_BYTES;
            warm.status.bytes += bytes;
        } else {
            warm.status.skipped += bytes / BLOCK_BYTES;
        }
        if warm.reads == 0 || !warm.runs.is_empty() {
            // With the next turn: answers come in the midst of other things.
            self.look_at = Some(now);
        }
    }
}

impl Moves {
    pub(super) fn warm_status(&self) -> Option<WarmStatus> {
        self.warm.as_ref().map(|warm| warm.status())
    }
}

#[cfg(test)]
mod tests;
