//! The host that a volume was handed over from: what it keeps of it, for the other one to fetch.
//!
//! What is kept are the blocks of the engines' volume that was sealed at the hand-over, behind the last
//! flush and with the back end's proof. No request changes them until this host takes the volume back.

use super::exchange::{Arrival, Reading, Wanted, WarmStep, WarmTask};
use super::wire;
use crate::dataplane::background::Task;
use crate::dataplane::plane::DataPlane;
use cinnabar_backend::Memory;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind, HotPage};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{KeptBlock, KeptCursor, Payload};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Requests for blocks that are being read, of all volumes. One that comes on top is refused, and made
/// again by the other host.
const READS_MAX: usize = 2;
/// Slots of the cache that are looked at for one page: some 0.3 ms of the data thread.
const LOOKS_MAX: u32 = 1 << 16;

/// What a hand-over has left here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Left {
    /// The epoch that it was answered with; 0: it was not answered yet. The other host may ask again, with
    /// a higher one: then it may have written since.
    pub(in super::super) epoch: u64,
    pub(in super::super) size_bytes: u64,
}

/// A place in the list, as the other host hands it back.
fn cursor(after: u64) -> (u32, KeptCursor) {
    // Eight bits, sixteen, and thirty-two.
    let class = (after >> 48).min(u64::from(u8::MAX)) as u8;
    ((after >> 32) as u32 & 0xffff, KeptCursor { class, slot: after as u32 })
}

fn after_of(shard: u32, KeptCursor { class, slot }: KeptCursor) -> u64 {
    u64::from(class) << 48 | u64::from(shard) << 32 | u64::from(slot)
}

impl DataPlane {
    /// The volume of this name, if what the hand-over of this epoch has left of it is still here.
    fn left_of(&self, name: &str, epoch: u64) -> Result<(usize, Left), CommandError> {
        let gone = |why: &str| {
            let message = format!("nothing is kept of epoch {epoch} of volume {name:?}: {why}");
            Err(CommandError::new(CommandErrorKind::Busy, message, "read it from the back end"))
        };
        let Some(key) = self.key_by_name(name).filter(|_| self.stop.is_none()) else {
            return gone("it is not here");
        };
        match self.volumes[key].moves.as_ref().filter(|moves| !moves.ends).and_then(|m| m.left) {
            Some(left) if left.epoch == epoch && epoch > 0 => Ok((key, left)),
            Some(_) => gone("it was handed over in another one"),
            None => gone("this host has taken the volume back, or has not handed it over"),
        }
    }

    /// The other host wants to know what is kept here.
    pub(in super::super::super) fn hot(
        &self,
        name: &str,
        epoch: u64,
        (after, limit): (u64, usize),
        answer: AnswerTo<HotPage>,
    ) {
        let page = self.left_of(name, epoch).and_then(|(key, left)| {
            let proof = self.proof_of_kept(key, name)?;
            let (blocks, next) = self.page_of_kept(name, after, limit);
            let proof = proof.map(|proof| proof.0);
            Ok(HotPage { blocks, next, proof, size_bytes: left.size_bytes })
        });
        // It may have given up.
        let _ = answer.send(page);
    }

    /// The proof of the hand-over, in which all shards agree.
    fn proof_of_kept(
        &self,
        key: usize,
        name: &str,
    ) -> Result<Option<cinnabar_engine::volume::ProofToken>, CommandError> {
        let recorded = self.data_thread.recorded(name);
        let all = recorded.len() == self.shard_set.shards() as usize;
        let first = recorded.first().cloned().filter(|first| {
            let same = recorded.iter().all(|one| one.proof == first.proof && !one.written);
            all && same && (first.proof.is_some() || self.volumes[key].config.exclusive)
        });
        first.map(|first| first.proof).ok_or_else(|| {
            let message = format!("nothing is kept of volume {name:?}");
            CommandError::new(CommandErrorKind::Busy, message, "read it from the back end")
        })
    }

    fn page_of_kept(&self, name: &str, after: u64, limit: usize) -> (Vec<u64>, Option<u64>) {
        let limit = limit.clamp(1, 1024);
        let ((mut shard, mut from), mut blocks) = (cursor(after), Vec::new());
        let mut looks = LOOKS_MAX;
        while from.class < KeptCursor::CLASSES {
            if shard >= self.shard_set.shards() {
                (shard, from) = (0, KeptCursor { class: from.class + 1, slot: 0 });
                continue;
            }
            if blocks.len() == limit || looks == 0 {
                return (blocks, Some(after_of(shard, from)));
            }
            let room = limit - blocks.len();
            let name = name.to_owned();
            let page = self
                .data_thread
                .ask_one(shard, move |engine| engine.kept_blocks(&name, from, room, looks));
            let page = page.unwrap_or_default();
            blocks.extend(page.blocks);
            looks = looks.saturating_sub(page.looked);
            let next_shard = (shard + 1, KeptCursor { slot: 0, ..from });
            (shard, from) = page.next.map_or(next_shard, |next| (shard, next));
        }
        (blocks, None)
    }

    /// The other host wants these blocks.
    pub(in super::super::super) fn hot_blocks(
        &mut self,
        name: &str,
        epoch: u64,
        blocks: &[u64],
        answer: AnswerTo<Vec<u8>>,
    ) {
        let error = match self.left_of(name, epoch) {
            Ok((key, _))
                if self.background.reads < READS_MAX && blocks.len() <= wire::BLOCKS_MAX =>
            {
                let reading = self.reading_of(name, epoch, blocks, answer);
                let step = WarmStep::Read(Box::new(reading));
                let of = Arrival { subject: self.subject(key), epoch, number: 0 };
                return self.background.start(Task::Warm(WarmTask { of, step }));
            }
            Ok(_) if blocks.len() > wire::BLOCKS_MAX => {
                let message = format!("{} blocks are too many", blocks.len());
                CommandError::new(CommandErrorKind::Invalid, message, "ask for some of them")
            }
            Ok(_) => {
                let message = "other blocks are being read for other hosts";
                CommandError::new(CommandErrorKind::Limit, message, "ask again in a moment")
            }
            Err(error) => error,
        };
        let _ = answer.send(Err(error));
    }

    /// Looks up where blocks are, and copies those that are in RAM.
    fn reading_of(
        &self,
        name: &str,
        epoch: u64,
        blocks: &[u64],
        answer: AnswerTo<Vec<u8>>,
    ) -> Reading {
        let data = Memory::alloc(blocks.len().max(1) as u32);
        let (mut found, mut wanted) = (Vec::new(), Vec::new());
        let map = self.shard_set.map();
        let first = map.first_shard(name);
        let mut sorted = blocks.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut by_shard: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for (place, block) in (0..).zip(sorted) {
            let of_shard = by_shard.entry(map.shard_of(first, block)).or_default();
            of_shard.push((block, place * BLOCK_BYTES));
        }
        for (shard, blocks) in by_shard {
            let (name, data) = (name.to_owned(), data.clone());
            let kept = self.data_thread.ask_one(shard, move |engine| {
                let of = |(block, at)| (block, at, engine.kept_block(&name, block, (&data, at)));
                blocks.into_iter().map(of).collect::<Vec<_>>()
            });
            for (block, at, kept) in kept {
                match kept {
                    Some(KeptBlock::Copied) => found.push((block, at)),
                    Some(KeptBlock::Flash { offset, seed, checksum }) => {
                        wanted.push(Wanted { block, at, offset, seed, checksum });
                    }
                    None => {}
                }
            }
        }
        found.sort_unstable();
        wanted.sort_unstable_by_key(|wanted: &Wanted| wanted.block);
        let disk = self.cache.shared().map(Arc::downgrade);
        Reading { epoch, disk, data, found, wanted, answer }
    }

    /// They have been read. What was kept may be gone meanwhile: then they are not sent.
    pub(super) fn kept_was_read(
        &self,
        Arrival { subject, epoch, .. }: Arrival,
        bytes: Vec<u8>,
        answer: AnswerTo<Vec<u8>>,
    ) {
        let name = self.key_of(subject).map(|key| self.volumes[key].config.name.clone());
        let checked = match name {
            Some(name) => self.left_of(&name, epoch).map(|_| bytes),
            None => Err(CommandError::gone()),
        };
        let _ = answer.send(checked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_list_comes_back_as_it_was() {
        assert_eq!(cursor(0), (0, KeptCursor::default()));
        for (shard, class, slot) in [(3, 4, 5), (0xffff, 0, u32::MAX), (1, KeptCursor::CLASSES, 0)]
        {
            let place = KeptCursor { class, slot };
            assert_eq!(cursor(after_of(shard, place)), (shard, place));
        }
        let (mut last, order) = (0, [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 0, 7), (4, 2, 3)]);
        for (class, shard, slot) in order {
            let after = after_of(shard, KeptCursor { class, slot });
            assert!(after > last, "pages are in order");
            last = after;
        }
        // What no host has handed out ends the list.
        assert!(cursor(u64::MAX).1.class >= KeptCursor::CLASSES);
    }
}
